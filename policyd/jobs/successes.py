"""How many pods of a group have succeeded, those included that are gone."""

from collections.abc import Sequence

from policyd.api.kueue import ReclaimablePod
from policyd.jobs.pod_groups import PodGroup


class Successes:
    """How many pods of a group have succeeded, though some may have been deleted since.

    A workload remembers how many of each pod set there were. What of these was not there when the
    counting began is gone; from then on every pod is known by its uid.
    """

    def __init__(self, group: PodGroup, before: Sequence[ReclaimablePod]) -> None:
        self._seen = group.succeeded()
        self._gone = {
            each.name: max(0, each.count - len(self._seen.get(each.name, ()))) for each in before
        }

    def count(self, group: PodGroup) -> tuple[ReclaimablePod, ...]:
        """Take in the group as it is now, and return the numbers by pod set."""
        for role, uids in group.succeeded().items():
            self._seen.setdefault(role, set()).update(uids)
        counts = {
            role: self._gone.get(role, 0) + len(self._seen.get(role, ()))
            for role in {**self._gone, **self._seen}
        }
        return tuple(ReclaimablePod(name=r, count=c) for r, c in sorted(counts.items()) if c)
