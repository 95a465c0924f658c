"""Kueue's tables of the parts of placement: orders, sets of domains, assignments, usage."""

from msgspec.structs import replace

from policyd.alloc.queue import FlavorSpec
from policyd.alloc.settings import Gates
from policyd.alloc.topology.assignments import merged, truncated
from policyd.alloc.topology.balanced import best_balance, fewest_domains, share_evenly
from policyd.alloc.topology.feasibility import DomainRoom
from policyd.alloc.topology.goal import Goal, has_levels
from policyd.alloc.topology.nodes import Nodes
from policyd.alloc.topology.placement import fits
from policyd.alloc.topology.values import (
    HOSTNAME,
    Placement,
    TopologyNode,
    TopologyPlacement,
)
from policyd.api import kueue
from policyd.api.nodes import Node
from policyd.jobs.pods import QueuedPod
from policyd.workload.topology_values import (
    asks_for_place,
    node_spec,
    put_pod,
    taken_by,
    topology_request,
)
from tests.conformance.kueue_objects import decode, read_table, run_table
from tests.conformance.kueue_topology import written

FLAVOR = "flavor"


def run_closures(path):
    """Count tables whose inputs are Go functions."""
    return run_table(path, lambda _case: "", rule=lambda _case: "inputs that are Go functions")


def _compare(want, got):
    return "" if got == want else f"expected {want}, got {got}"


def _tree_of(paths, levels=()):
    """Return a topology whose lowest domains are named by `paths`, their values by level."""
    levels = levels or [f"level-{i}" for i in range(max(map(len, paths)))]
    nodes = Nodes()
    nodes.put_flavor(FlavorSpec(name=FLAVOR, topology="default"), levels)
    for path in paths:
        labels = dict(zip(levels, path, strict=True))
        nodes.put(TopologyNode(name="/".join(path), labels=labels))
    return nodes, nodes.trees[FLAVOR]


class _Domains:
    """A topology, and room in it as a table says."""

    def __init__(self, specs, goal):
        parts = [(spec.get("domain", spec), spec.get("state", spec)) for spec in specs]
        paths = [tuple(domain["levelValues"]) for domain, _ in parts]
        deepest = max(map(len, paths), default=0)
        _, self.tree = _tree_of([path for path in paths if len(path) == deepest])
        self.tree.settle()
        numbers = {values: number for number, values in enumerate(self.tree.values)}
        self.numbers = [numbers[path] for path in paths]
        self.names = {numbers[tuple(d["levelValues"])]: d["id"] for d, _ in parts}
        self.room = self._room(goal, [state for _, state in parts])

    def _room(self, goal, states):
        def column(field):
            values = [0] * len(self.tree.values)
            for number, state in zip(self.numbers, states, strict=True):
                values[number] = state.get(field, 0)
            return values

        room = DomainRoom(self.tree, goal, column("podCount"))
        room.slices, room.score = column("sliceCount"), column("affinityScore")
        room.beside, room.slices_beside = (
            column("podCountWithLeader"),
            column("sliceCountWithLeader"),
        )
        room.leaders = column("leaderCount")
        return room

    def named(self, numbers):
        return [self.names[number] for number in numbers]

    def state(self, number):
        room = self.room
        found = {
            "podCount": room.pods[number],
            "sliceCount": room.slices[number],
            "podCountWithLeader": room.beside[number],
            "sliceCountWithLeader": room.slices_beside[number],
            "leaderCount": room.leaders[number],
        }
        return {field: value for field, value in found.items() if value}


def _goal(*, count, leaders=0, size=1, slice_level=0, ascending=False):
    return Goal(
        mode="Preferred",
        level=0,
        count=count,
        leaders=leaders,
        slice_level=slice_level,
        slice_size=size,
        ascending=ascending,
    )


def run_order(path):
    """Put domains in the order in which pods are distributed to them."""
    return run_table(path, lambda case: _order(case, DomainRoom.plain_order))


def run_leading_order(path):
    """Put domains in the order in which they are chosen."""
    return run_table(path, lambda case: _order(case, DomainRoom.leading_order))


def _order(case, order):
    given, gates = case.input, Gates.of(case.gates)
    ascending = given["unconstrained"] and gates.tas_profile_mixed
    domains = _Domains(given["domains"], _goal(count=0, ascending=ascending))
    if not gates.tas_respect_node_affinity_preferred:
        domains.room.score = None
    found = order(domains.room, domains.tree.at[0])
    return _compare(case.want["wantOrder"], domains.named(found))


