"""An API server on loopback, over the objects in memory, that can be told to go wrong."""

import asyncio
from collections import deque
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import msgspec
from aiohttp import web

from policyd.kube import resources
from policyd.kube.connection import ApiConnection
from policyd.kube.errors import ApiError
from policyd.testing import ObjectStore
from policyd.testing.fake_client import lines_after, page_of, patched
from policyd.testing.objects import refusal, selector

KNOWN = {
    (each.group, each.version, each.plural): each
    for each in vars(resources).values()
    if isinstance(each, resources.Resource)
}
PATCH_KINDS = {
    "application/merge-patch+json": "merge",
    "application/json-patch+json": "json",
    "application/strategic-merge-patch+json": "strategic",
    "application/apply-patch+yaml": "apply",
}


@dataclass(frozen=True)
class Answer:
    """Instead of what was asked, answer this."""

    code: int
    body: bytes = b""
    headers: dict = field(default_factory=dict)


@dataclass(frozen=True)
class Hang:
    """Take the request, and never answer."""


@dataclass(frozen=True)
class Drop:
    """Take the request, carry it out or not, and close the connection without an answer."""

    carried_out: bool = False


@dataclass
class FakeServer:
    store: ObjectStore = field(default_factory=ObjectStore)
    faults: deque = field(default_factory=deque)
    """What happens to the next requests, one each; None for nothing special."""
    watch_faults: deque = field(default_factory=deque)
    requests: list = field(default_factory=list)
    """(method, path and query, headers, body) of every request."""
    watches: list = field(default_factory=list)
    cut_next_event_after: int | None = None
    """Break the connection when so many bytes of the next event have been sent."""
    slice_bytes: int = 0
    """Send watches in pieces of so many bytes; 0 for whole lines."""
    busy: int = 0
    busiest: int = 0
    delay_seconds: float = 0.0
    url: str = ""
    asked: asyncio.Event = field(default_factory=asyncio.Event)
    """Set at the first request."""
    _changed: asyncio.Event = field(default_factory=asyncio.Event)
    _watched: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self):
        self.store.listeners.append(self._wake)

    @property
    def connection(self):
        return ApiConnection(server=self.url)

    def _wake(self):
        self._changed.set()
        self._changed = asyncio.Event()

    async def handle(self, request):
        body = await request.read()
        self.requests.append((request.method, request.path_qs, request.headers, body))
        self.asked.set()
        is_watch = request.query.get("watch") == "true"
        self.busy += not is_watch
        self.busiest = max(self.busiest, self.busy)
        try:
            await asyncio.sleep(self.delay_seconds)
            faults = self.watch_faults if is_watch else self.faults
            fault = faults.popleft() if faults else None
            if fault is not None:
                return await self._go_wrong(fault, request, body)
            return await self._answer(request, body)
        except ApiError as error:
            return status_response(error)
        finally:
            self.busy -= not is_watch

    async def _go_wrong(self, fault, request, body):
        if isinstance(fault, Answer):
            return web.Response(status=fault.code, body=fault.body, headers=fault.headers)
        if isinstance(fault, Hang):
            await asyncio.Event().wait()
        if fault.carried_out:
            await self._answer(request, body)
        request.transport.abort()
        return web.Response()

    async def _answer(self, request, body):
        if request.path == "/version":
            return json_response({"gitVersion": "v1.37.0"})
        resource, namespace, name, subresource = parse_path(request.path)
        query = request.query
        selection = {
            "namespace": namespace,
            "label_selector": query.get("labelSelector", ""),
            "field_selector": query.get("fieldSelector", ""),
        }
        if query.get("watch") == "true":
            return await self._watch(request, resource, selection)
        if request.method == "GET" and not name:
            paging = {"limit": int(query.get("limit", 0)), "continue_": query.get("continue", "")}
            return json_response(
                page_of(self.store, self.store.select(resource, selection), paging)
            )
        if request.method == "GET":
            return json_response(self.store.get(resource, namespace, name))
        return self._write(request, body, (resource, namespace, name, subresource))

    def _write(self, request, body, target):
        resource, namespace, name, part = target
        dry_run = request.query.get("dryRun") == "All"
        given = msgspec.json.decode(body)
        if request.method == "POST":
            check_kind(given, resource)
            new = self.store.create(resource, given, namespace=namespace, dry_run=dry_run)
            return json_response(new, status=201)
        old = self.store.get(resource, namespace, name)
        if request.method == "DELETE":
            conditions = given.get("preconditions", {})
            self.store.delete(
                resource,
                old,
                uid=conditions.get("uid", ""),
                version=conditions.get("resourceVersion", ""),
                dry_run=given.get("dryRun") == ["All"],
            )
            return json_response({"kind": "Status", "status": "Success"})
        if request.method == "PATCH":
            new = patched(old, given, kind=PATCH_KINDS[request.content_type])
        else:
            check_kind(given, resource)
            new = given
        return json_response(self.store.replace(resource, old, new, part=part, dry_run=dry_run))

    async def _watch(self, request, resource, selection):
        seen = int(request.query["resourceVersion"])
        matches = selector(resource, selection)
        lines_after(self.store, resource, seen, matches)  # 410 comes before the stream begins
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        watch = Watch(self, request.transport, response)
        self.watches.append(watch)
        self._watched.set()
        try:
            while not watch.ended:
                changed = self._changed
                try:
                    lines = lines_after(self.store, resource, seen, matches)
                except ApiError as error:
                    await watch.send(error_line(error))
                    break
                seen = self.store.version
                for line in lines:
                    await watch.send(line)
                await changed.wait()
        except ConnectionError:
            pass
        finally:
            self.watches.remove(watch)
        return response

    def end_watches(self):
        """End all watches cleanly, as the server does when their time is up."""
        for watch in self.watches:
            watch.ended = True
        self._wake()

    def cut_watches(self):
        """Break the connections of all watches."""
        for watch in self.watches:
            watch.transport.abort()
            watch.ended = True
        self._wake()

    async def send_line(self, line):
        """Send a line to all watches."""
        for watch in list(self.watches):
            await watch.send(line)

    async def watched(self, count=1):
        """Wait until so many watches are open."""
        while len([watch for watch in self.watches if not watch.ended]) < count:
            await self._watched.wait()
            self._watched.clear()


