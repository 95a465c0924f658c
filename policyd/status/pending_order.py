"""The order of the pending workloads of a queue, which is kept while they come and go.

The allocator needs the first of them only; this is for places and counts of all.
"""

from bisect import bisect_left, insort
from collections.abc import Generator, Iterable, Iterator, Sequence
from heapq import merge
from itertools import chain, islice
from math import inf
from operator import attrgetter
from typing import Any, Final, Generic, NamedTuple, Protocol, TypeVar

from policyd.alloc.flavors.options import RequestKey
from policyd.alloc.pending import PendingQueue, Ticket
from policyd.alloc.workload import QueuedWorkload

SLACK: Final = 64
"""Changes without a reader after which the order is forgotten, beside one for each workload."""

LOAD: Final = 1_000
"""How many items a part has at first; with twice as many, it is split."""

STEP: Final = 500
"""How many tickets are sorted or put in at a time while an order is prepared."""

FEW: Final = 50
"""How many changes are taken over at a time."""

_order_key = attrgetter("order_key")


class HasOrderKey(Protocol):
    """Something with an order key that no other has at the same time."""

    @property
    def order_key(self) -> Any:  # noqa: ANN401 - whatever can be compared
        """The lowest is first."""
        ...


R = TypeVar("R", bound=HasOrderKey)


class RankedList(Generic[R]):
    """Items in the order of their keys, in parts, so that a change moves only some."""

    def __init__(self, items: Iterable[R] = ()) -> None:
        ordered = sorted(items, key=_order_key)
        self._parts = [ordered[at : at + LOAD] for at in range(0, len(ordered), LOAD)]
        self._lasts = [part[-1].order_key for part in self._parts]

    def __len__(self) -> int:
        return sum(map(len, self._parts))

    def extend(self, items: Sequence[R]) -> None:
        """Put items in that are in order and come after all others: no more than a part takes."""
        if self._parts and len(self._parts[-1]) + len(items) <= 2 * LOAD:
            self._parts[-1] += items
            self._lasts[-1] = items[-1].order_key
        elif items:
            self._parts.append([*items])
            self._lasts.append(items[-1].order_key)

    def all(self) -> list[R]:
        """Return all items in order, in a new list."""
        return list(chain.from_iterable(self._parts))

    def part(self, start: int, stop: int) -> list[R]:
        """Return the items at the places from `start`, and before `stop`."""
        found: list[R] = []
        for each in self._parts:
            if stop <= 0:
                break
            if start < len(each):
                found += each[max(0, start) : stop]
            start, stop = start - len(each), stop - len(each)
        return found

    def place(self, item: HasOrderKey) -> int:
        """Return the place of an item; one that is not here has the place it would have."""
        at = bisect_left(self._lasts, item.order_key)
        before = sum(map(len, self._parts[:at]))
        if at == len(self._parts):
            return before
        return before + bisect_left(self._parts[at], item.order_key, key=_order_key)

    def add(self, item: R) -> None:
        """Put an item in."""
        if not self._parts:
            self._parts, self._lasts = [[item]], [item.order_key]
            return
        at = min(bisect_left(self._lasts, item.order_key), len(self._parts) - 1)
        part = self._parts[at]
        insort(part, item, key=_order_key)
        self._lasts[at] = part[-1].order_key
        if len(part) > 2 * LOAD:
            self._parts[at : at + 1] = part[:LOAD], part[LOAD:]
            self._lasts[at : at + 1] = part[LOAD - 1].order_key, part[-1].order_key

    def remove(self, item: R) -> None:
        """Take an item out that is here."""
        at = bisect_left(self._lasts, item.order_key)
        part = self._parts[at]
        del part[bisect_left(part, item.order_key, key=_order_key)]
        if part:
            self._lasts[at] = part[-1].order_key
        else:
            del self._parts[at], self._lasts[at]


class Place(NamedTuple):
    """A ticket, and its places among all of the queue and among those of its LocalQueue."""

    in_queue: int
    in_local_queue: int
    ticket: Ticket


_Group = tuple[tuple[int, RequestKey], str]
"""A request key, and a LocalQueue."""


class PendingGroup(NamedTuple):
    """Tickets of a LocalQueue with the same priority and requests.

    Attributes:
        example: A workload like them, which may have left.
        size: How many they are.
        trying: How many of them are tried in their turn.
    """

    example: QueuedWorkload
    size: int
    trying: int


