"""Stranded devices: free ones that no pending pod can use, the jobs in the way, and moves.

Free devices of a node are stranded as far as the pods that are asked for do not fit there, however
many: too few devices are left, or too little CPU or memory. What is asked for are the pods of
pending workloads; where none asks for a device, a pod that takes all of a node's.

Jobs strand devices of a node if more could be used without their pods there than these hold. Moves
are planned by the same search that consolidates (`optimize.moves`), on a state of nodes and pods
alone: quota is left out.
"""

from collections import Counter, defaultdict
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence, Set
from heapq import nsmallest
from typing import Final, NamedTuple

from msgspec.structs import replace

from policyd.alloc.amount import total_of
from policyd.alloc.cluster_queue import QueueState
from policyd.alloc.cycle import plan_cycle
from policyd.alloc.pending import Ticket
from policyd.alloc.plan import Admit
from policyd.alloc.queue import FlavorAmounts, FlavorGroup, FlavorSpec, QueueSpec, Quota
from policyd.alloc.state import CoreState
from policyd.alloc.topology.tree import TopologyTree
from policyd.alloc.topology.values import (
    CLAIMED,
    HOSTNAME,
    PODS,
    PlacementRequest,
    TopologyNode,
    TopologyPlacement,
)
from policyd.alloc.value import Value
from policyd.alloc.workload import PodSetFlavors, QueuedPodSet, QueuedWorkload, ReservedQuota
from policyd.node_rules import TaintToleration, Term
from policyd.simulate.defragmentation import Defragmentation, described, plan_moves

MOST_MOVABLE: Final = 64
"""Jobs that are tried to be moved: those that strand devices, and those with the fewest."""
COUNT_STEP: Final = 200
"""Nodes that are counted in one step."""
_PLENTY: Final = 1 << 60
_ALL: Final = "nodes"
"""The only flavor, topology and queue of the state that moves are planned on."""
_ANY_TAINT: Final = (TaintToleration(operator="Exists"),)


class RunningPods(Value, frozen=True):
    """Pods of one job on one node that are alike.

    Attributes:
        job: The job's name, unique.
        movable: Whether they would be made again elsewhere.
        ran_seconds: For how long they have run.
    """

    job: str
    node: str
    count: int
    requests: Mapping[str, int]
    movable: bool = True
    ran_seconds: float = 0.0
    node_selector: Mapping[str, str] = {}
    affinity: tuple[Term, ...] = ()
    tolerations: tuple[TaintToleration, ...] = ()


class PendingPods(Value, frozen=True):
    """Pods that are asked for: how many, requests of one, and the nodes that they may be on."""

    count: int
    requests: Mapping[str, int]
    node_selector: Mapping[str, str] = {}
    affinity: tuple[Term, ...] = ()


class PendingGang(Value, frozen=True):
    """A pending workload: its name, and its pods, which start together."""

    name: str
    pods: tuple[PendingPods, ...]


class StrandedDevices(Value, frozen=True, rename="camel"):
    """Free devices of a node that no pod that is asked for can use.

    Attributes:
        by: The jobs that strand them; none if the node is not usable, or the rest of a division.
        missing: The resources of which too little is left for one more pod.
    """

    resource: str
    amount: int
    by: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()


class NodeFree(NamedTuple):
    """A node, and its amounts that nothing holds, in canonical units."""

    node: TopologyNode
    free: Mapping[str, int]


class JobOnNode(Value, frozen=True, rename="camel"):
    """Pods of a job on a node, and what they request together."""

    job: str
    pods: int
    requests: Mapping[str, int]


class NodeLine(Value, frozen=True, rename="camel"):
    """A node with what is on it.

    Attributes:
        domain: Where it is: the values of its topology's levels, without the node itself.
        state: `Ready`, `NotReady` or `Cordoned`.
        allocatable: Amounts for pods; `free` is what pods do not request of it.
        fragments: Free devices, by resource, while others of them are in use.
        pods: The jobs on it; None if pods are not known.
    """

    name: str
    domain: str
    state: str
    allocatable: Mapping[str, int]
    free: Mapping[str, int]
    fragments: Mapping[str, int] = {}
    stranded: tuple[StrandedDevices, ...] = ()
    pods: tuple[JobOnNode, ...] | None = ()


