"""Liveness, readiness and metrics of a process over HTTP: `/livez`, `/readyz` and `/metrics`."""

from collections.abc import Callable, Iterable
from typing import Final

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from policyd.clock import Clock, SystemClock
from policyd.connections import Bounds

HEALTH_BOUNDS: Final = Bounds(connections=64, first=10.0, body=5.0)
"""Of the connections to these paths: probes, and a few scrapers."""

TIMES_AS_LONG: Final = 10
"""How much longer a text of metrics is served again than it took to make: at most a tenth of the
time goes into it, however often it is scraped."""


class Exposition:
    """The text of a registry's metrics, as of now or a moment ago."""

    def __init__(self, registry: CollectorRegistry, *, clock: Clock | None = None) -> None:
        self._registry = registry
        self._clock = clock or SystemClock()
        self._text = b""
        self._until = 0.0

    def text(self) -> bytes:
        """Return the text."""
        began = self._clock.monotonic()
        if not self._text or began >= self._until:
            self._text = generate_latest(self._registry)
            ended = self._clock.monotonic()
            self._until = ended + TIMES_AS_LONG * (ended - began)
        return self._text


def create_health_app(
    registry: CollectorRegistry, not_ready: Callable[[], Iterable[str]]
) -> Starlette:
    """Return the application with the three paths.

    Args:
        registry: The metrics.
        not_ready: Returns the reasons why the process is not ready; none if it is.
    """
    exposition = Exposition(registry)

    async def livez(_request: Request) -> Response:
        return PlainTextResponse("ok\n")

    async def readyz(_request: Request) -> Response:
        reasons = "".join(f"{reason}\n" for reason in not_ready())
        return PlainTextResponse(reasons or "ok\n", status_code=503 if reasons else 200)

    async def metrics(_request: Request) -> Response:
        return Response(exposition.text(), media_type=CONTENT_TYPE_LATEST)

    return Starlette(
        routes=[Route("/livez", livez), Route("/readyz", readyz), Route("/metrics", metrics)]
    )