class _Probe(NamedTuple):
    """Comes before all tickets of a priority."""

    order_key: tuple[int, float]


class PendingOrder:
    """The order of a queue's tickets, and of those of each LocalQueue.

    Attributes:
        changes: How many there were since a reader asked.
    """

    def __init__(self, queue: PendingQueue) -> None:
        """Begin with no tickets."""
        self._queue = queue
        self._all: RankedList[Ticket] = RankedList()
        self._own: dict[str, RankedList[Ticket]] = {}
        self._counts: dict[_Group, int] = {}
        self._examples: dict[_Group, QueuedWorkload] = {}
        self.changes = 0

    def extend(self, tickets: Sequence[Ticket]) -> None:
        """Put tickets in that are in order and come after all others: a thousand at most."""
        self._all.extend(tickets)
        groups: dict[str, list[Ticket]] = {}
        for ticket in tickets:
            groups.setdefault(_queue_of(ticket), []).append(ticket)
            self._count(ticket, 1)
        for name, group in groups.items():
            self._own.setdefault(name, RankedList()).extend(group)

    def _count(self, ticket: Ticket, change: int) -> None:
        group = ticket.request_key, _queue_of(ticket)
        count = self._counts.get(group, 0) + change
        if count:
            self._counts[group] = count
            self._examples.setdefault(group, ticket.workload)
        else:
            del self._counts[group], self._examples[group]

    def changed(self, old: Ticket | None, new: Ticket | None) -> None:
        """Keep the order, until no reader has asked for it during many changes."""
        self.changes += 1
        if self.changes > SLACK + len(self._queue):
            self._queue.follower = None
            return
        if old is not None:
            self._remove(old)
        if new is not None:
            self._all.add(new)
            self._own.setdefault(_queue_of(new), RankedList()).add(new)
            self._count(new, 1)

    def _remove(self, ticket: Ticket) -> None:
        self._all.remove(ticket)
        own = self._own[_queue_of(ticket)]
        own.remove(ticket)
        self._count(ticket, -1)
        if not own:
            del self._own[_queue_of(ticket)]

    def in_order(self) -> list[Ticket]:
        """Return all tickets, inadmissible or not, in the order of their turns; in a new list."""
        if self._queue.usage is not None:
            return sorted(self._queue, key=self._queue.turn)
        order, preemptor = self._all.all(), self._queue.preemptor
        if preemptor is not None:
            order.remove(preemptor)
            order.insert(0, preemptor)
        return order

    def places(self, local_queue: str, start: int, stop: int) -> list[Place]:
        """Return tickets with their places, in the order of their turns.

        Args:
            local_queue: `namespace/name` of a LocalQueue, to return its tickets only; "" for all.
            start: The first place that is asked for, among those of the LocalQueue or of all.
            stop: The place before which it ends.
        """
        if self._queue.usage is not None:
            return self._counted_places(local_queue, start, stop)
        first = self._queue.preemptor
        if local_queue:
            own = self._own.get(local_queue, RankedList())
            own_first = None if first is None or _queue_of(first) != local_queue else first
            found = _part(own, own_first, start, stop)
            return [
                Place(_place(self._all, first, ticket), number, ticket)
                for number, ticket in enumerate(found, start)
            ]
        next_ones: dict[str, int] = {}
        places = []
        for number, ticket in enumerate(_part(self._all, first, start, stop), start):
            name = _queue_of(ticket)
            if name not in next_ones:
                own_first = None if first is None or _queue_of(first) != name else first
                next_ones[name] = _place(self._own[name], own_first, ticket)
            places.append(Place(number, next_ones[name], ticket))
            next_ones[name] += 1
        return places

    def groups(self) -> Iterator[PendingGroup]:
        """Yield all tickets, counted, in no particular order."""
        aside: dict[_Group, int] = {}
        for ticket in self._queue.aside.values():
            group = ticket.request_key, _queue_of(ticket)
            aside[group] = aside.get(group, 0) + 1
        for group, count in self._counts.items():
            refused = group[0] in self._queue.refused
            trying = 0 if refused else count - aside.get(group, 0)
            yield PendingGroup(self._examples[group], count, trying)

    def oldest(self, local_queue: str, priority: int) -> float:
        """Return since when the oldest of a priority and LocalQueue is pending; there must be one.

        In seconds since the epoch.
        """
        own = self._own[local_queue]
        start = own.place(_Probe((-priority, -inf)))
        stop = own.place(_Probe((1 - priority, -inf))) if self._queue.shortest_first else start + 1
        return min(ticket.workload.queued_at for ticket in own.part(start, stop))

    def _counted_places(self, local_queue: str, start: int, stop: int) -> list[Place]:
        lengths: dict[str, int] = {}
        places = []
        for number, ticket in enumerate(self.in_order()):
            name = _queue_of(ticket)
            own = lengths[name] = lengths.get(name, -1) + 1
            if local_queue in {"", name}:
                places.append(Place(number, own, ticket))
        return places[start:stop]


