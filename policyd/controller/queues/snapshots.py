"""Snapshots of the queues: taken on request, at most every two seconds, step by step.

Without requests, nothing is done. Cycles and writes run between the steps of a snapshot.
"""

import asyncio
import gzip
from collections.abc import Generator
from typing import Final, TypeVar

from policyd.api.kueue.names import IS_GROUP_WORKLOAD, QUOTA_RESERVED
from policyd.api.meta import find_condition
from policyd.controller.reasons.shortage import naming_in
from policyd.controller.watch.cache import Cache
from policyd.jobs.base import controller_of
from policyd.kube.pace import Pace
from policyd.snapshot.picture import Picture, Pictures, QueueOfNamespace
from policyd.snapshot.values import SnapshotReason, StartRow
from policyd.snapshot.writing import write

FRESH_SECONDS: Final = 2.0
"""For how long a picture is used."""
MOST_READERS: Final = 64
"""Snapshots of one picture that are kept, each for readers of the same names and queues."""
LEVEL: Final = 1
"""Of the compression: higher ones take longer than a network saves."""

T = TypeVar("T")


class Snapshots:
    """Takes and keeps snapshots."""

    def __init__(self, cache: Cache, *, pace: Pace) -> None:
        self._cache = cache
        self._pace = pace
        self._pictures = Pictures(cache.state, _Jobs(cache))
        self._picture: Picture | None = None
        self._taken = 0.0
        self._written: dict[object, bytes] = {}
        self._turn = asyncio.Lock()

    async def current(self, *, scope: str, reader: str) -> bytes:
        """Return the snapshot for a reader: JSON, compressed by gzip.

        Args:
            scope: A namespace, for the trees of queues in which it has LocalQueues; "" for all.
            reader: The namespace whose jobs are always named; "" for none.
        """
        async with self._turn:
            if self._picture is None or self._pace.clock.monotonic() >= self._taken + FRESH_SECONDS:
                self._written.clear()
                self._picture = None  # its room is free while the next is taken
                self._picture = await self._take()
            picture, naming = self._picture, naming_in(self._cache, reader)
            trees = frozenset(picture.trees.get(scope, ())) if scope else None
            same = trees, naming.others, "" if naming.all_named else reader
            body = self._written.get(same)
            if body is None:
                plain = await self._in_steps(write(picture, naming, trees))
                body = await asyncio.to_thread(gzip.compress, plain, LEVEL)
                if len(self._written) >= MOST_READERS:
                    self._written.clear()
                self._written[same] = body
            return body

    async def _take(self) -> Picture:
        mirrors = self._cache.mirrors
        version = mirrors.workloads.informer.version
        picture = Picture(
            self._pace.clock.now(), self._cache.state.revision, str(version) if version else ""
        )
        queues = [
            QueueOfNamespace(each.metadata.namespace, each.spec.cluster_queue)
            for each in mirrors.local_queues
        ]
        self._taken = self._pace.clock.monotonic()
        return await self._in_steps(self._pictures.take(picture, queues))

    async def _in_steps(self, work: Generator[None, None, T]) -> T:
        while True:
            try:
                next(work)
            except StopIteration as end:
                result: T = end.value
                return result
            await self._pace.sleep(0)


class _Jobs:
    """What is known of workloads."""

    def __init__(self, cache: Cache) -> None:
        self._cache, self._workloads = cache, cache.mirrors.workloads

    def start(self, key: str) -> StartRow | None:
        """Return when a workload is forecast to start; None if there is no forecast yet."""
        return self._cache.starts.get(key)

    def job(self, key: str) -> str:
        """Return `Kind/name` of the job that a workload stands for; "" if it stands for itself."""
        workload = self._workloads.get(key)
        if workload is None or workload.metadata.annotations.get(IS_GROUP_WORKLOAD) == "true":
            return ""
        owner = controller_of(workload.metadata)
        return "" if owner is None else f"{owner.kind}/{owner.name}"

    def condition(self, key: str) -> SnapshotReason:
        """Return why a workload is pending, as its condition says it."""
        workload = self._workloads.get(key)
        conditions = () if workload is None else workload.status.conditions
        found = find_condition(conditions, QUOTA_RESERVED)
        if found is None or found.status == "True":
            return SnapshotReason(type="")
        return SnapshotReason(type=found.reason, message=found.message)
