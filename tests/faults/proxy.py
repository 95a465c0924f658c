"""A proxy between policyd and the API server, which makes trouble when it is told to."""

import asyncio
import json
import random
import ssl
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

import aiohttp
from aiohttp import web

from policyd.certificates import Authority
from tests.controlplane.programs import free_ports
from tests.controlplane.server import ControlPlane

REASONS = {409: "Conflict", 410: "Expired", 429: "TooManyRequests", 500: "InternalError"}
PASSED_ON = ("Authorization", "Content-Type", "Accept")


@dataclass
class Trouble:
    """What the proxy does to requests; as it is made, nothing.

    Attributes:
        delay: Seconds by which every answer is late.
        code: Answered instead of asking the API server, to a `share` of the requests.
        cut: The share of pieces of a watch in the middle of which the connection is broken.
    """

    delay: float = 0.0
    code: int = 0
    share: float = 0.0
    cut: float = 0.0
    made: int = 0
    """How often trouble was made."""

    def answers(self, request: web.Request) -> bool:
        """Tell whether to answer a request with the code."""
        if not self.code or random.random() >= self.share:
            return False
        writes = request.method in {"POST", "PUT", "PATCH"}
        fits = {409: writes, 410: request.method == "GET"}.get(self.code, True)
        self.made += fits
        return fits


@dataclass
class Proxy:
    """Runs in a thread of its own, from entering the context to leaving it."""

    control_plane: ControlPlane
    trouble: Trouble = field(default_factory=Trouble)

    def __enter__(self) -> Self:
        self._folder = tempfile.TemporaryDirectory(prefix="policyd-faults-")
        self.port = free_ports(["proxy"])["proxy"]
        self._started, self._ended = threading.Event(), asyncio.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), daemon=True)
        self._thread.start()
        assert self._started.wait(30), "the proxy does not start"
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._ended.set)
        self._thread.join(10)
        self._folder.cleanup()

    def in_front_of(self, kubeconfig: Path) -> Path:
        """Return a kubeconfig that leads through the proxy, for the same user as another."""
        path = Path(self._folder.name, "kubeconfig")
        config = json.loads(kubeconfig.read_text())
        config["clusters"][0]["cluster"] = {
            "server": f"https://127.0.0.1:{self.port}",
            "certificate-authority": str(Path(self._folder.name, "ca.crt")),
        }
        path.write_text(json.dumps(config))
        return path

    def _certificates(self) -> ssl.SSLContext:
        folder, now = Path(self._folder.name), time.time()
        authority = Authority.create(now=now)
        pair = authority.issue(["127.0.0.1"], now=now)
        (folder / "ca.crt").write_bytes(authority.certificate_pem)
        (folder / "tls.pem").write_bytes(pair.certificate_pem + pair.key_pem)
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(folder / "tls.pem")
        return context

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        app = web.Application(client_max_size=1 << 26)
        app.router.add_route("*", "/{path:.*}", self._pass_on)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        trusted = ssl.create_default_context(cadata=self.control_plane.ca.decode())
        connector = aiohttp.TCPConnector(limit=0, ssl=trusted)
        timeout = aiohttp.ClientTimeout(total=None)
        async with aiohttp.ClientSession(connector=connector, timeout=timeout) as self._session:
            await runner.setup()
            site = web.TCPSite(runner, "127.0.0.1", self.port, ssl_context=self._certificates())
            await site.start()
            self._started.set()
            await self._ended.wait()
            await runner.cleanup()

    async def _pass_on(self, request: web.Request) -> web.StreamResponse:
        await asyncio.sleep(self.trouble.delay)
        if self.trouble.answers(request):
            return _refusal(self.trouble.code)
        headers = {name: request.headers[name] for name in PASSED_ON if name in request.headers}
        url = f"{self.control_plane.server}{request.path_qs}"
        body = await request.read()
        try:
            async with self._session.request(
                request.method, url, headers=headers, data=body or None
            ) as answer:
                return await self._stream(request, answer)
        except (aiohttp.ClientError, ConnectionError):  # the API server is down, or we broke it
            _break(request)
            return web.Response(status=502)

    async def _stream(
        self, request: web.Request, answer: aiohttp.ClientResponse
    ) -> web.StreamResponse:
        kept = {k: v for k, v in answer.headers.items() if k in {"Content-Type", "Retry-After"}}
        passed = web.StreamResponse(status=answer.status, headers=kept)
        await passed.prepare(request)
        async for chunk in answer.content.iter_any():
            if "watch" in request.query and random.random() < self.trouble.cut:
                self.trouble.made += 1
                await passed.write(chunk[: len(chunk) // 2])
                _break(request)
                break
            await passed.write(chunk)
        return passed


def _refusal(code: int) -> web.Response:
    status = {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "reason": REASONS[code],
        "message": "made by the test",
        "code": code,
    }
    headers = {"Retry-After": "1"} if code == 429 else {}
    return web.json_response(status, status=code, headers=headers)


def _break(request: web.Request) -> None:
    """Break the connection in the middle."""
    if request.transport is not None:
        request.transport.abort()
