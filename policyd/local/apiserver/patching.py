"""Answering PATCH: JSON patch, merge patch, strategic merge patch, and server-side apply."""

from collections.abc import Callable

import msgspec

from policyd.api.meta import Json
from policyd.local.apiserver.conversion import to_served
from policyd.local.apiserver.metadata import own_copy
from policyd.local.apiserver.requests import Request, decode_any
from policyd.local.apiserver.responses import Answer
from policyd.local.apiserver.state import State
from policyd.local.apiserver.status import Object, StatusError, bad_request, unsupported_media_type
from policyd.local.apiserver.write import Rewrite, change_object
from policyd.patch.json_patch import apply_json_patch
from policyd.patch.operations import Operation, PatchError

JSON_PATCH = "application/json-patch+json"
MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"


async def patch(state: State, request: Request) -> Answer:
    """Answer PATCH on an object or a subresource that is written like one."""
    reader = READERS.get(request.media_type)
    if reader is None:
        raise unsupported_media_type(list(READERS))
    stored = await change_object(state, request, reader(request))
    return Answer(body=to_served(request.served, stored))


def _json(request: Request) -> Rewrite:
    try:
        operations = msgspec.json.decode(request.body, type=list[Operation])
    except msgspec.DecodeError as error:
        raise bad_request(f"error decoding patch: {error}") from error

    def rewrite(old: Object) -> Object:
        try:
            return own_copy(apply_json_patch(old, operations))
        except PatchError as error:
            message = f"the server rejected our request due to an error in our request: {error}"
            raise StatusError(422, "Invalid", message) from error

    return rewrite


def _merge(request: Request) -> Rewrite:
    body = decode_any(request.body, "application/json")
    return lambda old: own_copy(_merged(old, body))


def _merged(old: Json, change: Json) -> Json:
    if not isinstance(change, dict):
        return change
    result = dict(old) if isinstance(old, dict) else {}
    for key, value in change.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = _merged(result.get(key), value)
    return result


READERS: dict[str, Callable[[Request], Rewrite]] = {
    JSON_PATCH: _json,
    MERGE: _merge,
    STRATEGIC: _merge,
}
