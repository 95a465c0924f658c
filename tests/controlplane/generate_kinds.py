"""Write what policyd knows of Kubernetes, `policyd/api/data/kubernetes.json`.

Run `python -m tests.controlplane.generate_kinds` after a change of the Kubernetes version.
Resources, types and columns come from a real API server: its discovery, its OpenAPI v3 documents
and its tables; what these do not say, from Kubernetes' Go types. The classes that read a field's
record say what its words mean: `FieldType` in `policyd.api.kinds`, and those of the folders that
`policyd.api.data` names.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from policyd.api import data
from policyd.local.apiserver.reading.columns import CELLS
from tests.controlplane import go_names
from tests.controlplane.go_types import SENT, GoTypes
from tests.controlplane.programs import API_SERVER, ETCD
from tests.controlplane.server import ControlPlane

TARGET = Path(data.__file__).with_name(data.FILE)

AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
TABLE = "application/json;g=meta.k8s.io;v=v1;as=Table"

ROOTS = ("meta/v1.DeleteOptions", "meta/v1.Status")
"""Types on the wire that no resource is made of."""

SCALARS = {
    ("boolean", None): "bool",
    ("integer", "int32"): "int32",
    ("integer", "int64"): "int64",
    ("number", "double"): "double",
    ("string", None): "string",
    ("string", "byte"): "bytes",
    (None, None): "any",
    ("object", None): "any",
}
"""Scalars, by OpenAPI type and format. What says nothing of its fields may be anything."""

NAMED_SCALARS = {
    "meta/v1.MicroTime": {"scalar": "microtime"},
    "meta/v1.Time": {"scalar": "time"},
    "api.resource.Quantity": {"scalar": "quantity"},
    # The API server takes it for atomic, by its name.
    "pkg.runtime.RawExtension": {"scalar": "any", "atomic": True},
    "util.intstr.IntOrString": {"scalar": "intstr"},
}

ZERO: tuple[object, ...] = ("", 0, False, {}, None)
"""Defaults that say no more than that a Go field is not a pointer; of a struct, that matters."""

Schema = Mapping[str, Any]
Record = dict[str, Any]
"""An entry of the file, without what is as its class has it anyway."""


def main() -> None:
    """Start an API server, and renew the file from it."""
    with ControlPlane(components=(ETCD, API_SERVER)) as control_plane:
        TARGET.write_text(generate(control_plane))
    print(f"wrote {TARGET.relative_to(Path.cwd())}")


def generate(control_plane: ControlPlane) -> str:
    """Return the file's text, as the API server and the Go types have it now."""
    version = control_plane.get("/version")["gitVersion"]
    go_types = GoTypes(version)
    schemas = read_schemas(control_plane)
    kinds = {
        kind: name
        for name, schema in schemas.items()
        if "metadata" in schema.get("properties", {}) and "items" not in schema["properties"]
        for kind in map(schema_kind, schema.get("x-kubernetes-group-version-kind", ()))
    }
    resources = [
        record
        for group_version, listed in read_discovery(control_plane)
        for record in resource_records(group_version, listed, kinds)
    ]
    server, sources = f"kube-apiserver {version}", " and ".join(go_types.sources)
    read = types({*kinds.values(), *ROOTS}, schemas, go_types)
    go_names.add_names(control_plane, resources, read)
    content = {
        "sources": {
            "resources": f"discovery of {server}",
            "columns": f"tables of {server}",
            "types": f"OpenAPI v3 of {server}; "
            f"number, pointer, unset and written: the types of {sources}; "
            f"go_type and embedded: messages of {server}",
            "made by": "make generate",
        },
        "version": version,
        "resources": resources,
        "columns": dict(sorted(read_columns(control_plane, resources))),
        "types": read,
    }
    return f"{layout(content, 3)}\n"


def layout(value: Any, levels: int, indent: str = "\n") -> str:
    """Write JSON whose outer levels have a line for each entry."""
    if levels == 0 or not isinstance(value, dict | list) or not value:
        return json.dumps(value)
    inner, opening, closing = f"{indent} ", *("{}" if isinstance(value, dict) else "[]")
    if isinstance(value, dict):
        parts = [f"{json.dumps(k)}: {layout(v, levels - 1, inner)}" for k, v in value.items()]
    else:
        parts = [layout(item, levels - 1, inner) for item in value]
    return f"{opening}{inner}{f',{inner}'.join(parts)}{indent}{closing}"


