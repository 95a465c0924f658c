"""The LocalQueues whose jobs go to other clusters: their jobs are handed over when they are new.

Only the admission checks are followed, as long as none of them sends jobs away.
"""

import asyncio

from policyd.api.kueue import AdmissionCheck, ClusterQueue, LocalQueue
from policyd.api.kueue.names import MULTI_KUEUE
from policyd.kube.changes import Change, Deleted
from policyd.kube.client import Reader
from policyd.kube.pace import Pace
from policyd.kube.resources import ADMISSION_CHECKS, CLUSTER_QUEUES, LOCAL_QUEUES
from webhooks.defaults import DefaultsWatch, Followed
from webhooks.shared import Start


class SentQueues:
    """Knows which queues have a check that sends jobs away.

    Args:
        reader: The API server.
        start: Runs a task for as long as the process.
        pace: Time.
    """

    def __init__(self, reader: Reader, start: Start, *, pace: Pace) -> None:
        self._start = start
        self._checks: set[str] = set()
        self._checks_of: dict[str, frozenset[str]] = {}
        self._cluster_queues: dict[str, str] = {}
        self._first, *self._others = (
            DefaultsWatch(reader, followed, pace=pace)
            for followed in (
                Followed(ADMISSION_CHECKS, AdmissionCheck, self.take_check, ""),
                Followed(CLUSTER_QUEUES, ClusterQueue, self.take_cluster_queue, ""),
                Followed(LOCAL_QUEUES, LocalQueue, self.take_local_queue, ""),
            )
        )
        self._followed = False

    def sends_away(self, namespace: str, queue: str) -> bool:
        """Tell whether the jobs of a LocalQueue go to other clusters."""
        if not self._checks:
            return False
        cluster_queue = self._cluster_queues.get(f"{namespace}/{queue}", "")
        return not self._checks.isdisjoint(self._checks_of.get(cluster_queue, ()))

    async def first_list(self) -> None:
        """Begin to follow the checks, and wait until they are known, but not for long."""
        self._start(self._first.run())
        await self._first.first_list()
        if self._followed:
            await asyncio.gather(*(watch.first_list() for watch in self._others))

    def take_check(self, change: Change[AdmissionCheck]) -> None:
        """Take over a change of a check; the first that sends jobs away has queues followed."""
        check = change.object
        self._checks.discard(check.metadata.name)
        if isinstance(change, Deleted) or check.spec.controller_name != MULTI_KUEUE:
            return
        self._checks.add(check.metadata.name)
        if not self._followed:
            self._followed = True
            for watch in self._others:
                self._start(watch.run())

    def take_cluster_queue(self, change: Change[ClusterQueue]) -> None:
        """Take over a change of the checks of a queue."""
        queue = change.object
        self._checks_of.pop(queue.metadata.name, None)
        strategy = queue.spec.admission_checks_strategy
        if strategy is not None and not isinstance(change, Deleted):
            names = frozenset(rule.name for rule in strategy.admission_checks)
            self._checks_of[queue.metadata.name] = names

    def take_local_queue(self, change: Change[LocalQueue]) -> None:
        """Take over which queue a LocalQueue leads to."""
        queue = change.object
        self._cluster_queues.pop(queue.metadata.key, None)
        if not isinstance(change, Deleted):
            self._cluster_queues[queue.metadata.key] = queue.spec.cluster_queue
