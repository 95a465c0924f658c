"""The documents beside the objects: discovery, OpenAPI, version and health."""

from collections.abc import Mapping

from policyd.local.apiserver.state import ServerState
from policyd.local.apiserver.wire import discovery
from policyd.local.apiserver.wire.responses import ServerResponse, text

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
"""What the server says it is: the version of Kubernetes whose kinds it has."""

NO_DEFINITIONS = ServerResponse(
    body=b"\x0a\x032.0",
    content_type="application/octet-stream",
)
"""The older OpenAPI document, with nothing in it: kubectl asks for it where it finds no kind."""

NO_SUCH_PAGE = "404 page not found\n"


def public_document(path: str) -> ServerResponse | None:
    """Answer what anybody may ask; None if it is nothing of that."""
    first = path.strip("/").partition("/")[0]
    if first in HEALTH:
        return text("ok")
    return ServerResponse(body=VERSION) if path == "/version" else None


def document(state: ServerState, path: str, headers: Mapping[str, str]) -> ServerResponse:
    """Answer a path that is no resource."""
    parts = path.strip("/").split("/")
    wants_all = discovery.wants_aggregated(headers.get("accept", ""))
    if wants_all and parts in (["api"], ["apis"]):
        return discovery.aggregated(state, core=parts == ["api"])
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
            return discovery.versions(address)
        case ["apis"]:
            return discovery.group_list(state)
        case ["api", version]:
            return discovery.resource_list(state, "", version)
        case ["apis", group]:
            return discovery.one_group(state, group)
        case ["apis", group, version]:
            return discovery.resource_list(state, group, version)
        case _:
            return None
