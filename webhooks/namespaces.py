"""The namespaces of a cluster, as policies see them."""

import asyncio
from collections.abc import Mapping

import msgspec
import structlog

from policyd.api.admission import AdmissionRequest
from policyd.api.meta import Json, ObjectMeta, Wire
from policyd.kube.client import Client
from policyd.kube.errors import ApiError
from policyd.kube.resources import NAMESPACES

NAME_LABEL = "kubernetes.io/metadata.name"
"""The label that the API server gives every namespace."""

FETCH_SECONDS = 1.0
"""How long a namespace is waited for: the API server that asks us is up, or would not ask."""

MOST_FETCHED = 1_000
"""Namespaces that may be known before the informer knows them."""

log = structlog.get_logger(__name__)


class Namespace(Wire, frozen=True):
    """The part of a Namespace that policies can look at."""

    metadata: ObjectMeta
    spec: Json = None
    status: Json = None


class Namespaces:
    """What is known of each namespace: kept by an informer, asked for where that is behind.

    A namespace that was created a moment ago is on its way to the informer when its first pods
    are reviewed. It is asked for then, once for all who wait for it.
    """

    def __init__(self, *, fetch_seconds: float = FETCH_SECONDS) -> None:
        self._fetch_seconds = fetch_seconds
        self._known: dict[str, Mapping[str, Json]] = {}
        self._fetched: dict[str, Mapping[str, Json]] = {}
        self._fetching: dict[str, asyncio.Event] = {}

    def take(self, old: Namespace | None, new: Namespace | None) -> None:
        """Take over a namespace that is new, changed, or gone."""
        if new is not None:
            self._known[new.metadata.name] = msgspec.to_builtins(new)
            self._fetched.pop(new.metadata.name, None)
        elif old is not None:
            self._known.pop(old.metadata.name, None)

    def find(self, name: str) -> Mapping[str, Json] | None:
        """Return the Namespace object of a name, None if it is not known (yet)."""
        return self._known.get(name) or self._fetched.get(name)

    async def fetch(self, client: Client, request: AdmissionRequest) -> None:
        """Ask the API server for the namespace of a request, if it is not known.

        It stays unknown if there is none, or no answer in time.
        """
        name = request.namespace
        if not name or self.find(name) is not None or request.resource.resource == "namespaces":
            return
        fetching = self._fetching.get(name)
        if fetching is not None:
            await fetching.wait()
            return
        done = self._fetching[name] = asyncio.Event()
        try:
            await asyncio.sleep(0)  # asking takes a task
            await self._fetch(client, name)
        finally:
            del self._fetching[name]
            done.set()

    async def _fetch(self, client: Client, name: str) -> None:
        try:
            async with asyncio.timeout(self._fetch_seconds):
                found = await client.get(NAMESPACES, name, into=Namespace)
        except (ApiError, TimeoutError) as error:
            reason = str(error) or f"no answer within {self._fetch_seconds} s"
            log.warning("namespace_unknown", namespace=name, reason=reason)
            return
        if len(self._fetched) >= MOST_FETCHED:
            self._fetched.clear()  # what is still needed is asked for again
        self._fetched[name] = msgspec.to_builtins(found)


def without_cluster(name: str) -> Mapping[str, Json]:
    """Make up a namespace that has nothing but its name, where there is no cluster to ask."""
    return {"metadata": {"name": name, "labels": {NAME_LABEL: name}}}
