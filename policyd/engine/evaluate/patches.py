"""Apply the result of a mutation: an apply configuration, or a JSON patch.

As in the API server: an apply configuration can set and replace, never remove, and nothing atomic;
a JSON patch whose `test` fails changes nothing. An object of a built-in kind is then read by the
API server's own type, which drops unknown fields. The fields of an `Object` become Go's own values
one by one, but not the content of a list or map of an expression: a map in a list must be an
`Object` as well.
"""

import base64
import math
import re
from collections.abc import (
    Callable,
    Iterator,
    Mapping,
    Sequence,
)
from itertools import (
    chain,
)
from typing import (
    Any,
    Final,
    get_args,
)

import msgspec

from policyd.api.kinds import (
    resource_for_kind,
)
from policyd.api.meta import (
    Json,
)
from policyd.cel.lib.time import (
    duration_text,
    timestamp_text,
)
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
from policyd.engine.model.compiled import (
    CompiledMutation,
)
from policyd.errors import (
    PolicydError,
)
from policyd.patch.builtin_types import (
    MistypedError,
)
from policyd.patch.builtin_views import (
    changed_view,
)
from policyd.patch.json_patch import (
    apply_json_patch,
)
from policyd.patch.managed_fields import (
    managed_fields,
    with_managed_fields,
)
from policyd.patch.operations import (
    Operation,
    PatchError,
    PatchTestError,
    Verb,
)
from policyd.patch.schema import (
    Schema,
    schema_from_openapi,
    schema_of_type,
)
from policyd.patch.structured import (
    AtomicError,
    merge_applied,
)
from policyd.patch.typed import (
    Opaque,
    SchemaError,
    check,
)

NO_JSON: Final = "JSONPath valueExpression evaluated to a type that could not marshal to JSON"

_Table = Mapping[type, Callable[[Any], Any]]

_SAFE: Final = 2**53 - 1
"""The greatest whole number that every reader of JSON keeps."""


class MutationError(PolicydError):
    """A mutation cannot be applied to this object."""


