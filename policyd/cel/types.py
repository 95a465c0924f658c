"""Define the types that the checker uses."""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Type:
    """A type with its parameters; a `variable` is a type still to be found."""

    name: str
    parameters: tuple["Type", ...] = ()
    variable: bool = False

    def __str__(self) -> str:
        shown = _SHOWN_NAMES.get(self.name, self.name)
        if not self.parameters:
            return shown
        return f"{shown}({', '.join(map(str, self.parameters))})"


_SHOWN_NAMES = {
    "null_type": "null",
    "google.protobuf.Timestamp": "timestamp",
    "google.protobuf.Duration": "duration",
}

DYN: Final = Type("dyn")
ERROR: Final = Type("*error*")
BOOL: Final = Type("bool")
INT: Final = Type("int")
UINT: Final = Type("uint")
DOUBLE: Final = Type("double")
STRING: Final = Type("string")
BYTES: Final = Type("bytes")
NULL: Final = Type("null_type")
TIMESTAMP: Final = Type("google.protobuf.Timestamp")
DURATION: Final = Type("google.protobuf.Duration")
ANY_TYPE: Final = Type("type")

A: Final = Type("A", variable=True)
B: Final = Type("B", variable=True)


def list_of(element: Type) -> Type:
    """Return the type of lists of `element`."""
    return Type("list", (element,))


def map_of(key: Type, value: Type) -> Type:
    """Return the type of maps from `key` to `value`."""
    return Type("map", (key, value))


def optional_of(value: Type) -> Type:
    """Return the type of optional values."""
    return Type("optional_type", (value,))


def type_of(value: Type) -> Type:
    """Return the type of the type `value`."""
    return Type("type", (value,))


def is_dyn(kind: Type) -> bool:
    """Tell whether nothing is known of `kind`, so that anything may be done with it."""
    return kind.name in ("dyn", "*error*")
