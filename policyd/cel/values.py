"""Define the values that CEL has and JSON has not, and the names of all types.

JSON values keep the decoder's types: `int`, `float`, `bool`, `str`, `None`, `list`,
`dict`. Values are never changed once made; results may share parts of the evaluated object.
"""

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from policyd.cel.errors import CelError

Value = Any
"""A value of CEL: decoded JSON, or one of the types of this language."""
INT_MIN: Final = -(2**63)
INT_MAX: Final = 2**63 - 1
UINT_MAX: Final = 2**64 - 1
_TIMESTAMP_MIN: Final = -62_135_596_800 * 10**9
_TIMESTAMP_MAX: Final = 253_402_300_799 * 10**9 + 999_999_999


class UInt(int):
    """An unsigned 64-bit integer; apart from `int` only in its type."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"{int(self)}u"


# How much of a key an error shows.
_SHOWN: Final = 256
_KEYS: Final = frozenset((str, int, UInt, float))


class BoolKey(NamedTuple):
    """Stands for a bool as a key of a map, since Python's True equals 1 and CEL's does not."""

    value: bool


BOOL_KEYS: Final = {value: BoolKey(value) for value in (True, False)}


class CelMap(dict[Any, Any]):
    """A map with keys that are not all strings; bools are kept as `BoolKey`."""

    __slots__ = ()

    def __iter__(self) -> Iterator[Any]:
        for key in super().__iter__():
            yield key.value if type(key) is BoolKey else key

    def items(  # type: ignore[override]  # ty: ignore[incompatible-method-override]
        self,
    ) -> list[tuple[Any, Any]]:
        """Return pairs of key and value, with bools as bools."""
        return [(k.value if type(k) is BoolKey else k, v) for k, v in super().items()]


class Struct(dict[str, Any]):
    """A typed literal: `Object{...}` or `JSONPatch{...}`, with the fields that were given."""

    __slots__ = ("type_name",)

    def __init__(self, type_name: str, fields: dict[str, Any]) -> None:
        super().__init__(fields)
        self.type_name = type_name

    def __missing__(self, field: str) -> None:
        """Return null for a field of an `Object` that was not given."""
        if self.type_name.partition(".")[0] != "Object":
            raise CelError(f"no such key: {field}")


class MadeList(list[Any]):
    """A list that an expression made, and put into a list or map that is a field of an `Object`."""

    __slots__ = ()


class MadeMap(dict[Any, Any]):
    """A map that an expression made, and put into a list or map that is a field of an `Object`."""

    __slots__ = ()


def with_made(container: "Value") -> "Value":
    """Mark the lists and maps in a list or map, which were made by the expression it is of."""
    if type(container) is Optional:
        return Optional(with_made(container.value)) if container.present else container
    if isinstance(container, list):
        return [_made(item) for item in container]
    if isinstance(container, dict):
        return type(container)({key: _made(item) for key, item in container.items()})
    return container


def _made(value: "Value") -> "Value":
    if isinstance(value, list):
        return MadeList(value)
    plain = isinstance(value, dict) and not isinstance(value, Struct)
    return MadeMap(value) if plain else value


class TypeValue:
    """A type as a value, as `type(1)` gives."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __eq__(self, other: object) -> bool:
        return type(other) is TypeValue and other.name == self.name

    def __hash__(self) -> int:
        return hash(self.name)

    def __repr__(self) -> str:
        return f"type({self.name})"


class _Nanoseconds:
    __slots__ = ("nanoseconds",)

    def __init__(self, nanoseconds: int) -> None:
        self.nanoseconds = nanoseconds

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and other.nanoseconds == self.nanoseconds

    def __hash__(self) -> int:
        return hash(self.nanoseconds)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.nanoseconds})"


class Duration(_Nanoseconds):
    """A duration in nanoseconds, in the range of an int64."""

    __slots__ = ()

    def __init__(self, nanoseconds: int) -> None:
        if not INT_MIN <= nanoseconds <= INT_MAX:
            raise CelError("duration overflow")
        super().__init__(nanoseconds)


