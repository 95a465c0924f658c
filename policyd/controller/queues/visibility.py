"""Kueue's visibility API and queue snapshots, as an API server that Kubernetes' own passes on to.

The API server knows the user, authorizes the request by its RBAC, and passes it on. So only the API
server is answered: it shows a certificate of the authority that it publishes for this. Nothing here
writes; followers answer too.
"""

import asyncio
import gzip
import ssl
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Final, NoReturn

import msgspec
import structlog
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from policyd.api.configuration.tls import SYSTEM, TlsRules
from policyd.api.kueue.visibility import DEFAULT_LIMIT, GROUP, KIND, VERSIONS, PendingWorkload
from policyd.api.meta import Json
from policyd.certificates import Authority
from policyd.controller.queues.pending_workloads import (
    PendingPage,
    QueueNotFoundError,
    summary,
    waiting_in_cluster_queue,
    waiting_in_local_queue,
)
from policyd.controller.queues.snapshots import AdmissionSnapshots, Snapshots
from policyd.controller.watch.cache import Cache
from policyd.errors import ConfigurationError
from policyd.kube.client import Reader
from policyd.kube.errors import ApiError, NotFoundError
from policyd.kube.pace import Pace
from policyd.kube.resources import CONFIG_MAPS
from policyd.serving import CALLER_NAMES, server_context
from policyd.snapshot import values
from policyd.snapshot.reading import UNCHANGED

CALLERS: Final = "extension-apiserver-authentication"
"""ConfigMap in kube-system with the authority of clients that pass requests on."""
FOLLOW_SECONDS: Final = 60.0
"""Between looks at it."""
DAYS: Final = 3_650
"""How long the certificate is valid; it is issued at every start, and not verified."""

log = structlog.get_logger()

Handler = Callable[[Request], Awaitable[Response]]
_OWN: Final = f"/apis/{values.API_VERSION}"
_HINT: Final = "the API server has it once it is started with --requestheader-client-ca-file"


class _Published(msgspec.Struct, frozen=True):
    """The ConfigMap, as far as it is read."""

    data: dict[str, str] = {}


class Callers:
    """The clients that pass requests on: the API server publishes them, and may change them.

    Attributes:
        tls: TLS that only they get past.
        names: Common names in their certificates; empty for any certificate of their authority.
    """

    def __init__(self, reader: Reader, *, pace: Pace, tls: TlsRules = SYSTEM) -> None:
        now = pace.clock.now()
        pair = Authority.create(now=now, days=DAYS).issue(
            ["policyd-controller"], now=now, days=DAYS
        )
        self.tls = server_context(pair, rules=tls)
        self.tls.verify_mode = ssl.CERT_REQUIRED
        self.names: frozenset[str] = frozenset()
        self._reader = reader
        self._pace = pace
        self._authority = ""

    async def read(self) -> None:
        """Read which they are. An authority that was one of theirs stays trusted until the end.

        Raises:
            ConfigurationError: If the API server does not publish how it identifies itself.
            ApiError: If it cannot be asked.
        """
        try:
            found = await self._reader.get(
                CONFIG_MAPS, CALLERS, namespace="kube-system", into=_Published
            )
        except NotFoundError:
            found = _Published()
        authority = found.data.get("requestheader-client-ca-file", "")
        if not authority:
            raise ConfigurationError(
                "the API server has no request header configuration", hint=_HINT
            )
        names = found.data.get("requestheader-allowed-names") or "[]"
        try:
            self.names = msgspec.json.decode(names, type=frozenset[str])
            if authority != self._authority:
                self.tls.load_verify_locations(cadata=authority)
        except (msgspec.MsgspecError, ssl.SSLError) as error:
            place = f"ConfigMap kube-system/{CALLERS}"
            raise ConfigurationError(
                f"{place}: the request header configuration cannot be read", hint=str(error)
            ) from error
        self._authority = authority

    async def follow(self) -> NoReturn:
        """Read again every minute, as authorities are replaced before they end."""
        while True:
            await self._pace.sleep(FOLLOW_SECONDS)
            try:
                await self.read()
            except (ApiError, ConfigurationError) as error:
                log.warning("callers_unreadable", error=str(error))


def create_app(
    cache: Cache,
    *,
    ready: Callable[[], bool],
    names: Callable[[], frozenset[str]],
    pace: Pace | None = None,
) -> Starlette:
    """Return the application.

    Args:
        cache: The queues.
        ready: Whether all of them are known.
        names: Common names of the clients that may ask; empty for all that get past TLS.
        pace: Time.
    """
    pace = pace or Pace()
    snapshots, of_admission = Snapshots(cache, pace=pace), AdmissionSnapshots(cache, pace=pace)

    async def cluster_queue(request: Request) -> Response:
        name = request.path_params["name"]
        found = waiting_in_cluster_queue(cache, name, _page(request), _namespace(request))
        return _answer(request, found)

    async def local_queue(request: Request) -> Response:
        namespace, name = request.path_params["namespace"], request.path_params["name"]
        return _answer(request, waiting_in_local_queue(cache, namespace, name, _page(request)))

    async def snapshot(request: Request) -> Response:
        scope = request.path_params.get("namespace", "")
        body = await snapshots.current(scope=scope, reader=scope or _namespace(request))
        return await _compressed(request, body)

    async def admission_snapshot(request: Request) -> Response:
        body = await of_admission.unless(request.query_params.get("unless", ""))
        return await _compressed(request, body) if body else _json(UNCHANGED)

    answered = partial(_answered, names, ready)

    async def not_found(request: Request, _error: Exception) -> Response:
        return await answered(_nothing)(request)

    routes: dict[str, Handler] = {
        "/apis": _serve_json(
            lambda _: {"kind": "APIGroupList", "groups": [_group(), _own_group()]}
        ),
        f"/apis/{GROUP}": _serve_json(lambda _: _group()),
        f"/apis/{values.GROUP}": _serve_json(lambda _: _own_group()),
        _OWN: _serve_json(lambda _: _own_resources()),
        f"{_OWN}/{values.CLUSTER_PLURAL}/{values.NAME}": snapshot,
        f"{_OWN}/{values.ADMISSION_PLURAL}/{values.NAME}": admission_snapshot,
        f"{_OWN}/namespaces/{{namespace}}/{values.PLURAL}/{values.NAME}": snapshot,
    }
    for version in VERSIONS:
        root = f"/apis/{GROUP}/{version}"
        of_queue = "{name}/pendingworkloads"
        routes[root] = _serve_json(lambda request: _resources(_version(request)))
        routes[f"{root}/clusterqueues/{of_queue}"] = cluster_queue
        routes[f"{root}/namespaces/{{namespace}}/localqueues/{of_queue}"] = local_queue
    return Starlette(
        routes=[Route(path, answered(handler)) for path, handler in routes.items()],
        exception_handlers={
            QueueNotFoundError: _no_queue,
            _PageError: _no_page,
            404: not_found,
        },
    )


