"""Convert CEL values to JSON, for a JSON patch or an apply configuration.

The API server turns the fields of an `Object` into Go's own values one by one, but not what a list
or map made in an expression holds: a map in a list must be an `Object` as well.
"""

import base64
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, Final

from policyd.api.meta import Json
from policyd.cel.lib.time import duration_text, timestamp_text
from policyd.cel.values import (
    BoolKey,
    Duration,
    MadeList,
    MadeMap,
    Optional,
    Struct,
    Timestamp,
    TypeValue,
    UInt,
    type_name,
)
from policyd.errors import PolicydError
from policyd.patch.typed import Opaque

NO_JSON: Final = "JSONPath valueExpression evaluated to a type that could not marshal to JSON"

_Table = Mapping[type, Callable[[Any], Any]]

_SAFE: Final = 2**53 - 1
"""The greatest whole number that every reader of JSON keeps."""


class MutationError(PolicydError):
    """A mutation cannot be applied to this object."""


def to_json(value: object) -> Json:
    """Turn a value of CEL into JSON, as the API server does for patches.

    What is JSON already is shared, so that a comparison later sees by identity that it is the same.

    Raises:
        MutationError: If JSON has no such values.
    """
    kind = type(value)
    if kind in _CONVERSIONS:
        return _CONVERSIONS[kind](value)
    if isinstance(value, list):
        if _all_plain(value):
            return value
        items = [to_json(item) for item in value]
        return value if all(a is b for a, b in zip(items, value, strict=True)) else items
    if _all_plain((value,)):
        return value
    if isinstance(value, Mapping):
        return dict(_fields(value, to_json))
    raise MutationError(f"{NO_JSON}: {type_name(value)}")


def _all_plain(values: Sequence[Any]) -> bool:
    """Tell whether values are objects that are JSON already, with nothing but texts and switches.

    Most that policies handle are. Nothing here runs for each field in Python.
    """
    return (
        {*map(type, values)} == _OBJECTS
        and _NAMES.issuperset(map(type, chain.from_iterable(values)))
        and _SAME.issuperset(map(type, chain.from_iterable(map(dict.values, values))))
    )


def _fields(
    value: Mapping[Any, Any], convert: Callable[[object], Json]
) -> Iterator[tuple[str, Json]]:
    for key, field in value.items():
        if not isinstance(key, str):
            plain = key.value if isinstance(key, BoolKey) else key
            raise MutationError(
                f"{NO_JSON}: map key {plain!r} is of type {type_name(plain)}, not string",
                hint="write the key as a string",
            )
        yield key, convert(field)


def applicable(fields: Struct) -> dict[str, Json]:
    """Convert an `Object` to an apply configuration; `Opaque` values fit no schema.

    Raises:
        MutationError: If there are values that can be no part of it at all.
    """
    return _fields_of(fields, _APPLIED)


def written(fields: Struct) -> dict[str, Json]:
    """Turn an `Object` into the value of a JSON patch.

    Raises:
        MutationError: If there is what such a value may not be made of.
    """
    return _fields_of(fields, _WRITTEN)


def _fields_of(fields: Struct, table: _Table) -> dict[str, Json]:
    null = table[type(None)]  # one that is no field's value is what JSON calls so
    return {
        n: v if type(v) is str else null(v) if v is None else _converted(v, table)
        for n, v in fields.items()
    }


def _converted(value: Any, table: _Table) -> Json:  # noqa: ANN401 - of any type
    """Convert a value in an `Object` to JSON; the table converts other types."""
    kind = type(value)
    if kind in table and value is not None:
        return table[kind](value)
    if kind is Optional:
        return _converted(value.value, table) if value.present else None
    if isinstance(value, Struct):
        return _fields_of(value, table)
    if isinstance(value, list):
        return value if _all_plain(value) else [_converted(item, table) for item in value]
    if isinstance(value, Mapping) and not _all_plain((value,)):
        return dict(_fields(value, lambda item: _converted(item, table)))
    return to_json(value)


def _opaque_map(value: MadeMap) -> Opaque:
    shown = " ".join(f"{key}:{_shown(value[key])}" for key in sorted(value, key=str))
    return Opaque(f"map[{shown}]", "map[ref.Val]ref.Val{}", "map[ref.Val]ref.Val")


def _opaque_list(value: MadeList) -> Opaque:
    shown = [_shown(item) for item in value]
    syntax = ", ".join(f'"{item}"' for item in shown)
    return Opaque(f"[{' '.join(shown)}]", f"[]ref.Val{{{syntax}}}", "[]ref.Val")


def _opaque_bytes(value: bytes) -> Opaque:
    shown, syntax = " ".join(map(str, value)), ", ".join(map(hex, value))
    return Opaque(f"[{shown}]", f"[]uint8{{{syntax}}}", "[]uint8")


def _shown(value: object) -> str:
    """Write a value as cel-go shows it."""
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{key}: {_shown(item)}' for key, item in value.items())}}}"
    if isinstance(value, list):
        return f"[{', '.join(map(_shown, value))}]"
    if isinstance(value, bool):
        return str(value).lower()
    return "null" if value is None else str(value)


def _refused(value: object) -> Json:
    kind = _APPLIED[type(value)](value).kind
    raise MutationError(f"{NO_JSON}: proto: invalid type: {kind}")


def _whole(value: int) -> Json:
    return int(value) if -_SAFE <= value <= _SAFE else str(int(value))


def _real(value: float) -> Json:
    if not math.isfinite(value):
        raise MutationError(f"JSON has no number {value}")
    return int(value) if abs(value) <= _SAFE and value == int(value) else value


def _present(value: Optional) -> Json:
    if not value.present:
        raise MutationError(f"{NO_JSON}: optional.none() dereference")
    return to_json(value.value)


_OBJECTS: Final = frozenset((dict,))
_NAMES: Final = frozenset((str,))
_SAME: Final = frozenset((str, bool, type(None)))
"""The types of CEL values that are the same in JSON."""

_CONVERSIONS: Final[dict[type, Any]] = {
    str: lambda value: value,
    bool: lambda value: value,
    type(None): lambda value: value,
    int: _whole,
    UInt: _whole,
    float: _real,
    bytes: lambda value: base64.b64encode(value).decode(),
    Duration: duration_text,
    Timestamp: timestamp_text,
    Optional: _present,
}

_APPLIED: Final[_Table] = {
    type(None): lambda _: Opaque("NULL_VALUE", "0", "structpb.NullValue"),
    int: lambda value: value,
    UInt: lambda value: Opaque(str(int(value)), hex(value), "uint64"),
    bytes: _opaque_bytes,
    Duration: lambda v: Opaque(duration_text(v), str(v.nanoseconds), "time.Duration"),
    Timestamp: lambda value: Opaque(timestamp_text(value), "time.Time{}", "time.Time"),
    TypeValue: lambda value: value.name,
    MadeMap: _opaque_map,
    MadeList: _opaque_list,
}
"""The JSON of values of other types in an applied `Object`, as Go writes them."""

_WRITTEN: Final[_Table] = {
    int: lambda value: int(float(value)),
    TypeValue: lambda value: value.name,
    **dict.fromkeys((type(None), Duration, Timestamp, MadeMap, MadeList), _refused),
}
"""The JSON of such values in an `Object` of a JSON patch."""
