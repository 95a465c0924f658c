"""Ranks in order, made for taking the lowest: most come in crowds, and leave one by one."""

from bisect import insort
from collections.abc import Iterable, Iterator

Rank = tuple[int, float, str, str]
"""Priority, highest first; age; uid; key."""

_FEW = 4
_SHARE = 64
_UNUSED = 64


class Line:
    """Ranks, of which the lowest is first.

    They are kept sorted, so that taking the first compares nothing, however many there are. Those
    that come are put in when somebody asks for the first: a few one by one, a crowd by sorting.
    """

    __slots__ = ("_fresh", "_sorted", "_start")

    def __init__(self) -> None:
        self._fresh: list[Rank] = []
        self._sorted: list[Rank] = []
        self._start = 0

    def __len__(self) -> int:
        return len(self._sorted) - self._start + len(self._fresh)

    def __iter__(self) -> Iterator[Rank]:
        """Iterate over all ranks, in no particular order."""
        yield from self._sorted[self._start :]
        yield from self._fresh

    def push(self, rank: Rank) -> None:
        """Add a rank."""
        self._fresh.append(rank)

    def first(self) -> Rank | None:
        """Return the lowest rank; None if there is none."""
        if self._fresh:
            self._settle()
        return self._sorted[self._start] if self._start < len(self._sorted) else None

    def drop_first(self) -> None:
        """Take the rank out that `first` returned."""
        self._start += 1
        if self._start > _UNUSED and 2 * self._start > len(self._sorted):
            del self._sorted[: self._start]
            self._start = 0

    def keep(self, ranks: Iterable[Rank]) -> None:
        """Have these ranks only."""
        self._fresh, self._sorted, self._start = list(ranks), [], 0

    def _settle(self) -> None:
        fresh, known = self._fresh, self._sorted
        if len(fresh) <= _FEW + len(known) // _SHARE:
            for rank in fresh:
                insort(known, rank, lo=self._start)
        else:
            self._sorted = sorted(known[self._start :] + fresh)
            self._start = 0
        self._fresh = []