def types(
    roots: Iterable[str], schemas: Mapping[str, Schema], go_types: GoTypes
) -> dict[str, dict[str, Record]]:
    """Return the structs that the roots are made of, with a record for each field."""
    sent = reachable(SENT, schemas)
    found = {}
    for name in sorted(reachable(roots, schemas)):
        fields = dict(sorted(field_records(schemas[name], schemas)))
        facts = go_types.facts(name, fields)
        numbers = go_types.numbers(name, fields) if name in sent else {}
        found[name] = {
            field: record | facts.get(field, {}) | numbers.get(field, {})
            for field, record in fields.items()
        }
    return found


def read_columns(
    control_plane: ControlPlane, resources: Iterable[Record]
) -> Iterator[tuple[str, list[Record]]]:
    """Yield the columns of each resource whose cells are known."""
    for resource in resources:
        name = ".".join(filter(None, (resource["plural"], resource["group"])))
        if name in CELLS:
            root = f"/apis/{resource['group']}" if resource["group"] else "/api"
            path = f"{root}/{resource['version']}/{resource['plural']}"
            columns = control_plane.get(path, accept=TABLE)["columnDefinitions"]
            keys = ("name", "type", "format", "priority")
            yield name, [{key: column[key] for key in keys if column[key]} for column in columns]


def read_schemas(control_plane: ControlPlane) -> dict[str, Schema]:
    """Return every schema that is served and not alpha, by its short name."""
    schemas: dict[str, Schema] = {}
    for path, document in control_plane.get("/openapi/v3")["paths"].items():
        if path.startswith("api") and "/v" in path and "alpha" not in path:
            served = control_plane.get(document["serverRelativeURL"])
            for name, schema in served["components"].get("schemas", {}).items():
                schemas.setdefault(short_name(name), schema)
    return schemas


def read_discovery(control_plane: ControlPlane) -> Iterator[tuple[str, list[Schema]]]:
    """Yield each group version with its resources, in the server's order, alpha left out."""
    for path in ("/api", "/apis"):
        for group in control_plane.get(path, accept=AGGREGATED)["items"]:
            name = group["metadata"].get("name", "")
            for version in group["versions"]:
                if "alpha" not in version["version"]:
                    group_version = f"{name}/{version['version']}" if name else version["version"]
                    yield group_version, version["resources"]


def short_name(name: str) -> str:
    """Shorten `io.k8s.api.core.v1.Pod` to `core/v1.Pod`; any name keeps its last three parts."""
    *_, package, version, kind = name.split(".")
    separator = "/" if version.startswith("v") and version[1:2].isdigit() else "."
    return f"{package}{separator}{version}.{kind}"


def schema_kind(gvk: Schema) -> str:
    """Return a schema's group, version and kind as one word, `apps/v1/Deployment`."""
    return "/".join(filter(None, (gvk["group"], gvk["version"], gvk["kind"])))


def response_kind(gvk: Schema, group_version: str) -> str:
    """Return discovery's likewise; a kind without a version is of the group version at hand."""
    return schema_kind(gvk) if gvk["version"] else f"{group_version}/{gvk['kind']}"


def resource_records(
    group_version: str, resources: Iterable[Schema], kinds: Mapping[str, str]
) -> Iterator[Record]:
    """Yield a record for each resource of a group version, with its subresources."""
    group, _, version = group_version.rpartition("/")
    for resource in resources:
        kind = resource["responseKind"]["kind"]
        place = {"group": group, "version": version, "plural": resource["resource"]}
        yield place | without_empty(
            singular=resource["singularResource"],
            kind=kind,
            namespaced=resource["scope"] == "Namespaced",
            type_name=kinds[f"{group_version}/{kind}"],
            verbs=resource["verbs"],
            short_names=resource.get("shortNames"),
            categories=resource.get("categories"),
            subresources={
                part["subresource"]: {"name": part["subresource"]}
                | subresource_record(part, group_version, kinds)
                for part in resource.get("subresources", ())
            },
        )


