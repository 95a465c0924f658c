"""The pending workloads of one ClusterQueue, and which of them is next.

A workload is *active*, in the order in which it will be tried, or *inadmissible*: tried without
success, or backing off, until something changes that could help it.

Next is the workload of the highest priority, then the oldest; but before that, where past usage
orders LocalQueues, one of the LocalQueue that used least; and then the latest preemptor, so that no
other takes the room that it made. In an order that is not Kueue's, that one is before all: its
victim would be admitted and preempted again. If one does not fit, nor do all with its requests.
"""

from bisect import insort
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from heapq import heappop, heappush, heapreplace
from math import inf
from operator import attrgetter
from typing import Any, Protocol

from policyd.alloc.flavors.assignment import Progress, Requests
from policyd.alloc.flavors.options import QueueOptions, RequestKey, request_key_of
from policyd.alloc.plan import Requeue, RequeueReason
from policyd.alloc.workload import ConditionReason, QueuedWorkload

Rank = tuple[int, float, str, str]
"""Priority, highest first; age; uid; key."""
OrderKey = tuple[Any, ...]
"""Priority, highest first; run time, where that orders a queue; age; uid; key."""

_FEW = 4
_SHARE = 64
_UNUSED = 64
_order_key = attrgetter("order_key")
_MOST_KEYS = 1_000
_SLACK = 64
"""How many places beyond twice the tickets a heap may have before it is made anew."""
_RETRIED: frozenset[RequeueReason] = frozenset(
    {"FailedAfterNomination", "PendingMigration", "PendingPreemption", "PreemptionFailed"}
)
_SHARED: frozenset[RequeueReason] = frozenset({"NoFit", "PreemptionNoCandidates"})
"""Failures of all workloads with the same requests."""


@dataclass(slots=True, eq=False)
class Ticket:
    """A workload's place in its queue, and its requests.

    Attributes:
        plain: Whether it has no objection, replaces no other, and asks for no place.
        rank: Its age, after its priority: the lowest is the first in line.
        order_key: The lowest is next. Without an order by run time, this is the order of ranks.
        gone: Whether it is in the queue no more.
        aside: Whether it is inadmissible for a reason of its own.
        progress: Where the search for its flavors is to go on; None from the start.
        preemptor: Whether it is the latest of its queue for which others were preempted.
        refused: Whether it did not fit when it was tried last, and holds up those behind it.
    """

    workload: QueuedWorkload
    _asks: RequestKey
    plain: bool = field(init=False)
    rank: Rank = field(init=False)
    order_key: OrderKey = field(init=False)
    gone: bool = False
    aside: bool = field(init=False)
    progress: Progress | None = None
    preemptor: bool = False
    refused: bool = False

    def __post_init__(self) -> None:
        workload = self.workload
        asks = any(pod_set.placed for pod_set in workload.pod_sets)
        self.plain = not (workload.objection or workload.replaces or asks)
        self.rank = -workload.priority, workload.queued_at, workload.uid, workload.key
        self.order_key = self.rank
        self.aside = workload.backing_off

    def set_order_key(self, *, shortest: bool) -> None:
        """Order it by its age, or by how long it runs: the shortest first, unknown last."""
        runs, rank = self.workload.run_seconds, self.rank
        runs = inf if runs is None else runs
        self.order_key = (rank[0], runs, *rank[1:]) if shortest else rank

    @property
    def request_key(self) -> tuple[int, RequestKey]:
        """The key that decides whether it fits: priority and requests."""
        return self.workload.priority, self._asks.alike

    @property
    def wakes(self) -> bool:
        """Whether it is tried again once something changes, if it is inadmissible."""
        objection = self.workload.objection
        misplaced = objection is not None and objection.misplaced
        return not (self.workload.backing_off or misplaced)

    def requests(self, options: QueueOptions) -> Requests:
        """Return the workload's requests to the queue, computed once for the same options."""
        return options.requests(self.workload, request_key=self._asks)