def run_order_of_values(path):
    """Compare two domains by their values."""
    return run_table(path, _order_of_values)


def _order_of_values(case):
    paths = [case.input[name]["levelValues"] for name in ("a", "b")]
    _, tree = _tree_of(paths, case.input["levels"])
    tree.settle()
    numbers = {values: number for number, values in enumerate(tree.values)}
    a, b = (tree.rank[numbers[tuple(path)]] for path in paths)
    return _compare(case.want["want"], (a > b) - (a < b))


def run_fewest(path):
    """Choose the domains with the least room left over."""
    return run_table(path, _fewest)


def _fewest(case):
    given = case.input
    goal = _goal(count=given["workerCount"], leaders=given["leaderCount"])
    domains = _Domains(given["domains"], goal)
    found = fewest_domains(domains.room, domains.numbers, by_entropy=True) or []
    return _compare(sorted(case.want["want"]), sorted(domains.named(found)))


def run_fewest_of_equals(path):
    """Choose one of domains with the same room."""
    return run_table(path, _fewest_of_equals)


def _fewest_of_equals(case):
    domains = _equals(case, _goal(count=3))
    entropy = case.input["prioritizeByEntropy"]
    found = fewest_domains(domains.room, domains.numbers, by_entropy=entropy)
    return _compare([each["id"] for each in case.data["observed"]["got"]], domains.named(found))


def _equals(case, goal):
    given = case.data["locals"]
    states = [{"domain": domain, "state": given["equalState"]} for domain in given["domains"]]
    return _Domains(states, goal)


def run_shares(path):
    """Give domains a threshold of slices each, and the rest to the first ones."""
    return run_table(path, _shares)


def _shares(case):
    given = case.input
    goal = _goal(
        count=given["sliceCount"] * given["sliceSize"],
        leaders=given["leaderCount"],
        size=given["sliceSize"],
    )
    domains = _Domains(given["domains"], goal)
    found = share_evenly(domains.room, domains.numbers, threshold=given["threshold"]) or []
    got = {domains.names[number]: domains.state(number) for number in found}
    return _compare(case.want["want"] or {}, got)


def run_shares_of_equals(path):
    """Give one slice to one of domains with the same room."""
    return run_table(path, _shares_of_equals)


def _shares_of_equals(case):
    domains = _equals(case, _goal(count=1))
    found = share_evenly(domains.room, domains.numbers, threshold=1)
    return _compare([each["id"] for each in case.data["observed"]["got"]], domains.named(found))


def run_balance(path):
    """Find the siblings with the highest threshold."""
    return run_table(path, _balance)


def _balance(case):
    params = case.input["params"]
    goal = _goal(
        count=params.get("count", 0),
        leaders=params.get("leaderCount", 0),
        size=params.get("sliceSize", 0),
        slice_level=params.get("sliceLevelIdx", 0),
    )
    domains = _Domains(case.input["domains"], goal)
    found = best_balance(domains.room)
    got = (found.threshold, len(found.domains)) if found else (0, 0)
    return _compare((case.want["wantThreshold"], case.want["wantDomainsCount"]), got)


def run_levels(path):
    """Tell whether a topology has the levels that a request names."""
    return run_table(path, _levels)


def _levels(case):
    body = {"name": "main", "topologyRequest": case.input.get("podSetTopologyRequest")}
    pod_set = decode_pod_set(body)
    request = topology_request(pod_set, count=1, requests={})
    found = asks_for_place(pod_set) and has_levels(
        ("level-1", "level-2"), request, gates=Gates.of(case.gates)
    )
    return _compare(case.want["want"], found)


def decode_pod_set(body):
    workload = {"kind": "Workload", "metadata": {"name": "any"}, "spec": {"podSets": [body]}}
    return decode(workload, kueue.Workload).spec.pod_sets[0]


def run_stale(path):
    """Find the first domain of an assignment that is not there any more."""
    return run_table(path, _stale)


def _stale(case):
    nodes = _nodes_of(*(case.input["tree"].get(name) or () for name in ("levelKeys", "nodes")))
    found = nodes.stale_domain(FLAVOR, _assignment(case.input["assignment"]))
    want = case.want["wantStaleDomain"] if case.want["wantStale"] else ""
    return _compare(want, found)


