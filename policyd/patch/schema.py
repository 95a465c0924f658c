"""Read the schemas that server-side apply needs: shapes, list types and map keys.

One Protocol for the built-in kinds, whose types come from the generated table, for custom ones,
whose types come from the OpenAPI schema of their CustomResourceDefinition, and for values without
any schema, which are taken as they look: objects merge, lists are replaced.

A schema says for each shape of a value, scalar, list and object, whether a value may have it and
how it is then merged. Most allow one shape; `int-or-string` and free-form fields allow several.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import Literal, Protocol

import msgspec

from policyd.api import kinds
from policyd.api.meta import Json
from policyd.errors import ConfigurationError

Scalar = Literal["string", "numeric", "boolean", "untyped"]


class Schema(Protocol):
    """The schema of a value: how it is merged. Schemas of parts are made when they are needed."""

    @property
    def scalar(self) -> Scalar | None:
        """Which scalars are allowed; None if none are."""
        ...

    @property
    def list(self) -> "ListSchema | None":
        """The schema as a list; None if the value may not be a list."""
        ...

    @property
    def map(self) -> "MapSchema | None":
        """The schema as an object; None if the value may not be an object."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class ListSchema:
    """The schema of a list: how it is merged.

    An atomic list is replaced. A set merges by value, and a list of objects by the values of
    `keys`, where a missing one is taken from `defaults`.
    """

    element: Schema
    associative: bool = False
    keys: tuple[str, ...] = ()
    defaults: Mapping[str, Json] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, eq=False)
class MapSchema:
    """The schema of an object: merged as a whole if `atomic`, else field by field.

    `element` is for the fields that have no name of their own; without it, none are allowed.
    `present` are those that the API server's own type always has, also if unset: no manager
    owns them by setting a field inside. `optional` are lists and maps that it leaves out
    when they are empty. `native` is set if there is such a type, and `raw` if that keeps the JSON
    as it is, so that it may be anything.
    """

    fields: Mapping[str, Schema]
    element: Schema | None = None
    atomic: bool = False
    present: frozenset[str] = frozenset()
    optional: frozenset[str] = frozenset()
    native: bool = False
    raw: bool = False

    def field(self, name: str) -> Schema | None:
        """Return the schema of a field; None if it does not exist."""
        return self.fields.get(name, self.element)

    def leaves_out(self, name: str, value: Json) -> bool:
        """Tell whether the API server's own type has no place for this value of a field."""
        if not value and name in self.optional:
            return True
        return value is None and self.native and name not in self.present


@dataclass(frozen=True, slots=True)
class Shapes:
    """A schema whose parts are known at once."""

    scalar: Scalar | None = None
    list: ListSchema | None = None
    map: MapSchema | None = None


class _Untyped:
    """Any value: objects are merged if `granular`, lists never are."""

    scalar: Scalar | None = "untyped"

    def __init__(self, *, granular: bool) -> None:
        self._granular = granular

    @cached_property
    def list(self) -> ListSchema | None:
        return ListSchema(ATOMIC)

    @cached_property
    def map(self) -> MapSchema | None:
        element = DEDUCED if self._granular else ATOMIC
        return MapSchema({}, element=element, atomic=not self._granular)


ATOMIC: Schema = _Untyped(granular=False)
"""Any value, replaced as a whole."""

DEDUCED: Schema = _Untyped(granular=True)
"""Any value of which no more is known: objects merge field by field, lists are replaced."""


@cache
def schema_of_type(type_name: str) -> Schema:
    """Return the schema of a struct in the table of built-in kinds, such as `core/v1.Pod`.

    Raises:
        KeyError: If the table has no such struct.
    """
    kinds.fields(type_name)
    return _Typed(kinds.FieldType(shape="struct", struct=type_name))


_SCALARS: Mapping[str, Scalar] = {
    "string": "string",
    "bytes": "string",
    "int32": "numeric",
    "int64": "numeric",
    "double": "numeric",
    "bool": "boolean",
}


class _Typed:
    """The schema of a field of a built-in kind."""

    def __init__(self, field_type: kinds.FieldType) -> None:
        self._type = field_type

    @cached_property
    def scalar(self) -> Scalar | None:
        if self._type.scalar is None:
            return None
        return _SCALARS.get(self._type.scalar, "untyped")

    @cached_property
    def list(self) -> ListSchema | None:
        if self._type.scalar == "any":
            return self._anything.list
        if self._type.shape != "list":
            return None
        assert self._type.element is not None, "a list has elements"
        return ListSchema(
            _Typed(self._type.element),
            associative=not self._type.atomic,
            keys=self._type.list_keys,
            defaults=_defaults(self._type.element, self._type.list_keys),
        )

    @cached_property
    def map(self) -> MapSchema | None:
        if self._type.scalar == "any":
            return self._anything.map
        if self._type.struct is not None:
            return _struct(self._type.struct, atomic=self._type.atomic)
        if self._type.shape != "map":
            return None
        assert self._type.element is not None, "a map has elements"
        return MapSchema({}, element=_Typed(self._type.element), atomic=self._type.atomic)

    @property
    def _anything(self) -> Schema:
        return ATOMIC if self._type.atomic else DEDUCED


