"""List the formats of other engines that policyd reads."""

from typing import Final

from policyd.cel.environments import DEFAULT_VERSION
from policyd.cel.functions import Version
from policyd.dialects.kyverno.load import KYVERNO
from policyd.engine.model.dialects import DETERMINISTIC, Dialect, PolicyFormat, Volatile

FORMATS: Final[tuple[PolicyFormat, ...]] = (KYVERNO,)
"""All of them, in the order in which they are asked whether a document is theirs."""


def dialect_of(
    version: Version = DEFAULT_VERSION,
    *,
    cel_go: Version | None = None,
    volatile: Volatile = DETERMINISTIC,
) -> Dialect:
    """Return the settings for loading policies of every format.

    Args:
        version: The version of Kubernetes they are written for.
        cel_go: The version of cel-go whose dialect is used, if not that of `version`.
        volatile: The clock and the random numbers.
    """
    return Dialect(version, cel_go, volatile, FORMATS)


EVERY_FORMAT: Final = dialect_of()
"""The default version of Kubernetes, and every format."""
