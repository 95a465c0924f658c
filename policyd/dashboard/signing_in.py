"""How a person is known: by a token, by a proxy that is trusted, or by a one-time link."""

import hmac
import secrets
import ssl
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final

import structlog
from starlette.requests import Request

from policyd.api.meta import Wire
from policyd.clock import Clock
from policyd.dashboard.access import (
    MOST_OF_ONE,
    SESSION_SECONDS,
    GuardedClient,
    Identity,
    Rights,
    Session,
)
from policyd.errors import PolicydError
from policyd.kube.auth import bearer
from policyd.kube.client import Client
from policyd.kube.connection import ApiConnection
from policyd.kube.errors import ApiError, UnavailableError
from policyd.kube.http_client import HttpClient
from policyd.kube.resources import TOKEN_REVIEWS
from policyd.kube.tls import without_certificate
from policyd.serving import CALLER_NAMES

LINK_SECONDS: Final = 600.0
"""For how long a one-time link can be used."""
MOST_TOKEN_CHARACTERS: Final = 16_384
MOST_ASKING: Final = 16
"""Tokens that are reviewed at a time."""
PROXY_SECRET: Final = "x-policyd-proxy-secret"  # noqa: S105 - the name of a header
"""The header in which a proxy says that it is the one that is trusted."""
log = structlog.get_logger()

_RESERVED: Final = "system:"
"""How names begin that only the API server gives."""


class SignInError(PolicydError):
    """A user cannot be signed in."""


class _User(Wire, frozen=True):
    username: str = ""
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: Mapping[str, tuple[str, ...]] = {}


class _Reviewed(Wire, frozen=True):
    authenticated: bool = False
    user: _User = _User()


class _TokenReview(Wire, frozen=True):
    status: _Reviewed = _Reviewed()


class TokenSignIn:
    """Signs in by a bearer token, which is kept in memory, and sent to the API server alone."""

    def __init__(
        self,
        own: Client,
        connection: ApiConnection,
        clock: Clock,
        *,
        opened: Callable[[ApiConnection], HttpClient] = HttpClient,
    ) -> None:
        """Take tokens.

        Args:
            own: The API server, with the rights of the page itself.
            connection: How the API server is reached.
            clock: The clock by which sessions end.
            opened: Makes the client of a person.
        """
        self._own = own
        self._asking = 0
        self._opened = opened
        self._connection = replace(connection, impersonation=(), tls=_plain(connection))
        self._clock = clock

    async def session(self, token: str) -> Session:
        """Return a new session of the owner of a token.

        Raises:
            SignInError: If the token is not valid.
            UnavailableError: If the API server does not answer.
        """
        token = token.strip()
        if not token or len(token) > MOST_TOKEN_CHARACTERS or not token.isprintable():
            raise SignInError("this is not a token", hint="`kubectl create token NAME` prints one")
        if self._asking >= MOST_ASKING:
            raise SignInError("many sign in at this moment", hint="try again")
        self._asking += 1
        try:
            identity = await self._identity(token)
        except ApiError as error:  # whose message has addresses that strangers need not know
            log.warning("token_not_reviewed", error=str(error))
            hint = "the log of the page says why"
            raise UnavailableError("the API server does not answer", hint=hint) from error
        finally:
            self._asking -= 1
        if identity is None:
            raise SignInError(
                "the API server does not accept this token",
                hint="it may have expired: `kubectl create token NAME` prints a new one",
            )
        client = self._opened(replace(self._connection, credentials=bearer(token)))
        await client.__aenter__()
        now = self._clock.monotonic()

        async def close() -> None:
            await client.__aexit__(None, None, None)

        async def review() -> bool:
            try:
                return await self._identity(token) == identity
            except ApiError:
                return True  # the token is not judged; reads fail meanwhile

        return Session(
            identity=identity,
            client=client,
            ends_at=now + SESSION_SECONDS,
            close=close,
            review=review,
            reviewed_at=now,
        )

    async def _identity(self, token: str) -> Identity | None:
        found = await self._own.create(TOKEN_REVIEWS, {"spec": {"token": token}}, into=_TokenReview)
        user = found.status.user
        if not found.status.authenticated or not user.username:
            return None
        return Identity(user.username, "token", user.groups, user.uid, user.extra)


def _plain(connection: ApiConnection) -> ssl.SSLContext | None:
    return None if connection.tls is None else without_certificate(connection.tls)