def node_lines(
    nodes: Iterable[TopologyNode],
    pods: Iterable[RunningPods],
    gangs: Sequence[PendingGang],
    levels: Sequence[Sequence[str]] = (),
) -> Iterator[NodeLine]:
    """Yield nodes with their pods and stranded devices, by their place in the topology.

    Args:
        nodes: All nodes.
        pods: All pods on nodes that have not ended.
        gangs: Pending workloads.
        levels: The levels of each topology.
    """
    on_node: dict[str, list[RunningPods]] = {}
    for each in pods:
        on_node.setdefault(each.node, []).append(each)
    asked = [each for gang in gangs for each in gang.pods]
    placed = sorted((_domain(node, levels), node.name, node) for node in nodes)
    for domain, _, node in placed:
        yield _line(node, domain, on_node.get(node.name, []), asked)


def count_stranded(
    nodes: Iterable[NodeFree], asked: Iterable[PendingPods]
) -> Generator[None, None, Counter[str]]:
    """Count the stranded devices of nodes, as `node_lines` finds them, in steps.

    Args:
        nodes: The nodes, each with its free amounts.
        asked: Pods of pending workloads.

    Returns:
        The number of stranded devices by resource; 0 if there are devices, and none is stranded.
    """
    places: defaultdict[object, dict[object, PendingPods]] = defaultdict(dict)
    for each in asked:
        places[_key(each.node_selector), each.affinity][_key(each.requests)] = each
    wanted = [[*pods.values()] for pods in places.values()]
    found = Counter[str]()
    known: dict[object, Counter[str]] = {}  # most nodes have the same free as many others
    for number, (node, free) in enumerate(nodes, 1):
        there = [place for place, pods in enumerate(wanted) if _may_be_on(pods[0], node)]
        key = node.usable, _key(node.allocatable), _key(free), *there
        if key not in known:
            pods = [each for place in there for each in wanted[place]]
            known[key] = _count_on(node, free, pods)
        found.update(known[key])
        if not number % COUNT_STEP:
            yield
    return found


def _key(amounts: Mapping[str, int] | Mapping[str, str]) -> tuple[tuple[str, int | str], ...]:
    return tuple(sorted(amounts.items()))


def _count_on(
    node: TopologyNode, free: Mapping[str, int], asked: Sequence[PendingPods]
) -> Counter[str]:
    found = Counter[str]()
    for device in devices_of(node.allocatable):
        left = max(0, free.get(device, 0))
        if left and node.usable:
            left -= _usable(free, _judges(node, asked, device), device)
        found[device] = left
    return found


def planned_moves(
    nodes: Sequence[TopologyNode],
    pods: Sequence[RunningPods],
    gangs: Iterable[PendingGang],
    *,
    stranding: Set[str] = frozenset(),
    most: int,
) -> Iterator[Defragmentation]:
    """Yield moves of jobs that let a gang start which finds no place now.

    Args:
        nodes: All nodes.
        pods: All pods on them.
        gangs: Pending workloads.
        stranding: Jobs that strand devices: they are tried before others.
        most: How many jobs may be moved for one.
    """
    state: CoreState | None = None
    for number, gang in enumerate(gangs):
        state = state or _state(nodes, pods, stranding)
        workload = _waiting(gang, f"{number} {gang.name}")
        state.put_workload(workload)
        fits = any(isinstance(each, Admit) for each in plan_cycle(state).actions)
        moves = None if fits else plan_moves(state, workload, most=most)
        state.remove_workload(workload.key)
        if moves is not None:
            yield replace(described(state, moves), workload=gang.name)


def devices_of(amounts: Mapping[str, int]) -> list[str]:
    """Return the resources that are devices, such as GPUs, of a node or of a request."""
    return [name for name, amount in amounts.items() if "/" in name and amount]


def whole_node(nodes: Iterable[TopologyNode], resource: str) -> PendingGang | None:
    """Return one pod that takes all devices of a node, as most nodes have; None if none has any."""
    sizes = [node.allocatable.get(resource, 0) for node in nodes]
    having = sorted(size for size in sizes if size)
    if not having:
        return None
    size = max(having, key=having.count)
    return PendingGang(name=f"a pod with {size} {resource}", pods=(_whole(resource, size),))


