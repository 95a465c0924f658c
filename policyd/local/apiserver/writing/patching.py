"""Answering PATCH: JSON patch, merge patch, strategic merge patch, and server-side apply."""

from collections.abc import Callable

import msgspec

from policyd.local.apiserver.checks.options import check_write_options
from policyd.local.apiserver.conversion import to_served
from policyd.local.apiserver.requests import ApiRequest, decode, decode_any
from policyd.local.apiserver.state import ServerState
from policyd.local.apiserver.status import (
    Object,
    StatusError,
    bad_request,
    invalid,
    json_text,
    required,
    unsupported_media_type,
    wrong,
)
from policyd.local.apiserver.wire.responses import ServerResponse
from policyd.local.apiserver.writing import shape
from policyd.local.apiserver.writing.metadata import own_copy
from policyd.local.apiserver.writing.ownership import schema_of, writer
from policyd.local.apiserver.writing.write import (
    ObjectChange,
    change_object,
    check_address,
    check_type,
    create_object,
)
from policyd.patch.builtin_types import MistypedError
from policyd.patch.conflicts import ApplyConflictError
from policyd.patch.json_patch import apply_json_patch
from policyd.patch.merge_patch import apply_merge_patch
from policyd.patch.operations import Operation, PatchError
from policyd.patch.strategic import apply_strategic_merge
from policyd.patch.structured import apply

JSON_PATCH = "application/json-patch+json"
MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
APPLY = "application/apply-patch+yaml"

REJECTED = "the server rejected our request due to an error in our request"

Patcher = Callable[[Object], Object]


async def patch(state: ServerState, request: ApiRequest) -> ServerResponse:
    """Answer PATCH on an object or on a subresource that is written like one."""
    check_write_options(request, "PatchOptions")
    if request.media_type == APPLY:
        return await _apply(state, request)
    patcher = patcher_of(request, request.served.type_name)

    def rewrite(old: Object) -> Object:
        try:
            patched = patcher(old)
        except PatchError as error:
            raise StatusError(422, "Invalid", f"{REJECTED}: {error}", details={}) from error
        try:
            check_type(patched, request)
        except StatusError as error:
            raise _refusal(request)(str(error)) from error
        return _shaped(patched, old, request)

    stored = await change_object(state, request, ObjectChange(rewrite=rewrite))
    return ServerResponse(body=to_served(request.served, stored))


def _shaped(patched: Object, old: Object, request: ApiRequest) -> Object:
    """Read what a patch has made; the parts that it left alone have their shape."""
    kept, changed = _split(patched, old)
    about: Object = changed.get("metadata", {})
    kept_about, changed_about = _split(about, old["metadata"])
    if about:
        changed["metadata"] = changed_about
    read = shape.read_shape(own_copy(changed), request, refuse=_refusal(request))
    if about:
        kept["metadata"] = _joined(read["metadata"], kept_about, about)
    return _joined(read, kept, patched)


def _split(patched: Object, old: Object) -> tuple[Object, Object]:
    """Return the fields that are the very ones there were, and the others."""
    kept = {name: part for name, part in patched.items() if name in old and part is old[name]}
    return kept, {name: part for name, part in patched.items() if name not in kept}


def _joined(read: Object, kept: Object, order: Object) -> Object:
    whole = read | own_copy(kept)
    return {name: whole[name] for name in (*order, *whole) if name in whole}


def _refusal(request: ApiRequest) -> shape.Refusal:
    """Report an error in a patch's result as one of the patch."""

    def refuse(why: str) -> StatusError:
        text = json_text(decode_any(request.body, "application/json"))
        return invalid("", "", [wrong("patch", text, why)])

    return refuse


def patcher_of(request: ApiRequest, type_name: str) -> Patcher:
    """Return a function that applies the patch in a request's body.

    Args:
        request: The request.
        type_name: The type of the patched object, for strategic merge; empty if it has none.

    Raises:
        StatusError: If the patch cannot be read, or is of a kind that does not fit.
    """
    media_type = request.media_type
    if media_type == JSON_PATCH:
        return _json_patcher(request.body)
    body = decode(request.body, "application/json")
    if media_type == MERGE:
        return lambda old: _object(apply_merge_patch(old, body))
    if media_type == STRATEGIC and type_name:
        return lambda old: apply_strategic_merge(old, body, type_name)
    known = [JSON_PATCH, MERGE, APPLY, *([STRATEGIC] if type_name else [])]
    raise unsupported_media_type(known)


def _json_patcher(body: bytes) -> Patcher:
    try:
        operations = msgspec.json.decode(body, type=list[Operation])
    except msgspec.DecodeError as error:
        raise bad_request(f"error decoding patch: {error}") from error
    return lambda old: _object(apply_json_patch(old, operations))


def _object(patched: object) -> Object:
    if not isinstance(patched, dict):
        raise PatchError("the result of the patch is not an object")
    return patched


async def _apply(state: ServerState, request: ApiRequest) -> ServerResponse:
    if not request.options.text("fieldManager"):
        cause = required("fieldManager", "is required for apply patch")
        raise invalid("PatchOptions.meta.k8s.io", "", [cause])
    given = decode(request.body, APPLY)
    if not given.get("kind") or not given.get("apiVersion"):
        raise bad_request(f"invalid object type: /, Kind={given.get('kind') or ''}")
    check_type(given, request)
    about = given["metadata"]
    title = f"{about.get('namespace', '')}/{about.get('name', '')}"
    about.setdefault("name", request.target.name)
    if request.served.namespaced:
        about.setdefault("namespace", request.target.namespace)
    check_address(request, about)
    applied = _declared(given, request, title=title)
    found = state.store.get(request.served.storage, request.target.namespace, about["name"])
    if found is None and not request.target.subresource:
        new = _merged(state, request, None, applied)
        stored = await create_object(state, request, new, owns=True)
        return ServerResponse(body=to_served(request.served, stored), code=201)
    change = ObjectChange(rewrite=lambda old: _merged(state, request, old, applied), owns=True)
    stored = await change_object(state, request, change)
    return ServerResponse(body=to_served(request.served, stored))


def _declared(given: Object, request: ApiRequest, *, title: str) -> Object:
    """Read an applied object; an unknown field is an error, regardless of fieldValidation."""
    served = request.served
    try:
        applied, unknown = shape.known_part(given, served)
    except MistypedError as error:
        raise bad_request(f"{shape.not_handled(served)}: {error}") from error
    if unknown:
        group, _, version = served.api_version.rpartition("/")
        what = f"({title}; {group}/{version}, Kind={served.kind})"
        why = f".{unknown[0]}: field not declared in schema"
        raise StatusError(500, "", f"failed to create typed patch object {what}: {why}")
    return applied


def _merged(state: ServerState, request: ApiRequest, old: Object | None, applied: Object) -> Object:
    try:
        merged = apply(
            old,
            applied,
            schema=schema_of(request.served),
            writer=writer(request, state.clock.now()),
            force=request.options.flag("force"),
        )
    except ApplyConflictError as error:
        raise StatusError(409, "Conflict", str(error), details={"causes": error.causes}) from error
    except PatchError as error:
        raise bad_request(str(error)) from error
    return own_copy(merged)