def to_json(value: object) -> Json:
    """Turn a value of CEL into JSON, as the API server does for patches.

    Values that are JSON already are shared, so a later comparison finds them equal by identity.

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
    """Tell whether values are objects that are JSON already, of strings and booleans only.

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
        MutationError: If a part is of a type that such a value may not have.
    """
    return _fields_of(fields, _WRITTEN)


def _fields_of(fields: Struct, table: _Table) -> dict[str, Json]:
    null = table[type(None)]  # a null outside of fields is the null of JSON
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


_VERBS: Final = get_args(Verb)
POD: Final = "core/v1.Pod"
"""The type that policies for pods see for a pod template."""

_CUSTOM: Final = schema_from_openapi({"x-kubernetes-preserve-unknown-fields": True})
"""The schema of a custom kind of which no more is known than that it has metadata."""

_NONE: Final[Mapping[tuple[str, str, str], Schema]] = {}


class UndecodablePatchError(MutationError):
    """A patched object is not one of its kind, which the API server calls an error of its own."""

    def __init__(self, message: str) -> None:
        super().__init__(f"Internal error occurred: {message}")


def mutated(  # noqa: PLR0913 - an object, its types, and how it is read
    obj: Json,
    mutation: CompiledMutation,
    value: object,
    struct: str | None,
    *,
    typed: bool,
    checked: bool,
    plain: bool = False,
    custom: Mapping[tuple[str, str, str], Schema] = _NONE,
) -> Json:
    """Return an object with the result of a mutation applied; `obj` itself if nothing changes.

    Args:
        obj: The object, which stays as it is.
        mutation: The mutation.
        value: The result of its expression.
        struct: The built-in type of the object, None for a custom kind.
        typed: Whether an object of a built-in kind is read by its type afterwards.
        checked: Whether an object must conform to its schema before a change is applied.
        plain: Whether the values of a JSON patch are known to be the same in JSON.
        custom: The schemas of custom kinds that are known, by group, version and kind.

    Raises:
        UndecodableError: If the result of a JSON patch is not of the object's kind.
        MutationError: If it cannot be applied for another reason.
    """
    if not isinstance(obj, dict):
        raise MutationError("the target of the change is not an object")
    strict = mutation.patch_type == "JSONPatch"
    if strict:
        result = _patched(obj, value, plain=plain)
    else:
        known = custom.get(_kind(obj), _CUSTOM)
        schema = known if struct is None else schema_of_type(struct)
        result = _applied(obj, value, struct, schema, checked=checked)
    if result is obj or struct is None or not typed:
        return result
    return _read(result, obj, struct, strict=strict)


def _read(obj: Json, before: Json, struct: str, *, strict: bool) -> Json:
    try:
        read, unknown = changed_view(obj, before, struct)
    except MistypedError as error:
        if strict:
            raise UndecodablePatchError(str(error)) from error
        text = _FRACTION.sub(r"cannot convert float64 to \1", str(error))
        wrong = f"unable to convert unstructured object to {_shown_kind(_kind(obj))}: {text}"
        raise MutationError(wrong) from error
    if unknown and strict:
        shown = ", ".join(f'unknown field "{path}"' for path in sorted(unknown))
        raise UndecodablePatchError(f"strict decoding error: {shown}")
    return read


def _applied(
    obj: dict[str, Json], value: object, struct: str | None, schema: Schema, *, checked: bool
) -> Json:
    if not isinstance(value, Struct):
        raise MutationError(f"unsupported return type from ApplyConfiguration: {type_name(value)}")
    _check_types(value)
    named = _kind(obj)
    if checked and struct is not None and resource_for_kind(*named) is None:
        raise MutationError(f"{_WRONG % 'patch'}: no corresponding type for {_shown_kind(named)}")
    applied = applicable(value)
    applied["apiVersion"], applied["kind"] = obj.get("apiVersion"), obj.get("kind")
    try:
        merged = merge_applied(obj, applied, schema, forbid_atomic=True, what=_WRONG % "patch")
        if checked:
            # The API server replaces its managed fields that are wrong before policies see them.
            sound = with_managed_fields(obj, []) if managed_fields(obj) else obj
            check(sound, schema, what=_WRONG % "original", duplicates=True)
    except AtomicError as error:
        wrong = f"error applying patch: invalid ApplyConfiguration: {error}"
        raise MutationError(wrong, hint=error.hint) from error
    except SchemaError as error:
        raise MutationError(str(error)) from error
    return merged


def _kind(obj: dict[str, Json]) -> tuple[str, str, str]:
    group, _, version = str(obj.get("apiVersion", "")).rpartition("/")
    return group, version, str(obj.get("kind", ""))


def _shown_kind(kind: tuple[str, str, str]) -> str:
    group, version, name = kind
    return f"{group}/{version}, Kind={name}"


_WRONG: Final = "error applying patch: failed to convert %s object to typed object"


def _patched(obj: Json, value: object, *, plain: bool) -> Json:
    if not isinstance(value, list):
        raise MutationError("type mismatch: JSONPatchType.expression should evaluate to array")
    operations = [_operation(entry, plain=plain) for entry in value]
    try:
        return apply_json_patch(obj, operations)
    except PatchTestError:
        return obj
    except PatchError as error:
        raise MutationError(f"JSON Patch: {error}", hint=error.hint) from error


def _operation(entry: object, *, plain: bool) -> Operation:
    if not isinstance(entry, Struct):
        raise MutationError(
            "type mismatch: JSONPatchType.expression should evaluate to array of JSONPatch"
        )
    op = entry.get("op", "")
    if op not in _VERBS:
        raise MutationError(f"JSON Patch: Unexpected kind: {op}")
    value: Json = msgspec.UNSET
    if "value" in entry:
        value = entry["value"] if plain else _to_write(entry["value"])
        if op == "test" and value is None:
            value = _NOTHING
    source = entry.get("from") or msgspec.UNSET
    return Operation(op, entry.get("path", ""), source, value)


_NOTHING: Any = object()
"""The value that a `test` compares with null where nothing is."""


def _to_write(value: object) -> Json:
    if type(value) is Optional and value.present:
        value = value.value
    if not isinstance(value, Struct):
        return to_json(value)
    if value.type_name == "JSONPatch":
        raise MutationError(f"{NO_JSON}: cannot convert to native type: *structpb.Value")
    _check_types(value)
    return written(value)


def _check_types(value: Struct) -> None:
    """Check that types are named after the path of the field they are in."""
    wrong = list(_wrong_types(value, value.type_name))
    if wrong:
        raise MutationError("type mismatch: " + "\n".join(wrong))


_CONTAINERS: Final = (Struct, Mapping, list)
"""The types of values that contain others."""


def _wrong_types(value: object, expected: str) -> Iterator[str]:
    if isinstance(value, Struct):
        if value.type_name != expected:
            yield (
                f'unexpected type name "{value.type_name}", expected "{expected}", '
                "which matches field name path from root Object type"
            )
        for name, field in value.items():
            if isinstance(field, _CONTAINERS):
                yield from _wrong_types(field, f"{expected}.{name}")
    elif isinstance(value, _CONTAINERS):
        for item in value.values() if isinstance(value, Mapping) else value:
            if type(item) is not str and isinstance(item, _CONTAINERS):
                yield from _wrong_types(item, expected)


_FRACTION: Final = re.compile(
    r"json: cannot unmarshal number \S*\.\S* into Go struct field \S+ of type (int\d+)"
)
