"""Tickets by rank, kept sorted while they come and go, with the place of each."""

from bisect import bisect_left, insort
from collections.abc import Iterable
from itertools import chain
from operator import attrgetter
from typing import Any, Final, Generic, Protocol, TypeVar

LOAD: Final = 1_000
"""How many items a part has at first; with twice as many, it is split."""

_rank = attrgetter("rank")


class HasRank(Protocol):
    """Something with a rank that no other has at the same time."""

    @property
    def rank(self) -> Any:  # noqa: ANN401 - whatever can be compared
        """The lowest is first."""
        ...


R = TypeVar("R", bound=HasRank)


class RankedList(Generic[R]):
    """Items in the order of their ranks, in parts, so that a change moves only some."""

    def __init__(self, items: Iterable[R] = ()) -> None:
        ordered = sorted(items, key=_rank)
        self._parts = [ordered[at : at + LOAD] for at in range(0, len(ordered), LOAD)]
        self._lasts = [part[-1].rank for part in self._parts]

    def __len__(self) -> int:
        return sum(map(len, self._parts))

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

    def place(self, item: HasRank) -> int:
        """Return the place of an item; one that is not here has the place it would have."""
        at = bisect_left(self._lasts, item.rank)
        before = sum(map(len, self._parts[:at]))
        if at == len(self._parts):
            return before
        return before + bisect_left(self._parts[at], item.rank, key=_rank)

    def add(self, item: R) -> None:
        """Put an item in."""
        if not self._parts:
            self._parts, self._lasts = [[item]], [item.rank]
            return
        at = min(bisect_left(self._lasts, item.rank), len(self._parts) - 1)
        part = self._parts[at]
        insort(part, item, key=_rank)
        self._lasts[at] = part[-1].rank
        if len(part) > 2 * LOAD:
            self._parts[at : at + 1] = part[:LOAD], part[LOAD:]
            self._lasts[at : at + 1] = part[LOAD - 1].rank, part[-1].rank

    def remove(self, item: R) -> None:
        """Take an item out that is here."""
        at = bisect_left(self._lasts, item.rank)
        part = self._parts[at]
        del part[bisect_left(part, item.rank, key=_rank)]
        if part:
            self._lasts[at] = part[-1].rank
        else:
            del self._parts[at], self._lasts[at]
