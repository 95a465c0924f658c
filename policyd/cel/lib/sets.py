"""Sets: `sets.contains([1, 2], [2])`, on lists."""

from typing import Any

from policyd.cel.comparison import contains
from policyd.cel.cost import pairs_of, product, product_twice
from policyd.cel.functions import Overload, Size, function
from policyd.cel.types import BOOL, A, list_of


def _contains(whole: list[Any], part: list[Any]) -> bool:
    return all(contains(element, whole) for element in part)


def _equivalent(a: list[Any], b: list[Any]) -> bool:
    return _contains(a, b) and _contains(b, a)


def _intersects(a: list[Any], b: list[Any]) -> bool:
    return any(contains(element, b) for element in a)


def _both_ways(a: list[Any], b: list[Any]) -> int:
    return pairs_of(a, b) + pairs_of(b, a)


_LIST = list_of(A)
_ONCE = Size(cost=product, work=pairs_of)
_TWICE = Size(cost=product_twice, work=_both_ways)

SETS: tuple[Overload, ...] = (
    function("sets.contains", _LIST, _LIST, returns=BOOL, run=_contains, size=_ONCE),
    function("sets.equivalent", _LIST, _LIST, returns=BOOL, run=_equivalent, size=_TWICE),
    function("sets.intersects", _LIST, _LIST, returns=BOOL, run=_intersects, size=_ONCE),
)
