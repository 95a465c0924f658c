"""Viewers and their rights: sessions, permissions, and the namespaces that they may see."""

import asyncio
import hashlib
import hmac
import secrets
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NamedTuple, NoReturn, TypeVar, Unpack

from policyd.api.kueue import LocalQueue
from policyd.api.meta import Wire
from policyd.clock import Clock
from policyd.dashboard.feeds import CachedValue
from policyd.errors import PolicydError
from policyd.kube.client import Bookmark, Client, ListPage, Paging, Selection, WatchEvent, Writer
from policyd.kube.errors import ForbiddenError, NotFoundError
from policyd.kube.pages import pages
from policyd.kube.resources import (
    LOCAL_QUEUES,
    SELF_SUBJECT_ACCESS_REVIEWS,
    SUBJECT_ACCESS_REVIEWS,
    Resource,
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

    @property
    def team(self) -> str:
        """What limits are shared by: those who may create a service account may create many."""
        if not self.name.startswith(_ACCOUNTS):
            return self.name
        return _ACCOUNTS + self.name.removeprefix(_ACCOUNTS).partition(":")[0]


_ACCOUNTS: Final = "system:serviceaccount:"


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
            most = Counter(each.identity.team for each in self._all.values()).most_common(1)[0][0]
            await self.end(next(e for e in self._all.values() if e.identity.team == most))
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


MOST_CHOICES: Final = 200
"""Namespaces that rights are asked about, so that they can be offered; any other can be typed."""
AT_A_TIME: Final = 16
LISTED_SECONDS: Final = 60.0
"""For how long namespaces with queues are not listed again."""


class Scopes:
    """Finds out which scopes there are, and which of them a person may see."""

    def __init__(self, own: Client, rights: Rights, *, clock: Clock, namespace: str) -> None:
        self._own = own
        self._rights = rights
        self._namespace = namespace
        self._known: CachedValue[tuple[str, ...]] = CachedValue(
            clock=clock, fresh_seconds=LISTED_SECONDS
        )

    async def chosen(self, session: Session, asked: str | None) -> str:
        """Return the scope that is asked for, or the widest; "" is the whole cluster.

        Raises:
            ForbiddenError: If the person may not see it.
            ApiError: If the API server does not answer.
        """
        if asked:
            if await self._rights.may(session, to_see(asked)):
                return asked
            raise ForbiddenError(
                f"{session.identity.name} may not see the queues of namespace {asked}",
                hint=f"an administrator has to grant `get` on `{PLURAL}.{GROUP}` there;"
                " the role `view` has it",
            )
        choices = await self.choices(session)
        if choices:
            return choices[0]
        raise ForbiddenError(
            f"{session.identity.name} may see the queues of no namespace that has one",
            hint=f"an administrator has to grant `get` on `{PLURAL}.{GROUP}` in your namespace;"
            " the role `view` has it",
        )

    async def choices(self, session: Session) -> tuple[str, ...]:
        """Return the scopes that a person may see, the whole cluster first.

        Raises:
            ApiError: If the API server does not answer.
        """
        try:
            namespaces, _ = await self._known.get(self._list)
        except PolicydError:
            namespaces = ()
        offered = dict.fromkeys(("", *self._own_ones(session), *namespaces))
        limit = asyncio.Semaphore(AT_A_TIME)

        async def sees(scope: str) -> bool:
            async with limit:
                return await self._rights.may(session, to_see(scope))

        allowed = await asyncio.gather(*map(sees, offered))
        return tuple(scope for scope, may in zip(offered, allowed, strict=True) if may)

    def _own_ones(self, session: Session) -> tuple[str, ...]:
        """Return namespaces that a person is likely from."""
        kind, _, account = session.identity.name.rpartition("serviceaccount:")
        own = account.partition(":")[0] if kind == "system:" else ""
        link = self._namespace if session.identity.how == "link" else ""
        return tuple(each for each in (link, own) if each)

    async def _list(self) -> tuple[str, ...]:
        """Return the namespaces with LocalQueues, in order."""
        found: set[str] = set()
        async for page in pages(self._own, LOCAL_QUEUES, into=LocalQueue):
            found.update(each.metadata.namespace for each in page.items)
        return tuple(sorted(found)[:MOST_CHOICES])


T = TypeVar("T")


class GuardedClient:
    """A client for one person, who was signed in by a proxy, and so has no token.

    It reads as the page itself what that person may read. The API server is asked about the rights
    of the person, and refuses what the page itself may not read.
    """

    def __init__(self, own: Client, rights: Rights, session: Session) -> None:
        self._own = own
        self._rights = rights
        self._session = session

    async def get(
        self,
        resource: Resource,
        name: str,
        *,
        into: type[T],
        namespace: str = "",
        subresource: str = "",
    ) -> T:
        """Return one object."""
        await self._check("get", resource, namespace, name, subresource)
        return await self._own.get(
            resource, name, into=into, namespace=namespace, subresource=subresource
        )

    async def served(self, api_version: str) -> tuple[Resource, ...]:
        """Return the resources of a version: all who are authenticated may know them."""
        return await self._own.served(api_version)

    async def page(
        self, resource: Resource, *, into: type[T], **options: Unpack[Paging]
    ) -> ListPage[T]:
        """Return the first part of a collection, or the next after `continue_`."""
        await self._check("list", resource, options.get("namespace", ""))
        return await self._own.page(resource, into=into, **options)

    async def watch(
        self,
        resource: Resource,
        *,
        into: type[T],
        resource_version: str,
        **selection: Unpack[Selection],
    ) -> AsyncGenerator[WatchEvent[T] | Bookmark, None]:
        """Iterate over changes after `resource_version`."""
        await self._check("watch", resource, selection.get("namespace", ""))
        async for each in self._own.watch(
            resource, into=into, resource_version=resource_version, **selection
        ):
            yield each

    async def create(self, resource: Resource, *_: Any, **__: Any) -> NoReturn:  # noqa: ANN401
        """Refuse: nothing is tried for a user without a token."""
        self._refuse(resource)

    replace = patch = delete = create

    def _refuse(self, resource: Resource) -> NoReturn:
        raise ForbiddenError(
            f"{resource.plural} cannot be tried here without your token",
            hint="sign in with a token, or use the command line",
        )

    async def _check(
        self, verb: str, resource: Resource, namespace: str, name: str = "", subresource: str = ""
    ) -> None:
        plural = f"{resource.plural}/{subresource}" if subresource else resource.plural
        asked = ResourceAttributes(verb, resource.group, plural, namespace, name)
        if not await self._rights.may(self._session, asked):
            within = f" in namespace {namespace}" if namespace else ""
            raise ForbiddenError(
                f"{self._session.identity.name} may not {verb} {plural}{within}",
                hint="an administrator has to grant that",
            )
