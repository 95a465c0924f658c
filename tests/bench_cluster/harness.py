"""Makes the workloads of a load in their time, and plays what runs them.

As in Kueue's harness: an admitted workload is finished when its time is over, an evicted one gives
its reservation back at once.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from policyd.kube.changes import Change, Deleted
from policyd.kube.client import PartialObject
from policyd.kube.errors import AlreadyExistsError, ApiError, NotFoundError
from policyd.kube.http_client import HttpClient
from policyd.kube.informer import Informer
from policyd.kube.resources import (
    CLUSTER_QUEUES,
    LOCAL_QUEUES,
    NAMESPACES,
    NODES,
    RESOURCE_FLAVORS,
    TOPOLOGIES,
    WORKLOADS,
    Resource,
)
from tests.bench_cluster.loads import (
    CLASS_LABEL,
    Class,
    Load,
    queue_names,
    queue_objects,
    shared_objects,
    workload,
)
from tests.bench_cluster.measures import Ledger, Losses, Times, Usage, ledger_of
from tests.bench_cluster.wire import ClusterQueue, Workload, status_patch, with_conditions

RESOURCES = {
    resource.kind: resource
    for resource in (NODES, NAMESPACES, TOPOLOGIES, RESOURCE_FLAVORS, CLUSTER_QUEUES, LOCAL_QUEUES)
}
PROGRESS_SECONDS = 10
SILENCE_SECONDS = 120
"""With nothing finished for so long, the run is given up."""


class Stuck(Exception):
    """Nothing goes on."""


async def prepare(client: HttpClient, load: Load) -> None:
    """Make nodes, queues and all else that is there before workloads come."""
    for objects in (shared_objects(load), queue_objects(load)):
        for obj in objects:
            await _create(client, RESOURCES[obj["kind"]], obj)


async def _create(client: HttpClient, resource: Resource, obj: Any) -> None:
    namespace = obj["metadata"].get("namespace", "")
    with suppress(AlreadyExistsError):  # an answer may have been lost
        await client.create(resource, obj, into=PartialObject, namespace=namespace)


class Harness:
    """One run of a load."""

    def __init__(
        self, client: HttpClient, load: Load, *, write_line: Callable[[str], None]
    ) -> None:
        self.load = load
        self.ledger: Ledger = ledger_of(load)
        self.usage = Usage()
        self.times = Times()
        self.losses = Losses(self.ledger.sizes)
        self.writes: Counter[str] = Counter()
        self._client = client
        self._write_line = write_line
        self._runtime = {kind.name: kind.runtime_ms / 1e3 for kind in load.classes}
        self._running: dict[str, asyncio.TimerHandle] = {}
        self._acts: set[asyncio.Task[None]] = set()
        self._workloads = Informer(client, WORKLOADS, into=Workload, on_change=self._changed)
        self._queues = Informer(client, CLUSTER_QUEUES, into=ClusterQueue, on_change=self._used)
        self._finished = 0
        self._progress = time.monotonic()
        self._all_done = asyncio.Event()

    async def run(self) -> float:
        """Let all workloads come, and wait until they are over; return the seconds that it took.

        Raises:
            Stuck: If nothing is finished for long.
        """
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(i.run()) for i in (self._workloads, self._queues)]
            await self._workloads.synced.wait()
            await self._queues.synced.wait()
            began = time.monotonic()
            for queue, _ in queue_names(self.load):
                for kind in self.load.classes:
                    group.create_task(self._come(queue, kind))
            while not self._all_done.is_set():
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._all_done.wait(), PROGRESS_SECONDS)
                self._report(time.monotonic() - began)
            took = time.monotonic() - began
            for task in tasks:
                task.cancel()
        return took

    def _report(self, seconds: float) -> None:
        self._write_line(f"{seconds:5.0f} s: {self._finished} of {self.load.workloads} are over")
        if time.monotonic() - self._progress > SILENCE_SECONDS:
            raise Stuck(f"nothing finished within {SILENCE_SECONDS} s")

    async def _come(self, queue: str, kind: Class) -> None:
        began = time.monotonic()
        for number in range(kind.count):
            due = began + (number + 1) * kind.every_ms / 1e3
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            self.writes["POST workloads"] += 1
            await _create(self._client, WORKLOADS, workload(queue, kind, number))

    def _changed(self, change: Change[Workload]) -> None:
        self.ledger.change(change)
        self.losses.change(change, time.monotonic())
        new = change.object
        if isinstance(change, Deleted) or new.holds("Finished"):
            return
        key = new.metadata.key
        if new.holds("Evicted"):
            self._stop(new)
        elif new.holds("Admitted") and key not in self._running:
            size = new.metadata.labels[CLASS_LABEL].partition("-")[0]
            loop = asyncio.get_running_loop()
            self._running[key] = loop.call_later(self._runtime[size], self._begin, key)

    def _stop(self, new: Workload) -> None:
        timer = self._running.pop(new.metadata.key, None)
        if timer is not None:
            timer.cancel()
        if new.holds("QuotaReserved"):
            self._act(self._release(new))

    def _begin(self, key: str) -> None:
        self._act(self._finish(key))

    def _act(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._acts.add(task)
        task.add_done_callback(self._acts.discard)

    async def _release(self, seen: Workload) -> None:
        conditions = with_conditions(
            seen, ("QuotaReserved", "False", "Pending"), ("Admitted", "False", "NoReservation")
        )
        await self._write(seen, {"conditions": conditions, "admission": None})

    async def _finish(self, key: str) -> None:
        """Finish a workload, unless it is evicted meanwhile."""
        while key in self._running:
            seen = self._workloads.store[key]
            conditions = with_conditions(seen, ("Finished", "True", "Succeeded"))
            if await self._write(seen, {"conditions": conditions}):
                self.times.admitted(seen)
                self._finished += 1
                self._progress = time.monotonic()
                break
            await asyncio.sleep(0.05)
        if self._finished == self.load.workloads:
            self._all_done.set()

    async def _write(self, seen: Workload, status: Any) -> bool:
        self.writes["PATCH workloads/status"] += 1
        try:
            await self._client.patch(
                WORKLOADS,
                seen.metadata.name,
                status_patch(seen, status),
                into=PartialObject,
                namespace=seen.metadata.namespace,
                subresource="status",
            )
        except NotFoundError:
            return True
        except ApiError:
            return False  # it changed: the next event, or the next try, sees how
        return True

    def _used(self, change: Change[ClusterQueue]) -> None:
        if not isinstance(change, Deleted):
            self.usage.change(change.object, time.monotonic())
