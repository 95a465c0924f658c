"""Checks of every request, and headers of every answer: hosts, origins, bounds."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import parse_qsl, urlsplit

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

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
        name = urlsplit(f"//{host}").hostname if _is_plain(host) else None
        if name is None or (name not in LOOPBACK and name not in self.hosts):
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


def _is_plain(host: str) -> bool:
    return 0 < len(host) <= MOST_CHARACTERS and not set(host) & set("/\\@?#% \t")


def host_name(text: str) -> str:
    """Read a name that the page is called by.

    Raises:
        ConfigurationError: If it is none.
    """
    name = text.lower()
    if not _is_plain(name) or urlsplit(f"//{name}").hostname != name:
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

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
                headers.setdefault("Cache-Control", "no-store")
                if self._address.secure:
                    headers["Strict-Transport-Security"] = "max-age=31536000"
            await send(message)

        await self._app(scope, receive, send_with_headers)
