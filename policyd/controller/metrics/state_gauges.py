"""policyd's own gauges of queues and pods, looked up when they are scraped: alerts use them."""

from collections import Counter
from collections.abc import Iterator
from typing import Final

from policyd.alloc.cluster_queue import QueueState
from policyd.api.kueue.names import ADMISSION_GATE, ADMITTED, TOPOLOGY_GATE
from policyd.api.meta import condition_true
from policyd.controller.watch.cache import Cache
from policyd.controller.watch.pod_places import workload_keys
from policyd.jobs.pods import QueuedPod, group_name, is_over
from policyd.status.quantities import in_units
from policyd.workload.transitions import time_of

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
