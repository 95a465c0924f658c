"""Quota of queues here that follows the quotas on the workers.

Only with the gate MultiKueueManagerQuotaAutomation.
"""

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from policyd.api.kueue import ClusterQueue, LocalQueue
from policyd.api.kueue.multikueue import MultiKueueConfig
from policyd.api.meta import Condition, find_condition, timestamp, without_condition
from policyd.controller.multikueue.context import ManagerContext
from policyd.controller.multikueue.remotes import MOST_QUEUES, WORKER_PAGE, Remotes, write_condition
from policyd.controller.patches import merge_patch
from policyd.kube.client import Client
from policyd.kube.errors import UndecodableError
from policyd.kube.pages import pages
from policyd.kube.resources import CLUSTER_QUEUES, LOCAL_QUEUES
from policyd.multikueue.checks import sends_away
from policyd.multikueue.connections import same_state
from policyd.multikueue.quota import QUOTA_AUTOMATION, QuotaPlan, WorkerQueues, plan_quota

REFRESH_SECONDS = 60.0
"""Between looks at the queues of the workers."""


class Quotas:
    """Writes the quota of queues, and says of each whether it follows the workers'."""

    def __init__(
        self,
        context: ManagerContext,
        remotes: Remotes,
        config_of: Callable[[str], MultiKueueConfig | None],
    ) -> None:
        self._cache = context.cache
        self._writes = context.writes
        self._remotes = remotes
        self._config_of = config_of

    def check_of(self, queue: ClusterQueue) -> str | None:
        """Return the name of the check that sends the jobs of a queue away; None if none does."""
        strategy = queue.spec.admission_checks_strategy
        for rule in strategy.admission_checks if strategy else ():
            check = self._cache.mirrors.checks.get(rule.name)
            if check is not None and sends_away(check):
                return rule.name
        return None

    async def reconcile(self, name: str) -> float | None:
        """Give a queue the quota of the workers. Returns the seconds until it is looked at again.

        Raises:
            ApiError: If a worker does not answer, or the queue could not be written.
        """
        mirror = self._cache.mirrors.cluster_queues
        queue = mirror.get(name)
        if queue is None or queue.metadata.deletion_timestamp is not None:
            return None
        check = self.check_of(queue)
        if check is None:
            await self._remove_condition(queue)
            return None
        config = self._config_of(check)
        queues: Sequence[WorkerQueues] = ()
        if config is not None and config.spec.quota_management == "Automated":
            clients = [self._remotes.connected(each) for each in config.spec.clusters]
            queues = [await _read(client) for client in clients if client is not None]
        found = plan_quota(queue, config, self._cache.mirrors.local_queues, queues)
        if found.quotas:
            queue = await self._write_quota(queue, found)
        condition = Condition(
            type=QUOTA_AUTOMATION,
            status="True" if found.automated else "False",
            reason=found.reason,
            message=found.message,
            last_transition_time=timestamp(self._writes.now),
            observed_generation=queue.metadata.generation,
        )
        if not same_state(find_condition(queue.status.conditions, QUOTA_AUTOMATION), condition):
            await write_condition(mirror, queue, condition, self._writes)
        return REFRESH_SECONDS if found.automated else None

    async def _write_quota(self, queue: ClusterQueue, found: QuotaPlan) -> ClusterQueue:
        mirror = self._cache.mirrors.cluster_queues
        group = queue.spec.resource_groups[0]
        known = tuple((r.name, str(r.nominal_quota)) for r in group.flavors[0].resources)
        if known == found.quotas:
            return queue
        whole = await self._writes.client.get(
            mirror.resource, queue.metadata.name, into=dict[str, Any]
        )
        groups = whole["spec"]["resourceGroups"]
        groups[0]["flavors"][0]["resources"] = [
            {"name": name, "nominalQuota": amount} for name, amount in found.quotas
        ]
        patch = merge_patch(queue.metadata, spec={"resourceGroups": groups})
        return await self._writes.patch(mirror, queue, patch)

    async def _remove_condition(self, queue: ClusterQueue) -> None:
        conditions = queue.status.conditions
        if find_condition(conditions, QUOTA_AUTOMATION) is None:
            return
        kept = without_condition(conditions, QUOTA_AUTOMATION)
        patch = merge_patch(
            queue.metadata, status={"conditions": [msgspec.to_builtins(each) for each in kept]}
        )
        mirror = self._cache.mirrors.cluster_queues
        await self._writes.patch(mirror, queue, patch, subresource="status")


def _bound(found: Sequence[LocalQueue | ClusterQueue]) -> None:
    if len(found) > MOST_QUEUES:
        raise UndecodableError(f"the worker has more than {MOST_QUEUES} queues")


async def _read(client: Client) -> WorkerQueues:
    queues: list[LocalQueue] = []
    shared: list[ClusterQueue] = []
    async for page in pages(client, LOCAL_QUEUES, into=LocalQueue, limit=WORKER_PAGE):
        queues += page.items
        _bound(queues)
    async for queue_page in pages(client, CLUSTER_QUEUES, into=ClusterQueue, limit=WORKER_PAGE):
        shared += queue_page.items
        _bound(shared)
    return WorkerQueues(queues, shared)
