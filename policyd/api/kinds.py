"""The tables of Kubernetes' own kinds: their resources, and the types of their fields.

Strategic merge, server-side apply, structured merge in policies, discovery and the OpenAPI
documents all read the same table, which is generated from a real API server. It is read on first
use, the types one struct at a time: the import costs next to nothing, and a type may hold itself.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from types import MappingProxyType
from typing import Any, Final, Literal

import msgspec

from policyd.api.data import tables

Scalar = Literal[
    "string",
    "int32",
    "int64",
    "bool",
    "double",
    "bytes",
    "time",
    "microtime",
    "quantity",
    "intstr",
    "any",
]
ListType = Literal["atomic", "set", "map"]
PatchStrategy = Literal["merge", "replace", "retainKeys"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldType:
    """The type of a field, or of a list's or map's element.

    Exactly one of `scalar`, `struct` and `element` is given, as `shape` says.
    """

    shape: Literal["scalar", "struct", "map", "list"]
    scalar: Scalar | None = None
    enum: tuple[str, ...] = ()
    """The values that a string may have; empty if any."""
    struct: str | None = None
    """The name under which `fields` knows the struct."""
    element: "FieldType | None" = None
    """The type of a map's values, or of a list's elements."""
    atomic: bool = False
    """Whether apply replaces the value as a whole; always true of an atomic list."""
    list_type: ListType = "atomic"
    """How apply tells a list's elements apart; of no meaning for other shapes."""
    list_keys: tuple[str, ...] = ()
    """The fields that identify an element of a list of type `map`."""
    required: bool = False
    patch_strategies: tuple[PatchStrategy, ...] = ()
    go_type: str = ""
    """The name of the type in messages, where the rest does not tell it."""
    embedded: str = ""
    """The struct in which Go has the field, where that is within the one that JSON has it in."""
    patch_merge_key: str | None = None
    """The field that identifies an element in a strategic merge patch, for the strategy `merge`."""
    default: Any = None
    """The default that the type itself states, decoded; None if it states none.

    It is {} for a struct that the API server's own type always has, as `spec` and `status`.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class Subresource:
    """A part of a resource with a path of its own, such as `status`; its kind may be another's."""

    name: str
    group: str
    version: str
    kind: str
    type_name: str | None = None
    verbs: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class BuiltinResource:
    """A resource that the API server has built in, as discovery shows it."""

    group: str
    version: str
    plural: str
    singular: str
    kind: str
    namespaced: bool = False
    type_name: str
    verbs: tuple[str, ...]
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    subresources: Mapping[str, Subresource] = field(default_factory=dict)

    @property
    def api_version(self) -> str:
        """The group and version as objects name it: `v1`, `apps/v1`."""
        return f"{self.group}/{self.version}" if self.group else self.version


def resource(group: str, version: str, plural: str) -> BuiltinResource | None:
    """Look a built-in resource up by its path; None if it does not exist."""
    return _by_plural().get((group, version, plural))


def resource_for_kind(group: str, version: str, kind: str) -> BuiltinResource | None:
    """Look a built-in resource up by its kind; None if it does not exist."""
    return _by_kind().get((group, version, kind))


_RESOURCES: Final = msgspec.json.Decoder(tuple[BuiltinResource, ...])
_FIELDS: Final = msgspec.json.Decoder(dict[str, FieldType])


@cache
def resources() -> tuple[BuiltinResource, ...]:
    """Return all built-in resources, in the API server's own order."""
    return _RESOURCES.decode(tables().resources)


@cache
def fields(type_name: str) -> Mapping[str, FieldType]:
    """Return the fields of a struct by their JSON names.

    Raises:
        KeyError: If the table has no struct of that name.
    """
    return MappingProxyType(_FIELDS.decode(tables().types[type_name]))


@cache
def _by_plural() -> Mapping[tuple[str, str, str], BuiltinResource]:
    return {(found.group, found.version, found.plural): found for found in resources()}


@cache
def _by_kind() -> Mapping[tuple[str, str, str], BuiltinResource]:
    return {(found.group, found.version, found.kind): found for found in resources()}