@dataclass(slots=True, eq=False)
class PendingIndex:
    """Tickets with the same request key, of which the one of the lowest order key is first.

    They are kept sorted, so that taking the first compares nothing, however many there are. New
    ones are put in when the first is asked for: a few one by one, many by sorting.

    Attributes:
        listed: The key by which the index is in a heap; None if it is in none.
    """

    request_key: object = None
    listed: OrderKey | None = None
    _fresh: list[Ticket] = field(default_factory=list)
    _sorted: list[Ticket] = field(default_factory=list)
    _start: int = 0

    def push(self, ticket: Ticket) -> None:
        """Add a ticket."""
        self._fresh.append(ticket)

    def first(self) -> Ticket | None:
        """Return the ticket of the lowest order key; None if there is none."""
        if self._fresh:
            self._settle()
        return self._sorted[self._start] if self._start < len(self._sorted) else None

    def drop_first(self) -> None:
        """Take the ticket out that `first` returned."""
        self._start += 1
        if self._start > _UNUSED and 2 * self._start > len(self._sorted):
            del self._sorted[: self._start]
            self._start = 0

    def _settle(self) -> None:
        fresh, known = self._fresh, self._sorted
        if len(fresh) <= _FEW + len(known) // _SHARE:
            for ticket in fresh:
                insort(known, ticket, lo=self._start, key=_order_key)
        else:
            self._sorted = sorted(known[self._start :] + fresh, key=_order_key)
            self._start = 0
        self._fresh = []


@dataclass(slots=True, eq=False)
class PendingHeap:
    """Tickets in one index for each request key, which is passed over and restored as a whole.

    INVARIANT: an index that was not passed over is in the heap by the key by which it is
    `listed`, of its first or of one that was first before. There may be older entries of it.
    """

    _indexes: dict[object, PendingIndex] = field(default_factory=dict)
    _heap: list[tuple[OrderKey, int, PendingIndex]] = field(default_factory=list)
    _listings: int = 0
    _size: int = 0

    def __len__(self) -> int:
        """Count tickets, with those that left and have not come up since."""
        return self._size

    def push(self, ticket: Ticket) -> None:
        """Add a ticket."""
        key = ticket.request_key
        index = self._indexes.get(key)
        if index is None:
            index = self._indexes[key] = PendingIndex(key)
        index.push(ticket)
        self._size += 1
        if index.listed is None:
            self._list(index)
        elif ticket.order_key < index.listed:
            self._enter(index, ticket.order_key)

    def first(self, *, without: Collection[object]) -> Ticket | None:
        """Return the ticket of the lowest key, `without` some request keys; None if none is left.

        Indexes of these keys are passed over until they are restored.
        """
        heap = self._heap
        while heap:
            key, number, index = heap[0]
            if index.listed is key and not (without and index.request_key in without):
                first = self._first_of(index)
                if first is not None and first.order_key is key:
                    return first
                if first is not None:
                    index.listed = first.order_key
                    heapreplace(heap, (first.order_key, number, index))
                    continue
            heappop(heap)
            if index.listed is key:
                index.listed = None
        return None

    def restore(self, request_key: object) -> None:
        """List the index of a request key again that was passed over."""
        index = self._indexes.get(request_key)
        if index is not None and index.listed is None:
            self._list(index)

    def _first_of(self, index: PendingIndex) -> Ticket | None:
        while (ticket := index.first()) is not None:
            if not (ticket.gone or ticket.aside):
                return ticket
            index.drop_first()
            self._size -= 1
        self._indexes.pop(index.request_key, None)
        return None

    def _list(self, index: PendingIndex) -> None:
        if (first := self._first_of(index)) is not None:
            self._enter(index, first.order_key)

    def _enter(self, index: PendingIndex, key: OrderKey) -> None:
        self._listings += 1
        index.listed = key
        heappush(self._heap, (key, self._listings, index))


def becomes_inadmissible(reason: RequeueReason, progress: Progress | None, *, strict: bool) -> bool:
    """Tell whether a workload is inadmissible after a failed attempt.

    It is not if its search for flavors goes on, or, `strict`, no other may pass the head.
    """
    goes_on = progress is not None and progress.goes_on
    return reason == "NamespaceMismatch" or not (strict or goes_on or reason in _RETRIED)


class Follower(Protocol):
    """Keeps something about the tickets of a queue while these come and go."""

    def changed(self, old: Ticket | None, new: Ticket | None) -> None:
        """Take note of a ticket that left, came, or replaced another."""


