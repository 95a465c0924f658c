"""Structural schemas: pruning of unknown fields, and defaults."""

from collections.abc import Iterator

import msgspec

from policyd.api.meta import Json
from policyd.local.apiserver.status import Object

PRESERVE = "x-kubernetes-preserve-unknown-fields"
EMBEDDED = "x-kubernetes-embedded-resource"
INT_OR_STRING = "x-kubernetes-int-or-string"

RESOURCE_FIELDS = frozenset({"apiVersion", "kind", "metadata"})
"""The fields that every object has, regardless of its schema."""


def prune(value: Object, schema: Object) -> Iterator[str]:
    """Remove the fields that a schema does not have, in place; yield their paths."""
    yield from _prune_object(value, schema, "", is_resource=True)


def _prune(value: Json, schema: Object, path: str) -> Iterator[str]:
    if isinstance(value, dict):
        is_resource = bool(schema.get(EMBEDDED))
        yield from _prune_object(value, schema, path, is_resource=is_resource)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _prune(item, _items(schema), f"{path}[{index}]")


def _items(schema: Object) -> Object:
    """Return the schema of a list's items: all is kept where unknown fields are and none is."""
    items: Object = schema.get("items") or {PRESERVE: bool(schema.get(PRESERVE))}
    return items


def _prune_object(value: Object, schema: Object, path: str, *, is_resource: bool) -> Iterator[str]:
    known, others = schema.get("properties", {}), schema.get("additionalProperties")
    for name in list(value):
        inner = f"{path}.{name}" if path else name
        if is_resource and name in RESOURCE_FIELDS:
            continue
        if name in known:
            yield from _prune(value[name], known[name], inner)
        elif isinstance(others, dict):
            yield from _prune(value[name], others, inner)
        elif not schema.get(PRESERVE) and not others:
            del value[name]
            yield inner


def fill_in(value: Json, schema: Object) -> None:
    """Set the defaults that a schema states, in place."""
    if isinstance(value, dict):
        for name, field in schema.get("properties", {}).items():
            _fill_in_field(value, name, field)
        others = schema.get("additionalProperties")
        if isinstance(others, dict):
            for name in value.keys() - schema.get("properties", {}).keys():
                fill_in(value[name], others)
    elif isinstance(value, list) and isinstance(schema.get("items"), dict):
        for item in value:
            fill_in(item, schema["items"])


def defaults_of(schema: Object) -> Object:
    """Return a schema as far as it has defaults; empty if it has none."""
    found: Object = {name: schema[name] for name in ("default", "nullable") if name in schema}
    items, others = schema.get("items"), schema.get("additionalProperties")
    for name, part in (("items", items), ("additionalProperties", others)):
        inner = defaults_of(part) if isinstance(part, dict) else None
        if inner:
            found[name] = inner
    fields = {name: defaults_of(field) for name, field in schema.get("properties", {}).items()}
    if "additionalProperties" not in found:  # of fields that are not named
        fields = {name: field for name, field in fields.items() if field}
    if fields:
        found["properties"] = fields
    return found if found.keys() - {"nullable"} else {}


def _fill_in_field(value: Object, name: str, field: Object) -> None:
    if value.get(name) is None:
        if "default" in field:
            value[name] = msgspec.json.decode(msgspec.json.encode(field["default"]))
        elif name in value and not field.get("nullable"):
            # Null for a field that may not be null is as good as nothing, where defaults exist.
            return
    if name in value:
        fill_in(value[name], field)
