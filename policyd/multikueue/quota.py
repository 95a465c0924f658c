"""Quota of a manager's queue that follows the quotas on the workers."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Final, NamedTuple

from policyd.api.kueue import ClusterQueue, LocalQueue
from policyd.api.kueue.multikueue import MultiKueueConfig
from policyd.api.quantity import Quantity, QuantityError, parse_quantity

QUOTA_AUTOMATION: Final = "MultiKueueManagerQuotaAutomation"
UNSUPPORTED: Final = "UnsupportedConfiguration"


class WorkerQueues(NamedTuple):
    """The queues of one worker."""

    local_queues: Sequence[LocalQueue] = ()
    cluster_queues: Sequence[ClusterQueue] = ()


class QuotaPlan(NamedTuple):
    """Which quota a queue gets, and what its condition says.

    Attributes:
        automated: Whether the quota follows the workers'.
        reason: Of the condition.
        message: Of the condition.
        quotas: The quota of each covered resource, in order; empty if it stays.
    """

    automated: bool
    reason: str
    message: str
    quotas: tuple[tuple[str, str], ...] = ()


def plan_quota(
    queue: ClusterQueue,
    config: MultiKueueConfig | None,
    local_queues: Iterable[LocalQueue],
    workers: Iterable[WorkerQueues],
) -> QuotaPlan:
    """Decide on the quota of a queue whose jobs go to workers.

    Args:
        queue: The queue.
        config: The parameters of its check; None if they do not exist.
        local_queues: All on the manager.
        workers: Those of connected workers of the config.
    """
    if config is None:
        return QuotaPlan(
            automated=False,
            reason=UNSUPPORTED,
            message="The referenced MultiKueueConfig was not found.",
        )
    if config.spec.quota_management != "Automated":
        message = "MultiKueue manager quota automation has not been requested."
        return QuotaPlan(automated=False, reason="NotRequested", message=message)
    groups = queue.spec.resource_groups
    if len(groups) != 1 or len(groups[0].flavors) != 1:
        message = (
            "Quota automation requires that the manager-side ClusterQueue has exactly one"
            " ResourceFlavor"
        )
        return QuotaPlan(automated=False, reason=UNSUPPORTED, message=message)
    keys = {
        each.metadata.key for each in local_queues if each.spec.cluster_queue == queue.metadata.name
    }
    total = _total(keys, workers)
    covered = groups[0].covered_resources
    missing = sorted(set(total) - set(covered))
    if missing:
        message = (
            "manager-side coveredResources is missing resources configured on workers:"
            f" [{' '.join(missing)}]"
        )
        return QuotaPlan(automated=False, reason=UNSUPPORTED, message=message)
    return QuotaPlan(
        automated=True,
        reason="QuotaAutomated",
        message="ClusterQueue quota is automatically managed based on MultiKueue workers.",
        quotas=tuple((name, str(total[name]) if name in total else "0") for name in covered),
    )


def _total(keys: set[str], workers: Iterable[WorkerQueues]) -> Mapping[str, Quantity]:
    total: dict[str, Quantity] = {}
    for worker in workers:
        used = {q.spec.cluster_queue for q in worker.local_queues if q.metadata.key in keys}
        for queue in worker.cluster_queues:
            if queue.metadata.name not in used:
                continue
            for name, amount in _quotas(queue):
                total[name] = total[name] + amount if name in total else amount
    return total


def _quotas(queue: ClusterQueue) -> Iterable[tuple[str, Quantity]]:
    for group in queue.spec.resource_groups:
        for flavor in group.flavors:
            for quota in flavor.resources:
                with suppress(QuantityError):  # a worker may say anything
                    amount = parse_quantity(quota.nominal_quota)
                    if amount.sign() >= 0:
                        yield quota.name, amount