class OneTimeLinks:
    """One-time links, for the reader of this process's terminal."""

    def __init__(self, own: Client, clock: Clock, *, first: str = "", age: float = 0.0) -> None:
        """Begin with a link that is there already, or with none.

        Args:
            own: The API server, with the rights of the one who reads the terminal.
            clock: The clock by which links end.
            first: The secret of that link; "" for none.
            age: How old it is, in seconds.
        """
        self._own = own
        self._clock = clock
        self._open: dict[str, float] = {}
        if first:
            self._open[first] = clock.monotonic() + LINK_SECONDS - age

    def new(self) -> str:
        """Return the secret of a new link; the oldest of many cannot be used any more."""
        while len(self._open) >= MOST_OF_ONE:
            del self._open[next(iter(self._open))]
        secret = secrets.token_urlsafe(32)
        self._open[secret] = self._clock.monotonic() + LINK_SECONDS
        return secret

    @property
    def outstanding(self) -> bool:
        """Whether there is a link that can still be used."""
        now = self._clock.monotonic()
        return any(now < ends for ends in self._open.values())

    def session(self, secret: str) -> Session:
        """Return a new session, and have the link used up.

        Raises:
            SignInError: If it is no link of this process, was used, or is too old.
        """
        ends = self._open.pop(secret, 0.0)
        now = self._clock.monotonic()
        if now >= ends:
            raise SignInError(
                "this link has been used, or is too old",
                hint="each link is good for one browser; the terminal has a new one",
            )
        return Session(
            identity=Identity("you", "link"), client=self._own, ends_at=now + SESSION_SECONDS
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TrustedProxy:
    """A proxy that has signed people in, and says in headers who they are.

    If both a secret and names are given, it needs both.

    Attributes:
        secret: What it sends in `X-Policyd-Proxy-Secret`; "" if its certificate alone tells.
        names: Common names of its client certificate; empty if its secret alone tells.
        user_header: The header with the user.
        groups_header: The header with the user's groups, between commas.
        user_prefix: What users are called in RBAC before their name.
        group_prefix: Likewise, groups.
    """

    secret: str = ""
    names: frozenset[str] = frozenset()
    user_header: str = "X-Forwarded-User"
    groups_header: str = "X-Forwarded-Groups"
    user_prefix: str = ""
    group_prefix: str = ""

    def identity(self, request: Request) -> Identity | None:
        """Return who a request of this proxy is from; None if it is not one, or names no user."""
        if not self._is_sender(request):
            return None
        users = request.headers.getlist(self.user_header)
        groups = request.headers.getlist(self.groups_header)
        if len(users) != 1 or len(groups) > 1 or not users[0].strip():
            return None  # a header that a client sent, and the proxy passed on
        name = self.user_prefix + users[0].strip()
        given = [part.strip() for part in "".join(groups).split(",") if part.strip()]
        named = [self.group_prefix + part for part in given]
        if name.startswith(_RESERVED):
            return None
        kept = [each for each in named if not each.startswith(_RESERVED)]
        return Identity(name, "proxy", (*kept, "system:authenticated"))

    def _is_sender(self, request: Request) -> bool:
        found: frozenset[str] = request.scope.get("state", {}).get(CALLER_NAMES, frozenset())
        if self.names and not found & self.names:
            return False
        if not self.secret:
            return bool(self.names)
        given = request.headers.getlist(PROXY_SECRET)
        return len(given) == 1 and hmac.compare_digest(given[0].encode(), self.secret.encode())


class ProxySessions:
    """The sessions of users that a proxy has signed in: one for each, in any browser."""

    def __init__(self, own: Client, rights: Rights, clock: Clock) -> None:
        self._own = own
        self._rights = rights
        self._clock = clock
        self._known: dict[tuple[str, tuple[str, ...]], Session] = {}

    async def session(
        self, identity: Identity, begin: Callable[[Session], Awaitable[None]]
    ) -> Session:
        """Return the session of a person; a new one is begun by `begin`."""
        key = identity.name, identity.groups
        known = self._known.get(key)
        now = self._clock.monotonic()
        if known is not None and now < known.ends_at:
            return known
        session = Session(identity=identity, client=self._own, ends_at=now + SESSION_SECONDS)
        session.client = GuardedClient(self._own, self._rights, session)
        self._known = {k: v for k, v in self._known.items() if now < v.ends_at}
        self._known[key] = session
        await begin(session)
        return session
