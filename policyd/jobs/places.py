"""Which pod goes to which domain of a topology assignment.

Pods that have an index go in its order, along the domains as they are written, so that neighbours
in a ring are near each other. If one pod's index makes no sense, or a pod is where its index does
not say, all go as they come: each domain gets as many as it lacks.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from msgspec.structs import replace

from policyd.api.integers import whole_number
from policyd.api.kueue import PodSet, PodSetAssignment, TopologyAssignment, Workload
from policyd.api.kueue.names import POD_SET, SLICE_NAME, TOPOLOGY_GATE, WORKLOAD
from policyd.api.kueue.topology_assignment import (
    HOSTNAME,
    DomainPods,
    decode_topology,
    encode_topology,
)
from policyd.jobs.pods import QueuedPod, has_ended
from policyd.jobs.topology import POD_INDEX_OFFSET, asks_for_topology
from policyd.jobs.workload import slice_name

Selector = Mapping[str, str]
"""Labels of the nodes of a domain."""


@dataclass(frozen=True, slots=True)
class Departure:
    """A pod that can go, and where to.

    Attributes:
        pod: The pod; it is gated still.
        node_selector: Labels of the nodes of its domain.
    """

    pod: QueuedPod
    node_selector: Selector


def belongs_to(pod: QueuedPod, workload: Workload) -> bool:
    """Tell whether a pod says that it is one of a workload's, or of an earlier slice of it."""
    annotations = pod.metadata.annotations
    return annotations.get(SLICE_NAME, annotations.get(WORKLOAD)) in {
        slice_name(workload),
        workload.metadata.name,
    }


def waits_for_place(pod: QueuedPod) -> bool:
    """Tell whether a pod is held until its place is known."""
    return any(gate.name == TOPOLOGY_GATE for gate in pod.spec.scheduling_gates)


def takes_room(pod: QueuedPod) -> bool:
    """Tell whether a pod takes room on a node that no topology gave it."""
    on_node = bool(pod.spec.node_name) and not has_ended(pod)
    return on_node and not asks_for_topology(pod.metadata.annotations)


def departures(workload: Workload, pods: Iterable[QueuedPod]) -> list[Departure]:
    """Return which of the pods of an admitted workload can go, and where to.

    Args:
        workload: The workload.
        pods: Its pods, in any order that stays the same; those of others are left out.
    """
    pods = tuple(pods)
    if workload.status.admission is None or without_offset(workload, pods) is not None:
        return []
    by_pod_set: dict[str, list[QueuedPod]] = {}
    for pod in _members(workload, pods):
        by_pod_set.setdefault(pod.metadata.labels[POD_SET], []).append(pod)
    failed = {node.name for node in workload.status.unhealthy_nodes}
    return [
        departure
        for pod_set, assigned in _placed(workload)
        for departure in _departures(
            by_pod_set.get(pod_set.name, []),
            _positions(assigned)[: pod_set.count],
            _Ranks(workload.spec.pod_sets, pod_set),
        )
        if departure.node_selector.get(HOSTNAME) not in failed
    ]


def given_up(workload: Workload) -> bool:
    """Tell whether a workload has places for more pods than its job has since it became smaller."""
    return any(
        sum(domain.pods for domain in decode_topology(topology)) > pod_set.count
        for pod_set, assigned in _placed(workload)
        if (topology := assigned.topology_assignment) is not None
    )


def without_given_up(
    workload: Workload, pods: Iterable[QueuedPod], *, by_prefix: bool = True
) -> Workload:
    """Take the places out of a workload that its job gave up as it became smaller.

    The places where pods remain are kept. Which these are is known when the other pods are gone;
    until then, a pod set keeps all its places.

    Args:
        workload: The workload, which is admitted.
        pods: Its pods; those of others are left out.
        by_prefix: Whether nodes may be identified by the prefixes of their names.
    """
    admission = workload.status.admission
    if admission is None:
        return workload
    there: dict[str, list[QueuedPod]] = {}
    for pod in _members(workload, pods):
        if not waits_for_place(pod):
            there.setdefault(pod.metadata.labels[POD_SET], []).append(pod)
    kept = {
        assigned.name: _kept(
            assigned, pod_set.count, there.get(pod_set.name, ()), by_prefix=by_prefix
        )
        for pod_set, assigned in _placed(workload)
    }
    assignments = tuple(
        replace(each, topology_assignment=kept.get(each.name, each.topology_assignment))
        for each in admission.pod_set_assignments
    )
    placed = replace(admission, pod_set_assignments=assignments)
    return replace(workload, status=replace(workload.status, admission=placed))


def _kept(
    assigned: PodSetAssignment, count: int, pods: Sequence[QueuedPod], *, by_prefix: bool
) -> TopologyAssignment | None:
    topology, positions = assigned.topology_assignment, _positions(assigned)
    if topology is None or len(positions) <= count or len(pods) > count:
        return topology
    taken = _taken(pods, topology.levels)
    ordered = sorted(range(len(positions)), key=lambda at: not _takes(taken, positions[at]))
    places = [tuple(positions[at].values()) for at in sorted(ordered[:count])]
    domains = [DomainPods(values, len(list(same))) for values, same in groupby(places)]
    return encode_topology(topology.levels, domains, by_prefix=by_prefix)


