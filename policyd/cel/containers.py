"""Access to lists, maps and optionals, and the making of maps.

Each function raises CelError for arguments it has no overload for.
"""

from collections.abc import Iterable
from typing import Any, Final

from policyd.cel.errors import CelError
from policyd.cel.values import BOOL_KEYS, CelMap, UInt, no_such_overload, type_name

Value = Any
"""A value of CEL: decoded JSON, or one of the types of this language."""

_KEYS: Final = frozenset((str, int, UInt, float))
_LITERAL_KEYS: Final = frozenset((str, int, UInt, bool))


class Optional:
    """A value that may be missing; selecting from it gives an optional again."""

    __slots__ = ("present", "value")
    cel_type_name = "optional_type"

    def __init__(self, value: object, *, present: bool = True) -> None:
        self.value = value
        self.present = present

    def __getitem__(self, key: Value) -> "Optional":
        return optional_index(self, key)

    def __repr__(self) -> str:
        return f"optional.of({self.value!r})" if self.present else "optional.none()"


NONE: Final = Optional(None, present=False)


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


def need_optional(value: Value) -> Optional:
    """Return `value` if it is an optional."""
    if type(value) is Optional:
        return value
    raise no_such_overload("optional", value)
