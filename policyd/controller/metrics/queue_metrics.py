"""Usage and pending workloads of queues, and gauges for alerts, looked up when scraped."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from itertools import chain
from math import inf, isinf, nan
from typing import Final

from prometheus_client.core import GaugeMetricFamily

from policyd.alloc.cluster_queue import QueueState
from policyd.alloc.fair_sharing import share_of
from policyd.alloc.queue import FlavorResource, Quota
from policyd.alloc.quota import QuotaNode, descendants
from policyd.alloc.workload import QueuedWorkload
from policyd.api.kueue import LocalQueue, Workload
from policyd.api.kueue.names import (
    ACTIVE,
    ADMISSION_GATE,
    ADMITTED,
    FINISHED,
    QUOTA_RESERVED,
    TOPOLOGY_GATE,
)
from policyd.api.meta import Condition, condition_true, find_condition
from policyd.controller.metrics.counters import ControllerMetrics, MetricsSettings, Role
from policyd.controller.metrics.custom_labels import CustomLabels, custom_names
from policyd.controller.metrics.metric_families import MEASURED
from policyd.controller.metrics.series_bounds import NamedValues
from policyd.controller.metrics.workload_metrics import WorkloadMetrics
from policyd.controller.watch.cache import Cache
from policyd.controller.watch.mirror import Mirror
from policyd.controller.watch.pod_places import workload_keys
from policyd.exposition import Steps
from policyd.jobs.pods import QueuedPod, group_name, is_over
from policyd.kube.changes import Added, Change, Deleted, Modified
from policyd.status.quantities import in_units
from policyd.status.queues import CountsOfQueues, QueueCounts, count_queues, queue_status
from policyd.status.shares import weighted_share
from policyd.workload.transitions import time_of

Sample = tuple[str, tuple[str, ...], float]
"""A family's name without Kueue's prefix, the labels, and a number."""

_FAMILIES = {family.name.removeprefix("kueue_"): family for family in MEASURED}
_LIMITS: tuple[tuple[str, Callable[[Quota], int | None]], ...] = (
    ("cluster_queue_nominal_quota", lambda quota: quota.nominal),
    ("cluster_queue_borrowing_limit", lambda quota: quota.borrowing_limit),
    ("cluster_queue_lending_limit", lambda quota: quota.lending_limit),
)


STEP: Final = 5_000
"""Numbers that are looked up at once: some 25 ms of work."""


def measure(
    cache: Cache,
    metrics: ControllerMetrics,
    settings: MetricsSettings,
    *,
    leading: Callable[[], bool],
) -> WorkloadMetrics:
    """Register the metrics of workloads, and those of queues, which are looked up when scraped.

    Returns:
        The counters of workloads, which need calls for some changes.

    Args:
        cache: The queues and workloads.
        metrics: The registry and its counters.
        settings: Which metrics there are.
        leading: Whether this process is the one that counts.
    """
    counts = WorkloadMetrics(cache, metrics, leading=leading, settings=settings)
    gauges = QueueGauges(
        cache,
        settings,
        role=lambda: metrics.role,
        has_metrics=counts.has_metrics,
        named=metrics.named,
    )
    metrics.registry.add(gauges)
    metrics.custom = CustomLabels(cache.mirrors, settings.custom).of
    return counts


class QueueGauges:
    """Reports existing ClusterQueues, LocalQueues and Cohorts, and no deleted ones.

    Args:
        cache: The queues.
        settings: Which of them are reported.
        role: The role of this process.
        has_metrics: Which LocalQueues have metrics of their own.
        named: Which queues and other values of labels have series of their own.
    """

    def __init__(
        self,
        cache: Cache,
        settings: MetricsSettings,
        *,
        role: Callable[[], Role],
        has_metrics: Callable[[LocalQueue], bool],
        named: NamedValues,
    ) -> None:
        self._cache = cache
        self._settings = settings
        self._role = role
        self._has_metrics = has_metrics
        self._named = named
        self._custom = CustomLabels(cache.mirrors, settings.custom)
        self._workload_counts = WorkloadCounts(cache.mirrors.workloads)

    def steps(self) -> Steps:
        """Yield all metrics that have a number; None, between queues, after so many numbers.

        Queues that are deleted meanwhile are left out: they have given back their names.
        """
        custom = {
            name: custom_names(each, self._settings.custom) for name, each in _FAMILIES.items()
        }
        families = {
            name: GaugeMetricFamily(each.name, each.text, labels=each.label_names(*custom[name]))
            for name, each in _FAMILIES.items()
        }
        self._named.name("resource", self._resources())
        role, beyond = self._role(), defaultdict[tuple[str, tuple[str, ...]], float](float)
        step = 0
        for sample in self._samples():
            step += 1
            if sample is None:
                if step >= STEP:
                    step = 0
                    yield None
                continue
            name, labels, number = sample
            named = self._named.labels(_FAMILIES[name], labels, custom[name])
            if named == labels:
                families[name].add_metric(_with_role(name, labels, role), number)
            elif named is not None:
                beyond[name, named] += number
        for (name, named), number in beyond.items():
            families[name].add_metric(_with_role(name, named, role), number)
        yield from (family for family in families.values() if family.samples)

    def _resources(self) -> set[str]:
        """Return the resources that have quota."""
        return {
            name
            for queue in self._cache.mirrors.cluster_queues
            for group in queue.spec.resource_groups
            for name in group.covered_resources
        }

    def _samples(self) -> Iterator[Sample | None]:
        """Yield all numbers, with the labels that the administrator adds; None between queues."""
        found = count_queues(self._cache.state)
        split = any(label.source_kind == "Workload" for label in self._settings.custom)
        samples = chain(
            self._cluster_queues(found),
            self._local_queues(found),
            self._cohorts(found),
            (None,),
            self._finished(),
            (None,),
            self._unadmitted(),
            own_samples(self._cache),
        )
        for sample in samples:
            if sample is None:
                yield None
                continue
            name, labels, number = sample
            if not (split and _FAMILIES[name].by_workload):
                yield name, (*labels, *self._custom.of(_FAMILIES[name], labels)), number
        for (name, labels), number in self._by_workload().items() if split else ():
            yield name, labels, number

    def _by_workload(self) -> Counter[tuple[str, tuple[str, ...]]]:
        """Count pending and admitted workloads, by the labels that they have."""
        found = Counter[tuple[str, tuple[str, ...]]]()
        for queue in self._cache.state.queues.values():
            gives = queue.options is not None and queue.active
            tried = set(queue.pending.active) if gives else set()
            for ticket in queue.pending:
                status = "active" if ticket in tried else "inadmissible"
                found.update(self._series(queue.name, ticket.workload, "pending_workloads", status))
            for holding in queue.holdings.values():
                if holding.workload.admitted:
                    name = "admitted_active_workloads"
                    found.update(self._series(queue.name, holding.workload, name))
        return found

    def _series(
        self, queue: str, value: QueuedWorkload, name: str, *labels: str
    ) -> Iterator[tuple[str, tuple[str, ...]]]:
        """Yield the series that a workload is counted in: of its ClusterQueue and LocalQueue."""
        mirrors = self._cache.mirrors
        workload = mirrors.workloads.get(value.key)
        owners: list[tuple[str, tuple[str, ...]]] = []
        if mirrors.cluster_queues.get(queue) is not None:
            owners.append((name, (queue,)))
        local_queue = mirrors.local_queues.get(value.local_queue)
        if local_queue is not None and self._has_metrics(local_queue):
            metadata = local_queue.metadata
            owners.append((f"local_queue_{name}", (metadata.name, metadata.namespace)))
        for whole, owner in owners:
            own = *owner, *labels
            yield whole, (*own, *self._custom.of(_FAMILIES[whole], own, workload))

    def _cluster_queues(self, found: CountsOfQueues) -> Iterator[Sample | None]:
        state = self._cache.state
        for queue in self._cache.mirrors.cluster_queues.in_turns():
            if queue is None:
                yield None
                continue
            name, counts = (
                queue.metadata.name,
                found.cluster_queues.get(queue.metadata.name, QueueCounts()),
            )
            yield from _workloads("", (name,), counts)
            active = queue_status(state, name).active
            present = "active" if active else "pending"
            if queue.metadata.deletion_timestamp is not None:
                present = "terminating"
            for status in ("pending", "active", "terminating"):
                yield "cluster_queue_status", (name, status), status == present
            hashes = (("active", counts.request_keys), ("inadmissible", counts.parked_request_keys))
            for status, request_keys in hashes:
                yield "pending_scheduling_hashes", (name, status), len(request_keys)
            for resource, amount in sorted(counts.asked.items()):
                asked = in_units(resource, amount)
                yield "cluster_queue_resource_pending", (name, resource), asked
            node = state.tree.hierarchy.queues.get(name)
            if node is not None:
                yield from self._in_tree(node, counts)

    def _in_tree(self, node: QuotaNode, counts: QueueCounts) -> Iterator[Sample]:
        yield "cluster_queue_info", (node.name, *_above(node)), 1
        parent = "" if node.parent is None else node.parent.name
        if self._shares(node):
            yield "cluster_queue_weighted_share", (node.name, parent), self._share(node)
        if not self._settings.resources:
            return
        for (flavor, resource), quota in node.quotas.items():
            labels = parent, node.name, flavor, resource
            for name, held in (("reservation", counts.reserved), ("usage", counts.used)):
                amount = in_units(resource, held.get((flavor, resource), 0))
                yield f"cluster_queue_resource_{name}", labels, amount
            for name, limit in _LIMITS:
                amount = _limit(resource, limit(quota))
                yield name, labels, amount

    def _shares(self, node: QuotaNode) -> bool:
        return self._cache.state.settings.fair_sharing is not None and not node.cyclic

    def _share(self, node: QuotaNode) -> float:
        """Return the share of a ClusterQueue or Cohort; Kueue has no number for an infinite one."""
        share = weighted_share(share_of(self._cache.state.tree, node))
        return nan if isinf(share) else share

    def _local_queues(self, found: CountsOfQueues) -> Iterator[Sample | None]:
        history = self._cache.state.history
        for queue in self._cache.mirrors.local_queues.in_turns():
            if queue is None or not self._has_metrics(queue):
                yield None
                continue
            key = queue.metadata.key
            labels = queue.metadata.name, queue.metadata.namespace
            counts = found.local_queues.get(key, QueueCounts())
            yield from _workloads("local_queue_", labels, counts)
            condition = find_condition(queue.status.conditions, ACTIVE)
            present = "Unknown" if condition is None else condition.status
            for status in ("True", "False", "Unknown"):
                yield "local_queue_status", (*labels, status), status == present
            for name, held in (("reservation", counts.reserved), ("usage", counts.used)):
                for (flavor, resource), amount in sorted(held.items()):
                    which = *labels, flavor, resource
                    yield f"local_queue_resource_{name}", which, in_units(resource, amount)
            if history is not None and key in history.usage:
                about = *labels, queue.spec.cluster_queue
                yield "local_queue_admission_fair_sharing_usage", about, history.usage[key]

    def _finished(self) -> Iterator[Sample]:
        """Yield how many workloads have finished and are still there."""
        mirrors, of_local, of_queue = self._cache.mirrors, Counter[str](), Counter[str]()
        for (namespace, name, reason, _), number in self._workload_counts:
            if reason == FINISHED:
                of_local[f"{namespace}/{name}"] += number
        for local_queue in mirrors.local_queues:
            number = of_local[local_queue.metadata.key]
            of_queue[local_queue.spec.cluster_queue] += number
            if self._has_metrics(local_queue):
                labels = local_queue.metadata.name, local_queue.metadata.namespace
                yield "local_queue_finished_workloads", labels, number
        for queue in mirrors.cluster_queues:
            yield "finished_workloads", (queue.metadata.name,), of_queue[queue.metadata.name]

    def _unadmitted(self) -> Iterator[Sample]:
        """Yield the numbers of unadmitted workloads by reason, if these are reported in detail."""
        if not self._cache.state.settings.gates.unadmitted_workloads_observability:
            return
        mirrors, of_queue = self._cache.mirrors, Counter[tuple[str, str, str]]()
        for (namespace, name, reason, cause), number in self._workload_counts:
            queue = mirrors.local_queues.get(f"{namespace}/{name}")
            if queue is None or reason == FINISHED:
                continue
            why = queue.spec.cluster_queue, reason, cause
            of_queue[why] += number
            if self._has_metrics(queue):
                yield "local_queue_unadmitted_workloads", (name, namespace, *why), number
        for why, number in of_queue.items():
            if mirrors.cluster_queues.get(why[0]) is not None:
                yield "unadmitted_workloads", why, number

    def _cohorts(self, found: CountsOfQueues) -> Iterator[Sample]:
        if not self._settings.cohorts:
            return
        state = self._cache.state
        for node in state.tree.hierarchy.cohorts.values():
            if node.cyclic:
                continue
            parent = "" if node.parent is None else node.parent.name
            yield "cohort_info", (node.name, parent, node.root.name), 1
            if node.declared and self._shares(node):
                yield "cohort_weighted_share", (node.name,), self._share(node)
            yield from self._below(node, found.cluster_queues)

    def _below(self, cohort: QuotaNode, found: Mapping[str, QueueCounts]) -> Iterator[Sample]:
        """Yield the quota of a cohort, with all that is lent below it, and its usage."""
        subtree = self._cache.state.tree.subtree
        quotas = {names: subtree[cell] for names, cell in cohort.cells.items()}
        reserved: dict[FlavorResource, int] = {}
        admitted = 0
        for node in descendants(cohort):
            if node.queue and node.name in found:
                _add(reserved, found[node.name].reserved)
                admitted += found[node.name].admitted
        held = (("quota", quotas), ("resource_reservations", reserved))
        for name, amounts in held:
            for (flavor, resource), amount in sorted(amounts.items()):
                if amount > 0:
                    labels = cohort.name, flavor, resource
                    yield f"cohort_subtree_{name}", labels, in_units(resource, amount)
        yield "cohort_subtree_admitted_active_workloads", (cohort.name,), admitted


def _with_role(name: str, labels: tuple[str, ...], role: Role) -> tuple[str, ...]:
    return labels if name.startswith("policyd_") else (*labels, role)


def _workloads(prefix: str, labels: tuple[str, ...], counts: QueueCounts) -> Iterator[Sample]:
    for status, number in (("active", counts.active), ("inadmissible", counts.parked)):
        yield f"{prefix}pending_workloads", (*labels, status), number
    yield f"{prefix}reserving_active_workloads", labels, counts.reserving
    yield f"{prefix}admitted_active_workloads", labels, counts.admitted


def _above(node: QuotaNode) -> tuple[str, str]:
    """Return the names of the cohort right above, and of the highest; empty if there is none."""
    return ("", "") if node.parent is None else (node.parent.name, node.root.name)


def _limit(resource: str, amount: int | None) -> float:
    return inf if amount is None else in_units(resource, amount)


def _add(total: dict[FlavorResource, int], more: Mapping[FlavorResource, int]) -> None:
    for names, amount in more.items():
        total[names] = total.get(names, 0) + amount


CountedAs = tuple[str, str, str, str]
"""How a workload is counted: its namespace, its LocalQueue, why it is not admitted, and why it
has no quota, if that is why. Instead of the first reason, `Finished` if it has."""

UNKNOWN_REASON: Final = "PendingEvaluation"
"""Why a workload has no quota that was not considered yet."""


def counted_as(workload: Workload) -> CountedAs | None:
    """Return how a workload is counted; None if it is admitted."""
    reserved = admitted = None
    for condition in workload.status.conditions:
        kind = condition.type
        if kind == QUOTA_RESERVED:
            reserved = condition
        elif kind == ADMITTED:
            admitted = condition
        elif kind == FINISHED and condition.status == "True":
            return workload.metadata.namespace, workload.spec.queue_name, FINISHED, ""
    if admitted is not None and admitted.status == "True":
        return None
    return workload.metadata.namespace, workload.spec.queue_name, *_why(reserved, admitted)


def _why(reserved: Condition | None, admitted: Condition | None) -> tuple[str, str]:
    if reserved is None or reserved.status != "True":
        return "NoReservation", UNKNOWN_REASON if reserved is None else reserved.reason
    return "UnsatisfiedAdmissionChecks" if admitted is None else admitted.reason, ""


class WorkloadCounts:
    """Counts the workloads that are not admitted, or have finished."""

    def __init__(self, workloads: Mirror[Workload]) -> None:
        self._counts: dict[CountedAs, int] = {}
        workloads.listen(self._changed)

    def __iter__(self) -> Iterator[tuple[CountedAs, int]]:
        """Iterate over the labels, and how many workloads have them."""
        return iter(tuple(self._counts.items()))

    def _changed(self, change: Change[Workload]) -> None:
        match change:
            case Modified():
                before, after = counted_as(change.old), counted_as(change.object)
                if before != after:
                    self._add(before, -1)
                    self._add(after, 1)
            case Added():
                self._add(counted_as(change.object), 1)
            case Deleted():
                self._add(counted_as(change.object), -1)

    def _add(self, labels: CountedAs | None, more: int) -> None:
        if labels is None:
            return
        number = self._counts.get(labels, 0) + more
        if number:
            self._counts[labels] = number
        else:
            del self._counts[labels]


STUCK_SECONDS: Final = 60.0
"""How long a gate may stay after an admission: it goes within a second on a healthy cluster."""

_GATES: Final = frozenset({ADMISSION_GATE, TOPOLOGY_GATE})

OwnSample = tuple[str, tuple[str, ...], float]
"""A family's name, the labels, and a number."""


