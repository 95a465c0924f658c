"""Compare values: equality in depth, and order across the number types."""

import operator
from collections.abc import Callable
from typing import Any, Final

from policyd.cel.cost import Budget
from policyd.cel.errors import CelError
from policyd.cel.values import (
    BOOL_KEYS,
    UINT_MAX,
    Duration,
    MadeList,
    Optional,
    Struct,
    Timestamp,
    UInt,
    Value,
    no_such_overload,
    type_name,
)

NUMBERS: Final = frozenset((int, UInt, float))
_SCALARS: Final = frozenset((int, UInt, float, bool, str, bytes, type(None)))
_ORDERED: Final = frozenset((int, UInt, float, bool, str, bytes))
_KEYS: Final = frozenset((str, int, UInt, float))
_CONTAINERS: Final = frozenset((list, dict))
_MISSING: Final[Any] = object()
# The work of a comparison before it reads any part.
_COMPARISON_WORK: Final = 5


def equal(a: Value, b: Value) -> bool:
    """Compare two values: numbers across their types, containers element by element."""
    kind = type(a)
    if kind in _SCALARS:
        if kind is type(b):
            return bool(a == b)
        return kind in NUMBERS and type(b) in NUMBERS and bool(a == b)
    if kind in _DEEP or isinstance(a, dict):
        return _equal_deep(a, b, _charge_nothing)
    return kind is type(b) and bool(a == b)


def equal_counted(a: Value, b: Value, budget: Budget) -> bool:
    """Compare like `equal`, but charge every pair of values looked at, deep down.

    Values of libraries state the work of comparing them in an attribute `comparison_work`.
    """
    budget.charge_work(_COMPARISON_WORK)
    if type(a) in _DEEP or isinstance(a, dict):
        return _equal_deep(a, b, budget.charge_work)
    work = getattr(a, "comparison_work", 0)
    if work:
        budget.charge_work(work)
    return equal(a, b)


Charge = Callable[[int], None]
Pairs = list[tuple[Value, Value]]


def _charge_nothing(_elements: int) -> None:
    """Charge nothing: the comparison was charged before."""


def _equal_deep(a: Value, b: Value, charge: Charge) -> bool:
    """Compare containers part by part, without recursion: they may nest as deep as any."""
    pending = [(a, b)]
    while pending:
        x, y = pending.pop()
        compare = _equal_maps if isinstance(x, dict) else _DEEP.get(type(x))
        if not (compare(x, y, pending, charge) if compare else equal(x, y)):
            return False
    return True


def _equal_maps(x: dict[Any, Value], y: Value, rest: Pairs, charge: Charge) -> bool:
    """Compare keys and scalars of two maps, and add the other pairs to `rest`."""
    if not isinstance(y, dict) or len(x) != len(y):
        return False
    if (type(x) is Struct or type(y) is Struct) and type_name(x) != type_name(y):
        return False
    # Pairing the parts takes as long as comparing them.
    charge(2 + 2 * len(x))
    for key, value in dict.items(x):  # as they are stored: bools as `BoolKey`
        other = dict.get(y, key, _MISSING)
        if type(value) is type(other) and type(value) in _SCALARS:
            if value != other:
                return False
        elif other is _MISSING:
            return False
        else:
            rest.append((value, other))
    return True


def _equal_lists(x: list[Value], y: Value, rest: Pairs, charge: Charge) -> bool:
    if not isinstance(y, list) or len(x) != len(y):
        return False
    charge(2 + 2 * len(x))
    for value, other in zip(x, y, strict=True):
        if type(value) is not type(other) or type(value) not in _SCALARS:
            rest.append((value, other))
        elif value != other:
            return False
    return True


def _equal_optionals(x: Optional, y: Value, rest: Pairs, charge: Charge) -> bool:
    if type(y) is not Optional or x.present != y.present:
        return False
    charge(3)
    rest.append((x.value, y.value))
    return True


_DEEP: Final[dict[type, Callable[[Any, Value, Pairs, Charge], bool]]] = {
    list: _equal_lists,
    MadeList: _equal_lists,
    Optional: _equal_optionals,
}


def comes_after(a: Value, b: Value) -> bool:
    """Tell whether `a` is greater: values without an order are not, as in Kubernetes."""
    kind = type(a)
    if kind is type(b):
        ordered = kind in _ORDERED or kind is Timestamp or kind is Duration
    else:
        ordered = kind in NUMBERS and type(b) in NUMBERS
    return ordered and greater(a, b)


def _ordering(compare: Callable[[Any, Any], bool], name: str) -> Callable[[Value, Value], bool]:
    def ordered(a: Value, b: Value) -> bool:
        kind = type(a)
        if kind is type(b):
            if kind in _ORDERED:
                return compare(a, b)
            if kind is Timestamp or kind is Duration:
                return compare(a.nanoseconds, b.nanoseconds)
        elif kind in NUMBERS and type(b) in NUMBERS:
            return _compare_mixed(compare, a, b)
        raise no_such_overload(name, a, b)

    return ordered


def _compare_mixed(compare: Callable[[Any, Any], bool], a: float, b: float) -> bool:
    # cel-go compares an integer with a double as doubles.
    if (type(a) is float or type(b) is float) and abs(a) <= UINT_MAX and abs(b) <= UINT_MAX:
        return compare(float(a), float(b))
    return compare(a, b)


less = _ordering(operator.lt, "_<_")
less_or_equal = _ordering(operator.le, "_<=_")
greater = _ordering(operator.gt, "_>_")
greater_or_equal = _ordering(operator.ge, "_>=_")


def contains(element: Value, container: Value, budget: Budget | None = None) -> bool:
    """Tell whether a list has an element or a map a key."""
    if type(container) is list:
        return place_of(element, container, budget) >= 0
    if isinstance(container, dict):
        if type(element) is bool:
            return BOOL_KEYS[element] in container
        return type(element) in _KEYS and dict.__contains__(container, element)
    raise no_such_overload("@in", element, container)


def place_of(wanted: Value, values: list[Value], budget: Budget | None = None) -> int:
    """Return where a list has a value first; -1 if it has not.

    The same object is equal, if `budget` knows that all in the list equal themselves.
    """
    if type(wanted) is str:
        return values.index(wanted) if wanted in values else -1
    if type(wanted) in _SCALARS:  # to compare it with containers takes longer than is charged
        for place, value in enumerate(values):
            if type(value) in _SCALARS and equal(value, wanted):
                return place
        return -1
    known = budget and type(wanted) in _CONTAINERS and budget.weigh(values).certain
    for place, value in enumerate(values):
        if (known and value is wanted) or equal(value, wanted):
            return place
    return -1


def need_bool(value: Value) -> None:
    """Refuse a value that is not a bool."""
    if type(value) is not bool:
        raise CelError(f"no such overload: expected bool, found {type_name(value)}")


def sort_pairs(keyed: list[tuple[Value, Value]]) -> list[Value]:
    """Sort elements by their keys, which must be of one type that has an order."""
    kinds = {type(key) for key, _ in keyed}
    if len(kinds) > 1:
        raise CelError("list elements must have the same type")
    for kind in kinds - _ORDERED - {Timestamp, Duration}:
        raise CelError(f"list elements must be comparable, not {kind.__name__}")
    if kinds & {Timestamp, Duration}:
        keyed = [(key.nanoseconds, element) for key, element in keyed]
    return [element for _, element in sorted(keyed, key=operator.itemgetter(0))]
