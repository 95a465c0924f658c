"""The schemas of built-in types, written from the table of kinds: structure without prose."""

from policyd.api import kinds
from policyd.api.kinds import FieldType
from policyd.local.apiserver.status import Object

REFERENCE = "#/components/schemas/"

MACHINERY = "io.k8s.apimachinery.pkg"

NAMED_SCALARS: dict[str, tuple[str, Object]] = {
    "quantity": (
        f"{MACHINERY}.api.resource.Quantity",
        {"oneOf": [{"type": "string"}, {"type": "number"}]},
    ),
    "intstr": (
        f"{MACHINERY}.util.intstr.IntOrString",
        {"format": "int-or-string", "oneOf": [{"type": "integer"}, {"type": "string"}]},
    ),
    "time": (f"{MACHINERY}.apis.meta.v1.Time", {"type": "string", "format": "date-time"}),
    "microtime": (
        f"{MACHINERY}.apis.meta.v1.MicroTime",
        {"type": "string", "format": "date-time"},
    ),
}
"""Scalars that have schemas of their own."""

SCALARS: dict[str, Object] = {
    "string": {"type": "string"},
    "int32": {"type": "integer", "format": "int32"},
    "int64": {"type": "integer", "format": "int64"},
    "bool": {"type": "boolean"},
    "double": {"type": "number", "format": "double"},
    "bytes": {"type": "string", "format": "byte"},
    "any": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
}

GROUPS_WITH_SHORT_NAMES = {"meta": f"{MACHINERY}.apis.meta"}


def schema_name(type_name: str) -> str:
    """Return the OpenAPI name of a type: `core/v1.Pod` → `io.k8s.api.core.v1.Pod`."""
    group, _, rest = type_name.partition("/")
    return f"{GROUPS_WITH_SHORT_NAMES.get(group, f'io.k8s.api.{group}')}.{rest}"


def schemas_of(type_names: list[str]) -> Object:
    """Write the schemas of types and of all they are made of, by name."""
    written: Object = {}
    waiting = list(type_names)
    seen = set(waiting)
    while waiting:
        type_name = waiting.pop()
        parts: set[str] = set()
        written[schema_name(type_name)] = _struct(type_name, parts, written)
        waiting.extend(sorted(parts - seen))
        seen |= parts
    return written


def _struct(type_name: str, parts: set[str], written: Object) -> Object:
    known = kinds.fields(type_name)
    schema: Object = {"type": "object"}
    if known:
        schema["properties"] = {
            name: _field(field, parts, written) for name, field in sorted(known.items())
        }
    required = sorted(name for name, field in known.items() if field.required)
    return schema | ({"required": required} if required else {})


def _field(field: FieldType, parts: set[str], written: Object) -> Object:
    schema = _type(field, parts, written)
    marks = _marks(field)
    if marks and "$ref" in schema:
        schema = {"allOf": [schema]}
    return {"description": "", **schema, **marks} if "$ref" not in schema else schema


def _type(field: FieldType, parts: set[str], written: Object) -> Object:
    if field.scalar is not None:
        return _scalar(field, written)
    if field.struct is not None:
        parts.add(field.struct)
        return {"$ref": REFERENCE + schema_name(field.struct)}
    assert field.element is not None, "a field is a scalar, a struct, or has elements"
    element = _type(field.element, parts, written)
    if field.shape == "list":
        return {"type": "array", "items": element}
    return {"type": "object", "additionalProperties": element}


def _scalar(field: FieldType, written: Object) -> Object:
    assert field.scalar is not None
    if field.scalar in NAMED_SCALARS:
        name, schema = NAMED_SCALARS[field.scalar]
        written[name] = schema
        return {"$ref": REFERENCE + name}
    schema = SCALARS[field.scalar]
    return {**schema, "enum": list(field.enum)} if field.enum else dict(schema)


def _marks(field: FieldType) -> Object:
    marks: Object = {}
    if field.shape == "list":
        marks["x-kubernetes-list-type"] = field.list_type
    elif field.atomic and field.shape in {"struct", "map"}:
        marks["x-kubernetes-map-type"] = "atomic"
    if field.list_keys:
        marks["x-kubernetes-list-map-keys"] = list(field.list_keys)
    if field.patch_strategies:
        marks["x-kubernetes-patch-strategy"] = ",".join(field.patch_strategies)
    if field.patch_merge_key:
        marks["x-kubernetes-patch-merge-key"] = field.patch_merge_key
    if field.default is not None:
        marks["default"] = field.default
    return marks