def own_samples(cache: Cache) -> Iterator[OwnSample | None]:
    """Yield the numbers of all gauges of this module, and None between ClusterQueues."""
    state = cache.state
    for queue in cache.mirrors.cluster_queues.in_turns():
        if queue is None:
            yield None
            continue
        name = queue.metadata.name
        known = state.queues.get(name)
        waits = 0.0 if known is None else _longest_wait(known, cache.now)
        yield "policyd_longest_pending_seconds", (name,), waits
        node = state.tree.hierarchy.queues.get(name)
        if node is None or node.cyclic:
            continue
        for flavor, resource in node.quotas:
            free = state.tree.available(node.cells[flavor, resource])
            labels = name, flavor, resource
            yield "policyd_available_quota", labels, in_units(resource, free)
    for reason, number in _stuck(cache).items():
        yield "policyd_stuck_gates", (reason,), number


def _longest_wait(queue: QueueState, now: float) -> float:
    since = min((ticket.workload.queued_at for ticket in queue.pending), default=now)
    return max(0.0, now - since)


def _stuck(cache: Cache) -> dict[str, int]:
    """Count gated pods whose Workload was admitted a minute ago, or is gone."""
    found = Counter({"Admitted": 0, "NoWorkload": 0})
    mirrors, before = cache.mirrors, cache.now - STUCK_SECONDS
    placed = (pod for pod in mirrors.placed if mirrors.pods.get(pod.metadata.key) is None)
    for pods in (mirrors.pods, placed):
        for pod in pods:
            created = pod.metadata.creation_timestamp
            if created is None or created.timestamp() > before or not _waits(pod):
                continue
            reason = _reason(cache, pod, before)
            if reason:
                found[reason] += 1
    return found


def _waits(pod: QueuedPod) -> bool:
    return not is_over(pod) and any(gate.name in _GATES for gate in pod.spec.scheduling_gates)


def _reason(cache: Cache, pod: QueuedPod, before: float) -> str:
    """Return why a gate is stuck; empty if it is not."""
    metadata = pod.metadata
    keys = {*workload_keys(pod), *cache.index.owned(metadata.uid)}
    if group := group_name(metadata):
        keys.add(f"{metadata.namespace}/{group}")
    for owner in metadata.owner_references:
        keys.update(cache.index.owned(owner.uid))
    workloads = [found for key in keys if (found := cache.mirrors.workloads.get(key)) is not None]
    if not workloads:
        return "NoWorkload"
    for workload in workloads:
        since = time_of(workload, ADMITTED)
        admitted = condition_true(workload.status.conditions, ADMITTED)
        if admitted and since is not None and since <= before:
            return "Admitted"
    return ""
