"""Pending workloads of a queue, as Kueue's visibility API has them."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, NoReturn

from policyd.api.kueue.visibility import (
    DEFAULT_LIMIT,
    GROUP,
    KIND,
    LARGEST_LIMIT,
    PendingWorkload,
    PendingWorkloadsSummary,
)
from policyd.api.meta import ObjectMeta
from policyd.controller.reasons.shortage import naming_in
from policyd.controller.watch.cache import Cache
from policyd.errors import PolicydError
from policyd.kube.pace import Pace
from policyd.kube.steps import Steps
from policyd.status.naming import Naming
from policyd.status.pending_order import prepare
from policyd.status.queues import QueuePosition, places

AT_ONCE: Final = 2_000
"""Pending workloads of a queue whose order is made when it is asked for: that takes 3 ms."""
LOOK_SECONDS: Final = 1.0
"""Between looks for queues with more."""


class QueueNotFoundError(PolicydError):
    """A queue is asked for that does not exist; in the words of Kueue's visibility API."""

    def __init__(self, kind: str, name: str) -> None:
        super().__init__(f'{kind}.{GROUP} "{name}" not found')
        self.kind = kind
        self.name = name


@dataclass(frozen=True, slots=True)
class PendingPage:
    """The part of the pending workloads that is asked for; limits that are too large are cut."""

    offset: int = 0
    limit: int = DEFAULT_LIMIT

    @property
    def start(self) -> int:
        """How many workloads are left out that come first."""
        return max(0, self.offset)

    @property
    def most(self) -> int:
        """How many are returned at most."""
        return min(max(0, self.limit), LARGEST_LIMIT)


async def prepare_orders(cache: Cache, *, ready: Callable[[], bool], pace: Pace) -> NoReturn:
    """Keep the order of long queues ready, so that the first request is answered as fast as others.

    Args:
        cache: The queues.
        ready: Whether all of them are known.
        pace: Time.
    """
    while True:
        if ready():
            for queue in [each.pending for each in cache.state.queues.values()]:
                if len(queue) > AT_ONCE and queue.usage is None and queue.follower is None:
                    await Steps(pace).run(prepare(queue))
        await pace.sleep(LOOK_SECONDS)


def waiting_in_cluster_queue(
    cache: Cache, name: str, page: PendingPage, reader: str = ""
) -> list[PendingWorkload]:
    """Return the pending workloads of a ClusterQueue, in order.

    Args:
        cache: The queues.
        name: The ClusterQueue's.
        page: Which of them are asked for.
        reader: The namespace of the user, whose jobs are always named; "" if it is unknown.

    Raises:
        QueueNotFoundError: If there is no such ClusterQueue.
    """
    if cache.mirrors.cluster_queues.get(name) is None:
        raise QueueNotFoundError("clusterqueue", name)
    found = places(cache.state, name, start=page.start, most=page.most)
    return _items(cache, found, reader)


def waiting_in_local_queue(
    cache: Cache, namespace: str, name: str, page: PendingPage
) -> list[PendingWorkload]:
    """Return the pending workloads of a LocalQueue, in order.

    Raises:
        QueueNotFoundError: If there is no such LocalQueue.
    """
    key = f"{namespace}/{name}"
    queue = cache.mirrors.local_queues.get(key)
    if queue is None:
        raise QueueNotFoundError("localqueue", name)
    of_queue = queue.spec.cluster_queue
    mine = places(cache.state, of_queue, local_queue=key, start=page.start, most=page.most)
    return _items(cache, mine, namespace)


def summary(version: str, items: Iterable[PendingWorkload]) -> PendingWorkloadsSummary:
    """Return the answer in a version of the API."""
    return PendingWorkloadsSummary(f"{GROUP}/{version}", KIND, tuple(items))


def _items(cache: Cache, found: Iterable[QueuePosition], reader: str) -> list[PendingWorkload]:
    naming = naming_in(cache, reader)
    return [_item(cache, place, naming) for place in found]


def _item(cache: Cache, place: QueuePosition, naming: Naming) -> PendingWorkload:
    """Return the item of a workload: of one that is not named, its place and its priority."""
    value, known = place.workload, cache.mirrors.workloads.get(place.workload.key)
    metadata = ObjectMeta() if known is None else known.metadata
    named, (namespace, _, name) = naming.names(value.key), value.key.partition("/")
    return PendingWorkload(
        metadata=ObjectMeta(
            name=name if named else "",
            namespace=namespace if named or naming.others == "team" else "",
            creation_timestamp=metadata.creation_timestamp,
            owner_references=metadata.owner_references if named else (),
        ),
        priority=value.priority,
        local_queue_name=value.local_queue.partition("/")[2] if named else "",
        position_in_cluster_queue=place.in_cluster_queue,
        position_in_local_queue=place.in_local_queue,
    )
