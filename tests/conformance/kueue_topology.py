"""Kueue's tables of placement by topology."""

from msgspec.structs import replace

from policyd.alloc.queue import FlavorSpec
from policyd.alloc.settings import Gates
from policyd.alloc.topology.nodes import Nodes
from policyd.alloc.topology.placement import place
from policyd.alloc.topology.values import Placement, TopologyPlacement
from policyd.api import kueue
from policyd.api.nodes import Node
from policyd.jobs.pods import QueuedPod
from policyd.jobs.requests import NO_RULES
from policyd.status.messages import placement_text
from policyd.status.quantities import format_amount
from policyd.workload.pod_set_values import pod_set_values
from policyd.workload.topology_values import node_spec, put_pod, topology_assignment
from tests.conformance.kueue_objects import convert, decode, read_table, run_table

FLAVOR = "flavor"
SIBLING = "sibling"


def run_assignments(path):
    """Place the pod sets of a workload on nodes, and compare where each goes, or why nowhere."""
    levels = _levels_of_table(read_table(path))
    return run_table(path, lambda case: _assignments(case, levels))


def _levels_of_table(table):
    return table.get("fixtures", {}).get("defaultLevels", ())


def _assignments(case, levels):
    gates, given = Gates.of(case.gates), case.input
    nodes = _nodes(case, given.get("levels") or levels, gates)
    pod_sets = given["podSets"] or () if "podSets" in given else [_pod_set_of(given)]
    workload = _workload_of(pod_sets, given.get("workload") or _option(case, "workload"))
    found = place(
        nodes,
        {FLAVOR: _requests(pod_sets, workload)},
        gates=gates,
        empty=bool(_option(case, "simulateEmpty")),
        failed_node=_failed_node(workload),
    )
    if "wantResult" in case.want:
        want = case.want["wantResult"] or {}
    else:
        want = {"main": _wanted(case.want)}
    got = {name: _summarize(outcome) for name, outcome in found.items()}
    want = {name: _without_nothing(each) for name, each in want.items()}
    return "" if got == want else f"expected {want}, got {got}"


def _option(case, name):
    for _, arguments, _ in case.operations(
        "schdcache.TASFlavorSnapshot.FindTopologyAssignmentsForFlavor"
    ):
        options = arguments.get("options") or {}
        return options.get("$options", {}).get(name)
    return None


def _nodes(case, levels, gates):
    given = case.input
    nodes = Nodes(overlapping=gates.tas_handle_overlapping_flavors)
    labels = given.get("nodeLabels") or {}
    for name in (FLAVOR, SIBLING):
        nodes.put_flavor(FlavorSpec(name=name, topology="default", labels=labels), levels)
    for node in given.get("nodes") or ():
        nodes.put(node_spec(decode(node, Node)))
    for pod in given.get("pods") or ():
        put_pod(nodes, decode(pod, QueuedPod))
    for flavor, column in ((FLAVOR, "priorOwnUsage"), (SIBLING, "priorFlavorUsage")):
        nodes.hold(column, holdings(flavor, given.get(column) or (), nodes))
    totals = given.get("aggregatedDomainUsages") or {}
    usage = [each for domain, total in totals.items() for each in _in_all(domain, total)]
    nodes.hold("totals", holdings(SIBLING, usage, nodes))
    return nodes


def _in_all(domain, total):
    """Yield what a domain is used for in all as that of one pod, and of more that request nothing.

    Where the table counts no pods, one is taken back.
    """
    requests = {name: amount for name, amount in (total or {}).items() if name != "pods"}
    for pods, each in ((1, requests), ((total or {}).get("pods", 0) - 1, {})):
        yield {"Values": domain.split(","), "Count": pods, "SinglePodRequests": each}


def holdings(flavor, usage, nodes):
    """Return the usage of a table's domains as what pods hold there."""
    tree = nodes.trees[flavor]
    levels = tree.levels[-1:] if tree.to_nodes else tree.levels
    return [
        Placement(
            flavor=flavor,
            assignment=TopologyPlacement(
                levels=levels, domains=((tuple(each["Values"]), each.get("Count", 0)),)
            ),
            requests=each.get("SinglePodRequests") or {},
        )
        for each in usage
    ]


def _pod_set_of(given):
    return {
        "podSetName": "main",
        "topologyRequest": given.get("topologyRequest"),
        "requests": {"cpu": 1000},
        "count": given.get("count", 0),
    }


def _workload_of(pod_sets, body):
    """Return a workload of the table's pod sets, with what the workload of its options says."""
    body = body or {}
    metadata = {"name": "wl", "namespace": "ns", **(body.get("metadata") or {})}
    specs = [_pod_set(each) for each in pod_sets]
    return decode({**body, "metadata": metadata, "spec": {"podSets": specs}}, kueue.Workload)


def _pod_set(given):
    asked = given.get("topologyRequest")
    if "podSetGroupName" in given:
        asked = {**(asked or {}), "podSetGroupName": given["podSetGroupName"]}
    requests = {r: format_amount(r, n) for r, n in (given.get("requests") or {}).items()}
    spec = {key: given[key] for key in ("nodeSelector", "tolerations") if key in given}
    spec["containers"] = [{"name": "c", "resources": {"requests": requests}}]
    if "nodeAffinity" in given:
        spec["affinity"] = {"nodeAffinity": given["nodeAffinity"]}
    name, count = given.get("podSetName", ""), given.get("count", 0)
    return {"name": name, "count": count, "template": {"spec": spec}, "topologyRequest": asked}


def _requests(pod_sets, workload):
    """Return what the pod sets ask of a topology, as the product reads it of their workload."""
    values, objection = pod_set_values(workload, {}, NO_RULES)
    assert objection is None, objection
    requests = []
    for given, value in zip(pod_sets, values, strict=True):
        held = given.get("previousAssignment") or _held(workload, value.name)
        if isinstance(held, dict):
            held = convert(held, kueue.TopologyAssignment)
        place = value.place
        requests.append(replace(place, held=held and topology_assignment(held)))
    return requests


def _held(workload, name):
    admission = workload.status.admission
    for each in admission.pod_set_assignments if admission else ():
        if each.name == name:
            return each.topology_assignment
    return None


def _failed_node(workload):
    failed = workload.status.unhealthy_nodes
    return failed[0].name if failed else ""


def _wanted(want):
    return {
        "TopologyAssignment": want.get("wantAssignment"),
        "FailureReason": want.get("wantReason"),
    }


def _without_nothing(result):
    return {key: value for key, value in result.items() if value}


def _summarize(outcome):
    if isinstance(outcome, TopologyPlacement):
        return {"TopologyAssignment": written(outcome)}
    return {"FailureReason": placement_text(outcome)}


def written(assignment):
    written = {"Levels": list(assignment.levels)}
    domains = [{"Values": list(v), "Count": n} for v, n in assignment.domains]
    return {**written, "Domains": domains} if domains else written
