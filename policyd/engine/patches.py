"""What a mutation by CEL does to an object: server-side apply without owners, or a JSON patch.

As in the API server: what is applied can set and replace, never remove, and nothing atomic; a JSON
patch whose `test` fails changes nothing. What comes out of an object of a built-in kind is read by
the API server's own type, which drops what it has no place for.
"""

import base64
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, Final, get_args

import msgspec

from policyd.api.kinds import resource_for_kind
from policyd.api.meta import Json
from policyd.cel.lib.time import duration_text, timestamp_text
from policyd.cel.values import BoolKey, Duration, Optional, Struct, Timestamp, UInt, type_name
from policyd.engine.compiled import CompiledMutation
from policyd.errors import PolicydError
from policyd.patch.builtin_types import MistypedError
from policyd.patch.builtin_views import changed_view
from policyd.patch.json_patch import apply_json_patch
from policyd.patch.operations import Operation, PatchError, PatchTestError, Verb
from policyd.patch.schema import schema_from_openapi, schema_of_type
from policyd.patch.structured import AtomicError, merge_applied
from policyd.patch.typed import Opaque, SchemaError, check

_VERBS: Final = get_args(Verb)
POD: Final = "core/v1.Pod"
"""What a pod template is seen as by a policy for pods."""

_CUSTOM: Final = schema_from_openapi({"x-kubernetes-preserve-unknown-fields": True})
"""The schema of a custom kind of which no more is known than that it has metadata."""

_SAFE: Final = 2**53 - 1
"""The greatest whole number that every reader of JSON keeps."""


class MutationError(PolicydError):
    """A mutation cannot be applied to this object."""


class UndecodableError(MutationError):
    """A patched object is not one of its kind, which the API server calls an error of its own."""

    def __init__(self, message: str) -> None:
        super().__init__(f"Internal error occurred: {message}")


def mutated(  # noqa: PLR0913 - what an object is, and how it is looked at
    obj: Json,
    mutation: CompiledMutation,
    value: object,
    struct: str | None,
    *,
    typed: bool,
    checked: bool,
) -> Json:
    """Return an object with what a mutation evaluated to applied; `obj` itself if nothing changes.

    Args:
        obj: The object, which stays as it is.
        mutation: The mutation.
        value: What its expression evaluated to.
        struct: The built-in type of the object, None for a custom kind.
        typed: Whether an object of a built-in kind is read by its type afterwards.
        checked: Whether an object that something is applied to must be what its schema says.

    Raises:
        UndecodableError: If what comes out of a JSON patch is not of the object's kind.
        MutationError: If it cannot be applied otherwise.
    """
    if not isinstance(obj, dict):
        raise MutationError("what is to be changed is not an object")
    strict = mutation.patch_type == "JSONPatch"
    result = _patched(obj, value) if strict else _applied(obj, value, struct, checked=checked)
    if result is obj or struct is None or not typed:
        return result
    return _read(result, obj, struct, strict=strict)


def _read(obj: Json, before: Json, struct: str, *, strict: bool) -> Json:
    try:
        read, unknown = changed_view(obj, before, struct)
    except MistypedError as error:
        if strict:
            raise UndecodableError(str(error)) from error
        text = _FRACTION.sub(r"cannot convert float64 to \1", str(error))
        wrong = f"unable to convert unstructured object to {_shown(_kind(obj))}: {text}"
        raise MutationError(wrong) from error
    if unknown and strict:
        shown = ", ".join(f'unknown field "{path}"' for path in sorted(unknown))
        raise UndecodableError(f"strict decoding error: {shown}")
    return read


def _applied(obj: Json, value: object, struct: str | None, *, checked: bool) -> Json:
    if not isinstance(value, Struct):
        raise MutationError(f"unsupported return type from ApplyConfiguration: {type_name(value)}")
    _check_types(value)
    named = _kind(obj)
    if checked and struct is not None and resource_for_kind(*named) is None:
        raise MutationError(f"{_WRONG % 'patch'}: no corresponding type for {_shown(named)}")
    applied = _applicable(value)
    applied["apiVersion"], applied["kind"] = obj.get("apiVersion"), obj.get("kind")
    schema = _CUSTOM if struct is None else schema_of_type(struct)
    try:
        merged = merge_applied(obj, applied, schema, forbid_atomic=True, what=_WRONG % "patch")
        if checked:
            check(obj, schema, what=_WRONG % "original", duplicates=True)
    except AtomicError as error:
        wrong = f"error applying patch: invalid ApplyConfiguration: {error}"
        raise MutationError(wrong, hint=error.hint) from error
    except SchemaError as error:
        raise MutationError(str(error)) from error
    return merged


def _kind(obj: dict[str, Json]) -> tuple[str, str, str]:
    group, _, version = str(obj.get("apiVersion", "")).rpartition("/")
    return group, version, str(obj.get("kind", ""))


def _shown(kind: tuple[str, str, str]) -> str:
    group, version, name = kind
    return f"{group}/{version}, Kind={name}"


_WRONG: Final = "error applying patch: failed to convert %s object to typed object"


def _patched(obj: Json, value: object) -> Json:
    if not isinstance(value, list):
        raise MutationError("type mismatch: JSONPatchType.expression should evaluate to array")
    operations = [_operation(entry) for entry in value]
    try:
        return apply_json_patch(obj, operations)
    except PatchTestError:
        return obj
    except PatchError as error:
        raise MutationError(f"JSON Patch: {error}", hint=error.hint) from error