def without_offset(workload: Workload, pods: Iterable[QueuedPod]) -> QueuedPod | None:
    """Return a pod of a workload whose offset is not a number, so that ranks are unknown.

    All pods of the workload are held by it; None if there is none.
    """
    placed = {pod_set.name for pod_set, _ in _placed(workload)}
    return next(
        (
            pod
            for pod in _members(workload, pods)
            if pod.metadata.labels[POD_SET] in placed
            and _number(pod.metadata.annotations, POD_INDEX_OFFSET, missing=0) is None
        ),
        None,
    )


def _members(workload: Workload, pods: Iterable[QueuedPod]) -> Iterator[QueuedPod]:
    for pod in pods:
        of_pod_set = POD_SET in pod.metadata.labels
        if of_pod_set and belongs_to(pod, workload) and not has_ended(pod):
            yield pod


def _placed(workload: Workload) -> Iterator[tuple[PodSet, PodSetAssignment]]:
    admission = workload.status.admission
    given = {each.name: each for each in admission.pod_set_assignments} if admission else {}
    for pod_set in workload.spec.pod_sets:
        if pod_set.name in given and given[pod_set.name].topology_assignment is not None:
            yield pod_set, given[pod_set.name]


def _positions(assigned: PodSetAssignment) -> list[Selector]:
    """Return the place of every pod, in the order of the domains."""
    topology = assigned.topology_assignment
    assert topology is not None, "only pod sets with places are asked for them"
    return [
        selector
        for domain in decode_topology(topology)
        for selector in [dict(zip(topology.levels, domain.values, strict=True))] * domain.pods
    ]


def _departures(
    pods: Sequence[QueuedPod], positions: Sequence[Selector], ranks: "_Ranks"
) -> list[Departure]:
    ranked = ranks.of(pods, len(positions))
    if ranked is not None and all(
        waits_for_place(pod) or _is_at(pod, positions[rank]) for pod, rank in ranked
    ):
        return [Departure(pod, positions[rank]) for pod, rank in ranked if waits_for_place(pod)]
    return list(_as_they_come(pods, positions))


def _as_they_come(pods: Sequence[QueuedPod], positions: Sequence[Selector]) -> Iterator[Departure]:
    gone = [pod for pod in pods if not waits_for_place(pod)]
    levels = tuple(positions[0]) if positions else ()
    taken = _taken(gone, levels)
    waiting = iter([pod for pod in pods if waits_for_place(pod)])
    for position in positions:
        if _takes(taken, position):
            continue
        pod = next(waiting, None)
        if pod is None:
            return
        yield Departure(pod, position)


def _taken(pods: Iterable[QueuedPod], levels: Iterable[str]) -> Counter[tuple[str | None, ...]]:
    return Counter(tuple(pod.spec.node_selector.get(key) for key in levels) for pod in pods)


def _takes(taken: Counter[tuple[str | None, ...]], position: Selector) -> bool:
    """Tell whether one more pod is at a position, and count it as looked at."""
    values = tuple(position.values())
    taken[values] -= 1
    return taken[values] >= 0


def _is_at(pod: QueuedPod, position: Selector) -> bool:
    return all(pod.spec.node_selector.get(key) == value for key, value in position.items())


class _Ranks:
    """How pods of a pod set are numbered."""

    def __init__(self, pod_sets: Sequence[PodSet], pod_set: PodSet) -> None:
        self._asked = pod_set.topology_request
        self._count = pod_set.count
        self._offset = _offset(pod_sets, pod_set)

    def of(self, pods: Sequence[QueuedPod], positions: int) -> list[tuple[QueuedPod, int]] | None:
        """Return the rank of each pod; None if one has none of its own below `positions`."""
        if self._asked is None or not self._asked.pod_index_label:
            return None
        ranked = []
        for pod in pods:
            rank = self._rank(pod)
            if rank is None or not 0 <= rank < positions:
                return None
            ranked.append((pod, rank))
        return ranked if len({rank for _, rank in ranked}) == len(ranked) else None

    def _rank(self, pod: QueuedPod) -> int | None:
        asked = self._asked
        assert asked is not None, "only pods with an index label are ranked"
        index = _number(pod.metadata.labels, asked.pod_index_label)
        offset = _number(pod.metadata.annotations, POD_INDEX_OFFSET, missing=0)
        if index is None or offset is None:
            return None
        first = self._first_of_sub_group(pod, index)
        return None if first is None else first + index - self._offset - offset

    def _first_of_sub_group(self, pod: QueuedPod, index: int) -> int | None:
        asked = self._asked
        assert asked is not None, "only pods with an index label are ranked"
        if not asked.sub_group_index_label:
            return 0
        group = _number(pod.metadata.labels, asked.sub_group_index_label)
        if group is None or not asked.sub_group_count:
            return None
        size = self._count // asked.sub_group_count
        return group * size if index < size else None


def _offset(pod_sets: Sequence[PodSet], pod_set: PodSet) -> int:
    """Return how many indexes the leader of a group takes before its workers."""
    group = pod_set.topology_request.pod_set_group_name if pod_set.topology_request else ""
    members = [
        each
        for each in pod_sets
        if group and each.topology_request and each.topology_request.pod_set_group_name == group
    ]
    if len(members) != 2:
        return 0
    workers, leader = members
    if leader.count > workers.count:
        workers, leader = leader, workers
    return leader.count if pod_set is workers else 0


def _number(texts: Mapping[str, str], key: str, *, missing: int | None = None) -> int | None:
    text = texts.get(key)
    if text is None:
        return missing
    return whole_number(text)
