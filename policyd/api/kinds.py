"""What is known of Kubernetes' own kinds: their resources, and the types of their fields.

Strategic merge, server-side apply, structured merge in policies, discovery and the OpenAPI
documents all read the same table, which is generated from a real API server. It is text, and is
parsed one struct at a time, on first use: the import costs next to nothing, and a type may
contain itself.

A struct's text has a line for each field: its name, with `!` if it is required, its type, how a
strategic merge patch treats it, and its default.

    containers! [core/v1.Container]map(name) merge(name)
    nodeSelector {string}*
    protocol string(SCTP|TCP|UDP) ="TCP"

    type     = scalar | scalar "(" value *("|" value) ")" | struct | map | list
    scalar   = "string" | "int32" | "int64" | "bool" | "double" | "bytes" | "time" | "microtime"
             | "quantity" | "intstr" | "any"
    struct   = group "/" version "." name ["*"]       the name it has in the table
    map      = "{" type "}" ["*"]                     keys are strings
    list     = "[" type "]" ["set" | "map(" key *("," key) ")"]
    patch    = "merge" | "merge(" key ")" | "replace" | "retainKeys"
    default  = "=" JSON                               Go's zero value only of a struct: "={}"

A star marks an atomic struct or map, which is applied as a whole. A list with nothing behind it
is atomic too. `any` is any JSON value; an object in its place is applied field by field, unless
it has a star. A struct with the default {} is there even if nobody sets it, so that nobody comes
to own it by setting what is inside.

A resource's line holds plural, singular, kind, scope, type, verbs, short names and categories;
a subresource's line holds its path, kind, type and verbs. A hyphen stands for nothing.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from types import MappingProxyType
from typing import Any, Literal, cast

from policyd.api.builtin import RESOURCES, TYPES

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
    """What a map's values, or a list's elements, are."""
    atomic: bool = False
    """Whether apply replaces the value as a whole; always true of an atomic list."""
    list_type: ListType = "atomic"
    """How apply tells a list's elements apart; of no meaning for other shapes."""
    list_keys: tuple[str, ...] = ()
    """The fields that identify an element of a list of type `map`."""
    required: bool = False
    patch_strategies: tuple[PatchStrategy, ...] = ()
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
    type_name: str | None
    verbs: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class BuiltinResource:
    """A resource that the API server has built in, as discovery shows it."""

    group: str
    version: str
    plural: str
    singular: str
    kind: str
    namespaced: bool
    type_name: str
    verbs: tuple[str, ...]
    short_names: tuple[str, ...]
    categories: tuple[str, ...]
    subresources: Mapping[str, Subresource]

    @property
    def api_version(self) -> str:
        """The group and version as objects name it: `v1`, `apps/v1`."""
        return f"{self.group}/{self.version}" if self.group else self.version


def resource(group: str, version: str, plural: str) -> BuiltinResource | None:
    """Look a built-in resource up by its path; None if there is no such one."""
    return _by_plural().get((group, version, plural))


def resource_for_kind(group: str, version: str, kind: str) -> BuiltinResource | None:
    """Look a built-in resource up by its kind; None if there is no such one."""
    return _by_kind().get((group, version, kind))


@cache
def resources() -> tuple[BuiltinResource, ...]:
    """Return all built-in resources, in the API server's own order."""
    return tuple(found for group_version in RESOURCES for found in _group_resources(group_version))


@cache
def fields(type_name: str) -> Mapping[str, FieldType]:
    """Return the fields of a struct by their JSON names.

    Raises:
        KeyError: If the table has no struct of that name.
    """
    lines = (line.split(" ", 1) for line in TYPES[type_name].split("\n") if line)
    return MappingProxyType(
        {name.rstrip("!"): _parse_field(spec, required=name.endswith("!")) for name, spec in lines}
    )


@cache
def parse_type(spec: str) -> FieldType:
    """Parse a type as the table writes it: `string`, `[core/v1.Container]map(name)`.

    Raises:
        ValueError: If it is not one.
    """
    parsed, rest = _read_type(spec)
    if rest:
        raise ValueError(f"`{rest}` follows the type in `{spec}`")
    return parsed


_SCALAR = re.compile(r"(string|int32|int64|bool|double|bytes|time|microtime|quantity|intstr|any)\b")
_STRUCT = re.compile(r"[a-z]+/v[0-9a-z]+\.\w+")
_LIST_TYPE = re.compile(r"set\b|map\(([^)]*)\)")
_PATCH = re.compile(r" (merge|replace|retainKeys)(?:\((\w+)\))?")