def _operation(entry: object) -> Operation:
    if not isinstance(entry, Struct):
        raise MutationError(
            "type mismatch: JSONPatchType.expression should evaluate to array of JSONPatch"
        )
    op = entry.get("op", "")
    if op not in _VERBS:
        raise MutationError(f"JSON Patch: Unexpected kind: {op}")
    value: Json = msgspec.UNSET
    if "value" in entry:
        value = _to_write(entry["value"])
        if op == "test" and value is None:
            value = _NOTHING
    source = entry.get("from") or msgspec.UNSET
    return Operation(op, entry.get("path", ""), source, value)


_NOTHING: Any = object()
"""What a null to test for is equal to."""


def _to_write(value: object) -> Json:
    if type(value) is Optional and value.present:
        value = value.value
    if isinstance(value, Struct):
        _check_types(value)
        if _has_null(value):
            raise MutationError(f"{_NO_JSON}: proto: invalid type: structpb.NullValue")
    return to_json(value)


def _has_null(value: object) -> bool:
    """Tell whether a field of an `Object` is null, which cannot be written."""
    if not isinstance(value, Struct):
        return isinstance(value, list) and any(map(_has_null, value))
    return any(field is None or _has_null(field) for field in value.values())


_NO_JSON: Final = "JSONPath valueExpression evaluated to a type that could not marshal to JSON"


def _check_types(value: Struct) -> None:
    """Check that types are named after the path of the field they stand in."""
    wrong = list(_wrong_types(value, value.type_name))
    if wrong:
        raise MutationError("type mismatch: " + "\n".join(wrong))


def _wrong_types(value: object, expected: str) -> Iterator[str]:
    if isinstance(value, Struct):
        if value.type_name != expected:
            yield (
                f'unexpected type name "{value.type_name}", expected "{expected}", '
                "which matches field name path from root Object type"
            )
        for name, field in value.items():
            yield from _wrong_types(field, f"{expected}.{name}")
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _wrong_types(item, expected)
    elif isinstance(value, list):
        for item in value:
            yield from _wrong_types(item, expected)


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
        return dict(_fields(value))
    raise MutationError(f"{_NO_JSON}: {type_name(value)}")


def _all_plain(values: Sequence[Any]) -> bool:
    """Tell whether values are objects that are JSON already, with nothing but texts and switches.

    Most that policies handle are. Nothing here runs for each field in Python.
    """
    return (
        {*map(type, values)} == _OBJECTS
        and _NAMES.issuperset(map(type, chain.from_iterable(values)))
        and _SAME.issuperset(map(type, chain.from_iterable(map(dict.values, values))))
    )


def _fields(value: Mapping[Any, Any]) -> Iterator[tuple[str, Json]]:
    for key, field in value.items():
        plain = key.value if isinstance(key, BoolKey) else key
        name = str(plain).lower() if isinstance(plain, bool) else str(plain)
        if type(field) is Optional:
            if not field.present:
                continue
            field = field.value  # noqa: PLW2901 - an optional field is its value
        yield name, to_json(field)


def _whole(value: int) -> Json:
    return int(value) if -_SAFE <= value <= _SAFE else str(int(value))


def _applicable(fields: Struct) -> dict[str, Json]:
    """Turn an `Object` into what is applied: a null is none there, and only JSON's own values are.

    Raises:
        MutationError: If there are values that can be no part of it at all.
    """
    given = {name: v.value if type(v) is Optional else v for name, v in fields.items()}
    return {name: _NULL if value is None else _field(value) for name, value in given.items()}


def _field(value: object) -> Json:
    if isinstance(value, Struct):
        return _applicable(value)
    if isinstance(value, UInt | bytes | Duration):
        return _opaque(value)
    if isinstance(value, list) and not _all_plain(value):
        return [_field(item) for item in value]
    if isinstance(value, Mapping) and not _all_plain((value,)):
        return {name: _field(item) for name, item in value.items()}
    return value if isinstance(value, int) else to_json(value)


def _opaque(value: UInt | bytes | Duration) -> Opaque:
    """Write what JSON has not as Go does."""
    if isinstance(value, UInt):
        return Opaque(str(int(value)), hex(value), "uint64")
    if isinstance(value, Duration):
        return Opaque(duration_text(value), str(value.nanoseconds), "time.Duration")
    shown, syntax = " ".join(map(str, value)), ", ".join(map(hex, value))
    return Opaque(f"[{shown}]", f"[]uint8{{{syntax}}}", "[]uint8")


_NULL: Final = Opaque("NULL_VALUE", "0", "structpb.NullValue")

_FRACTION: Final = re.compile(
    r"json: cannot unmarshal number \S*\.\S* into Go struct field \S+ of type (int\d+)"
)


def _real(value: float) -> Json:
    if not math.isfinite(value):
        raise MutationError(f"JSON has no number {value}")
    return int(value) if value.is_integer() and abs(value) <= _SAFE else value


_OBJECTS: Final = frozenset((dict,))
_NAMES: Final = frozenset((str,))
_SAME: Final = frozenset((str, bool, type(None)))
"""Values of CEL that are the same in JSON, whatever they are."""

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
}
