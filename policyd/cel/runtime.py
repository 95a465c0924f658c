"""The operators on values. Each raises CelError for arguments it has no overload for."""

import math
import operator
from collections.abc import Callable, Iterable
from typing import Any, Final

from policyd.cel.cost import Budget
from policyd.cel.errors import CelError
from policyd.cel.values import (
    BOOL_KEYS,
    INT_MAX,
    INT_MIN,
    NONE,
    UINT_MAX,
    CelMap,
    Duration,
    Optional,
    Timestamp,
    UInt,
    no_such_overload,
    type_name,
)

Value = Any
"""A value of CEL: decoded JSON, or one of the types of values.py."""

NUMBERS: Final = frozenset((int, UInt, float))
_SCALARS: Final = frozenset((int, UInt, float, bool, str, bytes, type(None)))
_ORDERED: Final = frozenset((int, UInt, float, bool, str, bytes))
_KEYS: Final = frozenset((str, int, UInt, float))
_LITERAL_KEYS: Final = frozenset((str, int, UInt, bool))

# --- equality and order


def equal(a: Value, b: Value) -> bool:
    """Compare two values: numbers across their types, containers element by element."""
    kind = type(a)
    if kind in _SCALARS:
        if kind is type(b):
            return bool(a == b)
        return kind in NUMBERS and type(b) in NUMBERS and bool(a == b)
    if kind is list:
        return type(b) is list and len(a) == len(b) and all(map(equal, a, b))
    if isinstance(a, dict):
        return isinstance(b, dict) and _equal_maps(a, b)
    if kind is Optional:
        return type(b) is Optional and _equal_optionals(a, b)
    return kind is type(b) and bool(a == b)


def _equal_maps(a: dict[Any, Value], b: dict[Any, Value]) -> bool:
    if len(a) != len(b):
        return False
    return all(key in b and equal(value, dict.__getitem__(b, key)) for key, value in dict.items(a))


def _equal_optionals(a: Optional, b: Optional) -> bool:
    return a.present == b.present and (not a.present or equal(a.value, b.value))


def equal_counted(a: Value, b: Value, budget: Budget) -> bool:
    """Compare like `equal`, but charge every pair of values looked at, deep down."""
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
        budget.charge_work(len(parts))
        if not _equal_scalars(parts, pending):
            return False
    return True


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

# --- arithmetic


def checked_int(number: int) -> int:
    """Return `number` if it is a 64-bit integer."""
    if INT_MIN <= number <= INT_MAX:
        return number
    raise CelError("integer overflow")


def checked_uint(number: int) -> UInt:
    """Return `number` as an unsigned 64-bit integer if it is one."""
    if 0 <= number <= UINT_MAX:
        return UInt(number)
    raise CelError("unsigned integer overflow")


def add(a: Value, b: Value) -> Value:
    """Add numbers or times; join strings, bytes or lists."""
    kind = type(a)
    if kind is type(b):
        if kind is int:
            return checked_int(a + b)
        if kind in (str, float, bytes, list):
            return a + b
        if kind is UInt:
            return checked_uint(int(a) + int(b))
        if kind is Duration:
            return Duration(a.nanoseconds + b.nanoseconds)
    elif {kind, type(b)} == {Timestamp, Duration}:
        return Timestamp(a.nanoseconds + b.nanoseconds)
    raise no_such_overload("_+_", a, b)


def subtract(a: Value, b: Value) -> Value:
    """Subtract numbers or times."""
    kind = type(a)
    if kind is type(b):
        if kind is int:
            return checked_int(a - b)
        if kind is float:
            return a - b
        if kind is UInt:
            return checked_uint(int(a) - int(b))
        if kind is Duration or kind is Timestamp:
            return Duration(a.nanoseconds - b.nanoseconds)
    elif kind is Timestamp and type(b) is Duration:
        return Timestamp(a.nanoseconds - b.nanoseconds)
    raise no_such_overload("_-_", a, b)


def multiply(a: Value, b: Value) -> Value:
    """Multiply numbers."""
    kind = type(a)
    if kind is type(b):
        if kind is int:
            return checked_int(a * b)
        if kind is float:
            return a * b
        if kind is UInt:
            return checked_uint(int(a) * int(b))
    raise no_such_overload("_*_", a, b)


def divide(a: Value, b: Value) -> Value:
    """Divide numbers; integers towards zero."""
    kind = type(a)
    if kind is type(b):
        if kind is float:
            return _divide_floats(a, b)
        if kind is int or kind is UInt:
            if b == 0:
                raise CelError("division by zero")
            quotient = abs(int(a)) // abs(int(b))
            if kind is UInt:
                return UInt(quotient)
            return checked_int(quotient if (a < 0) == (b < 0) else -quotient)
    raise no_such_overload("_/_", a, b)


def _divide_floats(a: float, b: float) -> float:
    if b != 0:
        return a / b
    if a == 0 or math.isnan(a):
        return math.nan
    return math.copysign(math.inf, a) * math.copysign(1.0, b)


def modulo(a: Value, b: Value) -> Value:
    """Return the remainder of a division towards zero."""
    kind = type(a)
    if kind is type(b) and (kind is int or kind is UInt):
        if b == 0:
            raise CelError("modulus by zero")
        if a == INT_MIN and b == -1:
            raise CelError("integer overflow")
        remainder = abs(int(a)) % abs(int(b))
        return kind(-remainder if a < 0 else remainder)
    raise no_such_overload("_%_", a, b)


