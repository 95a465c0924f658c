"""The ASGI application: user, request, handler, and encoding of the response."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import structlog

from policyd.local.apiserver.reading.read import get, list_
from policyd.local.apiserver.reading.scale import get_scale, patch_scale, update_scale
from policyd.local.apiserver.reading.watching import watch
from policyd.local.apiserver.requests import (
    BODY_LIMIT,
    ApiRequest,
    ApiUser,
    decode,
    parse_options,
    parse_target,
)
from policyd.local.apiserver.state import ServerState
from policyd.local.apiserver.status import (
    Object,
    StatusError,
    bad_request,
    internal_error,
    method_not_allowed,
    no_such_resource,
    not_found,
    too_large,
)
from policyd.local.apiserver.wire.discovery import document, public_document
from policyd.local.apiserver.wire.responses import ServerResponse, Stream
from policyd.local.apiserver.writing.deletion import delete, delete_collection
from policyd.local.apiserver.writing.patching import patch
from policyd.local.apiserver.writing.podparts import bind, evict, read_log
from policyd.local.apiserver.writing.write import create, finalize, update

EVERYTHING: Object = {
    "resourceRules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}],
    "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}],
    "incomplete": False,
}
"""The rights of every user: there is no authorization here."""


async def answer_question(_state: ServerState, request: ApiRequest) -> ServerResponse:
    """Answer POST on a review: the user's name and groups, or that the action is allowed."""
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


Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Headers = Mapping[str, str]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class ForwardedRequest:
    """A request that another server answers, with the user in its headers."""

    application: Application
    scope: Scope


Reply = ServerResponse | Stream | ForwardedRequest
Handler = Callable[[ServerState, ApiRequest], Awaitable[Reply]]
Verbs = Mapping[str, Handler]

