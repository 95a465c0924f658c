"""Trials of a workload with other requests: planned, and nothing is changed."""

from collections.abc import Callable, Mapping

from msgspec.structs import replace

from policyd.alloc.flavors.assignment import Assignment
from policyd.alloc.flavors.options import QueueOptions
from policyd.alloc.nominate import beyond_replaced
from policyd.alloc.queue import FlavorSpec, matches_affinity
from policyd.alloc.reasons import Mode
from policyd.alloc.state import CoreState
from policyd.alloc.topology.placing import Placer
from policyd.alloc.workload import QueuedPodSet, QueuedWorkload
from policyd.node_rules import TaintToleration, untolerated


def would_fit(state: CoreState, options: QueueOptions, workload: QueuedWorkload) -> bool:
    """Tell whether a workload would get quota, and places, now and without preemption."""
    assignment = _assigned(state, options, workload)
    if assignment.mode is not Mode.FIT:
        return False
    placer = Placer(state, options, workload, assignment)
    return placer.placeable and placer.fits()


def could_fit(state: CoreState, options: QueueOptions, workload: QueuedWorkload) -> bool:
    """Tell whether a workload would only have to wait for quota that others use."""
    assignment = _assigned(state, options, workload)
    if assignment.mode is Mode.FIT:
        return Placer(state, options, workload, assignment).placed().mode is not Mode.NO_FIT
    return assignment.reason() == "WaitingForQuota"


def _assigned(state: CoreState, options: QueueOptions, workload: QueuedWorkload) -> Assignment:
    requests = options.trial_requests(workload)
    return options.search.assign(beyond_replaced(state, options, workload, requests))


def counting(workload: QueuedWorkload, name: str, count: int) -> QueuedWorkload:
    """Return a workload with another number of pods in a pod set."""
    return _with(workload, name, lambda pod_set: replace(pod_set, count=count))


def asking(workload: QueuedWorkload, name: str, resource: str, amount: int) -> QueuedWorkload:
    """Return a workload that asks for another amount of a resource in each pod of a pod set."""

    def changed(requests: Mapping[str, int]) -> dict[str, int]:
        found = {each: amount if each == resource else n for each, n in requests.items()}
        return {each: n for each, n in found.items() if n}

    def asks(pod_set: QueuedPodSet) -> QueuedPodSet:
        place = pod_set.place and replace(pod_set.place, requests=changed(pod_set.place.requests))
        return replace(pod_set, requests=changed(pod_set.requests), place=place)

    return _with(workload, name, asks)


def admissible(workload: QueuedWorkload, flavor: FlavorSpec) -> QueuedWorkload:
    """Return a workload whose pods may run on the nodes of a flavor."""
    tolerated = tuple(
        TaintToleration(key=t.key, value=t.value, effect=t.effect) for t in flavor.taints
    )
    allowed = workload.allowed_flavors
    if allowed is not None and not workload.variant_of:  # there is a variant for the other flavor
        allowed = (*allowed, flavor.name)

    def allows(pod_set: QueuedPodSet) -> QueuedPodSet:
        selector, labels = pod_set.node_selector, flavor.labels
        suits = matches_affinity(flavor, {}, pod_set.affinity)
        return replace(
            pod_set,
            tolerations=(*pod_set.tolerations, *tolerated),
            node_selector={k: v for k, v in selector.items() if labels.get(k, v) == v},
            affinity=pod_set.affinity if suits else (),
        )

    return replace(_with(workload, "", allows), allowed_flavors=allowed)


def untolerated_taints(workload: QueuedWorkload, flavor: FlavorSpec) -> tuple[str, ...]:
    """Return the taints of a flavor that some pods of a workload do not tolerate, as written."""
    found = (
        untolerated([taint], (*pod_set.tolerations, *flavor.tolerations))
        for taint in flavor.taints
        for pod_set in workload.pod_sets
    )
    written = (
        f"{t.key}={t.value}:{t.effect}" if t.value else f"{t.key}:{t.effect}" for t in found if t
    )
    return tuple(dict.fromkeys(written))


def _with(
    workload: QueuedWorkload, name: str, change: Callable[[QueuedPodSet], QueuedPodSet]
) -> QueuedWorkload:
    """Return a workload with a pod set changed; all of them without a name."""
    pod_sets = (change(p) if name in {"", p.name} else p for p in workload.pod_sets)
    return replace(workload, pod_sets=tuple(pod_sets))
