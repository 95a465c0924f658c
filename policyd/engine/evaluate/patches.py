"""Apply the result of a mutation: an apply configuration, or a JSON patch.

As in the API server: what is applied can set and replace, never remove, and nothing atomic; a JSON
patch whose `test` fails changes nothing. What comes out of an object of a built-in kind is read by
the API server's own type, which drops what it has no place for.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, get_args

import msgspec

from policyd.api.kinds import resource_for_kind
from policyd.api.meta import Json
from policyd.cel.values import Optional, Struct, type_name
from policyd.engine.evaluate.patch_values import (
    NO_JSON,
    MutationError,
    applicable,
    to_json,
    written,
)
from policyd.engine.model.compiled import CompiledMutation
from policyd.patch.builtin_types import MistypedError
from policyd.patch.builtin_views import changed_view
from policyd.patch.json_patch import apply_json_patch
from policyd.patch.operations import Operation, PatchError, PatchTestError, Verb
from policyd.patch.schema import Schema, schema_from_openapi, schema_of_type
from policyd.patch.structured import AtomicError, merge_applied
from policyd.patch.typed import SchemaError, check

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


def mutated(  # noqa: PLR0913 - what an object is, and how it is looked at
    obj: Json,
    mutation: CompiledMutation,
    value: object,
    struct: str | None,
    *,
    typed: bool,
    checked: bool,
    custom: Mapping[tuple[str, str, str], Schema] = _NONE,
) -> Json:
    """Return an object with the result of a mutation applied; `obj` itself if nothing changes.

    Args:
        obj: The object, which stays as it is.
        mutation: The mutation.
        value: What its expression evaluated to.
        struct: The built-in type of the object, None for a custom kind.
        typed: Whether an object of a built-in kind is read by its type afterwards.
        checked: Whether an object that something is applied to must be what its schema says.
        custom: The schemas of custom kinds that are known, by group, version and kind.

    Raises:
        UndecodableError: If what comes out of a JSON patch is not of the object's kind.
        MutationError: If it cannot be applied otherwise.
    """
    if not isinstance(obj, dict):
        raise MutationError("the target of the change is not an object")
    strict = mutation.patch_type == "JSONPatch"
    if strict:
        result = _patched(obj, value)
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
        wrong = f"unable to convert unstructured object to {_shown(_kind(obj))}: {text}"
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
        raise MutationError(f"{_WRONG % 'patch'}: no corresponding type for {_shown(named)}")
    applied = applicable(value)
    applied["apiVersion"], applied["kind"] = obj.get("apiVersion"), obj.get("kind")
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
    """Check that types are named after the path of the field they stand in."""
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
            yield from _wrong_types(item, expected)


_FRACTION: Final = re.compile(
    r"json: cannot unmarshal number \S*\.\S* into Go struct field \S+ of type (int\d+)"
)
