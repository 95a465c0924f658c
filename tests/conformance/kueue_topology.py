"""Kueue's tables of placement by topology."""

import json

import msgspec

from policyd.alloc.queue import FlavorSpec
from policyd.alloc.settings import Gates
from policyd.alloc.topology.nodes import Nodes
from policyd.alloc.topology.placement import place
from policyd.alloc.topology.values import Placement, TopologyPlacement
from policyd.api import kueue
from policyd.api.nodes import Node
from policyd.jobs.pods import QueuedPod
from policyd.status.placement_texts import placement_text
from policyd.workload.topology_values import (
    is_single_pod,
    node_spec,
    put_pod,
    topology_assignment,
    topology_request,
)
from tests.conformance.kueue_objects import decode, read_table, run_table

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
    workload = _workload(given.get("workload") or _option(case, "workload"))
    pod_sets = given.get("podSets") or [_pod_set_of(given)]
    found = place(
        nodes,
        {FLAVOR: [_request(each, workload) for each in pod_sets]},
        gates=gates,
        empty=bool(_option(case, "simulateEmpty")),
        failed_node=_failed_node(workload),
    )
    want = case.want.get("wantResult")
    if want is None:
        want = {"main": _wanted(case.want)}
    got = {name: _told(outcome) for name, outcome in found.items()}
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
        nodes.hold(column, _holdings(flavor, given.get(column) or (), nodes))
    totals = given.get("aggregatedDomainUsages") or {}
    nodes.hold("totals", _holdings(SIBLING, map(_shared_out, totals.items()), nodes))
    return nodes


def _shared_out(item):
    """Return what a domain is used for in all as that of so many pods."""
    domain, total = item
    pods = max(1, total.get("pods", 1))
    requests = {name: amount // pods for name, amount in total.items() if name != "pods"}
    return {"Values": domain.split(","), "Count": pods, "SinglePodRequests": requests}


def _holdings(flavor, usage, nodes):
    tree = nodes.trees[flavor]
    levels = tree.levels[-1:] if tree.to_nodes else tree.levels
    return [
        Placement(
            flavor=flavor,
            assignment=TopologyPlacement(
                levels=levels, domains=((tuple(each["Values"]), each["Count"]),)
            ),
            requests=each["SinglePodRequests"],
        )
        for each in usage
    ]


def _workload(body):
    return None if body is None else decode(body, kueue.Workload)


def _pod_set_of(given):
    return {
        "podSetName": "main",
        "topologyRequest": given["topologyRequest"],
        "requests": {"cpu": 1000},
        "count": given["count"],
    }


def _request(given, workload):
    name = given.get("podSetName", "")
    asked = given.get("topologyRequest")
    if "podSetGroupName" in given:
        asked = {**(asked or {}), "podSetGroupName": given["podSetGroupName"]}
    spec = {key: given[key] for key in ("nodeSelector", "tolerations") if key in given}
    if "nodeAffinity" in given:
        spec["affinity"] = {"nodeAffinity": given["nodeAffinity"]}
    body = {"name": name, "template": {"spec": spec}, "topologyRequest": asked}
    held = given.get("previousAssignment") or _held(workload, name)
    return topology_request(
        msgspec.json.decode(json.dumps(body), type=kueue.PodSet),
        count=given["count"],
        requests=given.get("requests") or {},
        held=None if held is None else topology_assignment(_assignment_object(held)),
        pinned=workload is not None and is_single_pod(workload.metadata.owner_references),
    )


def _assignment_object(held):
    if isinstance(held, kueue.TopologyAssignment):
        return held
    return msgspec.json.decode(json.dumps(held), type=kueue.TopologyAssignment)


def _held(workload, name):
    admission = None if workload is None else workload.status.admission
    for each in admission.pod_set_assignments if admission else ():
        if each.name == name:
            return each.topology_assignment
    return None


def _failed_node(workload):
    failed = () if workload is None else workload.status.unhealthy_nodes
    return failed[0].name if failed else ""


def _wanted(want):
    return {"TopologyAssignment": want["wantAssignment"], "FailureReason": want["wantReason"]}


def _without_nothing(result):
    return {key: value for key, value in result.items() if value}


def _told(outcome):
    if isinstance(outcome, TopologyPlacement):
        return {"TopologyAssignment": written(outcome)}
    return {"FailureReason": placement_text(outcome)}


def written(assignment):
    written = {"Levels": list(assignment.levels)}
    domains = [{"Values": list(v), "Count": n} for v, n in assignment.domains]
    return {**written, "Domains": domains} if domains else written
