"""How loaded each ClusterQueue is: what is used of its quota, and what is pending in it.

Amounts are in the units of the snapshot: milli-CPU, bytes, whole devices.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Final, Literal

from policyd.alloc.value import Value
from policyd.api.meta import rfc3339
from policyd.snapshot.answers import pending_requests, summed
from policyd.snapshot.values import ClusterQueueUse, QueueSnapshot

Order = Literal["pending", "waiting", "usage", "name"]


class ResourceLoad(Value, frozen=True, rename="camel"):
    """What a queue uses of one resource, of whatever flavor.

    Attributes:
        nominal: Its own quota.
        used: Held by its workloads with quota; more than `nominal` if it borrows.
        pending: What its pending workloads request.
    """

    nominal: int
    used: int
    pending: int


class QueueLoad(Value, frozen=True, rename="camel"):
    """How loaded a ClusterQueue is.

    Attributes:
        name: The ClusterQueue.
        cohort: The Cohort above it; "" for none.
        running: Workloads with quota.
        pending: Workloads without.
        oldest: Since when the longest waiting one is pending; None if none is.
        resources: By resource, devices first.
        active: Whether it gives out quota.
    """

    name: str
    cohort: str
    running: int
    pending: int
    oldest: str | None
    resources: Mapping[str, ResourceLoad]
    active: bool = True

    @property
    def share(self) -> float:
        """The largest part of its own quota that it uses, of any resource; over 1 if it borrows."""
        parts = (each.used / each.nominal for each in self.resources.values() if each.nominal)
        return max(parts, default=0.0)


_BY: Final[Mapping[Order, Callable[[QueueLoad], tuple[float | str, ...]]]] = {
    "pending": lambda load: (-load.pending, -load.share),
    "waiting": lambda load: (load.oldest is None, load.oldest or ""),
    "usage": lambda load: (-load.share, -load.pending),
    "name": lambda _: (),
}


def queue_loads(snapshot: QueueSnapshot, *, by: Order, queue: str = "") -> list[QueueLoad]:
    """Return how loaded the ClusterQueues are.

    Args:
        snapshot: The queues.
        by: What comes first: most pending, longest waiting, the largest share of its quota in
            use, or the names in order. Names decide ties.
        queue: The only ClusterQueue, or the Cohort of the only ones, to return; "" for all.
    """
    loads = [
        _load(each) for each in snapshot.cluster_queues if queue in {"", each.name, each.cohort}
    ]
    return sorted(loads, key=lambda load: (*_BY[by](load), load.name))


def _load(queue: ClusterQueueUse) -> QueueLoad:
    since = [row.since for row in queue.pending if row.since]
    return QueueLoad(
        name=queue.name,
        cohort=queue.cohort,
        running=len(queue.holding),
        pending=len(queue.pending),
        oldest=rfc3339(min(since)) if since else None,
        resources=dict(_resources(queue)),
        active=queue.active,
    )


def _resources(queue: ClusterQueueUse) -> Iterator[tuple[str, ResourceLoad]]:
    nominal = summed((each.resource, each.nominal) for each in queue.quotas)
    used = summed((each.resource, each.used) for each in queue.quotas)
    pending = pending_requests(queue)
    for name in sorted(nominal, key=lambda name: ("/" not in name, name)):
        yield name, ResourceLoad(nominal[name], used[name], pending.get(name, 0))
