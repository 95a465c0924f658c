"""Tickets by order key, kept sorted while they come and go, with the place of each."""

from bisect import bisect_left, insort
from collections.abc import Iterable
from itertools import chain
from operator import attrgetter
from typing import Any, Final, Generic, Protocol, TypeVar

LOAD: Final = 1_000
"""How many items a part has at first; with twice as many, it is split."""

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