def _whole(resource: str, size: int) -> PendingPods:
    return PendingPods(count=1, requests={resource: size})


def _line(
    node: TopologyNode, domain: str, pods: Sequence[RunningPods], asked: Sequence[PendingPods]
) -> NodeLine:
    free = dict(node.allocatable)
    for each in pods:
        _charge(free, each, -1)
    devices = devices_of(node.allocatable)
    return NodeLine(
        name=node.name,
        domain=domain,
        state="NotReady" if not node.ready else "Ready" if node.schedulable else "Cordoned",
        allocatable=node.allocatable,
        free=free,
        fragments={d: free[d] for d in devices if 0 < free[d] < node.allocatable[d]},
        stranded=tuple(_stranded(node, free, pods, asked, devices)),
        pods=tuple(_jobs(pods)),
    )


def _stranded(
    node: TopologyNode,
    free: Mapping[str, int],
    pods: Sequence[RunningPods],
    asked: Sequence[PendingPods],
    devices: Iterable[str],
) -> Iterator[StrandedDevices]:
    for device in devices:
        if free[device] <= 0:
            continue
        if not node.usable:
            yield StrandedDevices(resource=device, amount=free[device])
            continue
        shapes = _judges(node, asked, device)
        used = _usable(free, shapes, device)
        if used < free[device]:
            smallest = min(shapes, key=lambda each: each.requests[device])
            yield StrandedDevices(
                resource=device,
                amount=free[device] - used,
                by=_in_the_way(free, pods, shapes, device),
                missing=_missing_resources(free, smallest, used),
            )


def _judges(node: TopologyNode, asked: Iterable[PendingPods], device: str) -> Sequence[PendingPods]:
    """Return the pods that decide whether free devices of a node are stranded."""
    mine = [each for each in asked if each.requests.get(device) and _may_be_on(each, node)]
    return mine or [_whole(device, node.allocatable[device])]


def _usable(free: Mapping[str, int], shapes: Iterable[PendingPods], device: str) -> int:
    """Return how many free devices the pods of one shape can use at most."""
    return max(_fitting(free, each) * each.requests[device] for each in shapes)


