"""Liveness, readiness and metrics of a process over HTTP: `/livez`, `/readyz` and `/metrics`."""

from collections.abc import Callable, Iterable
from typing import Final

from prometheus_client import CollectorRegistry
from prometheus_client.openmetrics.exposition import CONTENT_TYPE_LATEST
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from policyd.connections import Bounds
from policyd.exposition import Exposition

HEALTH_BOUNDS: Final = Bounds(connections=64, first=10.0, body=5.0)
"""Of the connections to these paths: probes, and a few scrapers."""

OPENMETRICS: Final = "application/openmetrics-text"
CLASSIC_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"


def create_health_app(
    registry: CollectorRegistry, not_ready: Callable[[], Iterable[str]]
) -> Starlette:
    """Return the application with the three paths.

    Args:
        registry: The metrics.
        not_ready: Returns the reasons why the process is not ready; none if it is.
    """
    classic = Exposition(registry), CLASSIC_TYPE
    modern = Exposition(registry, "openmetrics"), CONTENT_TYPE_LATEST

    async def livez(_request: Request) -> Response:
        return PlainTextResponse("ok\n")

    async def readyz(_request: Request) -> Response:
        reasons = "".join(f"{reason}\n" for reason in not_ready())
        return PlainTextResponse(reasons or "ok\n", status_code=503 if reasons else 200)

    async def metrics(request: Request) -> Response:
        accepted = request.headers.get("accept", "")
        exposition, media_type = modern if prefers_openmetrics(accepted) else classic
        text = await exposition.text()
        return Response(text, headers={"content-type": media_type, "vary": "Accept"})

    return Starlette(
        routes=[Route("/livez", livez), Route("/readyz", readyz), Route("/metrics", metrics)]
    )


def prefers_openmetrics(accept: str) -> bool:
    """Tell whether a caller prefers OpenMetrics to Prometheus's older format.

    Args:
        accept: The header of the request.
    """
    weights = {OPENMETRICS: 0.0, "text/plain": 0.0}
    for each in accept.split(","):
        kind, *parameters = (part.strip().lower() for part in each.split(";"))
        if kind in weights:
            given = next((text[2:] for text in parameters if text.startswith("q=")), "1")
            weights[kind] = max(weights[kind], _weight(given))
    return weights[OPENMETRICS] > 0 and weights[OPENMETRICS] >= weights["text/plain"]


def _weight(text: str) -> float:
    try:
        return min(max(float(text), 0.0), 1.0)
    except ValueError:
        return 0.0
