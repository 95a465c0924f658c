"""URLs: `url('https://host:80/path').getHost()`, read as Go's `net/url` reads them."""

import re
from typing import Final, NoReturn

from policyd.cel.caches import cache_short
from policyd.cel.cost import traverse
from policyd.cel.errors import CelError
from policyd.cel.functions import Overload, Size, function, method
from policyd.cel.syntax.patterns import lazy_pattern
from policyd.cel.types import BOOL, STRING, Type, list_of, map_of

URL = Type("kubernetes.URL")
_CONTROL = lazy_pattern(r"[\x00-\x1f\x7f]")
_SCHEME = lazy_pattern(r"([A-Za-z][A-Za-z0-9+.-]*)?:")
_BAD_ESCAPE = lazy_pattern(r"%(?![0-9A-Fa-f]{2}).{0,2}", re.DOTALL)
_PORT = lazy_pattern(r"(:[0-9]*)?")
_BAD_IN_USER = lazy_pattern(r"[^A-Za-z0-9._:~!$&'()*+,;=%@-]")
# A host may only escape non-ASCII characters, and the percent sign.
_BAD_IN_HOST = lazy_pattern(r"%(?!25)[0-7].|[ \\^`{|}]")
# A path of these is left as it is written; else it is read, and escaped anew.
_PLAIN_PATH = lazy_pattern(r"[A-Za-z0-9._~!$&'()*+,;=:@/%\[\]-]*")
_UNESCAPED_IN_PATH: Final = "/$&+,:;=@-_.~"


class Url:
    """An absolute URL, or an absolute path."""

    __slots__ = ("host", "path", "query", "scheme", "text")
    cel_type_name = URL.name

    def __init__(self, text: str) -> None:
        if _CONTROL.search(text):
            raise CelError("net/url: invalid control character in URL")
        if not text:
            raise CelError("empty url")
        self.text = text
        whole, _, fragment = text.partition("#")
        _need_escapes(fragment)
        self.scheme, rest = _split_scheme(whole)
        rest, _, self.query = rest.partition("?")
        self.host = self.path = ""
        if not rest.startswith("/"):
            if self.scheme or rest == "*":
                return
            raise CelError("invalid URI for request")
        if rest.startswith("//") and (self.scheme or not rest.startswith("///")):
            authority, slash, path = rest[2:].partition("/")
            self.host = _host_of(authority)
            rest = slash + path
        _need_escapes(rest)
        self.path = rest

    @property
    def comparison_work(self) -> int:
        """Elements that take as long as comparing it: its path is escaped anew."""
        return _text_work(self)

    def __eq__(self, other: object) -> bool:
        return type(other) is Url and other._parts() == self._parts()

    def __hash__(self) -> int:
        return hash(self._parts())

    def _parts(self) -> tuple[str, ...]:
        after = self.text.partition(":")[2] if self.scheme else self.text
        return self.scheme, after.replace(self.path, _escaped_path(self), 1)


def _split_scheme(text: str) -> tuple[str, str]:
    found = _SCHEME.match(text)
    if not found:
        return "", text
    if not found[1]:
        raise CelError("missing protocol scheme")
    return found[1].lower(), text[found.end() :]


def _need_escapes(text: str) -> None:
    wrong = _BAD_ESCAPE.search(text)
    if wrong:
        _bad_escape(wrong[0])


def _bad_escape(text: str) -> NoReturn:
    raise CelError(f'invalid URL escape "{text}"')


def _host_of(authority: str) -> str:
    user, _, host = authority.rpartition("@")
    literal = host.startswith("[")
    if literal and "]" not in host:
        raise CelError("missing ']' in host")
    name, colon, port = host.rpartition("]" if literal else ":")
    shown = port if literal else colon + port
    if colon and not _PORT.fullmatch(shown):
        raise CelError(f'invalid port "{shown[:100]}" after host')
    _need_escapes(host)
    wrong = _BAD_IN_HOST.search(name.partition("%25")[0] if literal else host)
    if wrong and wrong[0].startswith("%"):
        _bad_escape(wrong[0])
    if wrong:
        raise CelError(f'invalid character "{wrong[0]}" in host name')
    if _BAD_IN_USER.search(user):
        raise CelError("net/url: invalid userinfo")
    _need_escapes(user)
    return _unescaped(host)


def _unescaped(text: str) -> str:
    from urllib.parse import unquote  # noqa: PLC0415 - few policies look at URLs

    return unquote(text)


@cache_short(2_048)
def _parse(text: str) -> Url | str:
    """Return a URL, or an error message."""
    try:
        return Url(text)
    except CelError as error:
        return f'parse "{text[:200]}": {error.message}'


def _url(text: str) -> Url:
    found = _parse(text)
    if isinstance(found, str):
        raise CelError(f"URL parse error during conversion from string: {found}")
    return found


def url_error(text: str) -> str:
    """Return why `text` is not an absolute URL or path; empty if it is one."""
    found = _parse(text)
    return found if isinstance(found, str) else ""


def _is_url(text: str) -> bool:
    return not url_error(text)


def _scheme(url: Url) -> str:
    return url.scheme


def _host(url: Url) -> str:
    return url.host


def _hostname(url: Url) -> str:
    if url.host.startswith("["):
        return url.host[1:].partition("]")[0]
    return url.host.rpartition(":")[0] if ":" in url.host else url.host


def _port(url: Url) -> str:
    return url.host.rpartition("]")[2].rpartition(":")[2] if _has_port(url.host) else ""


def _has_port(host: str) -> bool:
    return ":" in host.rpartition("]")[2]


def _escaped_path(url: Url) -> str:
    if _PLAIN_PATH.fullmatch(url.path):
        return url.path
    from urllib.parse import quote, unquote_to_bytes  # noqa: PLC0415 - few policies look at URLs

    return quote(unquote_to_bytes(url.path), safe=_UNESCAPED_IN_PATH)


def _query(url: Url) -> dict[str, list[str]]:
    from urllib.parse import unquote_plus  # noqa: PLC0415 - few policies look at URLs

    found: dict[str, list[str]] = {}
    for pair in url.query.split("&"):
        # As in Go, a pair that cannot be read is left out.
        if pair and ";" not in pair and not _BAD_ESCAPE.search(pair):
            key, _, value = pair.partition("=")
            found.setdefault(unquote_plus(key), []).append(unquote_plus(value))
    return found


def _text_work(url: Url) -> int:
    """Return the work of reading escapes, which takes longer than other texts; pairs most."""
    return 1 + len(url.path) // 2 + len(url.query)


def _parse_work(text: str) -> int:
    """Return the work of taking a URL apart, or of finding out that it is none."""
    return 20 + len(text) // 20


_READ = Size(cost=traverse, work=_parse_work)
_UNESCAPE = Size(work=_text_work)

URLS: tuple[Overload, ...] = (
    function("url", STRING, returns=URL, run=_url, size=_READ),
    function("isURL", STRING, returns=BOOL, run=_is_url, size=_READ),
    method("getScheme", URL, returns=STRING, run=_scheme),
    method("getHost", URL, returns=STRING, run=_host),
    method("getHostname", URL, returns=STRING, run=_hostname),
    method("getPort", URL, returns=STRING, run=_port),
    method("getEscapedPath", URL, returns=STRING, run=_escaped_path, size=_UNESCAPE),
    method("getQuery", URL, returns=map_of(STRING, list_of(STRING)), run=_query, size=_UNESCAPE),
)