@dataclass
class Watch:
    server: FakeServer
    transport: asyncio.Transport
    response: web.StreamResponse
    ended: bool = False

    async def send(self, line):
        line += b"\n"
        if (cut := self.server.cut_next_event_after) is not None:
            self.server.cut_next_event_after = None
            await self.response.write(line[: min(cut, len(line) - 1)])
            self.ended = True
            self.transport.abort()
            raise ConnectionResetError("cut as told")
        size = self.server.slice_bytes or len(line)
        for start in range(0, len(line), size):
            await self.response.write(line[start : start + size])
            await asyncio.sleep(0)


def parse_path(path):
    parts = path.strip("/").split("/")
    group, version, rest = ("", parts[1], parts[2:])
    if parts[0] == "apis":
        group, version, rest = parts[1], parts[2], parts[3:]
    namespace = ""
    if rest[0] == "namespaces" and len(rest) > 2:
        namespace, rest = rest[1], rest[2:]
    plural, name, subresource = (*rest, "", "")[:3]
    resource = KNOWN.get((group, version, plural))
    if resource is None:
        raise refusal(404, "NotFound", "the server could not find the requested resource")
    return resource, namespace, name, subresource


def check_kind(given, resource):
    if (given.get("apiVersion"), given.get("kind")) != (resource.api_version, resource.kind):
        raise refusal(400, "BadRequest", "the object has another kind than the path")


def status(error):
    details = {"retryAfterSeconds": int(error.retry_after)} if error.retry_after else None
    return {
        "kind": "Status",
        "status": "Failure",
        "metadata": {},
        "message": str(error),
        "reason": error.reason,
        "code": error.code,
        "details": details,
    }


def error_line(error):
    return msgspec.json.encode({"type": "ERROR", "object": status(error)})


def bookmark_line(version):
    obj = {"kind": "Pod", "metadata": {"resourceVersion": str(version)}}
    return msgspec.json.encode({"type": "BOOKMARK", "object": obj})


def status_response(error):
    return json_response(status(error), status=error.code)


def json_response(body, *, status=200):
    return web.Response(
        status=status, body=msgspec.json.encode(body), content_type="application/json"
    )


@asynccontextmanager
async def serving(*, ssl_context=None, **settings):
    """Run a FakeServer on a free port of loopback."""
    server = FakeServer(**settings)
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", server.handle)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.01)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=ssl_context)
    await site.start()
    port = runner.addresses[0][1]
    server.url = f"{'https' if ssl_context else 'http'}://127.0.0.1:{port}"
    try:
        yield server
    finally:
        server.cut_watches()
        await runner.cleanup()