def negate(a: Value) -> Value:
    """Change the sign of a number or a duration."""
    kind = type(a)
    if kind is int:
        return checked_int(-a)
    if kind is float:
        return -a
    if kind is Duration:
        return Duration(-a.nanoseconds)
    raise no_such_overload("-_", a)


# --- containers


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


def index(container: Value, key: Value) -> Value:
    """Return an element of a list or a value of a map."""
    if type(container) is list:
        position = _position(key)
        if 0 <= position < len(container):
            return container[position]
        raise CelError(f"index out of bounds: {position}")
    if isinstance(container, dict):
        try:
            return container[_map_key(container, key)]
        except KeyError:
            raise CelError(f"no such key: {_shown(key)}") from None
    if type(container) is Optional:
        return optional_index(container, key)
    raise unselectable(container, key)


def _position(key: Value) -> int:
    kind = type(key)
    if kind is int or kind is UInt:
        return int(key)
    if kind is float and key.is_integer():
        return int(key)
    raise CelError(f"unsupported index type '{type_name(key)}' in list")


def _map_key(container: Value, key: Value) -> Any:  # noqa: ANN401 - keys are of several types
    if type(key) is bool:
        return BOOL_KEYS[key]
    if type(key) not in _KEYS:
        raise no_such_overload("_[_]", container, key)
    return key


def _shown(key: Value) -> str:
    return str(key).lower() if type(key) is bool else str(key)


def optional_index(container: Value, key: Value) -> Optional:
    """Return the element as an optional: none if it is not there."""
    if type(container) is Optional:
        if not container.present:
            return NONE
        container = container.value
    if type(container) is list:
        position = _position(key)
        return Optional(container[position]) if 0 <= position < len(container) else NONE
    if isinstance(container, dict):
        found = _map_key(container, key)
        return Optional(container[found]) if found in container else NONE
    raise no_such_overload("_[?_]", container, key)


def has(container: Value, field: str) -> bool:
    """Tell whether a map has a key, looking into optionals."""
    if isinstance(container, dict):
        return field in container
    if type(container) is Optional:
        return container.present and has(container.value, field)
    raise unselectable(container, field)


def unselectable(container: Value, field: Value) -> CelError:
    """Return the error for a field or key that cannot be selected."""
    if isinstance(container, dict):
        return CelError(f"no such key: {_shown(field)}")
    if type(container) is list:
        return CelError(f"unsupported index type '{type_name(field)}' in list")
    if type(field) is str:
        return CelError(f"no such overload: {type_name(container)} has no field '{field}'")
    return no_such_overload("_[_]", container, field)


def make_map(pairs: Iterable[tuple[Value, Value]]) -> dict[Any, Value]:
    """Build a map from a literal's pairs."""
    made: dict[Any, Value] = {}
    for key, value in pairs:
        stored = _literal_key(key)
        if stored in made:
            raise CelError(f"Failed with repeated key: {_shown(key)}")
        made[stored] = value
    return finish_map(made)


def _literal_key(key: Value) -> Any:  # noqa: ANN401 - keys are of several types
    if type(key) not in _LITERAL_KEYS:
        raise CelError(f"unsupported key type: {type_name(key)}")
    return BOOL_KEYS[key] if type(key) is bool else key


def insert(made: dict[Any, Value], key: Value, value: Value) -> None:
    """Add an entry to a map under construction."""
    stored = _literal_key(key)
    if stored in made:
        raise CelError(f"insert failed: key {_shown(key)} already exists")
    made[stored] = value


def merge(made: dict[Any, Value], entries: Value) -> None:
    """Add all entries of a map to one under construction."""
    if not isinstance(entries, dict):
        raise no_such_overload("cel.@mapInsert", made, entries)
    for key, value in entries.items():
        insert(made, key, value)


def finish_map(made: dict[Any, Value]) -> dict[Any, Value]:
    """Return a constructed map in its final type: a dict only if all keys are strings."""
    return made if all(type(key) is str for key in made) else CelMap(made)


# --- comprehensions and optionals


def elements(container: Value) -> Iterable[Value]:
    """Return what a macro with one variable loops over: elements, or keys."""
    if type(container) is list or isinstance(container, dict):
        return container
    raise _no_range(container)


def pairs(container: Value) -> Iterable[tuple[Value, Value]]:
    """Return what a macro with two variables loops over: index and element, or key and value."""
    if isinstance(container, dict):
        return container.items()
    if type(container) is list:
        return enumerate(container)
    raise _no_range(container)


def _no_range(container: Value) -> CelError:
    wanted = "(must be list, map, or dynamic)"
    kind = type_name(container)
    return CelError(f"expression of type '{kind}' cannot be range of a comprehension {wanted}")


def need_bool(value: Value) -> None:
    """Refuse what stands where a bool must."""
    if type(value) is not bool:
        raise CelError(f"no such overload: expected bool, found {type_name(value)}")


def need_optional(value: Value) -> Optional:
    """Return `value` if it is an optional."""
    if type(value) is Optional:
        return value
    raise no_such_overload("optional", value)


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
