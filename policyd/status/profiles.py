"""Parts of a GPU instead of a whole one: only those that nodes have here, and that would do."""

from collections.abc import Iterator, Mapping
from fractions import Fraction
from math import ceil

from msgspec.structs import replace

from policyd.alloc.flavors.options import QueueOptions
from policyd.alloc.queue import FlavorSpec
from policyd.alloc.state import CoreState
from policyd.alloc.topology.counts import NodeNeeds
from policyd.alloc.topology.nodes import Nodes
from policyd.alloc.topology.values import HOSTNAME, TopologyNode
from policyd.alloc.workload import QueuedPodSet, QueuedWorkload
from policyd.api.integers import whole_number
from policyd.node_rules import LabelRequirement
from policyd.optimize.devices import GPU, SLICES, gpus_asked
from policyd.optimize.mig import MIG, Profile, profile_of
from policyd.status.remedies import UseProfile
from policyd.status.trials import would_fit

_MEMORY = f"{GPU}.memory"
_MEBIBYTES = 1024


def fitting_profiles(
    state: CoreState, options: QueueOptions, workload: QueuedWorkload
) -> Iterator[UseProfile]:
    """Yield parts of a GPU with which a workload would fit that asks for a whole one, best first.

    Only for a workload of a single pod: several may train one model together, for which parts of
    GPUs are of no use. If the pod says by its affinity how much memory it needs, the smallest part
    that has as much is best; else the biggest.
    """
    pod_set = _asks_for_one(workload)
    if pod_set is None or not _counts_parts(options):
        return
    needed = _memory_needed(pod_set)
    nodes = _nodes_by_profile(state, options, pod_set)
    profiles = [each for each in nodes if each.gigabytes * _MEBIBYTES > needed]
    profiles.sort(key=lambda each: (each.share if needed else -each.share, each.name))
    for profile in profiles:
        if would_fit(state, options, _with(workload, profile)):
            yield UseProfile(
                pod_set=pod_set.name,
                profile=profile.resource,
                share=str(profile.share),
                gigabytes=profile.gigabytes,
                nodes=len(nodes[profile]),
            )


def gpus_wanted(workload: QueuedWorkload) -> Fraction:
    """Return how many GPUs all pods of a workload ask for, parts counted as fractions."""
    return sum((gpus_asked(_asked(each)) * each.count for each in workload.pod_sets), Fraction(0))


def _asks_for_one(workload: QueuedWorkload) -> QueuedPodSet | None:
    """Return the pod set of a single pod that asks for one whole GPU; None if that is not so."""
    alone = sum(each.count for each in workload.pod_sets) == 1
    asking = (each for each in workload.pod_sets if _asked(each).get(GPU) == 1)
    return next(asking, None) if alone else None


def _counts_parts(options: QueueOptions) -> bool:
    covered = (name for group in options.spec.groups for name in group.resources)
    return any(name == SLICES or name.startswith(MIG) for name in covered)


def _asked(pod_set: QueuedPodSet) -> Mapping[str, int]:
    """Return the requests of a pod, before resources are transformed."""
    return pod_set.requests if pod_set.place is None else pod_set.place.requests


def _memory_needed(pod_set: QueuedPodSet) -> int:
    """Return the mebibytes of a GPU's memory that must be exceeded; 0 if that is not known."""
    bounds = [
        max((bound for need in term for bound in _bounds(need)), default=0)
        for term in pod_set.affinity
    ]
    return min(bounds, default=0)


def _bounds(need: LabelRequirement) -> list[int]:
    bound = (need.key, need.operator) == (_MEMORY, "Gt")
    found = map(whole_number, need.values if bound else ())
    return [each for each in found if each is not None]


def _nodes_by_profile(
    state: CoreState, options: QueueOptions, pod_set: QueuedPodSet
) -> dict[Profile, list[TopologyNode]]:
    """Return the profiles that are free on nodes the pod may run on, and on which."""
    found: dict[Profile, list[TopologyNode]] = {}
    for name in options.spec.flavors:
        flavor = state.flavors.get(name)
        for node, resource in () if flavor is None else _free(state, flavor, pod_set):
            profile = profile_of(resource, node.labels.get(f"{GPU}.product", ""))
            if profile is not None and profile.resource == resource:
                found.setdefault(profile, []).append(node)
    return found


def _free(
    state: CoreState, flavor: FlavorSpec, pod_set: QueuedPodSet
) -> Iterator[tuple[TopologyNode, str]]:
    needs = NodeNeeds(
        selector=tuple(pod_set.node_selector.items()),
        affinity=pod_set.affinity,
        tolerations=(*pod_set.tolerations, *flavor.tolerations),
    )
    for node, resource in _spare(state.ledger.nodes, flavor):
        if not needs.obstacle(node):
            yield node, resource


def _spare(nodes: Nodes, flavor: FlavorSpec) -> Iterator[tuple[TopologyNode, str]]:
    """Yield usable nodes of a flavor with profiles of which they have some left."""
    tree, wanted = nodes.trees.get(flavor.name), flavor.labels.items()
    for room in nodes.rooms.values():
        names = [name for name, n in room.amounts.items() if n > 0 and name.startswith(MIG)]
        labels = room.node.labels
        if not names or not room.node.usable or any(labels.get(k) != v for k, v in wanted):
            continue
        leaf = None if tree is None else tree.leaves.get((labels.get(HOSTNAME, ""),))
        for name in names:
            if tree is None or leaf is None or tree.free.left(name, leaf) > 0:
                yield room.node, name


def _with(workload: QueuedWorkload, profile: Profile) -> QueuedWorkload:
    """Return a workload whose pod asks for a part of a GPU."""
    pod_sets = []
    for each in workload.pod_sets:
        place = each.place and replace(each.place, requests=_swapped(each.place.requests, profile))
        pod_sets.append(replace(each, requests=_swapped(each.requests, profile), place=place))
    return replace(workload, pod_sets=tuple(pod_sets))


def _swapped(requests: Mapping[str, int], profile: Profile) -> dict[str, int]:
    swapped = {name: amount for name, amount in requests.items() if name != GPU}
    if GPU in requests:
        swapped[profile.resource] = 1
    if SLICES in requests:
        swapped[SLICES] = ceil(Fraction(requests[SLICES]) * profile.share)
    return swapped
