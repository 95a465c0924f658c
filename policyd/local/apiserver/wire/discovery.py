"""The documents beside the objects: discovery, OpenAPI, version and health."""

from collections.abc import Mapping, Sequence

from policyd.api.meta import Json
from policyd.local.apiserver.registry import Served
from policyd.local.apiserver.state import ServerState
from policyd.local.apiserver.status import Object
from policyd.local.apiserver.wire.responses import ServerResponse, accepted, text

AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"

SUBRESOURCES: Mapping[str, tuple[str, str, tuple[str, ...]]] = {
    "binding": ("", "Binding", ("create",)),
    "eviction": ("policy/v1", "Eviction", ("create",)),
    "finalize": ("", "", ("update",)),
    "log": ("", "", ("get",)),
    "scale": ("autoscaling/v1", "Scale", ("get", "patch", "update")),
    "status": ("", "", ("get", "patch", "update")),
}
"""The apiVersion, kind (empty: the parent's) and verbs of each subresource."""


def versions(address: str) -> Object:
    """Return the document of /api; `address` is that of the server for the client."""
    all_clients = {"clientCIDR": "0.0.0.0/0", "serverAddress": address}
    return {
        "kind": "APIVersions",
        "versions": ["v1"],
        "serverAddressByClientCIDRs": [all_clients],
    }


def group_list(state: ServerState) -> Object:
    """Write the content of /apis."""
    groups = [group(name, list(found)) for name, found in state.registry.groups().items() if name]
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}


def group(name: str, found: Sequence[str]) -> Object:
    """Write one group's versions, the preferred first."""
    entries = [{"groupVersion": f"{name}/{version}", "version": version} for version in found]
    return {"name": name, "versions": entries, "preferredVersion": entries[0]}


def one_group(state: ServerState, name: str) -> Object | None:
    """Write the content of /apis/GROUP; None if the group does not exist."""
    found = state.registry.groups().get(name)
    if not found:
        return None
    return {"kind": "APIGroup", "apiVersion": "v1", **group(name, list(found))}


def resource_list(state: ServerState, group_name: str, version: str) -> Object | None:
    """Write the content of /apis/GROUP/VERSION; None if the version does not exist."""
    kinds = state.registry.groups().get(group_name, {}).get(version)
    if not kinds:
        return None
    resources = [entry for served in kinds for entry in _resources(served)]
    kind = {"kind": "APIResourceList", "apiVersion": "v1"}
    if not group_name:
        del kind["apiVersion"]  # as the real server has it
    return kind | {"groupVersion": kinds[0].api_version, "resources": resources}


def _other_names(served: Served) -> Object:
    names = {"shortNames": served.short_names, "categories": served.categories}
    return {field: list(each) for field, each in names.items() if each}


def _resources(served: Served) -> list[Object]:
    own: Object = {
        "name": served.plural,
        "singularName": served.singular,
        "namespaced": served.namespaced,
        "kind": served.kind,
        "verbs": list(served.verbs),
        **_other_names(served),
    }
    return [own, *(_subresource(served, name) for name in served.subresources)]


def _subresource(served: Served, name: str) -> Object:
    api_version, kind, verbs = SUBRESOURCES[name]
    entry: Object = {
        "name": f"{served.plural}/{name}",
        "singularName": "",
        "namespaced": served.namespaced,
        "kind": kind or served.kind,
        "verbs": list(verbs),
    }
    if api_version:
        group_name, _, version = api_version.rpartition("/")
        entry |= {"group": group_name, "version": version}
    return entry


def wants_aggregated(accept: str) -> bool:
    """Tell whether a client takes all of discovery in one document."""
    return any(
        m.parameters.get("as") == "APIGroupDiscoveryList" and m.parameters.get("v") == "v2"
        for m in accepted(accept)
    )


def aggregated(state: ServerState, *, core: bool) -> ServerResponse:
    """Write all of /api or of /apis in one document."""
    items = [
        _group_discovery(name, found)
        for name, found in state.registry.groups().items()
        if (not name) is core
    ]
    kind = {"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2"}
    return ServerResponse(body=kind | {"metadata": {}, "items": items}, content_type=AGGREGATED)


