"""Checks of every request, and headers of every answer: hosts, origins, bounds, rates.

A user, or an address that is not signed in, has a bucket of tokens: a request takes one, and they
come back at a steady rate. So a client that sends too many is refused alone.
"""

import ipaddress
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple
from urllib.parse import parse_qsl, urlsplit

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from policyd.clock import Clock
from policyd.dashboard.view import MOST_CHARACTERS, MOST_PARAMETERS, QueryError
from policyd.errors import ConfigurationError

MOST_FORM_BYTES: Final = 512 * 1024
"""Of the body of a form: more than a manifest that the API server takes in one review."""
MOST_QUERY_BYTES: Final = 4_096
LOOPBACK: Final = frozenset({"127.0.0.1", "localhost", "::1"})

POLICY: Final = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "form-action 'self'",
        "frame-ancestors 'none'",
        "base-uri 'none'",
    )
)
HEADERS: Final[Mapping[str, str]] = {
    "Content-Security-Policy": POLICY,
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


class RequestRefusedError(Exception):
    """A request is not answered, for any sender.

    Attributes:
        status: The code of the answer.
        after: The seconds after which it may be sent again; 0 if that would not help.
    """

    def __init__(self, message: str, status: int = 403, *, after: int = 0) -> None:
        super().__init__(message)
        self.status = status
        self.after = after


@dataclass(frozen=True, slots=True)
class Address:
    """Where browsers find the page.

    Attributes:
        hosts: The names that it is called by, besides those of loopback.
        secure: Whether browsers reach it over TLS, which a proxy before it may speak.
    """

    hosts: frozenset[str] = frozenset()
    secure: bool = False

    def check_host(self, host: str) -> None:
        """Refuse a request for another name: a page of that name would read the answers.

        Raises:
            RequestRefusedError: If it is for another name.
        """
        name = _name_in(host)
        if not name or (name not in LOOPBACK and name not in self.hosts):
            raise RequestRefusedError(
                "this page is not served under that name: `--host-name` adds one",
                421,
            )

    def check_origin(self, request: Request) -> None:
        """Refuse a form that another site sends.

        Raises:
            RequestRefusedError: If the request is not from a page of ours.
        """
        scheme = "https" if self.secure else "http"
        ours = f"{scheme}://{request.headers.get('host', '')}"
        origin = request.headers.get("origin")
        site = request.headers.get("sec-fetch-site", "same-origin")
        if origin != ours or site != "same-origin":
            raise RequestRefusedError("the form was not sent by this page")

    @property
    def cookie(self) -> str:
        """The name of the cookie: over TLS, one that no other host can set."""
        return "__Host-policyd" if self.secure else "policyd"


def _name_in(host: str) -> str:
    """Return the name in a `Host` header; "" if it is none."""
    try:
        return (urlsplit(f"//{host}").hostname or "") if _is_plain(host) else ""
    except ValueError:  # brackets that are not around an address
        return ""


def _is_plain(host: str) -> bool:
    return 0 < len(host) <= MOST_CHARACTERS and not set(host) & set("/\\@?#% \t")


def host_name(text: str) -> str:
    """Read a name that the page is called by.

    Raises:
        ConfigurationError: If it is none.
    """
    name = text.lower()
    if not name or _name_in(name) != name:
        raise ConfigurationError(
            f"`{text}` is not a host name", hint="write it without a scheme and a port"
        )
    return name


def query_of(request: Request) -> dict[str, str]:
    """Return the parameters of a query, the first of each name.

    Raises:
        QueryError: If there are too many, or one is too long.
    """
    if len(request.url.query) > MOST_QUERY_BYTES:
        raise QueryError(f"the query is longer than {MOST_QUERY_BYTES} characters")
    try:
        pairs = parse_qsl(request.url.query, max_num_fields=MOST_PARAMETERS)
    except ValueError as error:
        raise QueryError(f"the query has more than {MOST_PARAMETERS} parameters") from error
    found: dict[str, str] = {}
    for name, value in pairs:
        if len(value) > MOST_CHARACTERS:
            raise QueryError(f"a parameter is longer than {MOST_CHARACTERS} characters")
        found.setdefault(name[:MOST_CHARACTERS], value.replace("\0", ""))
    return found


async def form_of(request: Request) -> dict[str, str]:
    """Return the fields of a form, the first of each name.

    Raises:
        RequestRefusedError: If it is none, or too large.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/x-www-form-urlencoded":
        raise RequestRefusedError("only forms of this page are answered", 415)
    body = bytearray()
    async for piece in request.stream():
        body += piece
        if len(body) > MOST_FORM_BYTES:
            raise RequestRefusedError(f"the form is larger than {MOST_FORM_BYTES // 1024} KiB", 413)
    try:
        pairs = parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=MOST_PARAMETERS)
    except ValueError as error:
        raise RequestRefusedError("the form cannot be read", 400) from error
    found: dict[str, str] = {}
    for name, value in pairs:
        found.setdefault(name, value)
    return found


class GuardedApp:
    """An application behind the checks that all requests pass, with the headers of all answers."""

    def __init__(self, app: ASGIApp, *, address: Address) -> None:
        self._app = app
        self._address = address

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        status = 0

        async def send_with_headers(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
                headers.setdefault("Cache-Control", "no-store")
                if self._address.secure:
                    headers["Strict-Transport-Security"] = "max-age=31536000"
            await send(message)

        try:
            await self._app(scope, receive, send_with_headers)
        except Exception:
            if status != BROKEN:  # which is in the log, as often as the log has room
                raise


MOST_BUCKETS: Final = 10_000
"""Buckets that are kept. The one that was used least recently is forgotten, that is, full again."""

NETWORK_BITS: Final = 64
"""Of an IPv6 address, what one client has: it may use all addresses that begin so."""


class Rate(NamedTuple):
    """A limit of requests.

    Attributes:
        per_second: How many come back in a second.
        burst: How many there are at first, and at most.
    """

    per_second: float
    burst: int


OF_A_USER: Final = Rate(10.0, 100)
OF_A_TEAM: Final = Rate(40.0, 400)
"""Requests of all service accounts of a namespace."""
OF_AN_ADDRESS: Final = Rate(20.0, 200)
"""Requests without a session: several people may be behind one address."""
SIGN_INS: Final = Rate(0.5, 30)
"""Tokens that an address has the API server review."""
BROKEN: Final = 500
"""The status of an answer to a request that the page itself failed at."""
LOGGED: Final = Rate(1.0, 10)
"""Errors of the page itself in the log: a request that finds one may be sent again and again."""


class RequestRates:
    """The requests of clients in the last moments.

    Args of the constructor:
        clock: Time.
        rate: What each client may send.
    """

    def __init__(self, clock: Clock, rate: Rate) -> None:
        self._clock = clock
        self._rate = rate
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._buckets)

    def wait(self, client: str) -> float:
        """Count a request, and return 0; or the seconds until the client may send one.

        Args:
            client: A user, or an address.
        """
        now = self._clock.monotonic()
        per_second, burst = self._rate
        left, at = self._buckets.pop(client, (float(burst), now))
        left = min(float(burst), left + (now - at) * per_second)
        wait = 0.0 if left >= 1 else (1 - left) / per_second
        self._buckets[client] = (left if wait else left - 1), now
        while len(self._buckets) > MOST_BUCKETS:
            self._buckets.popitem(last=False)
        return wait


def client_of(host: str) -> str:
    """Return what one client has of an address: all of IPv4, and the network part of IPv6."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host[:64]
    if address.version == 4:
        return str(address)
    return str(ipaddress.ip_network((address, NETWORK_BITS), strict=False).network_address)
