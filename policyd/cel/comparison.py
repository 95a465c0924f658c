"""Equality and order of values, deep down and across the types of numbers."""

import operator
from collections.abc import Callable
from typing import Any, Final

from policyd.cel.cost import Budget
from policyd.cel.errors import CelError
from policyd.cel.values import (
    BOOL_KEYS,
    UINT_MAX,
    Duration,
    Optional,
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
# What a comparison takes before it looks at any part.
_COMPARISON_WORK: Final = 3


def equal(a: Value, b: Value) -> bool:
    """Compare two values: numbers across their types, containers element by element."""
    kind = type(a)
    if kind in _SCALARS:
        if kind is type(b):
            return bool(a == b)
        return kind in NUMBERS and type(b) in NUMBERS and bool(a == b)
    if kind is list or kind is Optional or isinstance(a, dict):
        return _equal_deep(a, b, _charge_nothing)
    return kind is type(b) and bool(a == b)


def equal_counted(a: Value, b: Value, budget: Budget) -> bool:
    """Compare like `equal`, but charge every pair of values looked at, deep down."""
    budget.charge_work(_COMPARISON_WORK)
    if type(a) is list or isinstance(a, dict):
        return _equal_deep(a, b, budget.charge_work)
    return equal(a, b)


def _equal_deep(a: Value, b: Value, charge: Callable[[int], None]) -> bool:
    """Compare containers part by part, without recursion: they may nest as deep as any."""
    pending = [(a, b)]
    while pending:
        x, y = pending.pop()
        if type(x) is not list and not isinstance(x, dict) and type(x) is not Optional:
            if not equal(x, y):
                return False
            continue
        parts = _paired(x, y)
        if parts is None:
            return False
        # Pairing the parts takes as long as comparing them.
        charge(2 * len(parts))
        if not _equal_scalars(parts, pending):
            return False
    return True


def _charge_nothing(_elements: int) -> None:
    """Charge nothing: whoever compares has paid before."""


def _paired(x: Value, y: Value) -> list[tuple[Value, Value]] | None:
    """Return the parts of two containers that must be equal; None if they cannot be."""
    if isinstance(x, dict):
        if not isinstance(y, dict) or len(x) != len(y):
            return None
        if not all(map(y.__contains__, dict.keys(x))):
            return None
        return [(value, dict.__getitem__(y, key)) for key, value in dict.items(x)]
    if type(x) is not type(y):
        return None
    if type(x) is list:
        return list(zip(x, y, strict=True)) if len(x) == len(y) else None
    return [(x.value, y.value)] if x.present == y.present else None


def _equal_scalars(parts: list[tuple[Value, Value]], rest: list[tuple[Value, Value]]) -> bool:
    """Compare the pairs of scalars of one type, and add the others to `rest`."""
    for pair in parts:
        x, y = pair
        if type(x) is type(y) and type(x) in _SCALARS:
            if x != y:
                return False
        else:
            rest.append(pair)
    return True


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


def contains(element: Value, container: Value) -> bool:
    """Tell whether a list has an element or a map a key."""
    if type(container) is list:
        if type(element) is str:
            return element in container
        return any(equal(element, other) for other in container)
    if isinstance(container, dict):
        if type(element) is bool:
            return BOOL_KEYS[element] in container
        return type(element) in _KEYS and dict.__contains__(container, element)
    raise no_such_overload("@in", element, container)


def need_bool(value: Value) -> None:
    """Refuse what stands where a bool must."""
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
