"""How a policy is rolled out: step by step, to some namespaces and a part of their workloads."""

from typing import Annotated, Literal

import msgspec

from policyd.api.inject import Closed
from policyd.api.selectors import LabelSelector

StepEnforcement = Literal["Deny", "Warn", "Audit", "Skip"]
"""`Skip`: the policy does nothing at all, not even change objects."""

_ALL = LabelSelector()


class RolloutStep(Closed, frozen=True):
    """Requests for which a policy already has another enforcement than `enforcement`.

    All fields that are set must hold of a request. Workloads keep their place: a job and its pods
    are picked together, and those that ten percent pick, twenty percent pick too.
    """

    enforcement: StepEnforcement
    """The effect of a validation that is not true there; `Skip` leaves the policy out."""
    percent: Annotated[int, msgspec.Meta(ge=0, le=100)] = 100
    """How many of a hundred workloads."""
    namespaces: tuple[str, ...] = ()
    """The namespace of the request: any of these; every one if left out."""
    namespace_selector: LabelSelector = _ALL
    """Labels of the object's namespace."""