def _answered(
    names: Callable[[], frozenset[str]], ready: Callable[[], bool], handler: Handler
) -> Handler:
    """Answer the callers that may ask, once all queues are known."""

    async def answer(request: Request) -> Response:
        if names() and not names() & request.scope["state"][CALLER_NAMES]:
            return _status(403, "Forbidden", "only the API server is answered")
        if not ready():
            return _status(503, "ServiceUnavailable", "not all queues are known yet")
        return await handler(request)

    return answer


class _PageError(Exception):
    """The query asks for no page."""


async def _no_queue(_request: Request, error: Exception) -> Response:
    assert isinstance(error, QueueNotFoundError), "it is registered for these"
    details = {"group": GROUP, "kind": error.kind, "name": error.name}
    return _status(404, "NotFound", str(error), details=details)


async def _no_page(_request: Request, error: Exception) -> Response:
    return _status(400, "BadRequest", str(error))


async def _nothing(_request: Request) -> Response:
    return _status(404, "NotFound", "the server could not find the requested resource")


def _version(request: Request) -> str:
    return request.url.path.split("/")[3]


def _page(request: Request) -> PendingPage:
    given = {"offset": 0, "limit": DEFAULT_LIMIT}
    for name in given.keys() & request.query_params.keys():
        try:
            given[name] = int(request.query_params[name])
        except ValueError as error:
            raise _PageError(f"`{name}` must be a whole number") from error
    return PendingPage(**given)


def _namespace(request: Request) -> str:
    """Return the namespace of the user, if it is a service account, by the headers."""
    kind, _, account = request.headers.get("X-Remote-User", "").rpartition("serviceaccount:")
    return account.partition(":")[0] if kind == "system:" else ""


def _answer(request: Request, items: list[PendingWorkload]) -> Response:
    return _json(summary(_version(request), items))


def _json(value: object, status: int = 200) -> Response:
    body = msgspec.json.encode(value)
    return Response(body, status_code=status, media_type="application/json")


def _serve_json(make: Callable[[Request], Json]) -> Handler:
    async def answer(request: Request) -> Response:
        return _json(make(request))

    return answer


async def _compressed(request: Request, body: bytes) -> Response:
    """Answer with JSON that is compressed by gzip, if the client takes that."""
    headers = {"Vary": "Accept-Encoding"}
    if "gzip" in request.headers.get("Accept-Encoding", ""):
        headers["Content-Encoding"] = "gzip"
    else:
        body = await asyncio.to_thread(gzip.decompress, body)  # many may ask for it at a time
    return Response(body, media_type="application/json", headers=headers)


def _group(name: str = GROUP, served: Sequence[str] = VERSIONS) -> Json:
    versions = [{"groupVersion": f"{name}/{each}", "version": each} for each in served]
    preferred = {"name": name, "versions": versions, "preferredVersion": versions[0]}
    return {"kind": "APIGroup", "apiVersion": "v1", **preferred}


def _own_group() -> Json:
    return _group(values.GROUP, [values.VERSION])


def _own_resources() -> Json:
    plurals = (
        (values.CLUSTER_PLURAL, False),
        (values.ADMISSION_PLURAL, False),
        (values.PLURAL, True),
    )
    resources = [_resource(plural, values.KIND, namespaced) for plural, namespaced in plurals]
    return _resource_list(values.API_VERSION, resources)


def _resources(version: str) -> Json:
    plurals = (("clusterqueues", False), ("localqueues", True))
    resources = [
        _resource(f"{queues}/pendingworkloads", KIND, namespaced) for queues, namespaced in plurals
    ]
    return _resource_list(f"{GROUP}/{version}", resources)


def _resource(name: str, kind: str, namespaced: bool) -> Json:  # noqa: FBT001 - a field of it
    about = {"singularName": "", "namespaced": namespaced, "kind": kind, "verbs": ["get"]}
    return {"name": name, **about}


def _resource_list(api_version: str, resources: Sequence[Json]) -> Json:
    about = {"groupVersion": api_version, "resources": list(resources)}
    return {"kind": "APIResourceList", "apiVersion": "v1", **about}


def _status(code: int, reason: str, message: str, **more: Json) -> Response:
    fields = {"status": "Failure", "message": message, "reason": reason, "code": code, **more}
    return _json({"kind": "Status", "apiVersion": "v1", **fields}, status=code)
