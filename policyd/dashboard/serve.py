"""The page as a part of a program: its port, its links, its end.

What makes pages is imported at the first request: a program without viewers starts as fast
as one without a page.
"""

import asyncio
import secrets
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from typing import TYPE_CHECKING, Final

from starlette.types import ASGIApp, Receive, Scope, Send

from policyd.clock import SystemClock
from policyd.connections import Bounds, Listening
from policyd.kube.client import Client
from policyd.kube.connection import ApiConnection
from policyd.serving import served

if TYPE_CHECKING:
    from policyd.dashboard.app import Dashboard
    from policyd.dashboard.guard import Address
    from policyd.dashboard.signing_in import TrustedProxy
    from policyd.dashboard.view import CountReviews

HOST: Final = "127.0.0.1"
BOUNDS: Final = Bounds(connections=1_024)
"""Two hundred viewers have a connection each for changes, and some for pages."""


class LaterApp:
    """An application that is made by the first request."""

    def __init__(self, make: "Callable[[], Dashboard]") -> None:
        self._make = make
        self._page: Dashboard | None = None
        self._app: ASGIApp | None = None
        self._turn = asyncio.Lock()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if self._app is None:
            async with self._turn:
                if self._app is None:
                    await asyncio.to_thread(_import)
                    self._page = self._make()
                    self._app = self._page.app
        await self._app(scope, receive, send)

    async def aclose(self) -> None:
        """End all sessions and what is sent to browsers."""
        if self._page is not None:
            await self._page.close()


def _import() -> None:
    """Import what makes pages: this takes a tenth of a second, and others go on meanwhile."""
    import policyd.dashboard.app  # noqa: PLC0415 - at the first request
    import policyd.dashboard.pages  # noqa: F401, PLC0415


@asynccontextmanager
async def with_sign_in(  # noqa: PLR0913 - all that differs between installations
    own: Client,
    connection: ApiConnection | None,
    proxy: "TrustedProxy | None",
    address: "Address",
    listening: Listening,
    *,
    host: str,
    port: int,
    reviews: "CountReviews | None" = None,
) -> AsyncIterator[int]:
    """Serve the page for people who sign in, while the block runs; give the port.

    Args:
        own: The API server, with the rights of the page itself.
        connection: How the API server is reached, if tokens are taken.
        proxy: The proxy that signs people in, if there is one.
        address: Where browsers find the page.
        listening: The bounds of its connections, and their TLS.
        host: The address to listen on.
        port: The port; 0 for a free one.
        reviews: Reads what the webhooks count; None where they cannot be asked.

    Raises:
        ConfigurationError: If the port is taken.
    """

    def make() -> "Dashboard":
        from policyd.dashboard.app import Dashboard, SigningIn  # noqa: PLC0415
        from policyd.dashboard.pages import VIEWS  # noqa: PLC0415
        from policyd.dashboard.signing_in import TokenSignIn  # noqa: PLC0415

        tokens = None if connection is None else TokenSignIn(own, connection, SystemClock())
        ways = SigningIn(tokens=tokens, proxy=proxy)
        return Dashboard(own, VIEWS, ways, address=address, reviews=reviews)

    app = LaterApp(make)
    async with (
        served(app, listening, host=host, port=port, option="--port") as given,
        aclosing(app),  # before the server waits for the end of what is sent
    ):
        yield given


@asynccontextmanager
async def on_loopback(  # noqa: PLR0913 - all that differs between the commands
    own: Client,
    *,
    namespace: str,
    port: int,
    print_link: Callable[[str], None],
    option: str = "--port",
    reviews: "CountReviews | None" = None,
) -> AsyncIterator[str]:
    """Serve the page on loopback, for the reader of the terminal, while the block runs.

    Args:
        own: The API server, with the rights of that person.
        namespace: The one to show if it is not the whole cluster.
        port: The port; 0 for a free one.
        print_link: Shows a new link, when the page is opened without a session.
        option: The option that the user gave the port by.
        reviews: Reads what the webhooks count; None where they cannot be asked.

    Yields:
        The first one-time link.

    Raises:
        ConfigurationError: If the port is taken.
    """
    first, base = secrets.token_urlsafe(32), ""

    def link(secret: str) -> str:
        return f"{base}/enter/{secret}"

    def make() -> "Dashboard":
        from policyd.dashboard.app import Dashboard, SigningIn  # noqa: PLC0415
        from policyd.dashboard.pages import VIEWS  # noqa: PLC0415
        from policyd.dashboard.signing_in import OneTimeLinks  # noqa: PLC0415

        links = OneTimeLinks(own, clock, first=first, age=clock.monotonic() - began)
        ways = SigningIn(links=links, new_link=lambda: print_link(link(links.new())))
        return Dashboard(own, VIEWS, ways, namespace=namespace, reviews=reviews)

    clock = SystemClock()
    began = clock.monotonic()
    listening = Listening(bounds=BOUNDS)
    app = LaterApp(make)
    async with served(app, listening, host=HOST, port=port, option=option) as given, aclosing(app):
        base = f"http://{HOST}:{given}"
        yield link(first)
