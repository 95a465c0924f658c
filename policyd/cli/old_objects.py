"""Kueue's older objects in files: as v1beta2 has them, or a sentence on what is wrong."""

from policyd.api.kueue.v1beta1 import OLD_API_VERSION, upgraded
from policyd.api.meta import Json
from policyd.errors import PolicydError


class OldObjectError(PolicydError):
    """An object of Kueue's v1beta1 is not as that has it."""


def as_v1beta2(value: Json) -> Json:
    """Return an object of Kueue as v1beta2 has it, any other as it is.

    Raises:
        OldObjectError: If a field of an older one is of another type than it may be.
    """
    try:
        return upgraded(value)
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        kind = value.get("kind") if isinstance(value, dict) else None
        raise OldObjectError(
            f"this is no {kind} of `{OLD_API_VERSION}`: a field has another type than it may have"
        ) from error