def sort_in_steps(
    queue: PendingQueue, tickets: Sequence[Ticket], order: list[Ticket], *, step: int
) -> Iterator[None]:
    """Sort copied tickets in the order of their turns: in parts, which are then merged.

    For a reader that asks seldom: the order is neither made at once nor kept.

    Args:
        queue: Their queue, which may change meanwhile.
        tickets: In any order.
        order: An empty list, which gets them.
        step: How many tickets a step takes.

    Yields:
        Nothing, after each step.
    """
    parts = []
    for start in range(0, len(tickets), step):
        part = [(queue.turn(ticket), ticket) for ticket in tickets[start : start + step]]
        parts.append(sorted(part, key=_turn_of))
        yield
    for number, (_, ticket) in enumerate(merge(*parts, key=_turn_of), start=1):
        order.append(ticket)
        if not number % step:
            yield


def _turn_of(pair: tuple[tuple[object, ...], Ticket]) -> tuple[object, ...]:
    return pair[0]


def order_of(queue: PendingQueue) -> PendingOrder:
    """Return the order of a queue, which is kept from now on."""
    order = queue.follower
    if not isinstance(order, PendingOrder):
        order = queue.follower = PendingOrder(queue)
        tickets = sorted(queue, key=_order_key)
        for start in range(0, len(tickets), LOAD):
            order.extend(tickets[start : start + LOAD])
    order.changes = 0
    return order


class _Changes:
    """What changes in a queue while its order is made."""

    def __init__(self, queue: PendingQueue) -> None:
        self._queue = queue
        self.waiting: list[tuple[Ticket | None, Ticket | None]] = []

    def changed(self, old: Ticket | None, new: Ticket | None) -> None:
        """Keep it for the order, unless it would be quicker to begin again."""
        self.waiting.append((old, new))
        if len(self.waiting) > SLACK + len(self._queue):
            self._queue.follower = None


def prepare(queue: PendingQueue) -> Generator[None, None, None]:
    """Make the order of a queue that has none yet, step by step: it changes between the steps.

    Nothing is made if a reader asks for the order in the meantime.

    Yields:
        Nothing, after each step of about a millisecond.
    """
    changes = queue.follower = _Changes(queue)
    order = PendingOrder(queue)
    for _ in _prepared(queue, order, changes):
        yield
        if queue.follower is not changes:
            return
    order.changes = 0
    queue.follower = order


def _prepared(queue: PendingQueue, order: PendingOrder, changes: _Changes) -> Iterator[None]:
    tickets = list(queue)
    parts = []
    for start in range(0, len(tickets), STEP):
        parts.append(sorted(tickets[start : start + STEP], key=_order_key))
        yield
    merged = merge(*parts, key=_order_key)
    while part := list(islice(merged, STEP)):
        order.extend(part)
        yield
    while changes.waiting:
        first = changes.waiting[:FEW]
        del changes.waiting[:FEW]
        for old, new in first:
            order.changed(old, new)
        yield


def _queue_of(ticket: Ticket) -> str:
    return ticket.workload.local_queue


def _part(order: RankedList[Ticket], first: Ticket | None, start: int, stop: int) -> list[Ticket]:
    """Return a part of an order in which one ticket, if there is one, comes before all."""
    if first is None:
        return order.part(start, stop)
    at = order.place(first)
    moved = order.part(start - 1, min(stop - 1, at))
    own = [first] if start <= 0 < stop else []
    return [*own, *moved, *order.part(max(start, at + 1), stop)]


def _place(order: RankedList[Ticket], first: Ticket | None, ticket: Ticket) -> int:
    """Return the place of a ticket in such an order."""
    if first is None:
        return order.place(ticket)
    if ticket is first:
        return 0
    place = order.place(ticket)
    return place + (place < order.place(first))
