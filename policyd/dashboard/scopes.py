"""The namespaces whose queues a user may see."""

import asyncio
from typing import Final

from policyd.api.kueue import LocalQueue
from policyd.clock import Clock
from policyd.dashboard.access import Rights, Session, to_see
from policyd.dashboard.feeds import CachedValue
from policyd.errors import PolicydError
from policyd.kube.client import Client
from policyd.kube.errors import ForbiddenError
from policyd.kube.pages import pages
from policyd.kube.resources import LOCAL_QUEUES
from policyd.snapshot.values import GROUP, PLURAL

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
