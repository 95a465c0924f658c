"""Checking a custom object against its schema, in the API server's words."""

import re
from collections.abc import Iterator, Mapping

import msgspec

from policyd.api.meta import Json
from policyd.cel.lib.regex import compiled
from policyd.local.apiserver.custom.schema import EMBEDDED, INT_OR_STRING, RESOURCE_FIELDS
from policyd.local.apiserver.status import (
    Cause,
    Object,
    duplicate,
    not_supported,
    required,
    shown,
    wrong,
)

NOWHERE = "<nil>"
"""The path of an error that concerns no single field."""

TYPES: Mapping[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "object": (dict,),
    "array": (list,),
}


def check_custom(value: Object, schema: Object, old: Object | None = None) -> Iterator[Cause]:
    """Check an object against the schema of its kind; fields that are as in `old` may stay so."""
    yield from check_value(value, schema, "", old)


def check_value(value: Json, schema: Object, path: str, old: Json = None) -> Iterator[Cause]:
    """Check a value against a schema, but for fields that are as in `old`."""
    if value is None:
        if not schema.get("nullable") and schema.get("type"):
            yield _type_error(value, schema, path)
        return
    if not fits_type(value, schema):
        yield _type_error(value, schema, path)
        return
    yield from _check_scalar(value, schema, path)
    if isinstance(value, dict):
        yield from _check_object(value, schema, path, old if isinstance(old, dict) else {})
    elif isinstance(value, list):
        yield from _check_list(value, schema, path)
    yield from _check_combinations(value, schema, path)


def fits_type(value: Json, schema: Object) -> bool:
    """Tell whether a value is of the type that a schema states."""
    if schema.get(INT_OR_STRING):
        return isinstance(value, int | str) and not isinstance(value, bool)
    wanted: str = schema.get("type", "")
    if not wanted:
        return True
    if isinstance(value, bool):
        return wanted == "boolean"
    if wanted == "integer" and isinstance(value, float):
        return value.is_integer()
    return isinstance(value, TYPES[wanted])


def _type_error(value: Json, schema: Object, path: str) -> Cause:
    names = {str: "string", bool: "boolean", int: "integer", float: "number", dict: "object"}
    found = "null" if value is None else names.get(type(value), "array")
    wanted = "integer,string" if schema.get(INT_OR_STRING) else schema.get("type")
    text = f'Invalid value: "{found}": {path} in body must be of type {wanted}: "{found}"'
    return Cause("FieldValueTypeInvalid", text, path)


def _check_scalar(value: Json, schema: Object, path: str) -> Iterator[Cause]:
    allowed = schema.get("enum")
    if allowed is not None and value not in allowed:
        yield not_supported(path, value, allowed)
    if isinstance(value, str):
        yield from _check_text(value, schema, path)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield from _check_number(value, schema, path)
        if schema.get("format") == "int32" and not -(2**31) <= value < 2**31:
            text = f"Checked value must be of type integer with format int32 in {path}"
            yield Cause("FieldValueInvalid", f'Invalid value: "": {text}', NOWHERE)


def _check_text(value: str, schema: Object, path: str) -> Iterator[Cause]:
    longest, shortest = schema.get("maxLength"), schema.get("minLength")
    if longest is not None and len(value) > longest:
        text = f"Too long: may not be more than {longest} bytes"
        yield Cause("FieldValueTooLong", text, path)
    if shortest is not None and len(value) < shortest:
        yield wrong(path, value, f"{path} in body should be at least {shortest} chars long")
    pattern = schema.get("pattern")
    if pattern and not compiled(pattern).search(value):
        yield wrong(path, value, f"{path} in body should match '{pattern}'")
    written = schema.get("format")
    if written == "date-time" and not _DATE_TIME.fullmatch(value):
        text = f"{path} in body must be of type date-time: {shown(value)}"
        yield Cause("FieldValueTypeInvalid", f"Invalid value: {shown(value)}: {text}", path)


_DATE_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)")


