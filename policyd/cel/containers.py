"""Read lists, maps and optionals, and make maps.

Each function raises CelError for arguments it has no overload for.
"""

from collections.abc import Iterable
from typing import Any, Final

from policyd.cel.errors import CelError
from policyd.cel.values import (
    BOOL_KEYS,
    CelMap,
    Optional,
    UInt,
    Value,
    map_key,
    no_such_overload,
    optional_index,
    position_of,
    shown_key,
    type_name,
    unselectable,
)

_LITERAL_KEYS: Final = frozenset((str, int, UInt, bool))


def index(container: Value, key: Value) -> Value:
    """Return an element of a list or a value of a map."""
    if type(container) is list:
        position = position_of(key)
        if 0 <= position < len(container):
            return container[position]
        raise CelError(f"index out of bounds: {position}")
    if isinstance(container, dict):
        try:
            return container[map_key(container, key)]
        except KeyError:
            raise CelError(f"no such key: {shown_key(key)}") from None
    if type(container) is Optional:
        return optional_index(container, key)
    raise unselectable(container, key)


def has(container: Value, field: str) -> bool:
    """Tell whether a map has a key, looking into optionals; null and scalars have none.

    So it is in cel-go, and published policies rely on it for null.
    """
    if isinstance(container, dict):
        return field in container
    if type(container) is Optional:
        return container.present and has(container.value, field)
    if type(container) is list:
        raise unselectable(container, field)
    return False


def make_map(pairs: Iterable[tuple[Value, Value]]) -> dict[Any, Value]:
    """Build a map from a literal's pairs."""
    made: dict[Any, Value] = {}
    for key, value in pairs:
        stored = _literal_key(key)
        if stored in made:
            raise CelError(f"Failed with repeated key: {shown_key(key)}")
        made[stored] = value
    return finish_map(made)


def _literal_key(key: Value) -> Value:
    if type(key) not in _LITERAL_KEYS:
        raise CelError(f"unsupported key type: {type_name(key)}")
    return BOOL_KEYS[key] if type(key) is bool else key


def insert(made: dict[Any, Value], key: Value, value: Value) -> None:
    """Add an entry to a map under construction."""
    stored = _literal_key(key)
    if stored in made:
        raise CelError(f"insert failed: key {shown_key(key)} already exists")
    made[stored] = value


def merge(made: dict[Any, Value], entries: Value) -> None:
    """Add all entries of a map to one under construction."""
    if not isinstance(entries, dict):
        raise no_such_overload("cel.@mapInsert", made, entries)
    for key, value in entries.items():
        insert(made, key, value)


def finish_map(made: dict[Any, Value]) -> dict[Any, Value]:
    """Return a constructed map in its final type: a dict only if all keys are strings."""
    return made if {str}.issuperset(map(type, made)) else CelMap(made)


def elements(container: Value) -> Iterable[Value]:
    """Return the range of a macro with one variable: elements, or keys."""
    if type(container) is list or isinstance(container, dict):
        return container
    raise _no_range(container)


def pairs(container: Value) -> Iterable[tuple[Value, Value]]:
    """Return the range of a macro with two variables: index and element, or key and value."""
    if isinstance(container, dict):
        return container.items()
    if type(container) is list:
        return enumerate(container)
    raise _no_range(container)


def _no_range(container: Value) -> CelError:
    kind = _GO_TYPES.get(type(container), type_name(container))
    return CelError(f"got '{kind}', expected iterable type")


_GO_TYPES: Final = {
    type(None): "types.Null",
    bool: "types.Bool",
    int: "types.Int",
    UInt: "types.Uint",
    float: "types.Double",
    str: "types.String",
    bytes: "types.Bytes",
}
"""The names that cel-go's message has for types that cannot be iterated."""


def need_optional(value: Value) -> Optional:
    """Return `value` if it is an optional."""
    if type(value) is Optional:
        return value
    raise no_such_overload("optional", value)
