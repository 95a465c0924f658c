"""The largest sizes that values of a CustomResourceDefinition's schema can have.

What a schema does not bound is bounded by the request: the API server takes no more than 3 MiB, so
that a list has at most as many elements as fit in there. Lengths are given in characters, and a
character takes up to four bytes.
"""

from collections.abc import Mapping
from typing import Any, Final

from policyd.cel.estimate.estimation import Path, SizeOf
from policyd.cel.estimate.spans import ONE, Span
from policyd.cel.types import Type

Schema = Mapping[str, Any]
"""A schema of OpenAPI, decoded."""

LARGEST_REQUEST: Final = 3 << 20
"""Bytes of a request at most."""
_BYTES: Final = 4
_EMPTY: Final = 2
"""Bytes of `""`, `[]` and `{}`."""
_LEAST: Final = {"boolean": 4, "integer": 1, "number": 1}
_FORMATS: Final = {"duration": 32, "date": 12, "date-time": 32}


def schema_sizes(schema: Schema, *, roots: tuple[str, ...] = ("self", "oldSelf")) -> SizeOf:
    """Return what is known of sizes by a schema.

    Args:
        schema: The schema of the value that rules see.
        roots: The variables that hold the value.
    """

    def size_of(path: Path, _kind: Type) -> Span | None:
        if not path or path[0] not in roots:
            return None
        if path[-1] == "@indices":
            return ONE
        if path[-1] == "@keys":
            return Span(0, LARGEST_REQUEST - _EMPTY)
        found = _at(schema, path[1:])
        most = None if found is None else _most(found)
        return None if most is None else Span(0, most)

    return size_of


def _at(schema: Schema, path: Path) -> Schema | None:
    """Return the schema of what a path leads to."""
    found: Any = schema
    for step in path:
        if step == "@items":
            found = found.get("items")
        elif step == "@values":
            found = found.get("additionalProperties")
        else:
            found = found.get("properties", {}).get(step)
        if not isinstance(found, dict):
            return None
    return dict(found)


def _most(schema: Schema) -> int | None:
    """Return the most elements, entries or bytes; None for what has no size, or any."""
    match schema.get("type"):
        case "string":
            return _longest(schema)
        case "array":
            element = _least_bytes(schema.get("items", {})) + 1
            return int(schema.get("maxItems", (LARGEST_REQUEST - _EMPTY) // element))
        case "object" if "additionalProperties" in schema:
            values = schema["additionalProperties"]
            entry = (_least_bytes(values) if isinstance(values, dict) else _EMPTY) + 6
            return int(schema.get("maxProperties", (LARGEST_REQUEST - _EMPTY) // entry))
    return None


def _longest(schema: Schema) -> int:
    if schema.get("enum"):
        return max(len(str(value)) for value in schema["enum"])
    if "maxLength" in schema:
        return int(schema["maxLength"]) * _BYTES
    return _FORMATS.get(schema.get("format", ""), LARGEST_REQUEST - _EMPTY)


def _least_bytes(schema: Schema) -> int:
    """Return how many bytes of JSON a value takes at least."""
    if schema.get("type") != "object":
        return _LEAST.get(str(schema.get("type")), _EMPTY)
    properties = schema.get("properties", {})
    required = (name for name in schema.get("required", ()) if name in properties)
    return _EMPTY + sum(len(name) + 4 + _least_bytes(properties[name]) for name in required)
