"""Kueue's tables of the quota tree and of amounts."""

import math

from policyd.alloc.amount import (
    UNLIMITED,
    pods_within,
    quota_amount,
    request_amount,
)
from policyd.alloc.quota import Hierarchy, QuotaTree
from policyd.api.pod_requests import amount
from policyd.api.pods import Container, PodSpec, Resources
from policyd.jobs.requests import requests_of
from policyd.status.quantities import format_amount, in_units
from policyd.status.queues import queue_status
from tests.conformance.kueue_objects import Cluster, run_table, settings_of
from tests.conformance.kueue_topology import holdings
from tests.conformance.kueue_topology_flavors import PlacingCluster

CLOSURE = "a table whose inputs and expectations are Go functions"


def run_available(path):
    """Compare what is available, before, with and after usage, and what could be at most."""
    return run_table(path, _available)


def _available(case):
    cluster = Cluster(settings_of(case))
    cluster.put_all(case, "ResourceFlavor", "ClusterQueue", "Cohort")
    state = cluster.state
    state.settle()
    tree = state.tree
    queues = {name: node for name, node in tree.hierarchy.queues.items() if not node.cyclic}
    most = case.want["wantPotentiallyAvailable"]
    charges = {
        tree.cell(queues[queue], tuple(name.split("/", 1))): value
        for queue, used in (case.input.get("usage") or {}).items()
        for name, value in used.items()
    }

    def found(column):
        return {
            name: {"/".join(names): column(cell) for names, cell in node.cells.items()}
            for name, node in queues.items()
        }

    def free(cell):
        return max(0, tree.available(cell))

    steps = [(found(free), most), (found(tree.potential.__getitem__), most)]
    tree.charge(charges)
    steps += [(found(free), case.want["wantAvailable"])]
    tree.release(charges)
    steps += [(found(free), most)]
    for got, wanted in steps:
        if wanted != {name: {k: _plain(v) for k, v in each.items()} for name, each in got.items()}:
            return f"expected {wanted}, got {got}"
    return ""


def _plain(value):
    return "Unlimited" if value >= UNLIMITED else value


def run_functions(path):
    """Count tables that are nothing but Go functions."""
    return run_table(path, lambda _case: "", rule=lambda _case: CLOSURE)


def run_cycles_of_cohorts(path):
    """Replay changes of queues and cohorts: whatever leads back to itself is out of order."""
    return run_table(path, _cohort_cycles)


def _cohort_cycles(case):
    cluster = Cluster(settings_of(case))
    hierarchy = cluster.state.tree.hierarchy
    for operation, arguments, result in case.operations():
        match operation.rpartition(".")[2]:
            case "AddOrUpdateCohort":
                cohort = arguments["apiCohort"]
                cluster.put(cohort)
                cluster.state.settle()
                got = hierarchy.cohorts[cohort["metadata"]["name"]].cyclic
            case "AddClusterQueue" | "UpdateClusterQueue":
                cluster.put(arguments["cq"])
                status = queue_status(cluster.state, arguments["cq"]["metadata"]["name"])
                got = (
                    status.reason == "CohortCycle"
                    or hierarchy.queues[arguments["cq"]["metadata"]["name"]].cyclic
                )
            case "DeleteCohort" | "DeleteClusterQueue" as deleted:
                (named,) = arguments.values()
                name = named["metadata"]["name"] if isinstance(named, dict) else named
                cluster.remove(deleted.removeprefix("Delete"), name)
                cluster.state.settle()
                continue
            case _:
                continue
        wanted = bool(result and result[0])
        if got != wanted:
            return f"{operation} {arguments}: expected {wanted}, got {got}"
    return ""


def run_deleted_cohort(path):
    """Compare the quota of subtrees before and after a cohort is deleted."""
    return run_table(path, _deleted_cohort)


def _deleted_cohort(case):
    cluster = Cluster(settings_of(case))
    cluster.put_all(case)

    def subtrees(wanted):
        cluster.state.settle()
        tree = cluster.state.tree
        return {
            name: {
                "/".join(names): tree.subtree[cell]
                for names, cell in tree.hierarchy.cohorts[name].cells.items()
                if tree.subtree[cell]
            }
            for name in wanted
        }

    before = subtrees(case.want["wantBefore"])
    cluster.remove("Cohort", case.input["deleteName"])
    after = subtrees(case.want["wantAfter"])
    wanted = (case.want["wantBefore"], case.want["wantAfter"])
    return "" if (before, after) == wanted else f"expected {wanted}, got {(before, after)}"


def run_snapshot(path):
    """Compare quota, subtree quota and usage of every queue and cohort, and who holds quota."""
    return run_table(path, _snapshot)


