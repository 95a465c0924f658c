"""HTTP requests of Kyverno's policies and GlobalContextEntries, to declared addresses.

An expression could be led to any address by the object that it looks at. So it reaches those alone
that the operator names, and no redirect is followed.
"""

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Final

import msgspec
from yarl import URL

from policyd.api.meta import Json
from policyd.dialects.kyverno.entries import EntryCall
from policyd.engine.evaluate.patches import to_json
from policyd.errors import ConfigurationError, PolicydError
from webhooks.external_data.addresses import read_address
from webhooks.external_data.fetching import FetchedResponse, Fetcher, Message
from webhooks.external_data.lookups import ExternalAnswer, ExternalLookups

FRESH_SECONDS: Final = 5.0
"""How long an answer counts: the pods of one job ask once."""

MOST_HEADER_BYTES: Final = 16 * 1024
"""How much the headers of a request may be, together."""

_OURS: Final = frozenset(
    (
        *("host", "connection", "content-length", "transfer-encoding", "te", "trailer", "upgrade"),
        *("expect", "keep-alive", "proxy-authorization", "proxy-connection", "accept-encoding"),
        *("x-original-url", "x-rewrite-url"),
        *("x-http-method", "x-http-method-override", "x-method-override"),
    )
)
"""Headers by which a request would come to another server, path or method than it says."""


class WebError(PolicydError):
    """A request is not sent."""


class Web:
    """Sends requests of policies to the declared addresses.

    Args of the constructor:
        fetcher: Sends it.
        lookups: Fetches the data of reviews.
        addresses: Where to, with all below: `https://inventory.example/api`.
        certificates: PEM of the authorities to trust; those of the machine if it is empty.

    Raises:
        ConfigurationError: If one of the addresses is none.
    """

    def __init__(
        self,
        fetcher: Fetcher,
        lookups: ExternalLookups,
        addresses: Iterable[str],
        *,
        certificates: str = "",
    ) -> None:
        self._fetcher = fetcher
        self._lookups = lookups
        self._addresses = tuple(addresses)
        self._declared = tuple(map(_declared, self._addresses))
        self._named = frozenset(address.raw_host or "" for address in self._declared)
        self._certificates = certificates

    def trusting(self, certificates: str) -> "Web":
        """Return one that trusts the authorities of a PEM bundle alone."""
        return Web(self._fetcher, self._lookups, self._addresses, certificates=certificates)

    def send(self, method: str, url: str, body: Json | None, headers: Mapping[str, str]) -> Json:
        """Return the answer: an object with its `statusCode`, or that and a `body`.

        Raises:
            WebError: If the address is not declared, or the body is not JSON.
            PendingError: If it is to be asked first.
            UnansweredError: If there is no answer.
        """
        given = {str(name): str(value) for name, value in headers.items()}
        message = self._message(method, url, body, given)
        return self._lookups.answer(_key(message, "http"), partial(self._ask, message))

    def call(self, call: EntryCall) -> Json:
        """Return the answer to the call of an entry.

        Raises:
            WebError: If the address is not declared, or the body is not JSON.
            PendingError: If it is to be asked first.
            UnansweredError: If there is no answer, or none that is usable.
        """
        if call.certificates:
            return self.trusting(call.certificates).call(call._replace(certificates=""))
        message = self._message(call.method, call.url, call.body, call.headers)
        key = _key(message, "entry", call.seconds)
        return self._lookups.answer(key, partial(self._call, message, call.seconds))

    def _message(
        self, method: str, url: str, body: Json | None, headers: dict[str, str]
    ) -> Message:
        address = read_address(url)
        if address is None or not any(_covers(each, address) for each in self._declared):
            raise WebError(f"policies may not call `{url}` without `--http {_origin(url)}`")
        sent = None if body is None else _encoded(body)
        _check(headers)
        return Message(
            method=method,
            url=address,
            headers={"Content-Type": "application/json", **headers} if sent else headers,
            body=sent,
            certificates=self._certificates,
            named=self._named,
        )

    async def _ask(self, message: Message) -> ExternalAnswer:
        fetched = await self._fetcher.fetch(message)
        return ExternalAnswer(_as_response(fetched), FRESH_SECONDS, len(fetched.body))

    async def _call(self, message: Message, seconds: float) -> ExternalAnswer:
        fetched = await self._fetcher.fetch(message)
        if not 200 <= fetched.status < 300:
            raise WebError(f"{message.method} {message.url} answered {fetched.status}")
        try:
            found = msgspec.json.decode(fetched.body)
        except (ValueError, RecursionError) as error:
            raise WebError(
                f"{message.method} {message.url} did not answer with JSON: {error}"
            ) from error
        return ExternalAnswer(found, seconds, len(fetched.body))


def _key(message: Message, *asked: object) -> bytes:
    headers = sorted(message.headers.items())
    parts = (message.method, str(message.url), message.body, headers, message.certificates)
    return msgspec.json.encode((*asked, *parts))


def _declared(text: str) -> URL:
    address = read_address(text)
    if address is None or address.query_string or address.fragment:
        raise ConfigurationError(
            f"`{text}` is not a URL that policies can call", hint="write `https://host/path`"
        )
    return address


def _check(headers: Mapping[str, str]) -> None:
    """Check that headers are those of one request, which goes where it says.

    Raises:
        WebError: If they are not.
    """
    taken = [name for name in headers if name.lower() in _OURS]
    if taken:
        raise WebError(f"header `{taken[0]}` may not be set by policies")
    if sum(len(name) + len(value) for name, value in headers.items()) > MOST_HEADER_BYTES:
        raise WebError(f"the headers have more than {MOST_HEADER_BYTES} characters")


def _covers(declared: URL, address: URL) -> bool:
    below = declared.path.rstrip("/")
    return address.origin() == declared.origin() and (
        address.path == below or address.path.startswith(f"{below}/")
    )


def _origin(text: str) -> str:
    address = read_address(text)
    return str(address.origin()) if address is not None else "https://host/path"


def _encoded(body: Json) -> bytes:
    try:
        return msgspec.json.encode(to_json(body))
    except (PolicydError, TypeError, ValueError) as error:
        raise WebError(f"the request body is not JSON: {error}") from error


def _as_response(fetched: FetchedResponse) -> Json:
    """Return an answer as Kyverno does: null if it is not JSON."""
    try:
        body = msgspec.json.decode(fetched.body)
    except (ValueError, RecursionError):
        body = None
    inside = body if isinstance(body, dict) else {"body": body}
    return {**inside, "statusCode": fetched.status}
