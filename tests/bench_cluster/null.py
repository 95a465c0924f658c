"""A controller that decides nothing: the floor of what any queue costs. Run as: KUBECONFIG.

It admits every workload at once by one merge patch, whatever the quota, and writes the counts of
each queue at most once a second.
"""

import asyncio
import os
import sys
from collections import Counter
from contextlib import suppress

from policyd.kube.changes import Added, Change, Deleted, Modified
from policyd.kube.client import PartialObject
from policyd.kube.connection import connection_from
from policyd.kube.errors import ApiError
from policyd.kube.http_client import HttpClient
from policyd.kube.informer import Informer
from policyd.kube.resources import CLUSTER_QUEUES, WORKLOADS
from tests.bench_cluster.loads import FLAVOR
from tests.bench_cluster.wire import Workload, status_patch, with_conditions

WORKERS = 16


class Null:
    """Admits everything."""

    def __init__(self, client: HttpClient) -> None:
        self._client = client
        self._due: asyncio.Queue[Workload] = asyncio.Queue()
        self._pending: Counter[str] = Counter()
        self._admitted: Counter[str] = Counter()
        self._touched: set[str] = set()

    async def run(self) -> None:
        informer = Informer(self._client, WORKLOADS, into=Workload, on_change=self._changed)
        async with asyncio.TaskGroup() as group:
            group.create_task(informer.run())
            group.create_task(self._report())
            for _ in range(WORKERS):
                group.create_task(self._work())
            await informer.synced.wait()
            print("leading", flush=True)

    def _changed(self, change: Change[Workload]) -> None:
        match change:
            case Modified(old, new):
                self._count(old, -1)
                self._take(new)
            case Added(new):
                self._take(new)
            case Deleted(old):
                self._count(old, -1)

    def _take(self, workload: Workload) -> None:
        self._count(workload, 1)
        if not workload.holds("Admitted"):
            self._due.put_nowait(workload)

    def _count(self, workload: Workload, step: int) -> None:
        if not workload.holds("Finished"):
            counts = self._admitted if workload.holds("Admitted") else self._pending
            counts[workload.spec.queue_name] += step
            self._touched.add(workload.spec.queue_name)

    async def _work(self) -> None:
        while True:
            workload = await self._due.get()
            assigned = [
                {"name": p.name, "count": p.count, "flavors": {"cpu": FLAVOR}}
                for p in workload.spec.pod_sets
            ]
            conditions = with_conditions(
                workload, ("QuotaReserved", "True", "Null"), ("Admitted", "True", "Null")
            )
            admission = {
                "clusterQueue": workload.spec.queue_name,
                "podSetAssignments": assigned,
            }
            change = status_patch(workload, {"conditions": conditions, "admission": admission})
            with suppress(ApiError):
                await self._client.patch(
                    WORKLOADS,
                    workload.metadata.name,
                    change,
                    into=PartialObject,
                    namespace=workload.metadata.namespace,
                    subresource="status",
                )

    async def _report(self) -> None:
        while True:
            await asyncio.sleep(1)
            touched, self._touched = self._touched, set()
            for name in touched:
                status = {
                    "pendingWorkloads": self._pending[name],
                    "admittedWorkloads": self._admitted[name],
                }
                with suppress(ApiError):
                    await self._client.patch(
                        CLUSTER_QUEUES,
                        name,
                        {"status": status},
                        into=PartialObject,
                        subresource="status",
                    )


async def main(kubeconfig: str) -> None:
    """Run until killed."""
    async with HttpClient(connection_from(os.environ, kubeconfig=kubeconfig)) as client:
        await Null(client).run()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
