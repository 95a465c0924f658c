"""Which function answers which request; kinds that are questions are answered here."""

from collections.abc import Awaitable, Callable, Mapping

from policyd.local.apiserver.reading.read import get, list_
from policyd.local.apiserver.reading.scale import get_scale, patch_scale, update_scale
from policyd.local.apiserver.reading.watching import watch
from policyd.local.apiserver.requests import ApiRequest, ApiUser, decode
from policyd.local.apiserver.state import ServerState
from policyd.local.apiserver.status import Object, method_not_allowed, no_such_resource, not_found
from policyd.local.apiserver.wire.responses import ServerResponse, Stream
from policyd.local.apiserver.writing.deletion import delete, delete_collection
from policyd.local.apiserver.writing.patching import patch
from policyd.local.apiserver.writing.podparts import bind, evict, log
from policyd.local.apiserver.writing.write import create, finalize, update

EVERYTHING: Object = {
    "resourceRules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}],
    "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}],
    "incomplete": False,
}
"""What anybody may do: there is no authorization here."""


async def answer_question(_state: ServerState, request: ApiRequest) -> ServerResponse:
    """Answer POST on a review: who somebody is, or whether he may (he may)."""
    given = decode(request.body, request.media_type) if request.body else {}
    kind = {"kind": request.served.kind, "apiVersion": request.served.api_version}
    status = _status(request.served.kind, request.user)
    answer = {**given, **kind, "metadata": given.get("metadata", {}), "status": status}
    return ServerResponse(body=answer, code=201)


def _status(kind: str, user: ApiUser) -> Object:
    match kind:
        case "SelfSubjectReview":
            return {"userInfo": {"username": user.name, "groups": list(user.groups)}}
        case "SelfSubjectRulesReview":
            return EVERYTHING
        case _:
            return {"allowed": True}


Reply = ServerResponse | Stream
Handler = Callable[[ServerState, ApiRequest], Awaitable[Reply]]
Verbs = Mapping[str, Handler]

COLLECTION: Verbs = {"GET": list_, "POST": create, "DELETE": delete_collection}
EVERYWHERE: Verbs = {"GET": list_}
"""What can be asked of all namespaces at once."""
OBJECT: Verbs = {"GET": get, "PUT": update, "PATCH": patch, "DELETE": delete}
SUBRESOURCES: Mapping[str, Verbs] = {
    "binding": {"POST": bind},
    "eviction": {"POST": evict},
    "finalize": {"PUT": finalize},
    "log": {"GET": log},
    "scale": {"GET": get_scale, "PUT": update_scale, "PATCH": patch_scale},
    "status": {"GET": get, "PUT": update, "PATCH": patch},
}

QUESTIONS = frozenset({"authentication.k8s.io", "authorization.k8s.io"})


def find_handler(request: ApiRequest) -> Handler:
    """Return the function that answers a request.

    Raises:
        StatusError: If there is none.
    """
    handler = _verbs(request).get(request.method)
    if handler is None or (
        handler is delete_collection and "deletecollection" not in request.served.verbs
    ):
        raise method_not_allowed()
    if handler is list_ and request.options.flag("watch"):
        return watch
    return handler


def _verbs(request: ApiRequest) -> Verbs:
    target, served = request.target, request.served
    subresource = target.subresource
    if (subresource and not served.has(subresource)) or (
        target.name and served.namespaced and not target.namespace
    ):
        if served.custom is not None and subresource:
            raise not_found(served.resource, target.name)
        raise no_such_resource()
    if subresource:
        return SUBRESOURCES[subresource]
    if request.served.group in QUESTIONS:
        return {"POST": answer_question}
    if served.namespaced and not target.namespace:
        return EVERYWHERE
    return OBJECT if target.name else COLLECTION