def _fitting(free: Mapping[str, int], shape: PendingPods) -> int:
    """Return how many pods fit."""
    requests = {**shape.requests, **({PODS: 1} if PODS in free else {})}
    return max(0, min(free.get(name, 0) // n for name, n in requests.items() if n))


def _missing_resources(free: Mapping[str, int], shape: PendingPods, used: int) -> tuple[str, ...]:
    """Return the resources that are too few for one more pod; none if some pods do fit."""
    if used:
        return ()
    return tuple(sorted(name for name, n in shape.requests.items() if free.get(name, 0) < n))


def _in_the_way(
    free: Mapping[str, int],
    pods: Sequence[RunningPods],
    shapes: Sequence[PendingPods],
    device: str,
) -> tuple[str, ...]:
    """Return the jobs without whose pods more devices could be used than these hold.

    Jobs are left out one by one, those with the fewest devices first, until that is so; then those
    are kept that did not have to be left out.
    """
    jobs: dict[str, list[RunningPods]] = {}
    for each in sorted(pods, key=lambda each: _size(each, device)):
        jobs.setdefault(each.job, []).append(each)

    def helps(names: Iterable[str]) -> bool:
        left, held = dict(free), 0
        for each in (each for name in names for each in jobs[name]):
            _charge(left, each, 1)
            held += each.requests.get(device, 0) * each.count
        return _usable(left, shapes, device) > _usable(free, shapes, device) + held

    names: list[str] = []
    for name in jobs:
        names.append(name)
        if helps(names):
            for other in tuple(names):
                fewer = [each for each in names if each != other]
                names = fewer if helps(fewer) else names
            return tuple(sorted(names))
    return ()


def _size(pods: RunningPods, device: str) -> tuple[int, int]:
    return pods.requests.get(device, 0) * pods.count, pods.requests.get("cpu", 0) * pods.count


def _charge(free: dict[str, int], pods: RunningPods, sign: int) -> None:
    for name, amount in {PODS: 1, **pods.requests}.items():
        if name in free:
            free[name] += sign * amount * pods.count


def _may_be_on(asked: PendingPods, node: TopologyNode) -> bool:
    selected = all(node.labels.get(key) == value for key, value in asked.node_selector.items())
    terms = asked.affinity
    return selected and (
        not terms or any(all(each.matches(node.labels) for each in term) for term in terms)
    )


def _jobs(running: Iterable[RunningPods]) -> Iterator[JobOnNode]:
    found: dict[str, JobOnNode] = {}
    for each in running:
        # Most jobs have one pod on a node, of requests that thousands share: no copy of them.
        requests = each.requests
        if each.count > 1:
            requests = {name: amount * each.count for name, amount in requests.items()}
        pods, known = each.count, found.get(each.job)
        if known is not None:
            pods += known.pods
            sums = dict(known.requests)
            for name, amount in requests.items():
                sums[name] = sums.get(name, 0) + amount
            requests = sums
        found[each.job] = JobOnNode(job=each.job, pods=pods, requests=requests)
    return (found[job] for job in sorted(found))


def _domain(node: TopologyNode, levels: Iterable[Sequence[str]]) -> str:
    for path in levels:
        above = [level for level in path if level != HOSTNAME]
        if above and all(level in node.labels for level in above):
            return "/".join(node.labels[level] for level in above)
    return ""


# The state that moves are planned on.


def _state(
    nodes: Iterable[TopologyNode], pods: Sequence[RunningPods], stranding: Set[str]
) -> CoreState:
    """Return a state of nodes and pods, in which quota is plenty; jobs that may move hold it."""
    state = CoreState()
    state.put_flavor(FlavorSpec(name=_ALL, topology=_ALL, levels=(HOSTNAME,)))
    named = {name for node in nodes for name in node.allocatable}
    named.update(name for each in pods for name in each.requests)
    resources = tuple(sorted(named - {PODS}))
    quotas = FlavorAmounts(name=_ALL, quotas=dict.fromkeys(resources, Quota(nominal=_PLENTY)))
    group = FlavorGroup(resources=resources, flavors=(quotas,))
    state.put_queue(QueueSpec(name=_ALL, groups=(group,)))
    for node in nodes:
        state.ledger.nodes.put(replace(node, labels={**node.labels, HOSTNAME: node.name}))
    jobs: dict[str, list[RunningPods]] = {}
    for each in pods:
        jobs.setdefault(each.job, []).append(each)
    movable = _movable(jobs, stranding)
    for job, members in jobs.items():
        if job in movable:
            state.put_workload(_holding(job, members))
            continue
        for number, each in enumerate(members):
            for copy in range(each.count):
                key = f"{job} {number} {copy}"
                state.ledger.nodes.put_pod(key, each.node, each.requests)
    state.settle()
    return state


def _movable(jobs: Mapping[str, Sequence[RunningPods]], stranding: Set[str]) -> set[str]:
    """Return the jobs that are tried to be moved: those of which all pods would be made again."""
    may = [job for job, members in jobs.items() if all(each.movable for each in members)]
    may.sort(key=lambda job: (job not in stranding, sum(map(_devices, jobs[job])), job))
    return set(may[:MOST_MOVABLE])


def _devices(pods: RunningPods) -> int:
    return pods.count * sum(n for name, n in pods.requests.items() if "/" in name)


def _holding(job: str, members: Sequence[RunningPods]) -> QueuedWorkload:
    """Return a job that holds the places of its pods."""
    sets = [_pod_set(f"pods-{number}", each) for number, each in enumerate(members)]
    assigned = tuple(
        PodSetFlavors(
            name=pod_set.name,
            count=pod_set.count,
            flavors=dict.fromkeys(pod_set.requests, _ALL),
            usage=pod_set.totals(),
            placement=TopologyPlacement(levels=(HOSTNAME,), domains=(((each.node,), each.count),)),
            pod_requests=pod_set.requests,
        )
        for pod_set, each in zip(sets, members, strict=True)
    )
    return QueuedWorkload(
        key=job,
        uid=job,
        cluster_queue=_ALL,
        queued_at=0.0,
        pod_sets=tuple(sets),
        admission=ReservedQuota(cluster_queue=_ALL, pod_sets=assigned),
        admitted=True,
        ready=True,
        reserved_at=-max(each.ran_seconds for each in members),
    )


def _waiting(gang: PendingGang, key: str) -> QueuedWorkload:
    """Return a pending workload, before which all others may be moved."""
    sets = tuple(
        _queued(f"pods-{number}", each, _ANY_TAINT) for number, each in enumerate(gang.pods)
    )
    return QueuedWorkload(
        key=key, uid=key, cluster_queue=_ALL, queued_at=0.0, priority=1, pod_sets=sets
    )


def _pod_set(name: str, each: RunningPods) -> QueuedPodSet:
    pods = PendingPods(
        count=each.count,
        requests=each.requests,
        node_selector=each.node_selector,
        affinity=each.affinity,
    )
    return _queued(name, pods, each.tolerations)


def _queued(
    name: str, asked: PendingPods, tolerations: tuple[TaintToleration, ...]
) -> QueuedPodSet:
    requests = {resource: n for resource, n in asked.requests.items() if n}
    place = PlacementRequest(
        pod_set=name,
        count=asked.count,
        requests=requests,
        node_selector=asked.node_selector,
        affinity=asked.affinity,
        tolerations=tolerations,
    )
    return QueuedPodSet(
        name=name,
        count=asked.count,
        requests=requests,
        tolerations=tolerations,
        node_selector=asked.node_selector,
        affinity=asked.affinity,
        placed=True,
        place=place,
    )


# Devices of flavors, as the allocator's state has them.

MOST_REQUESTS: Final = 10
"""Different requests of a ClusterQueue's pending workloads that count: those that come first."""


def stranded_of_flavors(state: CoreState) -> Generator[None, None, dict[tuple[str, str], int]]:
    """Count the stranded devices of each flavor whose topology names nodes, in steps.

    Returns:
        The number of devices by flavor and resource.
    """
    found = dict[tuple[str, str], int]()
    trees = [(name, tree) for name, tree in state.ledger.nodes.trees.items() if tree.to_nodes]
    pending = [_QueuePending(queue) for queue in state.queues.values()] if trees else ()
    for flavor, tree in trees:
        asked = [pods for queue in pending for pods in queue.asked(flavor)]
        counted = yield from count_stranded([*_free(tree)], asked)
        found.update({(flavor, resource): number for resource, number in counted.items()})
    return found


def _free(tree: TopologyTree) -> Iterator[NodeFree]:
    for leaf in tree.leaves.values():
        node, size = tree.node(leaf), tree.size(leaf)
        left = {name: tree.free.left(name, leaf) for name in size}
        if size is not node.allocatable:
            node, left = replace(node, allocatable=_by_resource(size)), _by_resource(left)
        yield NodeFree(node, left)


def _by_resource(amounts: Mapping[str, int]) -> dict[str, int]:
    """Add up what nodes have of a resource and what pods get of it by claims."""
    return total_of(*({name.removeprefix(CLAIMED): n} for name, n in amounts.items()))


class _QueuePending:
    """What is asked of a ClusterQueue."""

    def __init__(self, queue: QueueState) -> None:
        groups = () if queue.spec is None else queue.spec.groups
        self._flavors = {
            flavor.name: {resource for resource in flavor.quotas if "/" in resource}
            for group in groups
            for flavor in group.flavors
        }
        self._first = [*_first(queue)] if any(self._flavors.values()) else []

    def asked(self, flavor: str) -> Iterator[PendingPods]:
        """Yield the pods that ask for devices which the queue gives of a flavor."""
        devices = self._flavors.get(flavor, set())
        for each in (pod_set for workload in self._first for pod_set in workload.pod_sets):
            if any(each.requests.get(device) for device in devices):
                yield PendingPods(
                    count=each.count, requests=each.requests, node_selector=each.node_selector
                )


def _first(queue: QueueState) -> Iterator[QueuedWorkload]:
    """Yield the first pending workload of each of the first different requests."""
    firsts = dict[object, Ticket]()
    for ticket in queue.pending:
        known = firsts.setdefault(ticket.request_key, ticket)
        if queue.pending.turn(ticket) < queue.pending.turn(known):
            firsts[ticket.request_key] = ticket
    for ticket in nsmallest(MOST_REQUESTS, firsts.values(), key=queue.pending.turn):
        yield ticket.workload
