"""The flavors of a queue, with names turned into cells, and the ones that suit a workload.

This costs more than deciding: it is done once for all workloads with the same requests, and again
only when the queue changes.
"""

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache

from policyd.alloc.amount import request_amount, total_of
from policyd.alloc.flavors.assignment import FlavorOption, GroupRequests, PodSetRequests, Requests
from policyd.alloc.flavors.search import FlavorSearch
from policyd.alloc.queue import (
    FlavorAmounts,
    FlavorSpec,
    QueueSpec,
    matches_affinity,
    untolerated_taint,
)
from policyd.alloc.quota import QuotaNode
from policyd.alloc.reasons import Unsuitable, UnsuitableKind
from policyd.alloc.settings import QueueingSettings
from policyd.alloc.topology.values import PODS
from policyd.alloc.workload import PodSetFlavors, QueuedPodSet, QueuedWorkload, ReservedQuota

_MOST_REQUESTS = 1_000


class QueueOptions:
    """The flavors of a queue and their quotas.

    Attributes:
        missing: Flavors it names that do not exist.
        open: Whether nothing of its own keeps it from giving out quota.
        preempts: Whether its workloads may preempt others.
        topologies: Levels of the topologies by which its flavors place pods, by flavor.
        places_all: Whether all its flavors do.
        without_topology: Flavors whose topology does not exist.
    """

    def __init__(
        self,
        spec: QueueSpec,
        node: QuotaNode,
        flavors: Mapping[str, FlavorSpec],
        search: FlavorSearch,
        *,
        settings: QueueingSettings,
    ) -> None:
        self.spec = spec
        self.node = node
        self.search = search
        self._flavors = {name: flavors[name] for name in spec.flavors if name in flavors}
        self.missing = tuple(name for name in spec.flavors if name not in flavors)
        self.topologies = {n: f.levels for n, f in self._flavors.items() if f.topology}
        self.places_all = self.topologies.keys() >= set(spec.flavors)
        lost = tuple(name for name, levels in self.topologies.items() if not levels)
        self.without_topology = () if spec.elsewhere else lost
        blocked = spec.stopped or spec.missing_checks or spec.inactive_checks or spec.clashes
        self.open = not (blocked or self.missing or self.without_topology)
        policy = spec.preemption
        self.preempts = policy.within_cluster_queue != "Never" or (
            bool(spec.cohort) and policy.reclaim_within_cohort != "Never"
        )
        self._covers_all = settings.ignores_undeclared and settings.gates.quota_check_strategy
        # Where a resource is in two groups, which the API forbids, the first counts.
        self._group_of = {r: group for group in reversed(spec.groups) for r in group.resources}
        self._requests: dict[object, Requests] = {}

    def requests(
        self, workload: QueuedWorkload, counts: Sequence[int] = (), request_key: object = None
    ) -> Requests:
        """Compute a workload's requests to the queue, for its wanted pods or `counts`."""
        key = request_key or request_key_of(workload, counts)
        requests = self._requests.get(key)
        if requests is None:
            if len(self._requests) >= _MOST_REQUESTS:
                self._requests.clear()
            requests = self._requests[key] = self.trial_requests(workload, counts)
        return requests

    def trial_requests(self, workload: QueuedWorkload, counts: Sequence[int] = ()) -> Requests:
        """Compute the requests of a workload that is not in the queue; the result is not kept."""
        requests = Requests(self._groups(workload, counts), request_key_of(workload, counts))
        requests.plain = requests.plain if self.search.in_order else None
        return requests

    def _groups(self, workload: QueuedWorkload, counts: Sequence[int]) -> tuple[GroupRequests, ...]:
        members: dict[object, list[tuple[QueuedPodSet, PodSetRequests]]] = {}
        for place, pod_set in enumerate(workload.pod_sets):
            asked = self._pod_set_requests(pod_set, counts[place] if counts else pod_set.count)
            members.setdefault(pod_set.group or place, []).append((pod_set, asked))
        return tuple(self._group(each, workload.allowed_flavors) for each in members.values())

    def _pod_set_requests(self, pod_set: QueuedPodSet, count: int) -> PodSetRequests:
        totals = {name: request_amount(n * count) for name, n in pod_set.requests.items()}
        if PODS in self._group_of:
            totals[PODS] = count
        follows = frozenset() if totals else frozenset(self.topologies)
        return PodSetRequests(pod_set.name, count, totals, follows)

    def _group(
        self,
        members: Sequence[tuple[QueuedPodSet, PodSetRequests]],
        allowed: tuple[str, ...] | None,
    ) -> GroupRequests:
        pod_sets, asked = [p for p, _ in members], tuple([asked for _, asked in members])
        summed = total_of(*(each.totals for each in asked))
        totals = {resource: request_amount(amount) for resource, amount in summed.items()}
        uncovered = ""
        searches: dict[tuple[str, ...], tuple[FlavorOption, ...]] = {}
        for resource in sorted(totals, key=search_order):
            group = self._group_of.get(resource)
            if group is not None and group.resources not in searches:
                wanted = sorted((r for r in group.resources if r in totals), key=search_order)
                searches[group.resources] = tuple(
                    self._option(flavor, {r: totals[r] for r in wanted}, pod_sets, allowed)
                    for flavor in group.flavors
                )
            if group is None and totals[resource] and not self._covers_all:
                uncovered = resource
                break
        return GroupRequests(asked, tuple(searches.values()), uncovered)

    def _option(
        self,
        flavor: FlavorAmounts,
        wanted: Mapping[str, int],
        pod_sets: Sequence[QueuedPodSet],
        allowed: tuple[str, ...] | None,
    ) -> FlavorOption:
        given = tuple(r for r in wanted if r in flavor.quotas)
        charges = {self.node.cells[flavor.name, r]: wanted[r] for r in given}
        if allowed is not None and flavor.name not in allowed:
            no = Unsuitable(kind="NotAllowed", name=flavor.name)
            return FlavorOption(flavor.name, given, charges, obstacles=(no,), barred=True)
        why = self._unsuitable(flavor.name, pod_sets) or _not_given(flavor.name, wanted, pod_sets)
        if why is None and len(given) < len(wanted):
            missing = next(r for r in wanted if r not in flavor.quotas)
            why = Unsuitable(kind="NotProvided", name=flavor.name, detail=missing)
        return FlavorOption(flavor.name, given, charges, obstacles=() if why is None else (why,))

    def _unsuitable(self, name: str, pod_sets: Iterable[QueuedPodSet]) -> Unsuitable | None:
        flavor = self._flavors.get(name)
        if flavor is None:
            return Unsuitable(kind="NotFound", name=name)
        for pod_set in pod_sets:
            kind = self._misplaced(flavor, pod_set)
            if kind is not None:
                return Unsuitable(kind=kind, name=name)
            taint = untolerated_taint(flavor, pod_set.tolerations)
            if taint is not None:
                shown = f"{taint.key} {taint.value} {taint.effect} <nil>"
                return Unsuitable(kind="Untolerated", name=name, detail=shown)
            if not matches_affinity(flavor, pod_set.node_selector, pod_set.affinity):
                return Unsuitable(kind="AffinityMismatch", name=name)
        return None

    def _misplaced(self, flavor: FlavorSpec, pod_set: QueuedPodSet) -> UnsuitableKind | None:
        """Tell whether a flavor places pods where it should not, or does not where it should."""
        levels, asked = self.topologies.get(flavor.name), pod_set.place
        if not pod_set.placed:
            return None if levels is None or self.places_all else "TopologyOnly"
        if levels is None:
            # Resources that are counted as quota alone are not on nodes: they have no place.
            group = next(g for g in self.spec.groups if flavor.name in [f.name for f in g.flavors])
            beside = asked is not None and asked.requests.keys().isdisjoint(group.resources)
            return None if beside else "TopologyMissing"
        wanted = {"", asked.level, *(each.level for each in asked.slices)} if asked else set()
        return None if wanted <= {"", *levels} or not levels else "LevelMissing"