def _nodes_of(levels, bodies):
    nodes = Nodes()
    nodes.put_flavor(FlavorSpec(name=FLAVOR, topology="default"), levels)
    for body in bodies:
        metadata = body["metadata"]
        nodes.put(TopologyNode(name=metadata["name"], labels=metadata.get("labels") or {}))
    return nodes


def _assignment(body):
    domains = tuple((tuple(d["Values"]), d.get("Count", 1)) for d in body.get("Domains") or ())
    return TopologyPlacement(levels=tuple(body.get("Levels") or ()), domains=domains)


def run_merge(path):
    """Join two assignments."""
    fixtures = read_table(path)["fixtures"]
    return run_table(path, lambda case: _merge(case, fixtures))


def _merge(case, fixtures):
    nodes = _nodes_of(fixtures["levels"], fixtures["nodes"])
    parts = [_assignment(case.input[name]) for name in ("a", "b")]
    return _compare(case.want["want"], written(merged(nodes.trees[FLAVOR], *parts)))


def run_truncation(path):
    """Shorten an assignment."""
    return run_table(path, _truncation)


def _truncation(case):
    found = truncated(_assignment(case.input["assignment"]), case.input["newCount"])
    return _compare(case.want["want"], written(found))


def run_count(path):
    """Count the pods of an assignment."""
    return run_table(
        path, lambda case: _compare(case.want["want"], _assignment(case.input["assignment"]).count)
    )


def run_pods(path):
    """Replay which pods come and go; tell what they take of nodes, and which node has more room."""
    return run_table(path, _pods)


def _pods(case):
    nodes = Nodes()
    for operation, arguments, result in case.operations():
        got = None
        match operation.rpartition(".")[2]:
            case "update":
                got = put_pod(nodes, decode(arguments["pod"], QueuedPod))
            case "delete":
                got = nodes.remove_pod(arguments["key"])
        if got is not None and [got] != result:
            return f"{operation}: expected {result}, got {got}"
    if "wantNodeUsage" not in case.want:
        return ""
    return _compare(case.want["wantNodeUsage"] or {}, nodes.taken)


def run_usage(path):
    """Replay what workloads come to hold and hold no more; tell what is used of each domain."""
    return run_table(path, _usage)


def _usage(case):
    nodes = Nodes()
    nodes.put_flavor(FlavorSpec(name=FLAVOR, topology="default"), [HOSTNAME])
    for operation, arguments, _ in case.operations():
        if operation.endswith("removeUsage"):
            nodes.drop(arguments["key"])
        else:
            nodes.hold(arguments["key"], list(map(_holding, arguments["topologyRequests"])))
    want = {
        domain: {name: amount for name, amount in used.items() if amount}
        for domain, used in case.want["wantUsage"].items()
    }
    return _compare({domain: used for domain, used in want.items() if used}, nodes.usage(FLAVOR))


def _holding(body):
    place = (tuple(body["Values"]), body.get("Count", 0))
    assignment = TopologyPlacement(levels=(HOSTNAME,), domains=(place,))
    return Placement(
        flavor=FLAVOR, assignment=assignment, requests=body.get("SinglePodRequests") or {}
    )


def run_ports(path):
    """Tell which nodes a pod could go to beside those that run."""
    fixtures = read_table(path)["fixtures"]
    return run_table(path, lambda case: _ports(case, fixtures["nodes"]))


def _ports(case, bodies):
    nodes = Nodes()
    nodes.put_flavor(FlavorSpec(name=FLAVOR, topology="default"), [HOSTNAME])
    for body in bodies:
        nodes.put(node_spec(decode(body, Node)))
    for body in case.input.get("pods") or ():
        put_pod(nodes, decode(body, QueuedPod))
    pod_set = decode_pod_set({"name": "main", "template": case.input["candidatePod"]})
    asked = topology_request(pod_set, count=1, requests=taken_by(pod_set.template.spec))
    found = {
        name: True
        for (name,) in nodes.trees[FLAVOR].leaves
        if fits(nodes, {FLAVOR: [replace(asked, node_selector={HOSTNAME: name})]})
    }
    return _compare(case.want["wantFeasible"], found)