@dataclass(slots=True, eq=False)
class PendingQueue:
    """Pending workloads of one ClusterQueue.

    INVARIANT: every ticket is either in `aside` or in the heap of its group. There may be more in
    a heap: tickets that left, changed or were set aside are skipped when they come up. A group is
    a LocalQueue where usage orders these, else there is one.
    """

    _tickets: dict[str, Ticket] = field(default_factory=dict)
    aside: dict[str, Ticket] = field(default_factory=dict)
    _request_keys: dict[object, RequestKey] = field(default_factory=dict)
    _shape_keys: dict[object, RequestKey] = field(default_factory=dict)
    _heaps: dict[str, PendingHeap] = field(default_factory=lambda: {"": PendingHeap()})
    usage: Mapping[str, float] | None = None
    refused: dict[tuple[int, RequestKey], ConditionReason] = field(default_factory=dict)
    _preemptor: str = ""
    _latest: Ticket | None = None
    shortest_first: bool = False
    preemptor_first: bool = False
    follower: Follower | None = None

    def __len__(self) -> int:
        return len(self._tickets)

    def __iter__(self) -> Iterator[Ticket]:
        """Iterate over all tickets, in no particular order."""
        return iter(self._tickets.values())

    @property
    def inadmissible(self) -> int:
        """How many are not tried for now."""
        return len(self) - len(self.active)

    @property
    def active(self) -> list[Ticket]:
        """Those that are tried in their turn, in no particular order."""
        return [ticket for ticket in self if self._is_active(ticket)]

    @property
    def preemptor(self) -> Ticket | None:
        """The one that goes before all others of its LocalQueue's usage; None if there is none."""
        return self._tickets.get(self._preemptor)

    def order_by(self, usage: Mapping[str, float] | None) -> None:
        """Let LocalQueues of the least `usage` go first; None to go by priority and age alone."""
        before, self.usage = self.usage, usage
        if (usage is None) != (before is None):
            self._rebuild()

    def order_by_run_time(self, *, shortest: bool) -> None:
        """Let those that declare the shortest run time go first, of the same priority, or not."""
        if shortest != self.shortest_first:
            self.shortest_first = shortest
            for ticket in self._tickets.values():
                ticket.set_order_key(shortest=shortest)
            self.follower = None
            self._rebuild()

    def get(self, key: str) -> QueuedWorkload | None:
        """Return the workload of that key; None if it is not here."""
        ticket = self._tickets.get(key)
        return None if ticket is None else ticket.workload

    def ticket(self, key: str) -> Ticket | None:
        """Return the ticket of the workload of that key; None if it is not here."""
        return self._tickets.get(key)

    def put(self, workload: QueuedWorkload, *, carries: bool = True, nameless: bool = True) -> None:
        """Add or update a workload. An inadmissible one stays so if unchanged.

        With `carries`, the search for its flavors goes on where it stopped before the change.
        `nameless`: those that differ in the names of pod sets alone ask for the same.
        """
        old = self._tickets.get(workload.key)
        if old is not None and old.workload == workload:
            return
        ticket = Ticket(workload, self._intern(workload, nameless=nameless))
        if self.shortest_first:
            ticket.set_order_key(shortest=True)
        if old is not None:
            ticket.progress, old.gone = old.progress if carries else None, True
            if old.preemptor and ticket.request_key == old.request_key:
                ticket.preemptor, self._latest = True, ticket
        self.aside.pop(workload.key, None)
        self._tickets[workload.key] = ticket
        if self.follower is not None:
            self.follower.changed(old, ticket)
        if ticket.aside:
            self.aside[workload.key] = ticket
        else:
            self._activate(ticket)

    def _intern(self, workload: QueuedWorkload, *, nameless: bool) -> RequestKey:
        # Hashing a workload's requests each time it is next costs more than deciding about it.
        content = request_key_of(workload)
        known = self._request_keys.get(content)
        if known is None:
            for keys in (self._request_keys, self._shape_keys):
                if len(keys) >= _MOST_KEYS:
                    keys.clear()
            alike = self._shape_keys.setdefault(content[1:] if nameless else content, RequestKey())
            known = self._request_keys[content] = RequestKey(alike)
        return known

    def remove(self, key: str) -> Ticket | None:
        """Take a workload out; None if it is not here."""
        ticket = self._tickets.pop(key, None)
        if ticket is not None:
            ticket.gone = True
            self.aside.pop(key, None)
            if self.follower is not None:
                self.follower.changed(ticket, None)
        if key == self._preemptor:
            self._preemptor = ""
        return ticket

    def head(self) -> Ticket | None:
        """Return the next workload to try, which stays where it is; None if there is none."""
        if self.usage is None and not self._preemptor:
            return self._heaps[""].first(without=self.refused)
        firsts = [heap.first(without=self.refused) for heap in self._heaps.values()]
        found = [ticket for ticket in firsts if ticket is not None]
        preemptor = self._tickets.get(self._preemptor)
        if preemptor is not None and self._is_active(preemptor):
            found.append(preemptor)
        return min(found, key=self.turn, default=None)

    @contextmanager
    def passing_over(self, ticket: Ticket) -> Iterator[None]:
        """Leave a ticket out for the block, so that the one behind it is the head."""
        ticket.aside = True
        try:
            yield
        finally:
            ticket.aside = False
            self._activate(ticket)

    def requeue(self, action: Requeue, *, strict: bool, equivalents: bool) -> None:
        """Let a workload wait after an attempt, with its `equivalents` if they are to wait too.

        With `strict`, no other passes the head: in Kueue's order, no preemptor is to be put there.
        """
        ticket = self._tickets[action.workload.key]
        ticket.progress = action.progress
        ticket.refused = not action.inadmissible and action.reason in _SHARED
        if action.reason == "PendingPreemption":
            if self._latest is not None:
                self._latest.preemptor = False
            ticket.preemptor, self._latest = True, ticket
            stays = strict and not self.preemptor_first
            self._preemptor = "" if stays else action.workload.key
        if action.inadmissible or ticket.workload.backing_off:
            if equivalents and action.reason in _SHARED:
                self.refused[ticket.request_key] = action.refusal.reason
            else:
                ticket.aside, self.aside[ticket.workload.key] = True, ticket

    def wake(self) -> None:
        """Make inadmissible workloads active again, but those that back off or are misplaced."""
        for heap in self._heaps.values():
            for request_key in self.refused:
                heap.restore(request_key)
        self.refused.clear()
        for key, ticket in list(self.aside.items()):
            if ticket.wakes:
                del self.aside[key]
                ticket.aside = False
                self._activate(ticket)

    def yields(self, ticket: Ticket) -> bool:
        """Tell whether this one waits until inadmissible workloads of its tree are woken.

        One that was refused does, else it would take what workloads of other queues wait for; and
        one that goes after an inadmissible workload of its own queue.
        """
        if ticket.refused:
            return True
        if self.usage is not None or ticket.workload.key == self._preemptor:
            return False
        priorities = [each.workload.priority for each in self.aside.values() if each.wakes]
        most = max(priorities + [priority for priority, _ in self.refused], default=None)
        return most is not None and most > ticket.workload.priority

    def shared_refusal(self, key: str) -> ConditionReason | None:
        """Return why a workload, or one that asks for the same, does not fit; None if it may."""
        ticket = self._tickets.get(key)
        return None if ticket is None else self.refused.get(ticket.request_key)

    def turn(self, ticket: Ticket) -> tuple[float, bool, OrderKey]:
        """Return the key that orders pending workloads; the lowest is next."""
        usage = 0.0 if self.usage is None else self.usage.get(ticket.workload.local_queue, 0.0)
        preemptor = ticket.workload.key == self._preemptor
        first = preemptor and self.preemptor_first
        return -1.0 if first else usage, not preemptor, ticket.order_key

    def _is_active(self, ticket: Ticket) -> bool:
        return not (ticket.aside or ticket.request_key in self.refused)

    def _activate(self, ticket: Ticket) -> None:
        group = "" if self.usage is None else ticket.workload.local_queue
        heap = self._heaps.setdefault(group, PendingHeap())
        heap.push(ticket)
        if len(heap) > 2 * len(self._tickets) + _SLACK:
            self._rebuild()

    def _rebuild(self) -> None:
        self._heaps = {"": PendingHeap()}
        for ticket in self._tickets.values():
            if not ticket.aside:
                self._activate(ticket)
