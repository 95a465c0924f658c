"""Lists: the API server's own functions, and cel-go's extension, version 3."""

from collections.abc import Callable
from functools import partial
from typing import Any, Final

from policyd.cel import arithmetic, comparison
from policyd.cel.cost import LIST, Budget, deep_size, pairs, visit_each, visit_list
from policyd.cel.errors import CelError
from policyd.cel.estimate import estimates
from policyd.cel.functions import Overload, Size, function, method
from policyd.cel.types import (
    BOOL,
    BYTES,
    DOUBLE,
    DURATION,
    DYN,
    INT,
    STRING,
    TIMESTAMP,
    UINT,
    A,
    Type,
    list_of,
    optional_of,
)
from policyd.cel.values import INT_MAX, NONE, Duration, Optional, Timestamp, UInt, no_such_overload

_ZEROS: Final = {INT: 0, UINT: UInt(0), DOUBLE: 0.0, DURATION: Duration(0)}
_ORDERED: Final = (INT, UINT, DOUBLE, BOOL, STRING, BYTES, DURATION, TIMESTAMP)
# Deeper lists cannot be made within the limits of an expression.
_DEEPEST: Final = 16


# Where Python's own order is that of CEL; not so with doubles that are not numbers.
_INTEGERS: Final = {int}
_PLAIN: Final = (_INTEGERS, {str})
_SUMMABLE: Final = frozenset((int, UInt, float, Duration))
_COMPARABLE: Final = _SUMMABLE | {bool, str, bytes, Timestamp}


def _sum_from(zero: object) -> Callable[[list[Any]], object]:
    """Return a function that adds numbers up; without any they are `zero`."""

    def add_up(numbers: list[Any], _budget: Budget | None = None) -> object:
        if set(map(type, numbers)) == _INTEGERS and sum(map(abs, numbers)) <= INT_MAX:
            return sum(numbers)
        total = zero
        for place, number in enumerate(numbers):
            if type(number) not in _SUMMABLE:
                raise no_such_overload("sum", numbers)
            total = arithmetic.add(total, number) if place else number
        return total

    return add_up


def _minimum(values: list[Any], _budget: Budget | None = None) -> object:
    return min(values) if set(map(type, values)) in _PLAIN else _extreme("min", values, _is_less)


def _maximum(values: list[Any], _budget: Budget | None = None) -> object:
    plain = set(map(type, values)) in _PLAIN
    return max(values) if plain else _extreme("max", values, comparison.comes_after)


def _extreme(name: str, values: list[Any], better: Callable[[Any, Any], bool]) -> object:
    if not values:
        raise CelError(f"{name} called on empty list")
    if type(values[0]) not in _COMPARABLE:
        raise no_such_overload(name, values)
    best = values[0]
    for value in values[1:]:
        best = value if better(value, best) else best
    return best


def _is_less(a: object, b: object) -> bool:
    return comparison.comes_after(b, a)


def _is_sorted(values: list[Any], _budget: Budget | None = None) -> bool:
    if values and type(values[0]) not in _COMPARABLE:
        raise no_such_overload("isSorted", values)
    return not any(map(comparison.comes_after, values, values[1:]))


def _index_of(values: list[Any], wanted: object, budget: Budget | None = None) -> int:
    return comparison.place_of(wanted, values, budget)


def _last_index_of(values: list[Any], wanted: object, _budget: Budget | None = None) -> int:
    places = range(len(values) - 1, -1, -1)
    return next((i for i in places if comparison.equal(values[i], wanted)), -1)


def _includes(target: object, wanted: object, budget: Budget | None = None) -> bool:
    if type(target) is list:
        return comparison.place_of(wanted, target, budget) >= 0
    return comparison.equal(target, wanted)


def _slice(values: list[Any], start: int, end: int) -> list[Any]:
    if start < 0 or end < 0:
        raise CelError(f"cannot slice({start}, {end}), negative indexes not supported")
    if start > end:
        wrong = "start index must be less than or equal to end index"
        raise CelError(f"cannot slice({start}, {end}), {wrong}")
    if end > len(values):
        raise CelError(f"cannot slice({start}, {end}), list is length {len(values)}")
    return values[start:end]


def _flatten(values: list[Any], depth: int = 1) -> list[Any]:
    if depth < 0:
        raise CelError("level must be non-negative")
    flat = values
    for _ in range(_nesting(values, depth)):
        flat = [part for v in flat for part in (v if type(v) is list else (v,))]
    return flat


def _nesting(values: list[Any], most: int) -> int:
    """Return how many levels of lists there are to flatten, of so many."""
    levels = 0
    inner = [value for value in values if type(value) is list]
    while inner and levels < most:
        levels += 1
        inner = [value for one in inner for value in one if type(value) is list]
    return levels


