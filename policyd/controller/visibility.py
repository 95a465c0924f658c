"""Kueue's visibility API, as an API server that Kubernetes' own passes requests on to.

Whoever asks is known to the API server, which lets them ask or not by its RBAC and passes on what
they may. So it alone is answered: callers show a certificate of the authority that the API server
publishes for this. Nothing here writes; stand-bys answer too.
"""

import json
import ssl
from collections.abc import Awaitable, Callable
from typing import Any, Final

import msgspec
from aiohttp import web

from policyd.api.kueue.visibility import DEFAULT_LIMIT, GROUP, KIND, VERSIONS, PendingWorkload
from policyd.api.meta import Json
from policyd.certificates import Authority
from policyd.controller.cache import Cache
from policyd.controller.pending_workloads import (
    Page,
    QueueNotFoundError,
    summary,
    waiting_in_cluster_queue,
    waiting_in_local_queue,
)
from policyd.errors import ConfigurationError
from policyd.kube.client import Reader
from policyd.kube.errors import NotFoundError
from policyd.kube.resources import CONFIG_MAPS
from policyd.serving import server_context

CALLERS: Final = "extension-apiserver-authentication"
"""ConfigMap in kube-system that says who passes requests on."""
DAYS: Final = 3_650
"""How long the certificate is valid; it is made anew with every start, and nobody checks it."""

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
_HINT: Final = "the API server has it once it is started with --requestheader-client-ca-file"


class _Callers(msgspec.Struct, frozen=True):
    """Who passes requests on: the data of the ConfigMap."""

    data: dict[str, str] = {}

    @property
    def authority(self) -> str:
        """Certificates, as PEM, that callers' own are issued by."""
        return self.data.get("requestheader-client-ca-file", "")

    @property
    def names(self) -> frozenset[str]:
        """Who of those that have one; empty for all."""
        return frozenset(json.loads(self.data.get("requestheader-allowed-names") or "[]") or ())


async def callers_context(reader: Reader, *, now: float) -> tuple[ssl.SSLContext, frozenset[str]]:
    """Return TLS that only the API server gets past, and its names in certificates, if it has some.

    Args:
        reader: The API server.
        now: Seconds since the epoch, for our own certificate.

    Raises:
        ConfigurationError: If the API server does not say how it shows who it is.
        ApiError: If it cannot be asked.
    """
    try:
        found = await reader.get(CONFIG_MAPS, CALLERS, namespace="kube-system", into=_Callers)
    except NotFoundError:
        found = _Callers()
    if not found.authority:
        raise ConfigurationError("the API server does not pass requests on to others", hint=_HINT)
    pair = Authority.create(now=now, days=DAYS).issue(["policyd-controller"], now=now, days=DAYS)
    context = server_context(pair)
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(cadata=found.authority)
    return context, found.names


def create_app(
    cache: Cache, *, ready: Callable[[], bool], names: frozenset[str] = frozenset()
) -> web.Application:
    """Return the application.

    Args:
        cache: The queues.
        ready: Whether all of them are known.
        names: Who may ask, by the common name in their certificate; empty for all that get here.
    """

    async def cluster_queue(request: web.Request) -> web.Response:
        name = request.match_info["name"]
        return _answer(request, waiting_in_cluster_queue(cache, name, _page(request)))

    async def local_queue(request: web.Request) -> web.Response:
        namespace, name = request.match_info["namespace"], request.match_info["name"]
        return _answer(request, waiting_in_local_queue(cache, namespace, name, _page(request)))

    app = web.Application(middlewares=[_only(names, ready), _errors])
    root = f"/apis/{GROUP}/{{version:{'|'.join(VERSIONS)}}}"
    app.add_routes(
        [
            web.get("/apis", _told(lambda _: {"kind": "APIGroupList", "groups": [_group()]})),
            web.get(f"/apis/{GROUP}", _told(lambda _: _group())),
            web.get(root, _told(lambda request: _resources(request.match_info["version"]))),
            web.get(f"{root}/clusterqueues/{{name}}/pendingworkloads", cluster_queue),
            web.get(
                f"{root}/namespaces/{{namespace}}/localqueues/{{name}}/pendingworkloads",
                local_queue,
            ),
        ]
    )
    return app


def _page(request: web.Request) -> Page:
    given = {"offset": 0, "limit": DEFAULT_LIMIT}
    for name in given.keys() & request.query.keys():
        try:
            given[name] = int(request.query[name])
        except ValueError as error:
            raise web.HTTPBadRequest(text=f"`{name}` must be a whole number") from error
    return Page(**given)


def _answer(request: web.Request, items: list[PendingWorkload]) -> web.Response:
    body = msgspec.json.encode(summary(request.match_info["version"], items))
    return web.Response(body=body, content_type="application/json")


def _told(tell: Callable[[web.Request], Json]) -> Handler:
    async def answer(request: web.Request) -> web.Response:
        return web.json_response(tell(request))

    return answer


def _group() -> Json:
    versions = [{"groupVersion": f"{GROUP}/{each}", "version": each} for each in VERSIONS]
    preferred = {"name": GROUP, "versions": versions, "preferredVersion": versions[0]}
    return {"kind": "APIGroup", "apiVersion": "v1", **preferred}


def _resources(version: str) -> Json:
    resources = [
        {
            "name": f"{queues}/pendingworkloads",
            "singularName": "",
            "namespaced": namespaced,
            "kind": KIND,
            "verbs": ["get"],
        }
        for queues, namespaced in (("clusterqueues", False), ("localqueues", True))
    ]
    about = {"groupVersion": f"{GROUP}/{version}", "resources": resources}
    return {"kind": "APIResourceList", "apiVersion": "v1", **about}


def _only(names: frozenset[str], ready: Callable[[], bool]) -> Any:  # noqa: ANN401 - aiohttp does not name its middlewares
    @web.middleware
    async def only(request: web.Request, handler: Handler) -> web.StreamResponse:
        if names and not names & _common_names(request):
            return _status(403, "Forbidden", "only the API server is answered")
        if not ready():
            return _status(503, "ServiceUnavailable", "not all queues are known yet")
        return await handler(request)

    return only


def _common_names(request: web.Request) -> set[str]:
    transport = request.transport
    shown = None if transport is None else transport.get_extra_info("peercert")
    subject = (shown or {}).get("subject", ())
    return {value for part in subject for key, value in part if key == "commonName"}


@web.middleware
async def _errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    try:
        return await handler(request)
    except QueueNotFoundError as error:
        details = {"group": GROUP, "kind": error.kind, "name": error.name}
        return _status(404, "NotFound", str(error), details=details)
    except web.HTTPBadRequest as error:
        return _status(400, "BadRequest", error.text or "")
    except web.HTTPNotFound:
        return _status(404, "NotFound", "the server could not find the requested resource")


def _status(code: int, reason: str, message: str, **more: Json) -> web.Response:
    said = {"status": "Failure", "message": message, "reason": reason, "code": code, **more}
    return web.json_response({"kind": "Status", "apiVersion": "v1", **said}, status=code)
