"""The namespaces of a cluster, as policies see them."""

import asyncio
from collections.abc import Mapping

import msgspec
import structlog

from policyd.api.admission import AdmissionRequest
from policyd.api.meta import Json, ObjectMeta, Wire
from policyd.api.names import NAME_LABEL
from policyd.clock import Clock, SystemClock
from policyd.kube.changes import Added, Change, Deleted, Modified
from policyd.kube.client import Client
from policyd.kube.errors import ApiError
from policyd.kube.resources import NAMESPACES
from webhooks.observe.review_log import ReviewLog

FETCH_SECONDS = 1.0
"""How long a namespace is waited for: the API server that asks us is up, or would not ask."""

MOST_FETCHED = 1_000
"""Namespaces that may be known before the informer knows them."""

MOST_ASKED = 100
UNKNOWN_SECONDS = 1.0
"""So many are asked for in such a time, and each once: the API server asks about none that is not
there, but any other caller that reaches the port may."""

log = structlog.get_logger(__name__)


class Namespace(Wire, frozen=True):
    """The part of a Namespace that policies can look at."""

    metadata: ObjectMeta
    spec: Json = None
    status: Json = None


class Namespaces:
    """The namespaces by name: kept by an informer, and fetched where it is behind.

    A namespace that was created a moment ago is on its way to the informer when its first pods
    are reviewed. It is fetched then, once for all reviews that wait for it.

    Args of the constructor:
        fetch_seconds: How long one is waited for.
        clock: Tells when one that was not found is asked for again.
    """

    def __init__(self, *, fetch_seconds: float = FETCH_SECONDS, clock: Clock | None = None) -> None:
        self._fetch_seconds = fetch_seconds
        self._clock = clock or SystemClock()
        self._lines = ReviewLog(self._clock)
        self._asked: set[str] = set()
        self._asked_until = 0.0
        self._known: dict[str, Mapping[str, Json]] = {}
        self._fetched: dict[str, Mapping[str, Json]] = {}
        self._fetching: dict[str, asyncio.Event] = {}

    def take(self, change: Change[Namespace]) -> None:
        """Take over a namespace that is new, changed, or gone."""
        match change:
            case Added(new) | Modified(object=new):
                self._known[new.metadata.name] = msgspec.to_builtins(new)
                self._fetched.pop(new.metadata.name, None)
                self._asked.discard(new.metadata.name)
            case Deleted(old):
                self._known.pop(old.metadata.name, None)

    def find(self, name: str) -> Mapping[str, Json] | None:
        """Return the Namespace object of a name, None if it is not known (yet)."""
        return self._known.get(name) or self._fetched.get(name)

    async def fetch(self, client: Client, request: AdmissionRequest) -> None:
        """Ask the API server for the namespace of a request, if it is not known.

        It stays unknown if there is none, no answer in time, or if too many are asked for.
        """
        name = request.namespace
        if not name or self.find(name) is not None or request.resource.resource == "namespaces":
            return
        fetching = self._fetching.get(name)
        if fetching is not None:
            await fetching.wait()
            return
        if not self._may_ask(name):
            return
        done = self._fetching[name] = asyncio.Event()
        try:
            await asyncio.sleep(0)  # asking takes a task
            await self._fetch(client, name)
        finally:
            del self._fetching[name]
            done.set()

    def _may_ask(self, name: str) -> bool:
        now = self._clock.monotonic()
        if now >= self._asked_until:
            self._asked_until = now + UNKNOWN_SECONDS
            self._asked.clear()
        if name in self._asked or len(self._asked) >= MOST_ASKED:
            return False
        self._asked.add(name)
        return True

    async def _fetch(self, client: Client, name: str) -> None:
        try:
            async with asyncio.timeout(self._fetch_seconds):
                found = await client.get(NAMESPACES, name, into=Namespace)
        except (ApiError, TimeoutError) as error:
            reason = str(error) or f"no answer within {self._fetch_seconds} s"
            self._lines.write(log.warning, "namespace_unknown", namespace=name, reason=reason)
            return
        if len(self._fetched) >= MOST_FETCHED:
            del self._fetched[next(iter(self._fetched))]  # asked for again if it is still needed
        self._fetched[name] = msgspec.to_builtins(found)


def without_cluster(name: str) -> Mapping[str, Json]:
    """Make up a namespace that only has a name, if there is no cluster to read."""
    return {"metadata": {"name": name, "labels": {NAME_LABEL: name}}}