class Timestamp(_Nanoseconds):
    """A moment in nanoseconds since the epoch, in the years 1 to 9999."""

    __slots__ = ()

    def __init__(self, nanoseconds: int) -> None:
        if not _TIMESTAMP_MIN <= nanoseconds <= _TIMESTAMP_MAX:
            raise CelError("timestamp overflow")
        super().__init__(nanoseconds)


TYPE_NAMES: Final[dict[type, str]] = {
    int: "int",
    UInt: "uint",
    float: "double",
    bool: "bool",
    str: "string",
    bytes: "bytes",
    list: "list",
    dict: "map",
    CelMap: "map",
    type(None): "null_type",
    TypeValue: "type",
    Duration: "google.protobuf.Duration",
    Timestamp: "google.protobuf.Timestamp",
}


def type_name(value: object) -> str:
    """Return the name CEL gives the type of `value`.

    Types of libraries say theirs in a class attribute `cel_type_name`.
    """
    name = TYPE_NAMES.get(type(value))
    if name is not None:
        return name
    if isinstance(value, Struct):
        return value.type_name
    if isinstance(value, dict):
        return "map"
    return str(getattr(value, "cel_type_name", type(value).__name__))


def no_such_overload(function: str, *arguments: object) -> CelError:
    """Return the error for arguments a function has no overload for."""
    names = ", ".join(map(type_name, arguments))
    return CelError(f"no such overload: {function} applied to '({names})'")


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


def position_of(key: Value) -> int:
    """Return the index in a list that a key means."""
    kind = type(key)
    if kind is int or kind is UInt:
        return int(key)
    if kind is float and key.is_integer():
        return int(key)
    raise CelError(f"unsupported index type '{type_name(key)}' in list")


def map_key(container: Value, key: Value) -> Value:
    """Return the form in which a map holds a key."""
    if type(key) is bool:
        return BOOL_KEYS[key]
    if type(key) not in _KEYS:
        raise no_such_overload("_[_]", container, key)
    return key


def shown_key(key: Value) -> str:
    """Write a key as CEL does."""
    if type(key) is str:
        return key if len(key) <= _SHOWN else f"{key[:_SHOWN]}..."
    return str(key).lower() if type(key) is bool else str(key)


def optional_index(container: Value, key: Value) -> Optional:
    """Return the element as an optional: none if it is not there, or nothing can be in there."""
    if type(container) is Optional:
        if not container.present:
            return NONE
        container = container.value
    if type(container) is dict and type(key) is str:
        return Optional(container[key]) if key in container else NONE
    if type(container) is list:
        position = position_of(key)
        return Optional(container[position]) if 0 <= position < len(container) else NONE
    if isinstance(container, dict):
        found = map_key(container, key)
        return Optional(container[found]) if found in container else NONE
    return NONE


def strict_optional_index(container: Value, key: Value) -> Optional:
    """Return the element as an optional; fail if nothing can be in there."""
    held = container.value if type(container) is Optional and container.present else container
    if not isinstance(held, dict | list | Optional):
        raise no_such_overload("_[?_]", container, key)
    return optional_index(container, key)


MISSING: Final = object()
"""What an optional holds that holds nothing."""


def held(container: Value, key: Value) -> Value:
    """Return what `optional_index` finds, or MISSING."""
    found = optional_index(container, key)
    return found.value if found.present else MISSING


def strict_held(container: Value, key: Value) -> Value:
    """Return what `strict_optional_index` finds, or MISSING."""
    found = strict_optional_index(container, key)
    return found.value if found.present else MISSING


def unselectable(container: Value, field: Value) -> CelError:
    """Return the error for a field or key that cannot be selected."""
    if isinstance(container, dict):
        return CelError(f"no such key: {shown_key(field)}")
    if type(container) is list:
        return CelError(f"unsupported index type '{type_name(field)}' in list")
    if type(field) in _KEYS:
        kind, key = type_name(container), shown_key(field)
        return CelError(f"no such overload: {kind} has no field '{key}'")
    return no_such_overload("_[_]", container, field)