COLLECTION: Verbs = {"GET": list_, "POST": create, "DELETE": delete_collection}
EVERYWHERE: Verbs = {"GET": list_}
"""The verbs for all namespaces at once."""
OBJECT: Verbs = {"GET": get, "PUT": update, "PATCH": patch, "DELETE": delete}
SUBRESOURCES: Mapping[str, Verbs] = {
    "binding": {"POST": bind},
    "eviction": {"POST": evict},
    "finalize": {"PUT": finalize},
    "log": {"GET": read_log},
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


AUTHENTICATED = "system:authenticated"

_READING = frozenset({"GET", "HEAD", "OPTIONS"})
"""Methods that write nothing."""

log = structlog.get_logger(__name__)


class ApiApplication:
    """The API over HTTP; `users` has the users by token."""

    def __init__(self, state: ServerState, *, users: Mapping[str, ApiUser]) -> None:
        self._state = state
        self._users = users
        self._aggregated: dict[str, Application] = {}
        self._writes = 0
        self._draining = False
        self._drained = asyncio.Event()

    def aggregate(self, group: str, application: Application) -> None:
        """Pass requests for an API group on to another server, as an APIService does."""
        self._aggregated[group] = application

    async def drain(self) -> None:
        """Refuse writes from now on, and return when the writes in progress are done."""
        self._draining = True
        if self._writes:
            await self._drained.wait()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        assert scope["type"] == "http", "the server is configured for HTTP alone"
        warnings: list[str] = []
        try:
            with self._counted(scope["method"]):
                reply = await self._reply(scope, receive, warnings)
        except StatusError as error:
            reply = ServerResponse(body=error.status, code=error.code)
        except RecursionError:
            too_deep = bad_request("the object is nested too deep")
            reply = ServerResponse(body=too_deep.status, code=too_deep.code)
        except Exception as error:  # one bad request must not end the server
            log.exception("request_failed", path=scope["path"])
            error_status = internal_error(f"{type(error).__name__}: {error}")
            reply = ServerResponse(body=error_status.status, code=error_status.code)
        if isinstance(reply, ForwardedRequest):
            await reply.application(reply.scope, receive, send)
        elif isinstance(reply, Stream):
            await _send_stream(reply, receive, send)
        else:
            await _send_answer(reply, warnings, send)

    @contextmanager
    def _counted(self, method: str) -> Iterator[None]:
        """Count requests that may write.

        Raises:
            StatusError: 503, if nothing is to be written any more.
        """
        if method in _READING:
            yield
            return
        if self._draining:
            raise StatusError(503, "ServiceUnavailable", "the server is shutting down")
        self._writes += 1
        try:
            yield
        finally:
            self._writes -= 1
            if self._draining and not self._writes:
                self._drained.set()

    async def _reply(self, scope: Scope, receive: Receive, warnings: list[str]) -> Reply:
        path = scope["path"]
        public = public_document(path)
        if public is not None:
            return public
        headers = {k.decode("latin-1"): v.decode("latin-1") for k, v in scope["headers"]}
        user = impersonated(headers, scope["headers"], authenticate(headers, self._users))
        group = path.split("/")[2] if path.startswith("/apis/") else ""
        if group in self._aggregated:
            return ForwardedRequest(self._aggregated[group], passed_on(scope, user))
        body = await _read_body(receive)
        target = parse_target(path)
        if target is None:
            return document(self._state, path, headers)
        served = self._state.registry.find(target.group, target.version, target.plural)
        if served is None or (target.namespace and not served.namespaced):
            reply = document(self._state, path, headers)
            if reply.code == 404 and target.group in self._state.registry.groups():
                raise no_such_resource()
            return reply
        request = ApiRequest(
            method=scope["method"],
            target=target,
            served=served,
            options=parse_options(scope.get("query_string", b"")),
            user=user,
            headers=headers,
            body=body,
            warnings=warnings,
        )
        return await find_handler(request)(self._state, request)


def authenticate(headers: Headers, users: Mapping[str, ApiUser]) -> ApiUser:
    """Return the user that a token belongs to.

    Raises:
        StatusError: 401, if the token is unknown.
    """
    scheme, _, token = headers.get("authorization", "").partition(" ")
    user = users.get(token.strip()) if scheme.lower() == "bearer" else None
    if user is None:
        raise StatusError(401, "Unauthorized", "Unauthorized")
    return user


def impersonated(headers: Headers, raw: Sequence[tuple[bytes, bytes]], user: ApiUser) -> ApiUser:
    """Return the user that is impersonated (`kubectl --as`), or the user; all may impersonate."""
    name = headers.get("impersonate-user")
    if not name:
        return user
    groups = [value.decode() for key, value in raw if key == b"impersonate-group"]
    if AUTHENTICATED not in groups:
        groups.append(AUTHENTICATED)
    return ApiUser(name=name, groups=tuple(groups))


def passed_on(scope: Scope, user: ApiUser) -> Scope:
    """Return a request as the server of an aggregated API gets it: with the user, not the token."""
    own = (b"authorization", b"x-remote-", b"impersonate-")
    headers = [(key, value) for key, value in scope["headers"] if not key.startswith(own)]
    headers.append((b"x-remote-user", user.name.encode()))
    headers += [(b"x-remote-group", group.encode()) for group in user.groups]
    return {**scope, "headers": headers}


async def _read_body(receive: Receive) -> bytes:
    parts: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        parts.append(message.get("body", b""))
        size += len(parts[-1])
        if size > BODY_LIMIT:
            raise too_large(BODY_LIMIT)
        if not message.get("more_body"):
            return b"".join(parts)


async def _send_answer(answer: ServerResponse, warnings: Sequence[str], send: Send) -> None:
    body = answer.encoded()
    headers = [
        (b"content-type", answer.content_type.encode()),
        (b"content-length", str(len(body)).encode()),
        *((b"warning", warning_header(text)) for text in warnings if is_plain(text)),
    ]
    await send({"type": "http.response.start", "status": answer.code, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def is_plain(text: str) -> bool:
    """Tell whether a warning has no control characters; the real server drops one that has."""
    return not any(sign < " " or sign == "\x7f" for sign in text)


def warning_header(text: str) -> bytes:
    """Write a warning as RFC 7234 has it."""
    quoted = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'299 - "{quoted}"'.encode()


async def _send_stream(stream: Stream, receive: Receive, send: Send) -> None:
    async def end_with_client() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        stream.close()

    headers = [(b"content-type", stream.content_type.encode())]
    try:
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        async with asyncio.TaskGroup() as group:
            listening = group.create_task(end_with_client())
            async for chunk in stream.chunks:
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
            listening.cancel()
        await send({"type": "http.response.body", "body": b""})
    finally:
        stream.close()
