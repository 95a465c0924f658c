"""Kyverno's policies of the API server: found in the version that it serves, and watched."""

from collections.abc import Callable, Mapping
from typing import Final, NoReturn

import structlog

from policyd.dialects.kyverno import cluster_policies, policies
from policyd.dialects.kyverno.load import VERSIONS
from policyd.kube.changes import Change
from policyd.kube.client import Reader
from policyd.kube.discovery import served_resources
from policyd.kube.errors import ApiError
from policyd.kube.informer import Informer
from policyd.kube.pace import Pace
from policyd.kube.resources import Resource
from webhooks.policies.watched import WholeObject, WholeObjects
from webhooks.shared import Start

WANTED: Final[Mapping[str, frozenset[str]]] = {
    policies.GROUP: policies.KINDS,
    cluster_policies.GROUP: cluster_policies.KINDS,
}
"""The kinds that are read, by group. Exceptions are not: whoever may write one in the cluster could
lift what others demand."""

LOOK_SECONDS: Final = 60.0
"""How often is looked whether kinds are served that were not before."""

RETRY_SECONDS: Final = 5.0
"""How soon is asked again if the API server did not say which are."""

Take = Callable[[Change[WholeObject]], None]
"""Takes over what became of an object."""

log = structlog.get_logger(__name__)


class KyvernoPolicies:
    """The policies of Kyverno's kinds, as far as the API server has these."""

    def __init__(self, reader: Reader, take: Take, start: Start, *, pace: Pace) -> None:
        """Begin with none.

        Args:
            reader: The API server.
            take: Called for each change.
            start: Runs what watches beside everything else.
            pace: Time.
        """
        self._reader = reader
        self._take = take
        self._start = start
        self._pace = pace
        self._watched: dict[tuple[str, str], Informer[WholeObject]] = {}

    async def first_lists(self) -> None:
        """Wait until all that is there is known."""
        while not await self._look():
            await self._pace.sleep(RETRY_SECONDS)
        for informer in self._watched.values():
            await informer.synced.wait()

    async def run(self) -> NoReturn:
        """Look again and again whether more of the kinds are there."""
        while True:
            await self._pace.sleep(LOOK_SECONDS)
            await self._look()

    async def _look(self) -> bool:
        """Begin to watch what is served by now; tell whether the API server said what is."""
        try:
            served = await self._served()
        except ApiError as error:
            log.warning("kyverno_unknown", reason=str(error), hint=error.hint)
            return False
        for key, resource in served.items():
            if key not in self._watched:
                objects = WholeObjects(self._reader, resource)
                informer = self._watched[key] = Informer(
                    objects, resource, into=WholeObject, on_change=self._take, pace=self._pace
                )
                self._start(informer.run())
        return True

    async def _served(self) -> dict[tuple[str, str], Resource]:
        """Return the kinds that are served, each in the first of its versions."""
        found: dict[tuple[str, str], Resource] = {}
        for group, kinds in WANTED.items():
            for version in VERSIONS[group]:
                for resource in await served_resources(self._reader, f"{group}/{version}"):
                    if resource.kind in kinds:
                        found.setdefault((group, resource.kind), resource)
        return found