def _group_discovery(name: str, found: Mapping[str, Sequence[Served]]) -> Object:
    listed = [
        {"version": version, "freshness": "Current", "resources": [_discovered(s) for s in kinds]}
        for version, kinds in found.items()
    ]
    metadata: Json = {"name": name} if name else {}
    return {"metadata": metadata, "versions": listed}


def _discovered(served: Served) -> Object:
    found: Object = {
        "resource": served.plural,
        "responseKind": _kind_of(served, served.kind),
        "scope": "Namespaced" if served.namespaced else "Cluster",
        "singularResource": served.singular,
        "verbs": list(served.verbs),
        **_other_names(served),
    }
    if served.subresources:
        found["subresources"] = [_discovered_part(served, name) for name in served.subresources]
    return found


def _discovered_part(served: Served, name: str) -> Object:
    api_version, kind, verbs = SUBRESOURCES[name]
    response = _kind_of(served, kind or served.kind)
    if api_version:
        group_name, _, version = api_version.rpartition("/")
        response = _kind(group_name, version, kind)
    return {"subresource": name, "responseKind": response, "verbs": list(verbs)}


def _kind_of(served: Served, kind: str) -> Object:
    """Name a kind of the group and version it is found in, which only custom ones repeat."""
    if served.custom is None:
        return _kind("", "", kind)
    return _kind(served.group, served.version, kind)


def _kind(group_name: str, version: str, kind: str) -> Object:
    return {"group": group_name, "version": version, "kind": kind}


HEALTH = frozenset({"healthz", "livez", "readyz"})

VERSION = {
    "major": "1",
    "minor": "36",
    "emulationMajor": "1",
    "emulationMinor": "36",
    "minCompatibilityMajor": "1",
    "minCompatibilityMinor": "35",
    "gitVersion": "v1.36.3+policyd",
    "gitTreeState": "clean",
    "goVersion": "none",
    "compiler": "CPython",
    "platform": "python",
}
"""The version of Kubernetes whose kinds the server has."""

NO_DEFINITIONS = ServerResponse(
    body=b"\x0a\x032.0",
    content_type="application/octet-stream",
)
"""The older OpenAPI document, with nothing in it: kubectl reads it if it does not find a kind."""

NO_SUCH_PAGE = "404 page not found\n"


def public_document(path: str) -> ServerResponse | None:
    """Answer a path that needs no authentication; None for other paths."""
    first = path.strip("/").partition("/")[0]
    if first in HEALTH:
        return text("ok")
    return ServerResponse(body=VERSION) if path == "/version" else None


def document(state: ServerState, path: str, headers: Mapping[str, str]) -> ServerResponse:
    """Answer a path that is not a resource."""
    parts = path.strip("/").split("/")
    wants_all = wants_aggregated(headers.get("accept", ""))
    if wants_all and parts in (["api"], ["apis"]):
        return aggregated(state, core=parts == ["api"])
    found = _found(state, parts, headers.get("host", ""))
    if isinstance(found, ServerResponse):
        return found
    return text(NO_SUCH_PAGE, code=404) if found is None else ServerResponse(body=found)


def _found(state: ServerState, parts: list[str], address: str) -> object:
    match parts:
        case ["openapi", "v2"]:
            return NO_DEFINITIONS
        case ["openapi", "v3"]:
            return state.documents.index()
        case ["openapi", "v3", "api", version]:
            return state.documents.document("", version)
        case ["openapi", "v3", "apis", group, version]:
            return state.documents.document(group, version)
        case _:
            return _discovery(state, parts, address)


def _discovery(state: ServerState, parts: list[str], address: str) -> object:
    match parts:
        case ["api"]:
            return versions(address)
        case ["apis"]:
            return group_list(state)
        case ["api", version]:
            return resource_list(state, "", version)
        case ["apis", group]:
            return one_group(state, group)
        case ["apis", group, version]:
            return resource_list(state, group, version)
        case _:
            return None