def _parse_field(spec: str, *, required: bool) -> FieldType:
    spec, _, default = spec.partition(" =")
    strategies = _PATCH.findall(spec)
    parsed, rest = _read_type(spec)
    assert rest == "".join(match[0] for match in _PATCH.finditer(rest)), f"`{spec}` is no field"
    return replace(
        parsed,
        required=required,
        patch_strategies=tuple(strategy for strategy, _ in strategies),
        patch_merge_key=next((key for _, key in strategies if key), None),
        default=json.loads(default) if default else None,
    )


def _read_type(text: str) -> tuple[FieldType, str]:
    """Read the type that a text begins with, and return it with the rest."""
    if text.startswith("["):
        return _read_list(text)
    if text.startswith("{"):
        element, rest = _read_type(text[1:])
        return _read_star(FieldType(shape="map", element=element), _expect("}", rest))
    if scalar := _SCALAR.match(text):
        return _read_scalar(cast("Scalar", scalar[0]), text[scalar.end() :])
    if struct := _STRUCT.match(text):
        return _read_star(FieldType(shape="struct", struct=struct[0]), text[struct.end() :])
    raise ValueError(f"`{text}` begins with no type")


def _read_list(text: str) -> tuple[FieldType, str]:
    element, rest = _read_type(text[1:])
    rest = _expect("]", rest)
    parsed = FieldType(shape="list", element=element, atomic=True)
    kind = _LIST_TYPE.match(rest)
    if kind is None:
        return parsed, rest
    list_type: ListType = "set" if kind[1] is None else "map"
    keys = tuple(kind[1].split(",")) if kind[1] else ()
    return replace(parsed, atomic=False, list_type=list_type, list_keys=keys), rest[kind.end() :]


def _read_scalar(scalar: Scalar, rest: str) -> tuple[FieldType, str]:
    parsed = FieldType(shape="scalar", scalar=scalar)
    if not rest.startswith("("):
        return _read_star(parsed, rest)
    values, closing, rest = rest[1:].partition(")")
    return replace(parsed, enum=tuple(values.split("|"))), _expect(")", closing + rest)


def _read_star(parsed: FieldType, rest: str) -> tuple[FieldType, str]:
    return (replace(parsed, atomic=True), rest[1:]) if rest.startswith("*") else (parsed, rest)


def _expect(bracket: str, text: str) -> str:
    if not text.startswith(bracket):
        raise ValueError(f"`{bracket}` is missing before `{text}`")
    return text[1:]


@cache
def _by_plural() -> Mapping[tuple[str, str, str], BuiltinResource]:
    return {(found.group, found.version, found.plural): found for found in resources()}


@cache
def _by_kind() -> Mapping[tuple[str, str, str], BuiltinResource]:
    return {(found.group, found.version, found.kind): found for found in resources()}


def _group_resources(group_version: str) -> Iterator[BuiltinResource]:
    lines = [line.split(" ") for line in RESOURCES[group_version].split("\n") if line]
    group, _, version = group_version.rpartition("/")
    for plural, *words in lines:
        if "/" in plural:
            continue
        singular, kind, scope, type_name, verbs, short_names, categories = words
        yield BuiltinResource(
            group=group,
            version=version,
            plural=plural,
            singular=singular,
            kind=kind,
            namespaced=scope == "namespaced",
            type_name=type_name,
            verbs=_names(verbs),
            short_names=_names(short_names),
            categories=_names(categories),
            subresources=MappingProxyType(
                {
                    line[0].removeprefix(f"{plural}/"): _subresource(line)
                    for line in lines
                    if line[0].startswith(f"{plural}/")
                }
            ),
        )


def _subresource(line: list[str]) -> Subresource:
    path, group_version_kind, type_name, verbs = line
    group_version, _, kind = group_version_kind.rpartition("/")
    group, _, version = group_version.rpartition("/")
    return Subresource(
        name=path.partition("/")[2],
        group=group,
        version=version,
        kind=kind,
        type_name=None if type_name == "-" else type_name,
        verbs=_names(verbs),
    )


def _names(word: str) -> tuple[str, ...]:
    return () if word == "-" else tuple(word.split(","))
