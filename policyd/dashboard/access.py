"""Viewers and their rights: sessions, and the API server's answers about permissions."""

import hashlib
import hmac
import secrets
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NamedTuple

from policyd.api.meta import Wire
from policyd.clock import Clock
from policyd.kube.client import Client, Writer
from policyd.kube.errors import NotFoundError
from policyd.kube.resources import (
    SELF_SUBJECT_ACCESS_REVIEWS,
    SUBJECT_ACCESS_REVIEWS,
)
from policyd.snapshot.values import CLUSTER_PLURAL, GROUP, NAME, PLURAL

SESSION_SECONDS: Final = 3_600.0
"""After which one has to sign in again."""
ANSWER_SECONDS: Final = 30.0
"""For how long an answer about a right counts."""
REVIEW_SECONDS: Final = 300.0
"""After which the API server is asked again whether it still takes a token."""
MOST_SESSIONS: Final = 2_000
MOST_OF_ONE: Final = 16
"""Sessions of one user; the oldest ends first, so that no user can take those of others."""
MOST_ANSWERS: Final = 2_000
"""Answers about rights that a session keeps."""


class ResourceAttributes(NamedTuple):
    """Something that one may do; "" for all namespaces, and for all names."""

    verb: str
    group: str
    resource: str
    namespace: str = ""
    name: str = ""


def to_see(scope: str) -> ResourceAttributes:
    """Return the permission to see the queues of a namespace, or of the cluster if that is ""."""
    plural = PLURAL if scope else CLUSTER_PLURAL
    return ResourceAttributes("get", GROUP, plural, scope, NAME)


class Identity(NamedTuple):
    """A viewer, as the API server, a proxy or the terminal names it.

    Attributes:
        name: The user.
        how: By a token, by the headers of a proxy, or by the one-time link of this process.
        groups: The user's groups.
        uid: The user's, if there is one.
        extra: What authenticators add for authorizers.
    """

    name: str
    how: Literal["token", "proxy", "link"]
    groups: tuple[str, ...] = ()
    uid: str = ""
    extra: Mapping[str, tuple[str, ...]] = {}


@dataclass(slots=True, eq=False)
class Session:
    """A person who has signed in.

    Attributes:
        identity: The viewer.
        client: The API server, with this person's rights.
        ends_at: When it ends, in seconds of the clock that only goes forward.
        close: Closes the client, if it is this session's own.
        review: Asks whether the person may still be signed in; None if there is nothing to ask.
        reviewed_at: When that was asked last.
        key: Names the session in the cookie. A secret.
    """

    identity: Identity
    client: Client = field(repr=False)
    ends_at: float
    close: Callable[[], Awaitable[None]] | None = None
    review: Callable[[], Awaitable[bool]] | None = None
    reviewed_at: float = 0.0
    key: str = field(default_factory=lambda: secrets.token_urlsafe(32), repr=False)
    answers: dict[ResourceAttributes, tuple[float, bool]] = field(default_factory=dict)

    @property
    def form_token(self) -> str:
        """What each form of this session carries, so that no other site can send one."""
        return hmac.digest(self.key.encode(), b"form", hashlib.sha256).hex()

    def sent_by_its_form(self, token: str) -> bool:
        """Tell whether a form carries the token of this session."""
        return hmac.compare_digest(token.encode(), self.form_token.encode())


class Sessions:
    """The sessions of this process, in memory alone."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._all: dict[str, Session] = {}

    def __len__(self) -> int:
        return len(self._all)

    @property
    def all(self) -> tuple[Session, ...]:
        """All that have begun, and have not ended."""
        return tuple(self._all.values())

    async def begin(self, session: Session) -> None:
        """Keep a new session, and end those that are too many."""
        await self._end_old()
        mine = [each for each in self._all.values() if each.identity.name == session.identity.name]
        for each in mine[: max(0, len(mine) + 1 - MOST_OF_ONE)]:
            await self.end(each)
        if len(self._all) >= MOST_SESSIONS:
            most = Counter(each.identity.name for each in self._all.values()).most_common(1)[0][0]
            await self.end(next(e for e in self._all.values() if e.identity.name == most))
        self._all[session.key] = session

    async def find(self, key: str) -> Session | None:
        """Return the session of a cookie; None if it has ended, or there was none."""
        session = self._all.get(key)
        if session is None:
            return None
        if self._clock.monotonic() >= session.ends_at or not await self._still(session):
            await self.end(session)
            return None
        return session

    async def _still(self, session: Session) -> bool:
        """Tell whether the API server still takes a token that a session began with."""
        now = self._clock.monotonic()
        if session.review is None or now < session.reviewed_at + REVIEW_SECONDS:
            return True
        session.reviewed_at = now
        return await session.review()

    async def end(self, session: Session) -> None:
        """End a session, and forget its credentials."""
        self._all.pop(session.key, None)
        session.ends_at = 0.0
        if session.close is not None:
            await session.close()

    async def end_all(self) -> None:
        """End all of them."""
        for each in [*self._all.values()]:
            await self.end(each)

    async def _end_old(self) -> None:
        now = self._clock.monotonic()
        for each in [one for one in self._all.values() if now >= one.ends_at]:
            await self.end(each)


class _Allowed(Wire, frozen=True):
    allowed: bool = False


class _Answered(Wire, frozen=True):
    status: _Allowed = _Allowed()


class Rights:
    """Asks the API server what a person may do."""

    def __init__(self, writer: Writer, *, clock: Clock) -> None:
        self._writer = writer
        self._clock = clock

    async def may(self, session: Session, permission: ResourceAttributes) -> bool:
        """Tell whether a person may do something, as of half a minute ago.

        Raises:
            ApiError: If the API server does not answer.
        """
        now = self._clock.monotonic()
        known = session.answers.get(permission)
        if known is not None and now < known[0] + ANSWER_SECONDS:
            return known[1]
        allowed = await self._ask(session.identity, permission)
        if len(session.answers) >= MOST_ANSWERS:
            session.answers.clear()
        session.answers[permission] = now, allowed
        return allowed

    async def _ask(self, identity: Identity, permission: ResourceAttributes) -> bool:
        plural, _, subresource = permission.resource.partition("/")
        asked = permission._replace(resource=plural)._asdict()
        spec: dict[str, Any] = {"resourceAttributes": {**asked, "subresource": subresource}}
        resource = SUBJECT_ACCESS_REVIEWS
        if identity.how == "link":
            resource = SELF_SUBJECT_ACCESS_REVIEWS
        else:
            spec |= {
                "user": identity.name,
                "groups": list(identity.groups),
                "uid": identity.uid,
                "extra": {key: list(values) for key, values in identity.extra.items()},
            }
        try:
            found = await self._writer.create(resource, {"spec": spec}, into=_Answered)
        except NotFoundError:
            if identity.how == "link":
                return True  # an API server that authorizes nothing; it refuses the read, if any
            raise
        return found.status.allowed
