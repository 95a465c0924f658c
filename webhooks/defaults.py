"""The LocalQueues and the WorkloadPriorityClass named `default`, for jobs that name none.

The API server sends jobs that name no queue to the webhooks from namespaces with such a queue only.
"""

from collections.abc import Callable
from typing import Any, Final, Generic, NamedTuple, NoReturn, TypeVar

import structlog

from policyd.admission.jobs import DefaultClass
from policyd.api.kueue.names import DEFAULT_LOCAL_QUEUE
from policyd.kube.changes import Change, Deleted
from policyd.kube.client import PartialObject, Reader, Selection
from policyd.kube.discovery import served_resources
from policyd.kube.errors import ApiError
from policyd.kube.informer import FIRST_WAIT_SECONDS, LONGEST_WAIT_SECONDS, Identified, Informer
from policyd.kube.pace import Backoff, Pace
from policyd.kube.resources import Resource

T = TypeVar("T", bound=Identified)

FIRST_LIST_SECONDS: Final = 5.0
"""How long the start waits for them: a missing right must not stop it."""

log = structlog.get_logger(__name__)


class DefaultQueues:
    """The namespaces, by name; `changed` is called when they become others."""

    def __init__(self, *, changed: Callable[[], None] = lambda: None) -> None:
        self._changed = changed
        self.namespaces: frozenset[str] = frozenset()

    def take(self, change: Change[PartialObject]) -> None:
        """Take over that a LocalQueue named `default` is new, changed or gone."""
        named = frozenset({change.object.metadata.namespace})
        gone = isinstance(change, Deleted)
        namespaces = self.namespaces - named if gone else self.namespaces | named
        if namespaces != self.namespaces:
            self.namespaces = namespaces
            self._changed()


def take_class(known: DefaultClass, change: Change[PartialObject]) -> None:
    """Take over that the WorkloadPriorityClass named `default` is new, changed or gone."""
    known.there = not isinstance(change, Deleted)


class Followed(NamedTuple, Generic[T]):
    """Which objects are followed.

    Attributes:
        resource: The kind of object.
        into: What is read of one.
        take: Takes over each change.
        named: Their name; "" for all.
    """

    resource: Resource
    into: type[T]
    take: Callable[[Change[T]], None]
    named: str = DEFAULT_LOCAL_QUEUE


class DefaultsWatch:
    """Follows objects in the API server, once it serves their kind."""

    def __init__(self, reader: Reader, followed: Followed[Any], *, pace: Pace) -> None:
        self._reader = reader
        self._resource = followed.resource
        self._pace = pace
        named = followed.named
        selection = Selection(field_selector=f"metadata.name={named}") if named else Selection()
        self._informer = Informer(
            reader,
            followed.resource,
            into=followed.into,
            on_change=followed.take,
            pace=pace,
            **selection,
        )

    async def run(self) -> NoReturn:
        """Wait for the kind, and watch."""
        backoff = Backoff(FIRST_WAIT_SECONDS, LONGEST_WAIT_SECONDS, jitter=self._pace.jitter)
        while not await self._is_served():
            await self._pace.sleep(backoff.next())
        await self._informer.run()

    async def first_list(self) -> None:
        """Wait until they are known, but not for long, nor for a kind that is not there."""
        if not await self._is_served():
            return
        try:
            await self._pace.within(FIRST_LIST_SECONDS, self._informer.synced.wait())
        except TimeoutError:
            reason = str(self._informer.last_error or "no answer")
            log.warning("defaults_unknown", kind=self._resource.kind, reason=reason)

    async def _is_served(self) -> bool:
        try:
            served = await served_resources(self._reader, self._resource.api_version)
        except ApiError:
            return False
        return any(resource.plural == self._resource.plural for resource in served)
