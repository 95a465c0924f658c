"""What waits, by rank, made for taking the first: most come in crowds, and leave one by one."""

from bisect import insort
from collections.abc import Iterable, Iterator
from operator import attrgetter
from typing import Generic, TypeVar

Rank = tuple[int, float, str, str]
"""Priority, highest first; age; uid; key."""

_FEW = 4
_SHARE = 64
_UNUSED = 64
_rank = attrgetter("rank")


R = TypeVar("R")


class Line(Generic[R]):
    """Members that have a `rank`, of which the one of the lowest is first.

    They are kept sorted, so that taking the first compares nothing, however many there are. Those
    that come are put in when somebody asks for the first: a few one by one, a crowd by sorting.
    """

    __slots__ = ("_fresh", "_sorted", "_start")

    def __init__(self) -> None:
        self._fresh: list[R] = []
        self._sorted: list[R] = []
        self._start = 0

    def __len__(self) -> int:
        return len(self._sorted) - self._start + len(self._fresh)

    def __iter__(self) -> Iterator[R]:
        """Iterate over all members, in no particular order."""
        yield from self._sorted[self._start :]
        yield from self._fresh

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

    def keep(self, members: Iterable[R]) -> None:
        """Have these members only."""
        self._fresh, self._sorted, self._start = list(members), [], 0

    def _settle(self) -> None:
        fresh, known = self._fresh, self._sorted
        if len(fresh) <= _FEW + len(known) // _SHARE:
            for member in fresh:
                insort(known, member, lo=self._start, key=_rank)
        else:
            self._sorted = sorted(known[self._start :] + fresh, key=_rank)
            self._start = 0
        self._fresh = []