def _not_given(
    flavor: str, wanted: Container[str], pod_sets: Iterable[QueuedPodSet]
) -> Unsuitable | None:
    """Return the first resource that pods may get from other flavors only."""
    for pod_set in pod_sets:
        for name, flavors in pod_set.limited.items():
            if name in wanted and flavor not in flavors:
                return Unsuitable(kind="NotGiven", name=flavor, detail=name)
    return None


class RequestKey:
    """Identifies equal requests of workloads in one queue; it is equal to no other key.

    Attributes:
        alike: The key of all that fit alike; the names of pod sets decide nothing.
    """

    __slots__ = ("alike",)

    def __init__(self, alike: "RequestKey | None" = None) -> None:
        self.alike = alike or self


def request_key_of(workload: QueuedWorkload, counts: Sequence[int] = ()) -> tuple[object, object]:
    """Return a key that is equal for workloads with the same requests to a queue.

    Its second part leaves out the names of pod sets.
    """
    asked = tuple([_asked_by(p) for p in workload.pod_sets])
    names = tuple([p.name for p in workload.pod_sets])
    return names, (tuple(counts), workload.allowed_flavors, asked)


def _asked_by(p: QueuedPodSet) -> tuple[object, ...]:
    plain = p.count, p.minimum, p.group, p.placed, p.tolerations, p.affinity
    place = () if p.place is None else (p.place.mode, p.place.level, p.place.slices)
    limits = sorted(p.limited.items()) if p.limited else ()
    selected = sorted(p.node_selector.items()) if p.node_selector else ()
    return *plain, *place, *limits, *sorted(p.requests.items()), *selected


def replacing(requests: Requests, admission: ReservedQuota) -> Requests:
    """Return a workload's requests beyond those of the one it replaces, of the same flavors."""
    had = {each.name: each for each in admission.pod_sets}
    groups: list[GroupRequests] = []
    for group in requests.groups:
        olds = [had[p.name] for p in group.pod_sets if p.name in had]
        searches = [tuple([_beyond(option, olds) for option in each]) for each in group.searches]
        groups.append(replace(group, searches=tuple(searches)))
    return Requests(tuple(groups), requests.request_key)


def _beyond(option: FlavorOption, olds: Sequence[PodSetFlavors]) -> FlavorOption:
    charges = {
        cell: max(0, amount - sum(old.usage.get(resource, 0) for old in olds))
        for (cell, amount), resource in zip(option.charges.items(), option.resources, strict=True)
    }
    others = tuple(
        Unsuitable(kind="OtherFlavor", name=option.name, detail=old.flavors[resource])
        for old in olds
        for resource in option.resources
        if old.flavors.get(resource, option.name) != option.name
    )
    return replace(option, charges=charges, obstacles=option.obstacles or others)


@lru_cache(maxsize=1024)
def search_order(resource: str) -> int:
    """Return the 64-bit FNV-1a hash of a resource's name: the order in which Kueue visits them.

    It only decides which of several obstacles is found, and so named, first.
    """
    order = 0xCBF29CE484222325
    for byte in resource.encode():
        order = (order ^ byte) * 0x100000001B3 % 2**64
    return order
