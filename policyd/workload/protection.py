"""For how long the workloads of a queue keep what they got, as its annotations say."""

from collections.abc import Mapping
from typing import Final

from policyd.api.configuration.duration import DurationError, duration_seconds
from policyd.optimize.opt_ins import UNPROTECTED, Protection

PREEMPT_MIN_RUNTIME: Final = "policyd.io/preempt-min-runtime"
RECLAIM_MIN_RUNTIME: Final = "policyd.io/reclaim-min-runtime"
REPEAT_MIN_RUNTIME: Final = "policyd.io/repeat-min-runtime"


def protection_of(annotations: Mapping[str, str]) -> Protection:
    """Read the annotations of a ClusterQueue.

    Raises:
        DurationError: If one of them is not a duration.
    """

    def seconds(name: str) -> float:
        try:
            return max(0.0, duration_seconds(annotations.get(name, "0")))
        except DurationError as error:
            raise DurationError(f"{name}: {error}", hint=error.hint) from error

    found = Protection(
        preemption=seconds(PREEMPT_MIN_RUNTIME),
        reclaim=seconds(RECLAIM_MIN_RUNTIME),
        repetition=seconds(REPEAT_MIN_RUNTIME),
    )
    return UNPROTECTED if found == UNPROTECTED else found
