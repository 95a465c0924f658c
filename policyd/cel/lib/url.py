"""URLs: `url('https://host:80/path').getHost()`."""

import re
from typing import TYPE_CHECKING

from policyd.cel.caches import cache_short
from policyd.cel.cost import steps, traverse
from policyd.cel.errors import CelError
from policyd.cel.functions import Overload, Size, function, method
from policyd.cel.patterns import lazy_pattern
from policyd.cel.types import BOOL, STRING, Type, list_of, map_of

if TYPE_CHECKING:
    from urllib.parse import SplitResult

URL = Type("kubernetes.URL")
_CONTROL = lazy_pattern(r"[\x00-\x20\x7f]")
_SCHEME = lazy_pattern(r"[A-Za-z][A-Za-z0-9+.-]*:", re.ASCII)
_ESCAPES = lazy_pattern(r"%(?![0-9A-Fa-f]{2})")
# What Go leaves as it is in a path.
_PATH_SAFE = "/$&+,:;=@-_.~!*'()"


class Url:
    """An absolute URL, or an absolute path."""

    __slots__ = ("parts",)
    cel_type_name = URL.name

    def __init__(self, parts: "SplitResult") -> None:
        self.parts = parts

    def __eq__(self, other: object) -> bool:
        return type(other) is Url and other.parts == self.parts

    def __hash__(self) -> int:
        return hash(self.parts)


@cache_short(2_048)
def _parse(text: str) -> Url:
    wrong = f'URL parse error during conversion from string: parse "{text[:200]}": '
    if not text:
        raise CelError(f"{wrong}empty url")
    if _CONTROL.search(text):
        raise CelError(f"{wrong}net/url: invalid control character in URL")
    if not text.startswith("/") and not _SCHEME.match(text):
        raise CelError(f"{wrong}invalid URI for request")
    if _ESCAPES.search(text.partition("?")[0]):
        raise CelError(f"{wrong}invalid URL escape")
    from urllib.parse import urlsplit  # noqa: PLC0415 - few policies look at URLs

    try:
        parts = urlsplit(text, allow_fragments=False)
        _ = parts.port
    except ValueError as error:
        raise CelError(f"{wrong}{error}") from None
    return Url(parts)


def _url(text: str) -> Url:
    return _parse(text)


def is_url(text: str) -> bool:
    """Tell whether `text` is an absolute URL or path."""
    try:
        _parse(text)
    except CelError:
        return False
    return True


def _scheme(url: Url) -> str:
    return url.parts.scheme


def _host(url: Url) -> str:
    return url.parts.netloc.rpartition("@")[2]


def _hostname(url: Url) -> str:
    host = _host(url)
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0]


def _port(url: Url) -> str:
    host = _host(url).rpartition("]")[2]
    return host.partition(":")[2]


def _escaped_path(url: Url) -> str:
    from urllib.parse import quote, unquote_to_bytes  # noqa: PLC0415 - few policies look at URLs

    # Go escapes again what it read, unless what was written is a valid escape already.
    path = url.parts.path
    if quote(path, safe=f"{_PATH_SAFE}%[]") == path:
        return path
    return quote(unquote_to_bytes(path), safe=_PATH_SAFE)


def _query(url: Url) -> dict[str, list[str]]:
    from urllib.parse import parse_qs  # noqa: PLC0415 - few policies look at URLs

    try:
        return parse_qs(url.parts.query, keep_blank_values=True)
    except ValueError:
        return {}


def _text_work(url: Url) -> int:
    """Return the work of reading escapes, which takes longer than other texts; pairs most."""
    return 1 + len(url.parts.path) // 2 + len(url.parts.query)


# Not being one takes longer.
_READ = Size(cost=traverse, work=steps(2))
_UNESCAPE = Size(work=_text_work)

URLS: tuple[Overload, ...] = (
    function("url", STRING, returns=URL, run=_url, size=_READ),
    function("isURL", STRING, returns=BOOL, run=is_url, size=_READ),
    method("getScheme", URL, returns=STRING, run=_scheme),
    method("getHost", URL, returns=STRING, run=_host),
    method("getHostname", URL, returns=STRING, run=_hostname),
    method("getPort", URL, returns=STRING, run=_port),
    method("getEscapedPath", URL, returns=STRING, run=_escaped_path, size=_UNESCAPE),
    method("getQuery", URL, returns=map_of(STRING, list_of(STRING)), run=_query, size=_UNESCAPE),
)
