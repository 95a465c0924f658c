"""The OpenAPI v3 index and the document of each group and version."""

import hashlib
from collections.abc import Sequence

import msgspec

from policyd.api.data import tables
from policyd.local.apiserver.openapi.schemas import (
    REFERENCE,
    schema_name,
    schemas_of,
)
from policyd.local.apiserver.registry import Registry, Served
from policyd.local.apiserver.status import Object

OBJECT_META = "meta/v1.ObjectMeta"
LIST_META = "meta/v1.ListMeta"

PATCH_TYPES = (
    "application/apply-patch+yaml",
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
)

WRITE_PARAMETERS = ("dryRun", "fieldManager", "fieldValidation")


class Documents:
    """Writes the documents when they are asked for, and keeps them until the kinds change."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._revision = -1
        self._written: dict[str, bytes] = {}

    def index(self) -> Object:
        """Write the content of /openapi/v3: the paths of the documents."""
        paths = {}
        for group, versions in self._registry.groups().items():
            for version in versions:
                path = f"apis/{group}/{version}" if group else f"api/{version}"
                tag = hashlib.sha256(f"{path} {self._registry.revision}".encode()).hexdigest()
                paths[path] = {"serverRelativeURL": f"/openapi/v3/{path}?hash={tag[:32].upper()}"}
        return {"paths": paths}

    def document(self, group: str, version: str) -> bytes | None:
        """Write one group's and version's document; None if it does not exist."""
        if self._revision != self._registry.revision:
            self._written.clear()
            self._revision = self._registry.revision
        kinds = self._registry.groups().get(group, {}).get(version)
        if not kinds:
            return None
        key = kinds[0].api_version
        if key not in self._written:
            self._written[key] = msgspec.json.encode(write_document(kinds))
        return self._written[key]


def write_document(kinds: Sequence[Served]) -> Object:
    """Write the document of the kinds of one group and version."""
    built_in = [served.type_name for served in kinds if served.type_name]
    schemas = schemas_of([*built_in, OBJECT_META, LIST_META])
    paths: Object = {}
    for served in kinds:
        name = _add_kind(served, schemas)
        paths.update(_paths(served, name))
    return {
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes", "version": tables().version},
        "paths": paths,
        "components": {"schemas": schemas},
    }


def _add_kind(served: Served, schemas: Object) -> str:
    """Say of which kind a schema is, and add the list's; return the schema's name."""
    if served.custom is None:
        name = schema_name(served.type_name)
    else:
        name = f"{'.'.join(reversed(served.group.split('.')))}.{served.version}.{served.kind}"
        schemas[name] = custom_schema(served.custom.schema)
    schemas[name]["x-kubernetes-group-version-kind"] = [group_version_kind(served)]
    schemas[f"{name}List"] = {
        "type": "object",
        "required": ["items"],
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"$ref": REFERENCE + schema_name(LIST_META)},
            "items": {"type": "array", "items": {"$ref": REFERENCE + name}},
        },
        "x-kubernetes-group-version-kind": [
            {**group_version_kind(served), "kind": served.list_kind}
        ],
    }
    return name


def custom_schema(schema: Object) -> Object:
    """Add the fields of every object to the schema of a custom kind."""
    own = {
        "apiVersion": {"type": "string"},
        "kind": {"type": "string"},
        "metadata": {"allOf": [{"$ref": REFERENCE + schema_name(OBJECT_META)}]},
    }
    return {**schema, "properties": {**schema.get("properties", {}), **own}}


def group_version_kind(served: Served) -> Object:
    """Name a kind as OpenAPI extensions do."""
    return {"group": served.group, "version": served.version, "kind": served.kind}


def _paths(served: Served, schema: str) -> Object:
    root = f"/apis/{served.api_version}" if served.group else f"/api/{served.version}"
    if served.namespaced:
        root += "/namespaces/{namespace}"
    collection, one = f"{root}/{served.plural}", f"{root}/{served.plural}/{{name}}"
    verbs = {
        collection: {"list": "get", "create": "post", "deletecollection": "delete"},
        one: {"get": "get", "update": "put", "patch": "patch", "delete": "delete"},
    }
    return {
        path: {
            method: _operation(served, schema, verb)
            for verb, method in methods.items()
            if verb in served.verbs
        }
        for path, methods in verbs.items()
    }


def _operation(served: Served, schema: str, verb: str) -> Object:
    answer = {"application/json": {"schema": {"$ref": REFERENCE + schema}}}
    written: Object = {
        "x-kubernetes-action": verb,
        "x-kubernetes-group-version-kind": group_version_kind(served),
        "responses": {"200": {"description": "OK", "content": answer}},
    }
    if verb not in {"create", "update", "patch"}:
        return written
    extra = ("force",) if verb == "patch" else ()
    written["parameters"] = [_parameter(name) for name in (*WRITE_PARAMETERS, *extra)]
    types = ("application/json",) if verb != "patch" else _patch_types(served)
    written["requestBody"] = {"content": {name: {"schema": {}} for name in types}}
    return written


def _patch_types(served: Served) -> list[str]:
    return [name for name in PATCH_TYPES if served.custom is None or "strategic" not in name]


def _parameter(name: str) -> Object:
    kind = "boolean" if name == "force" else "string"
    return {"name": name, "in": "query", "schema": {"type": kind}}
