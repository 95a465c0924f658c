"""The workloads that wait in one ClusterQueue, and which of them is next.

A workload is either *active*, in the order in which it will be tried, or *parked*: tried without
success, or backing off, until something changes that could help it.
"""

import heapq
from collections.abc import Iterator

from policyd.alloc.assignment import Progress
from policyd.alloc.options import QueueOptions
from policyd.alloc.requests import Requests
from policyd.alloc.workload import Workload

Rank = tuple[int, float, str, str]
"""Priority, highest first; age; uid; key."""

_SLACK = 64
"""How many ranks beyond twice the tickets a heap may hold before it is made anew."""


class Ticket:
    """A workload's place in its queue, and what it asks of the queue.

    Attributes:
        workload: Who waits.
        rank: The lowest is next.
        parked: Whether it waits aside.
        progress: Where the search for its flavors is to go on; None from the start.
    """

    __slots__ = ("_options", "_requests", "parked", "progress", "rank", "workload")

    def __init__(self, workload: Workload) -> None:
        self.workload = workload
        self.rank: Rank = (-workload.priority, workload.queued_at, workload.uid, workload.key)
        self.parked = workload.backing_off
        self.progress: Progress | None = None
        self._options: QueueOptions | None = None
        self._requests: Requests | None = None

    def requests(self, options: QueueOptions) -> Requests:
        """Return what the workload asks of the queue, worked out once for the same options."""
        if self._requests is None or self._options is not options:
            self._options = options
            self._requests = options.requests(self.workload)
        return self._requests


class PendingQueue:
    """Workloads of one ClusterQueue that wait for quota.

    INVARIANT: every ticket is either in `_parked` or has its rank in `_heap`. There may be more in
    the heap: ranks of tickets that left, changed or were parked are skipped when they come up.
    """

    __slots__ = ("_heap", "_parked", "_tickets")

    def __init__(self) -> None:
        self._tickets: dict[str, Ticket] = {}
        self._parked: dict[str, Ticket] = {}
        self._heap: list[Rank] = []

    def __len__(self) -> int:
        return len(self._tickets)

    def __iter__(self) -> Iterator[Ticket]:
        """Iterate over all that wait, in no particular order."""
        return iter(self._tickets.values())

    @property
    def parked(self) -> int:
        """How many wait aside."""
        return len(self._parked)

    def put(self, workload: Workload) -> None:
        """Add a workload, or take notice of its change. What is parked stays so if unchanged."""
        old = self._tickets.get(workload.key)
        if old is not None and old.workload == workload:
            return
        ticket = Ticket(workload)
        ticket.progress = None if old is None else old.progress
        self._parked.pop(workload.key, None)
        self._tickets[workload.key] = ticket
        if ticket.parked:
            self._parked[workload.key] = ticket
        else:
            self._push(ticket)

    def remove(self, key: str) -> Ticket | None:
        """Take a workload out; None if it is not here."""
        self._parked.pop(key, None)
        return self._tickets.pop(key, None)

    def head(self) -> Ticket | None:
        """Return the next workload to try, which stays where it is; None if there is none."""
        heap = self._heap
        while heap:
            rank = heap[0]
            ticket = self._tickets.get(rank[-1])
            if ticket is not None and not ticket.parked and ticket.rank == rank:
                return ticket
            heapq.heappop(heap)
        return None

    def requeue(self, key: str, progress: Progress | None, *, parked: bool) -> None:
        """Let a workload wait after an attempt; if parked, aside until the queue is woken up."""
        self._tickets[key].progress = progress
        if parked:
            self.park(key)

    def park(self, key: str) -> None:
        """Set a workload aside until the queue is woken up."""
        ticket = self._tickets[key]
        ticket.parked = True
        self._parked[key] = ticket

    def wake(self) -> None:
        """Make every parked workload active again, but those that back off or are misplaced."""
        for key, ticket in list(self._parked.items()):
            objection = ticket.workload.objection
            if ticket.workload.backing_off or (objection is not None and objection.misplaced):
                continue
            del self._parked[key]
            ticket.parked = False
            self._push(ticket)

    def _push(self, ticket: Ticket) -> None:
        heapq.heappush(self._heap, ticket.rank)
        if len(self._heap) > 2 * len(self._tickets) + _SLACK:
            self._heap = sorted(t.rank for t in self._tickets.values() if not t.parked)