def subresource_record(part: Schema, group_version: str, kinds: Mapping[str, str]) -> Record:
    """Return the record of a subresource; its kind may be of another group and version."""
    api_version_kind = response_kind(part["responseKind"], group_version)
    api_version, _, kind = api_version_kind.rpartition("/")
    group, _, version = api_version.rpartition("/")
    record = {"group": group, "version": version, "kind": kind, "verbs": part["verbs"]}
    return record | without_empty(type_name=kinds.get(api_version_kind))


def without_empty(**record: Any) -> Record:
    """Return a record without what is false, empty or None."""
    return {key: value for key, value in record.items() if value}


def reachable(roots: Iterable[str], schemas: Mapping[str, Schema]) -> set[str]:
    """Return the structs that the roots are made of, at whatever depth, the roots included."""
    found: set[str] = set()
    waiting = list(roots)
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += structs_of(schemas[name], schemas)
    return found


def structs_of(schema: Schema, schemas: Mapping[str, Schema]) -> Iterator[str]:
    """Yield the names of the structs that a schema refers to."""
    parts = [*schema.get("properties", {}).values()]
    parts += [schema[key] for key in ("items", "additionalProperties") if key in schema]
    for part in parts:
        name = reference(part)
        if name is None:
            yield from structs_of(part, schemas)
        elif is_struct(name, schemas):
            yield name


def is_struct(name: str, schemas: Mapping[str, Schema]) -> bool:
    """Tell whether a named schema has fields, and is no scalar with a name."""
    return name not in NAMED_SCALARS and "properties" in schemas[name]


def embeds_struct(field: Schema, schemas: Mapping[str, Schema]) -> bool:
    """Tell whether a field is a struct in Go, and no pointer to one, if its default is empty."""
    name = reference(field)
    return name is not None and is_struct(name, schemas)


def reference(schema: Schema) -> str | None:
    """Return the short name that a schema refers to, if it does; `allOf` carries the default."""
    target = schema.get("$ref") or next((part["$ref"] for part in schema.get("allOf", ())), None)
    return target and short_name(target.rpartition("/")[2])


def field_records(schema: Schema, schemas: Mapping[str, Schema]) -> Iterator[tuple[str, Record]]:
    """Yield the name of each field of a struct with its record."""
    for name, field in schema["properties"].items():
        record = type_record(field, schemas)
        strategies = field.get("x-kubernetes-patch-strategy", "").split(",")
        record |= without_empty(
            required=name in schema.get("required", ()),
            patch_strategies=list(filter(None, strategies)),
            patch_merge_key="merge" in strategies and field.get("x-kubernetes-patch-merge-key"),
        )
        default = field.get("default")
        if default not in ZERO or (default == {} and embeds_struct(field, schemas)):
            record["default"] = default
        yield name, record


def type_record(schema: Schema, schemas: Mapping[str, Schema]) -> Record:
    """Return the record of a type."""
    name = reference(schema)
    if name is not None:
        return reference_record(name, schema, schemas)
    if "items" in schema:
        return list_record(schema) | {"element": type_record(schema["items"], schemas)}
    if "additionalProperties" in schema:
        element = type_record(schema["additionalProperties"], schemas)
        return {"shape": "map", "element": element} | atomic(schema)
    scalar = SCALARS[schema.get("type"), schema.get("format")]
    return {"shape": "scalar", "scalar": scalar} | without_empty(enum=schema.get("enum"))


def reference_record(name: str, schema: Schema, schemas: Mapping[str, Schema]) -> Record:
    """Return the record of a reference; where it stands, it may overrule its target."""
    if name in NAMED_SCALARS:
        return {"shape": "scalar", **NAMED_SCALARS[name]}
    target = schemas[name]
    if not is_struct(name, schemas):
        return type_record(target, schemas)
    return {"shape": "struct", "struct": name} | atomic({**target, **schema})


def atomic(schema: Schema) -> Record:
    """Return the mark of an atomic map or struct."""
    return {"atomic": True} if schema.get("x-kubernetes-map-type") == "atomic" else {}


def list_record(schema: Schema) -> Record:
    """Return how a list's elements are told apart."""
    kind = schema.get("x-kubernetes-list-type", "atomic")
    if kind == "map":
        keys = schema["x-kubernetes-list-map-keys"]
        return {"shape": "list", "list_type": "map", "list_keys": keys}
    return {"shape": "list", **({"list_type": "set"} if kind == "set" else {"atomic": True})}


if __name__ == "__main__":
    main()
