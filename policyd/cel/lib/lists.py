"""Lists: the API server's own functions, and cel-go's extension, version 3."""

from typing import Any, Final

from policyd.cel import runtime
from policyd.cel.cost import elements, size_of
from policyd.cel.errors import CelError
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
from policyd.cel.values import NONE, Optional, no_such_overload

_ADDABLE: Final = (INT, UINT, DOUBLE, DURATION)
_ORDERED: Final = (INT, UINT, DOUBLE, BOOL, STRING, BYTES, DURATION, TIMESTAMP)
# Comparing every element with every other, as `distinct` does, is bounded by the work limit.
_LARGEST_RANGE: Final = 1_000_000


def _sum(numbers: list[Any]) -> object:
    if not numbers:
        return 0
    total = numbers[0]
    for number in numbers[1:]:
        total = runtime.add(total, number)
    if isinstance(total, str | bytes | list):
        raise no_such_overload("sum", numbers)
    return total


def _minimum(values: list[Any]) -> object:
    if not values:
        raise CelError("min called on empty list")
    least = values[0]
    for value in values[1:]:
        least = value if runtime.less(value, least) else least
    return least


def _maximum(values: list[Any]) -> object:
    if not values:
        raise CelError("max called on empty list")
    most = values[0]
    for value in values[1:]:
        most = value if runtime.greater(value, most) else most
    return most


def _is_sorted(values: list[Any]) -> bool:
    return not any(map(runtime.greater, values, values[1:]))


def _index_of(values: list[Any], wanted: object) -> int:
    return next((i for i, value in enumerate(values) if runtime.equal(value, wanted)), -1)


def _last_index_of(values: list[Any], wanted: object) -> int:
    places = range(len(values) - 1, -1, -1)
    return next((i for i in places if runtime.equal(values[i], wanted)), -1)


def _includes(values: list[Any], wanted: object) -> bool:
    return runtime.contains(wanted, values)


def _slice(values: list[Any], start: int, end: int) -> list[Any]:
    if start < 0 or end < 0:
        raise CelError(f"cannot slice({start}, {end}), negative indexes not supported")
    if start > end:
        raise CelError(f"cannot slice({start}, {end}), start index must be less than or equal")
    if end > len(values):
        raise CelError(f"cannot slice({start}, {end}), list is length {len(values)}")
    return values[start:end]


def _flatten(values: list[Any], depth: int = 1) -> list[Any]:
    if depth < 0:
        raise CelError("level must be non-negative")
    flat = values
    for _ in range(min(depth, _nesting(values))):
        flat = [part for v in flat for part in (v if type(v) is list else (v,))]
    return flat


def _nesting(values: list[Any]) -> int:
    """Return how many levels of lists there are to flatten."""
    levels = 0
    inner = [value for value in values if type(value) is list]
    while inner:
        levels += 1
        inner = [value for one in inner for value in one if type(value) is list]
    return levels


def _flatten_work(values: list[Any], depth: int = 1) -> int:
    """Return how many elements are looked at: those of all levels, once for each level above."""
    work, weight = len(values), 1
    level = values
    while depth > 0 and level:
        level = [part for value in level if type(value) is list for part in value]
        weight += 1
        work += weight * len(level)
        depth -= 1
    return work


def _distinct(values: list[Any]) -> list[Any]:
    found: list[Any] = []
    for value in values:
        if not runtime.contains(value, found):
            found.append(value)
    return found


def _pairs(values: list[Any], *_rest: object) -> int:
    return size_of(values) ** 2


def _reverse(values: list[Any]) -> list[Any]:
    return values[::-1]


def _sort(values: list[Any]) -> list[Any]:
    return runtime.sort_pairs([(value, value) for value in values])


def _ten_times(values: list[Any], *_rest: object) -> int:
    return 10 * size_of(values)


def _range(size: int) -> list[int]:
    return list(range(size))


def _range_work(size: int) -> int:
    return min(max(size, 0), 10 * _LARGEST_RANGE)


def _first(values: list[Any]) -> Optional:
    return Optional(values[0]) if values else NONE


def _last(values: list[Any]) -> Optional:
    return Optional(values[-1]) if values else NONE


_EACH = Size(cost=elements)
_COPY = Size(cost=elements, work=elements)
_LIST = list_of(A)
_SINCE = (1, 34)


def _of_each(name: str, run: Any, kinds: tuple[Type, ...], result: Type | None) -> Any:  # noqa: ANN401
    return tuple(
        method(name, list_of(kind), returns=result or kind, run=run, size=_EACH) for kind in kinds
    )


LISTS: tuple[Overload, ...] = (
    *_of_each("isSorted", _is_sorted, _ORDERED, BOOL),
    *_of_each("sum", _sum, _ADDABLE, None),
    *_of_each("min", _minimum, _ORDERED, None),
    *_of_each("max", _maximum, _ORDERED, None),
    method("indexOf", _LIST, A, returns=INT, run=_index_of, size=_EACH),
    method("lastIndexOf", _LIST, A, returns=INT, run=_last_index_of, size=_EACH),
    method("includes", _LIST, A, returns=BOOL, run=_includes, size=_EACH, since=(1, 37)),
)
LISTS_EXTENSION: tuple[Overload, ...] = (
    method("slice", _LIST, INT, INT, returns=_LIST, run=_slice, size=_COPY, since=_SINCE),
    method(
        "flatten",
        list_of(list_of(A)),
        returns=_LIST,
        run=_flatten,
        size=Size(work=_flatten_work),
        since=_SINCE,
    ),
    method(
        "flatten",
        list_of(DYN),
        INT,
        returns=list_of(DYN),
        run=_flatten,
        size=Size(work=_flatten_work),
        since=_SINCE,
    ),
    method(
        "distinct",
        _LIST,
        returns=_LIST,
        run=_distinct,
        size=Size(cost=elements, work=_pairs),
        since=_SINCE,
    ),
    method("reverse", _LIST, returns=_LIST, run=_reverse, size=_COPY, since=_SINCE),
    *(
        method(
            "sort",
            list_of(kind),
            returns=list_of(kind),
            run=_sort,
            size=Size(cost=elements, work=_ten_times),
            since=_SINCE,
        )
        for kind in _ORDERED
    ),
    method("first", _LIST, returns=optional_of(A), run=_first, since=_SINCE),
    method("last", _LIST, returns=optional_of(A), run=_last, since=_SINCE),
    function(
        "lists.range",
        INT,
        returns=list_of(INT),
        run=_range,
        size=Size(work=_range_work),
        since=_SINCE,
    ),
)
