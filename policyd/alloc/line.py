"""What waits, by rank, made for taking the first: most come in crowds, and leave one by one."""

from bisect import insort
from collections.abc import Collection
from heapq import heappop, heappush, heapreplace
from operator import attrgetter
from typing import Generic, Protocol, TypeVar

Rank = tuple[int, float, str, str]
"""Priority, highest first; age; uid; key."""

_FEW = 4
_SHARE = 64
_UNUSED = 64
_rank = attrgetter("rank")


class Member(Protocol):
    """What waits in a line of those who ask for the same, unless it is `gone` or set `aside`."""

    rank: Rank
    gone: bool
    aside: bool

    @property
    def demand(self) -> object:
        """Equal for all that are to be in one line."""


R = TypeVar("R")
M = TypeVar("M", bound=Member)


class PendingIndex(Generic[R]):
    """Members that have a `rank`, of which the one of the lowest is first.

    They are kept sorted, so that taking the first compares nothing, however many there are. Those
    that come are put in when somebody asks for the first: a few one by one, a crowd by sorting.
    """

    __slots__ = ("_fresh", "_sorted", "_start", "demand", "listed")

    def __init__(self, demand: object = None) -> None:
        self.demand = demand
        self.listed: Rank | None = None
        self._fresh: list[R] = []
        self._sorted: list[R] = []
        self._start = 0

    def push(self, member: R) -> None:
        """Add a member."""
        self._fresh.append(member)

    def first(self) -> R | None:
        """Return the member of the lowest rank; None if there is none."""
        if self._fresh:
            self._settle()
        return self._sorted[self._start] if self._start < len(self._sorted) else None

    def drop_first(self) -> None:
        """Take the member out that `first` returned."""
        self._start += 1
        if self._start > _UNUSED and 2 * self._start > len(self._sorted):
            del self._sorted[: self._start]
            self._start = 0

    def _settle(self) -> None:
        fresh, known = self._fresh, self._sorted
        if len(fresh) <= _FEW + len(known) // _SHARE:
            for member in fresh:
                insort(known, member, lo=self._start, key=_rank)
        else:
            self._sorted = sorted(known[self._start :] + fresh, key=_rank)
            self._start = 0
        self._fresh = []


class Crowd(Generic[M]):
    """Members in lines, one for each demand: a line is passed over and taken back as a whole.

    INVARIANT: a line that was not passed over is in the heap by the rank by which it is `listed`,
    of its first or of one that was first before. There may be older entries of it in the heap.
    """

    __slots__ = ("_heap", "_lines", "_listings", "_size")

    def __init__(self) -> None:
        self._lines: dict[object, PendingIndex[M]] = {}
        self._heap: list[tuple[Rank, int, PendingIndex[M]]] = []
        self._listings = 0
        self._size = 0

    def __len__(self) -> int:
        """Count members, with those that left and have not come up since."""
        return self._size

    def push(self, member: M) -> None:
        """Add a member."""
        demand = member.demand
        line = self._lines.get(demand)
        if line is None:
            line = self._lines[demand] = PendingIndex(demand)
        line.push(member)
        self._size += 1
        if line.listed is None:
            self._list(line)
        elif member.rank < line.listed:
            self._enter(line, member.rank)

    def first(self, *, without: Collection[object]) -> M | None:
        """Return the member of the lowest rank, `without` some demands; None if there is none."""
        heap = self._heap
        while heap:
            rank, number, line = heap[0]
            if line.listed is rank and not (without and line.demand in without):
                first = self._first_of(line)
                if first is not None and first.rank is rank:
                    return first
                if first is not None:
                    line.listed = first.rank
                    heapreplace(heap, (first.rank, number, line))
                    continue
            heappop(heap)
            if line.listed is rank:
                line.listed = None
        return None

    def take_back(self, demand: object) -> None:
        """Have a line looked at again that was passed over."""
        line = self._lines.get(demand)
        if line is not None and line.listed is None:
            self._list(line)

    def _first_of(self, line: PendingIndex[M]) -> M | None:
        while (member := line.first()) is not None:
            if not (member.gone or member.aside):
                return member
            line.drop_first()
            self._size -= 1
        self._lines.pop(line.demand, None)
        return None

    def _list(self, line: PendingIndex[M]) -> None:
        first = self._first_of(line)
        if first is not None:
            self._enter(line, first.rank)

    def _enter(self, line: PendingIndex[M], rank: Rank) -> None:
        self._listings += 1
        line.listed = rank
        heappush(self._heap, (rank, self._listings, line))