def _check_number(value: float, schema: Object, path: str) -> Iterator[Cause]:
    least, most = schema.get("minimum"), schema.get("maximum")
    if least is not None and (value < least or (value == least and schema.get("exclusiveMinimum"))):
        how = "greater than" if schema.get("exclusiveMinimum") else "greater than or equal to"
        yield wrong(path, value, f"{path} in body should be {how} {least}")
    if most is not None and (value > most or (value == most and schema.get("exclusiveMaximum"))):
        how = "less than" if schema.get("exclusiveMaximum") else "less than or equal to"
        yield wrong(path, value, f"{path} in body should be {how} {most}")
    step = schema.get("multipleOf")
    if step and value % step:
        yield wrong(path, value, f"{path} in body should be a multiple of {step}")


def _check_object(value: Object, schema: Object, path: str, old: Object) -> Iterator[Cause]:
    known, others = schema.get("properties", {}), schema.get("additionalProperties")
    is_resource = not path or schema.get(EMBEDDED)
    for name in schema.get("required", ()):
        if value.get(name) is None and not known.get(name, {}).get("nullable"):
            yield required(_join(path, name))
    missing = [name for name in schema.get("required", ()) if value.get(name) is None]
    for name, item in value.items():
        if name in missing or (is_resource and name in RESOURCE_FIELDS):
            continue
        field, before = known.get(name, others), old.get(name)
        if isinstance(field, dict) and not _is_same(before, item):
            yield from check_value(item, field, _join(path, name), before)
    yield from _check_size(value, schema, path)


def _is_same(before: Json, item: Json) -> bool:
    """Tell whether two values are the same as JSON: 1 and true are equal, and not the same."""
    if before is None or before != item:
        return False
    return msgspec.json.encode(before) == msgspec.json.encode(item)


def _check_size(value: Object, schema: Object, path: str) -> Iterator[Cause]:
    most, least = schema.get("maxProperties"), schema.get("minProperties")
    if most is not None and len(value) > most:
        text = f"Too many: {len(value)}: must have at most {most} items"
        yield Cause("FieldValueTooMany", text, path)
    if least is not None and len(value) < least:
        yield wrong(path, len(value), f"{path} in body should have at least {least} properties")


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _check_list(value: list[Json], schema: Object, path: str) -> Iterator[Cause]:
    most, least = schema.get("maxItems"), schema.get("minItems")
    if most is not None and len(value) > most:
        text = f"Too many: {len(value)}: must have at most {most} items"
        yield Cause("FieldValueTooMany", text, path)
    if least is not None and len(value) < least:
        yield wrong(path, len(value), f"{path} in body should have at least {least} items")
    for index, item in enumerate(value):
        yield from check_value(item, schema.get("items") or {}, f"{path}[{index}]")
    yield from _check_distinct(value, schema, path)


def _check_distinct(value: list[Json], schema: Object, path: str) -> Iterator[Cause]:
    kind = schema.get("x-kubernetes-list-type")
    if kind not in {"set", "map"}:
        return
    keys = schema.get("x-kubernetes-list-map-keys", ())
    seen: set[bytes] = set()
    for index, item in enumerate(value):
        identity = item
        if kind == "map" and isinstance(item, dict):
            identity = {key: item[key] for key in keys if key in item}
        text = msgspec.json.encode(identity, order="sorted")
        if text in seen:
            yield duplicate(f"{path}[{index}]", identity)
        seen.add(text)


def _check_combinations(value: Json, schema: Object, path: str) -> Iterator[Cause]:
    for part in schema.get("allOf", ()):
        yield from check_value(value, part, path)
    any_of, one_of = schema.get("anyOf"), schema.get("oneOf")
    if any_of and not schema.get(INT_OR_STRING) and not any(_fits(value, p, path) for p in any_of):
        yield wrong(path, value, f"{path} in body must validate at least one schema (anyOf)")
    if one_of and sum(_fits(value, part, path) for part in one_of) != 1:
        text = f"{path} in body must validate one and only one schema (oneOf)"
        yield wrong(path, value, text)
    if "not" in schema and _fits(value, schema["not"], path):
        yield wrong(path, value, f"{path} in body must not validate the schema (not)")


def _fits(value: Json, schema: Object, path: str) -> bool:
    return next(check_value(value, schema, path), None) is None