_MANAGED_FIELDS = ("meta/v1.ManagedFieldsEntry", "fieldsV1")
_FIELDS_V1: Schema = Shapes(map=MapSchema({}, element=DEDUCED, raw=True))
"""The table of kinds says of these fields only that they are JSON."""


@cache
def _struct(type_name: str, *, atomic: bool) -> MapSchema:
    fields = kinds.fields(type_name)
    return MapSchema(
        {
            name: _FIELDS_V1 if (type_name, name) == _MANAGED_FIELDS else _Typed(field)
            for name, field in fields.items()
        },
        atomic=atomic,
        present=frozenset(name for name, field in fields.items() if _always_present(field)),
        optional=frozenset(
            name
            for name, field in fields.items()
            if field.shape in {"list", "map"} and not field.required
        ),
        native=True,
    )


def _always_present(field: kinds.FieldType) -> bool:
    if field.shape == "scalar":
        # Most times are not pointers in Go, and are written as null when they are not set.
        return field.scalar in {"time", "microtime"}
    return field.required or (field.struct is not None and field.default == {})


def _defaults(element: kinds.FieldType, keys: tuple[str, ...]) -> Mapping[str, Json]:
    if element.struct is None:
        return {}
    fields = kinds.fields(element.struct)
    return {key: _default(fields[key]) for key in keys}


def _default(key: kinds.FieldType) -> Json:
    """Return the default of a key; required keys have one too, though no table has it."""
    if key.default is not None:
        return key.default
    return 0 if key.scalar in {"int32", "int64"} else ""


def schema_from_openapi(schema: Mapping[str, Json]) -> Schema:
    """Return the schema of a custom kind from its `openAPIV3Schema`, which is structural.

    `x-kubernetes-list-type`, `-list-map-keys`, `-map-type`, `-preserve-unknown-fields`,
    `-int-or-string` and `-embedded-resource` mean the same as to the API server.

    Raises:
        ConfigurationError: If it is not a schema.
    """
    try:
        msgspec.convert(schema, _Written)
    except (msgspec.ValidationError, RecursionError) as error:
        text = "it is nested too deep" if isinstance(error, RecursionError) else str(error)
        raise ConfigurationError(f"not an openAPIV3Schema: {text}") from error
    return _OpenAPI({"type": "object", **schema}, resource=True, open_=False)


class _Written(msgspec.Struct, frozen=True):
    """The fields of an OpenAPI schema that are read."""

    type: str | None = None
    format: str | None = None
    properties: "dict[str, _Written] | None" = None
    items: "_Written | None" = None
    additional_properties: "_Written | bool | None" = msgspec.field(
        name="additionalProperties", default=None
    )
    keys: list[str] | None = msgspec.field(name="x-kubernetes-list-map-keys", default=None)
    list_type: str | None = msgspec.field(name="x-kubernetes-list-type", default=None)


class _OpenAPI:
    """The schema of a field of a custom kind."""

    def __init__(self, schema: Mapping[str, Json], *, open_: bool, resource: bool = False) -> None:
        self._schema = schema
        self._open = open_ or schema.get("x-kubernetes-preserve-unknown-fields") is True
        self._resource = resource or schema.get("x-kubernetes-embedded-resource") is True

    @cached_property
    def scalar(self) -> Scalar | None:
        kind = self._schema.get("type")
        if kind == "string":
            return "string" if self._schema.get("format", "") in {"", "byte"} else "untyped"
        return _OPENAPI_SCALARS.get(kind) if kind is not None else "untyped"

    @cached_property
    def list(self) -> ListSchema | None:
        if self._schema.get("type") not in {None, "array"}:
            return None
        items = self._schema.get("items")
        keys = tuple(self._schema.get("x-kubernetes-list-map-keys") or ())
        properties = items.get("properties") or {} if items else {}
        return ListSchema(
            _OpenAPI(items, open_=self._open) if items else ATOMIC,
            associative=self._schema.get("x-kubernetes-list-type") in {"set", "map"},
            keys=keys,
            defaults={
                key: properties[key]["default"]
                for key in keys
                if "default" in properties.get(key, {})
            },
        )

    @cached_property
    def map(self) -> MapSchema | None:
        if self._schema.get("type") not in {None, "object"}:
            return None
        fields: dict[str, Schema] = {
            name: _OpenAPI(field, open_=self._open)
            for name, field in (self._schema.get("properties") or {}).items()
        }
        return MapSchema(
            {**fields, **_resource_fields()} if self._resource else fields,
            element=self._element(),
            atomic=self._schema.get("x-kubernetes-map-type") == "atomic",
        )

    def _element(self) -> Schema | None:
        additional = self._schema.get("additionalProperties")
        if additional is None:
            free = self._open or not self._schema.get("properties")
            return DEDUCED if free else None
        if isinstance(additional, bool):
            return DEDUCED if additional else None
        return _OpenAPI(additional, open_=self._open)


_OPENAPI_SCALARS: Mapping[str, Scalar] = {
    "integer": "numeric",
    "number": "numeric",
    "boolean": "boolean",
}


@cache
def _resource_fields() -> Mapping[str, Schema]:
    """Return the metadata fields of every object, for any schema of its kind."""
    text = Shapes(scalar="string")
    return {"apiVersion": text, "kind": text, "metadata": schema_of_type("meta/v1.ObjectMeta")}
