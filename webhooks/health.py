"""/livez, /readyz and /metrics, on a port of their own."""

from collections.abc import Awaitable, Callable

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from policyd.exposition import Exposition

Handler = Callable[[Request], Awaitable[Response]]


class Readiness:
    """Why this process should not be asked now; with no reason, it is ready."""

    def __init__(self, *reasons: str) -> None:
        self._reasons = dict.fromkeys(reasons)

    @property
    def reasons(self) -> tuple[str, ...]:
        """The reasons, in the order they came up."""
        return tuple(self._reasons)

    def block(self, reason: str) -> None:
        """Add a reason not to be asked."""
        self._reasons[reason] = None

    def unblock(self, reason: str) -> None:
        """Strike a reason off; one that is not there is no mistake."""
        self._reasons.pop(reason, None)


def create_health_app(readiness: Readiness, registry: CollectorRegistry) -> Starlette:
    """Build the application that says how this process fares."""
    return Starlette(
        routes=[
            Route("/livez", _livez),
            Route("/readyz", _readyz(readiness)),
            Route("/metrics", _metrics(registry)),
        ]
    )


async def _livez(_request: Request) -> Response:
    return PlainTextResponse("ok\n")


def _readyz(readiness: Readiness) -> Handler:
    async def readyz(_request: Request) -> Response:
        if readiness.reasons:
            lines = "".join(f"{reason}\n" for reason in readiness.reasons)
            return PlainTextResponse(lines, status_code=503)
        return PlainTextResponse("ok\n")

    return readyz


def _metrics(registry: CollectorRegistry) -> Handler:
    exposition = Exposition(registry)

    async def metrics(_request: Request) -> Response:
        return Response(exposition.text(), media_type=CONTENT_TYPE_LATEST)

    return metrics
