"""/livez, /readyz and /metrics."""

from collections.abc import Awaitable, Callable

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

Handler = Callable[[Request], Awaitable[Response]]


class Readiness:
    """What still keeps this process from being asked; with nothing left, it is ready."""

    def __init__(self, *waiting_for: str) -> None:
        self._waiting_for = dict.fromkeys(waiting_for)

    @property
    def waiting_for(self) -> tuple[str, ...]:
        """The reasons not to be ready, in the order they came up."""
        return tuple(self._waiting_for)

    def reached(self, what: str) -> None:
        """Strike a reason off; one that is not there is no mistake."""
        self._waiting_for.pop(what, None)

    def wait_for(self, what: str) -> None:
        """Add a reason not to be ready."""
        self._waiting_for[what] = None


def health_routes(readiness: Readiness, registry: CollectorRegistry) -> list[Route]:
    """Build the routes that say how this process fares."""
    return [
        Route("/livez", _livez),
        Route("/readyz", _readyz(readiness)),
        Route("/metrics", _metrics(registry)),
    ]


async def _livez(_request: Request) -> Response:
    return PlainTextResponse("ok\n")


def _readyz(readiness: Readiness) -> Handler:
    async def readyz(_request: Request) -> Response:
        if readiness.waiting_for:
            reasons = "".join(f"waiting for {what}\n" for what in readiness.waiting_for)
            return PlainTextResponse(reasons, status_code=503)
        return PlainTextResponse("ok\n")

    return readyz


def _metrics(registry: CollectorRegistry) -> Handler:
    async def metrics(_request: Request) -> Response:
        return Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)

    return metrics
