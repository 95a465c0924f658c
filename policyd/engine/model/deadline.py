"""Bound how long a decision may take, without a clock."""

from collections.abc import Callable

from policyd.errors import PolicydError

OutOfTime = Callable[[], bool]
"""Returns whether the caller's deadline has passed. It is called between policies, each of which is
bounded by the cost limit of its expressions."""


class OutOfTimeError(PolicydError):
    """There is no time left to evaluate a policy."""

    def __init__(self) -> None:
        super().__init__("not decided in time", hint="try again in a moment")


def never() -> bool:
    """Return False: there is no deadline."""
    return False