def _snapshot(case):
    cluster = PlacingCluster(settings_of(case))
    cluster.put_all(case)
    for node in case.input["nodes"]:
        cluster.put_node(node)
    state = cluster.state
    if wrong := _used_on_nodes(case, cluster):
        return wrong
    wanted, hierarchy = case.want["wantSnapshot"] or {}, state.tree.hierarchy
    for kind, nodes in (("clusterQueues", hierarchy.queues), ("cohorts", hierarchy.cohorts)):
        want = {n: _numbers(e.get("ResourceNode")) for n, e in (wanted.get(kind) or {}).items()}
        got = {name: _described(state.tree, node) for name, node in nodes.items()}
        if want != got:
            return f"{kind}: expected {want}, got {got}"
    for name, each in (wanted.get("clusterQueues") or {}).items():
        holders = sorted(key.lstrip("/") for key in each.get("Workloads") or ())
        if holders != sorted(state.queues[name].holdings):
            return f"{name}: expected {holders}, got {sorted(state.queues[name].holdings)}"
    return ""


def _used_on_nodes(case, cluster):
    """Say what is wrong with the usage of domains once their flavors have other labels."""
    nodes = cluster.state.ledger.nodes
    cluster.state.settle()
    for flavor, usage in case.input["tasFlavorUsage"].items():
        nodes.hold(f"usage of {flavor}", holdings(flavor, usage, nodes))
    cluster.put(*case.input["relabeledFlavors"])
    cluster.state.settle()
    for flavor, used in (case.want.get("wantTASUsage") or {}).items():
        wanted = {domain: dict(_positive(each)) for domain, each in used.items()}
        wanted = {domain: each for domain, each in wanted.items() if each}
        if (got := nodes.usage(flavor)) != wanted:
            return f"usage of {flavor}: expected {wanted}, got {got}"
    return ""


def _positive(used):
    return ((resource, amount) for resource, amount in used.items() if amount)


def _numbers(node):
    node = node or {}
    return {
        "nominal": {k: q["Nominal"] for k, q in (node.get("Quotas") or {}).items()},
        "subtree": node.get("SubtreeQuota") or {},
        "usage": {k: v for k, v in (node.get("Usage") or {}).items() if v},
    }


def _described(tree, node):
    def column(values, names):
        return {"/".join(n): values[node.cells[n]] for n in names}

    used = [names for names, cell in node.cells.items() if tree.usage[cell]]
    return {
        "nominal": column(tree.nominal, node.quotas),
        "subtree": column(tree.subtree, node.cells),
        "usage": column(tree.usage, used),
    }


def run_hierarchy(path):
    """Replay changes of edges, and tell which cohorts lead back to themselves."""
    return run_table(path, _hierarchy)


def _hierarchy(case):
    tree = QuotaTree()
    hierarchy: Hierarchy = tree.hierarchy
    for operation, arguments, _ in case.operations():
        match operation.rpartition(".")[2], [*arguments.values()]:
            case "AddCohort", [name]:
                hierarchy.put_cohort(name, "", {})
            case "UpdateCohortEdge", [name, parent]:
                hierarchy.put_cohort(name, parent, {})
            case "DeleteCohort", [name]:
                hierarchy.remove_cohort(name)
            case "AddClusterQueue", [{"Name": name} | name]:
                hierarchy.put_queue(name, "", {})
            case "UpdateClusterQueueEdge", [name, parent]:
                hierarchy.put_queue(name, parent, {})
            case "DeleteClusterQueue", [name]:
                hierarchy.remove_queue(name)
        tree.refresh()
    cohorts = hierarchy.cohorts
    found = {name: name in cohorts and cohorts[name].cyclic for name in case.want["wantCycles"]}
    return "" if found == case.want["wantCycles"] else f"got {found}"


def run_amounts(path):
    """Compute with amounts."""
    return run_table(path, _amount)


def _amount(case):
    given, want = case.input, case.want
    if "wantUnlimited" in want:
        found = quota_amount(given["resource"], amount(given["resource"], given["quantity"]))
        unlimited = found >= UNLIMITED
        wanted = (want["wantUnlimited"], want["wantValue"])
        return _same((unlimited, 0 if unlimited else found), wanted)
    if "amount" in given:
        value = UNLIMITED if given["amount"] == "Unlimited" else given["amount"]
        wanted = math.inf if want["want"] == "+Inf" else want["want"]
        return _same(in_units(given["resource"], value), wanted)
    if "capacity" in given:
        count, resource = pods_within(given["requests"], given["capacity"])
        wanted = want.get("wantResult", want.get("wantCount"))
        limiting = want.get("wantLimitingResource", resource)
        return _same((count, resource), (wanted, limiting))
    if "expected" in want:
        return _same(format_amount(given["resource"], given["value"]), want["expected"])
    if "requests" in given:
        requests = {r: f"{n}m" if r == "cpu" else str(n) for r, n in given["requests"].items()}
        pod = PodSpec(containers=(Container(name="c", resources=Resources(requests=requests)),))
        return _same(requests_of(pod), want["want"])
    found = request_amount(amount(given["resource"], given["quantity"]))
    return _same(found, want["want"])


def _same(found, wanted):
    return "" if found == wanted else f"expected {wanted}, got {found}"
