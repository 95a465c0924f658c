"""Liveness, readiness and metrics of the controller, over HTTP."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST

from policyd.connections import Bounds, Connections, Listening
from policyd.controller.metrics.counters import ControllerMetrics
from policyd.exposition import Exposition
from policyd.serving import KEEP_ALIVE_SECONDS, listen

BOUNDS = Bounds(connections=64, first=10.0, body=5.0)
"""Limits of connections: probes, a few scrapers, the API server for its users."""


@dataclass(slots=True)
class ControllerHealth:
    """The health of the controller, for probes and tests."""

    metrics: ControllerMetrics = field(default_factory=ControllerMetrics)
    missing: tuple[str, ...] = ()
    """Custom resources that it waits for."""
    synced: asyncio.Event = field(default_factory=asyncio.Event)
    """Set once everything has been listed."""

    @property
    def ready(self) -> bool:
        """Whether it could lead."""
        return self.synced.is_set()


def create_app(health: ControllerHealth) -> web.Application:
    """Return the application with `/livez`, `/readyz` and `/metrics`."""

    async def live(_request: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def ready(_request: web.Request) -> web.Response:
        if health.ready:
            return web.Response(text="ok\n")
        missing = f"waiting for {', '.join(health.missing)}" if health.missing else "not synced"
        return web.Response(text=f"{missing}\n", status=503)

    exposition = Exposition(health.metrics.registry)

    async def metrics(_request: web.Request) -> web.Response:
        return web.Response(body=exposition.text(), headers={"Content-Type": CONTENT_TYPE_LATEST})

    app = web.Application()
    app.add_routes(
        [web.get("/livez", live), web.get("/readyz", ready), web.get("/metrics", metrics)]
    )
    return app


@asynccontextmanager
async def serve_health(health: ControllerHealth, *, host: str, port: int) -> AsyncIterator[int]:
    """Serve the application while the block runs; give the port.

    Raises:
        ConfigurationError: If the port is taken.
    """
    listening = Listening(bounds=BOUNDS, count=health.metrics.connection_closed)
    served = serve(create_app(health), listening, host=host, port=port, option="--health-port")
    async with served as given:
        yield given


@asynccontextmanager
async def serve(
    app: web.Application, listening: Listening, *, host: str, port: int, option: str
) -> AsyncIterator[int]:
    """Serve an application while the block runs; give the port.

    Args:
        app: The application.
        listening: How its connections are treated.
        host: The address.
        port: The port; 0 lets the system choose.
        option: By which the user gave the port.

    Raises:
        ConfigurationError: If the port is taken.
    """
    listener = listen(host, port, option=option)
    runner = web.AppRunner(app, access_log=None, keepalive_timeout=KEEP_ALIVE_SECONDS)
    await runner.setup()
    assert runner.server is not None, "it is set up"
    connections = Connections(runner.server, listening)
    accepting = asyncio.create_task(connections.serve(listener))
    try:
        yield listener.getsockname()[1]
    finally:
        accepting.cancel()
        await asyncio.wait({accepting})
        listener.close()
        await runner.cleanup()