def _flatten_work(values: list[Any], depth: int = 1) -> int:
    """Return how many elements are looked at: each once for every level above it, at most."""
    return deep_size(values, times=max(1, min(depth, _DEEPEST)))


def _distinct(values: list[Any]) -> list[Any]:
    found: list[Any] = []
    for value in values:
        if not comparison.contains(value, found):
            found.append(value)
    return found


def _reverse(values: list[Any]) -> list[Any]:
    return values[::-1]


def _sort(values: list[Any]) -> list[Any]:
    return comparison.sort_pairs([(value, value) for value in values])


def _sort_work(values: list[Any]) -> int:
    # Sorting compares each element with some ten others.
    return deep_size(values, times=10)


def _range(size: int) -> list[int]:
    return list(range(size))


def _range_work(size: int) -> int:
    return max(size, 0)


def _first(values: list[Any]) -> Optional:
    return Optional(values[0]) if values else NONE


def _last(values: list[Any]) -> Optional:
    return Optional(values[-1]) if values else NONE


# The cost of a call that makes a list, besides its elements.
_CALL: Final = LIST + 1


def _take_cost(values: list[Any], start: int, end: int) -> int:
    return _CALL + max(min(end, len(values)) - start, 0)


def _flatten_cost(values: list[Any], depth: int = 1) -> int:
    return _CALL + max(depth, 0) * len(values)


def _reverse_cost(values: list[Any]) -> int:
    return _CALL + len(values)


def _range_cost(size: int) -> int:
    return _CALL + max(size, 0)


def self_compare_cost(values: list[Any]) -> int:
    """Cost of comparing each element of a list with each other."""
    text = bool(values) and type(values[0]) in (str, bytes)
    return _CALL + (21 if text else 20) * len(values) ** 2 // 10


_EACH = Size(cost=visit_each, counted=True)
_FIND = Size(cost=visit_list, counted=True)
_SORT = Size(cost=self_compare_cost, work=_sort_work, estimate=estimates.compare_all)
_FLATTEN = Size(cost=_flatten_cost, work=_flatten_work, estimate=estimates.flatten)
_LIST = list_of(A)
_SINCE = (1, 34)


def _of_each(
    name: str, run: Callable[..., object], kinds: tuple[Type, ...], result: Type | None
) -> tuple[Overload, ...]:
    return tuple(
        method(name, list_of(kind), returns=result or kind, run=run, size=_EACH) for kind in kinds
    )


LISTS: tuple[Overload, ...] = (
    *_of_each("isSorted", _is_sorted, _ORDERED, BOOL),
    *(
        method("sum", list_of(kind), returns=kind, run=_sum_from(zero), size=_EACH)
        for kind, zero in _ZEROS.items()
    ),
    *_of_each("min", _minimum, _ORDERED, None),
    *_of_each("max", _maximum, _ORDERED, None),
    method("indexOf", _LIST, A, returns=INT, run=_index_of, size=_FIND),
    method("lastIndexOf", _LIST, A, returns=INT, run=_last_index_of, size=_FIND),
    # A single value counts as a list of it.
    method("includes", DYN, DYN, returns=BOOL, run=_includes, size=_FIND, since=(1, 37)),
)
_new = partial(method, since=_SINCE)

LISTS_EXTENSION: tuple[Overload, ...] = (
    _new(
        "slice",
        _LIST,
        INT,
        INT,
        returns=_LIST,
        run=_slice,
        size=Size(cost=_take_cost, estimate=estimates.take),
    ),
    _new("flatten", list_of(list_of(A)), returns=_LIST, run=_flatten, size=_FLATTEN),
    _new("flatten", list_of(DYN), INT, returns=list_of(DYN), run=_flatten, size=_FLATTEN),
    _new(
        "distinct",
        _LIST,
        returns=_LIST,
        run=_distinct,
        size=Size(cost=self_compare_cost, work=pairs, estimate=estimates.distinct),
    ),
    _new(
        "reverse",
        _LIST,
        returns=_LIST,
        run=_reverse,
        size=Size(cost=_reverse_cost, estimate=estimates.reverse),
    ),
    *(
        _new("sort", list_of(kind), returns=list_of(kind), run=_sort, size=_SORT)
        for kind in _ORDERED
    ),
    _new("first", _LIST, returns=optional_of(A), run=_first),
    _new("last", _LIST, returns=optional_of(A), run=_last),
    function(
        "lists.range",
        INT,
        returns=list_of(INT),
        run=_range,
        size=Size(cost=_range_cost, work=_range_work, estimate=estimates.count_up),
        since=_SINCE,
    ),
)
