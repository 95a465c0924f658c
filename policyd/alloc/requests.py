"""What a workload asks of a queue, worked out once: which cells, and how much of each."""

from collections.abc import Mapping

from policyd.alloc.assignment import Assignment, plain_assignment
from policyd.alloc.offers import GroupRequests


class Requests:
    """What a workload asks of a queue.

    Attributes:
        groups: What its pod sets ask, those together that must have the same flavors.
        demand: What it was worked out from; equal demands ask the same.
        plain: What the workload gets if there is room for all of it in the first flavors without
            borrowing; None if these are unsuitable.
        totals: What the pods of each pod set need together, by name and resource.
    """

    __slots__ = ("_known", "_version", "demand", "groups", "plain", "totals")

    def __init__(self, groups: tuple[GroupRequests, ...], demand: object) -> None:
        self._version = -1
        self._known: Assignment | None = None
        self.groups = groups
        self.demand = demand
        self.plain: Assignment | None = plain_assignment(groups)
        self.totals: Mapping[str, Mapping[str, int]] = {
            pod_set.name: pod_set.totals for group in groups for pod_set in group.pod_sets
        }

    def known(self, version: int) -> Assignment | None:
        """Return what was found for them in that version of the tree, if anything was."""
        return self._known if self._version == version else None

    def learn(self, version: int, assignment: Assignment) -> None:
        """Remember what was found for them, whoever asks, in a version of the tree."""
        self._version, self._known = version, assignment
