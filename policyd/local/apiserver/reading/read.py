"""Reading: one object, or a list in pages; as objects, as a table, or as metadata only."""

import base64

import msgspec

from policyd.local.apiserver.checks.options import check_list_options
from policyd.local.apiserver.conversion import as_item, for_table, to_served
from policyd.local.apiserver.reading.selectors import is_selective, selection
from policyd.local.apiserver.reading.tables import table
from policyd.local.apiserver.requests import ApiRequest
from policyd.local.apiserver.state import ServerState
from policyd.local.apiserver.status import (
    Object,
    bad_request,
    expired,
    not_acceptable,
)
from policyd.local.apiserver.store import Key, TooOldError
from policyd.local.apiserver.wire.responses import Form, ServerResponse, wanted_form


async def get(state: ServerState, request: ApiRequest) -> ServerResponse:
    """Answer GET on an object."""
    found = state.find(request)
    shown = to_served(request.served, found)
    match form_wanted(request):
        case "object":
            return ServerResponse(body=shown)
        case "Table":
            version = found["metadata"]["resourceVersion"]
            about = {"resourceVersion": version}
            shown = for_table(request.served, found)
            return ServerResponse(body=table(request, [shown], about=about, now=state.clock.now()))
        case "PartialObjectMetadata":
            return ServerResponse(body=metadata_only(shown))


def form_wanted(request: ApiRequest) -> Form:
    """Return the form in which the client wants objects.

    Raises:
        StatusError: If it takes none that can be given.
    """
    form = wanted_form(request.headers.get("accept", ""))
    if form is None:
        raise not_acceptable()
    return form


def metadata_only(value: Object) -> Object:
    """Leave an object only its metadata."""
    kind = {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1"}
    return {**kind, "metadata": value["metadata"]}


async def list_(state: ServerState, request: ApiRequest) -> ServerResponse:
    """Answer GET on a collection."""
    check_list_options(request)
    form = form_wanted(request)
    found, about = _page(state, request)
    if form == "Table":
        if not about.get("continue"):
            about.pop("continue", None)
        shown = [for_table(request.served, value) for value in found]
        return ServerResponse(body=table(request, shown, about=about, now=state.clock.now()))
    shown = [as_item(request.served, value) for value in found]
    kind, api_version = request.served.list_kind, request.served.api_version
    if form == "PartialObjectMetadata":
        kind, api_version = "PartialObjectMetadataList", "meta.k8s.io/v1"
        shown = [metadata_only(value) for value in shown]
    body = {"kind": kind, "apiVersion": api_version, "metadata": about, "items": shown}
    return ServerResponse(body=body)


def _page(state: ServerState, request: ApiRequest) -> tuple[list[Object], Object]:
    """Return one page of a list as it is stored, and the list's metadata.

    A later page shows the present objects but keeps the version of the first: a watch from
    there gets all changes between the pages.
    """
    served, limit = request.served, request.options.integer("limit") or 0
    version, start = _continued(state, request)
    selects = selection(request)
    found = [
        (key, value)
        for key, value in state.store.items(served.storage, request.target.namespace)
        if key > start and selects(value)
    ]
    about: Object = {"resourceVersion": str(version)}
    if served.custom is not None:
        about["continue"] = ""
    if 0 < limit < len(found):
        about["continue"] = _token(version, found[limit - 1][0])
        if not is_selective(request):
            about["remainingItemCount"] = len(found) - limit
        found = found[:limit]
    return [value for _, value in found], about


def _token(version: int, last: Key) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode([version, *last])).decode()


def _continued(state: ServerState, request: ApiRequest) -> tuple[int, Key]:
    token = request.options.text("continue")
    if not token:
        return state.store.version, ("", "")
    try:
        version, namespace, name = msgspec.json.decode(
            base64.urlsafe_b64decode(token), type=tuple[int, str, str]
        )
    except (ValueError, msgspec.DecodeError):
        raise bad_request("continue key is not valid") from None
    try:
        state.store.since(request.served.storage, version)
    except TooOldError:
        raise expired(
            "The provided continue parameter is too old to display a consistent list result. You"
            " must start a new list without the continue parameter."
        ) from None
    return version, (namespace, name)
