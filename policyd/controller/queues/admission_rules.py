"""The rules by which a new job would be judged, as the webhooks get them in their snapshot."""

from collections.abc import Iterator
from contextlib import suppress

from msgspec.structs import replace

from policyd.alloc.queue import NO_EXTRAS, CohortQuotas, QueueSpec
from policyd.api.kueue import ClusterQueue, LocalQueue
from policyd.api.quantity import QuantityError
from policyd.controller.watch.cache import Cache
from policyd.optimize.opt_ins import NO_OPT_INS, wants
from policyd.snapshot.rules import BudgetRule, ClusterQueueRule, LocalQueueRule, QueueRules
from policyd.workload.conversion import check_names, cohort_spec


def rules_of(cache: Cache) -> QueueRules:
    """Return the rules of a cluster, as the controller has them now."""
    mirrors, state = cache.mirrors, cache.state
    specs = ((queue.spec, mirrors.cluster_queues.get(name)) for name, queue in state.queues.items())
    defaults = [each for each in mirrors.priority_classes if each.global_default]
    lowest = min(defaults, key=lambda each: (each.value, each.metadata.name), default=None)
    limited = {each.metadata.namespace for each in mirrors.limit_ranges}
    rules = cache.request_rules("")
    return QueueRules(
        settings=state.settings,
        flavors=tuple(state.flavors.values()),
        cohorts=tuple(_cohorts(cache)),
        queues=tuple(_queue(spec, each) for spec, each in specs if spec and each),
        local_queues=tuple(map(_local_queue, mirrors.local_queues)),
        priorities={each.metadata.name: each.value for each in mirrors.priorities},
        pod_priorities={each.metadata.name: each.value for each in mirrors.priority_classes},
        default_priority="" if lowest is None else lowest.metadata.name,
        limits={name: cache.request_rules(name).limits for name in sorted(limited)},
        overheads=rules.overheads,
        resources=rules.resources,
        bases=cache.newcomers.bases,
        budgets=budget_rules(cache),
    )


def budget_rules(cache: Cache) -> tuple[BudgetRule, ...]:
    """Return the budgets that are used up, or nearly."""
    used = (each for each in cache.budgets.values() if each.message)
    return tuple(BudgetRule(each.queue, each.held, each.message) for each in used)


def _cohorts(cache: Cache) -> Iterator[CohortQuotas]:
    for cohort in cache.mirrors.cohorts:
        with suppress(QuantityError):  # the core does without it, too
            yield cohort_spec(cohort)


def _queue(spec: QueueSpec, queue: ClusterQueue) -> ClusterQueueRule:
    return ClusterQueueRule(
        spec=replace(spec, opt_ins=NO_EXTRAS),
        beyond=wants(spec) is not NO_OPT_INS,
        namespaces=queue.spec.namespace_selector,
        checks=check_names(queue),
    )


def _local_queue(queue: LocalQueue) -> LocalQueueRule:
    metadata = queue.metadata
    open_ = queue.spec.stop_policy == "None" and metadata.deletion_timestamp is None
    return LocalQueueRule(metadata.namespace, metadata.name, queue.spec.cluster_queue, open_)
