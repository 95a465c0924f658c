"""The page as a part of a program: its port, its links, its end."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

from policyd.connections import Bounds, Listening
from policyd.dashboard.app import Dashboard, SigningIn
from policyd.dashboard.registry import VIEWS
from policyd.dashboard.signing_in import Links
from policyd.kube.client import Client
from policyd.kube.pace import Pace
from policyd.serving import served

BOUNDS: Final = Bounds(connections=1_024, first=30.0)
"""Two hundred viewers have a connection each for changes, and some for pages."""


@dataclass(frozen=True, slots=True)
class Here:
    """A page on loopback.

    Attributes:
        address: Of the page.
        new_link: Returns a new one-time link.
    """

    address: str
    new_link: Callable[[], str]


@asynccontextmanager
async def on_loopback(
    own: Client, *, user: str, namespace: str, port: int, say: Callable[[str], None]
) -> AsyncIterator[Here]:
    """Serve the page on loopback, for whoever reads the terminal, while the block runs.

    Args:
        own: The API server, with the rights of that person.
        user: What that person is called.
        namespace: The one to show if it is not the whole cluster.
        port: The port; 0 for a free one.
        say: Shows a new link.

    Raises:
        ConfigurationError: If the port is taken.
    """
    pace = Pace()
    links = Links(own, pace.clock, user=user)
    host, base = "127.0.0.1", ""

    def new_link() -> str:
        return f"{base}/enter/{links.new()}"

    signing_in = SigningIn(links=links, new_link=lambda: say(new_link()))
    page = Dashboard(own, VIEWS, signing_in, namespace=namespace, pace=pace)
    try:
        async with served(
            page.app, Listening(bounds=BOUNDS), host=host, port=port, option="--port"
        ) as given:
            base = f"http://{host}:{given}"
            yield Here(base, new_link)
            await page.close()
    finally:
        await page.close()
