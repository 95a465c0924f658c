"""Kueue's tables of fair sharing: shares, what is borrowed, whose turn it is, whom to ask."""

from collections import deque

from policyd.alloc.cycle import tournament_key
from policyd.alloc.fair_sharing import BorrowedShare, share_of
from policyd.alloc.flavors.options import RequestKey
from policyd.alloc.pending import Ticket
from policyd.alloc.preemption.fair import FairSearch
from policyd.alloc.preemption.search import Search
from policyd.alloc.preemption.targets import Claim
from policyd.alloc.queue import PreemptionPolicy
from policyd.alloc.settings import Gates
from policyd.status.shares import rounded_share, share_text
from tests.conformance.kueue_objects import Cluster, run_table, settings_of
from tests.conformance.kueue_preemption import cluster_of, key_of, pending_value


def run_shares(path):
    """Work out the share of every queue and cohort, with usage added that is only asked for."""
    return run_table(path, _shares)


def _shares(case):
    cluster = _cluster_with_usage(case)
    tree = cluster.state.tree
    asked = case.input.get("flvResQ") or {}
    name = case.input["clusterQueue"]["metadata"]["name"]
    hierarchy = tree.hierarchy
    charges = _charges(tree, hierarchy.queues[name], asked)
    found = []
    with tree.trial():
        tree.charge(charges)
        for wanted in case.want["want"]:
            nodes = hierarchy.cohorts if wanted.get("NodeType") else hierarchy.queues
            found.append(_described(wanted["Name"], nodes, tree))
    nothing = {"DrValue": 0, "DrName": "", "Borrowing": False}
    wanted = [{**nothing, **each} for each in case.want["want"]]
    return "" if found == wanted else f"expected {wanted}, got {found}"


def _described(name, nodes, tree):
    share = share_of(tree, nodes[name])
    found = {
        "DrValue": rounded_share(share),
        "DrName": share.dominant,
        "Borrowing": bool(share.borrowed),
    }
    if nodes is tree.hierarchy.cohorts:
        found["NodeType"] = True
    return {**found, "Name": name}


def _cluster_with_usage(case):
    cluster = cluster_of(case)
    for _, arguments, _ in case.operations("schdcache.Cache.AddOrUpdateWorkload"):
        cluster.put(arguments["w"])
    cluster.state.settle()
    return cluster


def _charges(tree, node, amounts):
    """Turn `flavor/resource` and amounts into charges."""
    return {tree.cell(node, tuple(k.split("/", 1))): amount for k, amount in amounts.items()}


def run_lendable(path):
    """Sum up by resource what a cohort could lend to the queues below it."""
    return run_table(path, _lendable)


def _lendable(case):
    cluster = Cluster(settings_of(case))
    cluster.put_all(case)
    cluster.state.settle()
    tree, found = cluster.state.tree, {}
    for node in tree.hierarchy.queues.values():
        share_of(tree, node)
        found |= {r: amount for r, amount in tree.lendable.get(node.parent, {}).items() if amount}
    wanted = {r: amount for r, amount in (case.want["wantLendable"] or {}).items() if amount}
    return "" if found == wanted else f"expected {wanted}, got {found}"


def run_borrowing(path):
    """Say whether a queue borrows, and whether some of what is asked for."""
    return run_table(path, _borrowing)


def _borrowing(case):
    tree = _cluster_with_usage(case).state.tree
    share = share_of(tree, tree.hierarchy.queues["cq"])
    asked = {tuple(name.split("/", 1)) for name in case.input.get("requestedFRs") or {}}
    found = not asked.isdisjoint(share.borrowed), bool(share.borrowed)
    wanted = case.want["wantBorrowingOnRequested"], case.want["wantBorrowing"]
    return "" if found == wanted else f"expected {wanted}, got {found}"


def run_texts(path):
    """Write shares in full."""
    return run_table(path, _text)


def _text(case):
    found, wanted = share_text(_share(case.input["drs"])), case.want["want"]
    return "" if found == wanted else f"expected {wanted}, got {found}"


def _share(drs):
    borrowed = {
        (f.get("Flavor", ""), f.get("Resource", "")): 1 for f in drs.get("borrowedFRs") or ()
    }
    return BorrowedShare(
        borrowed,
        float(drs.get("unweightedRatio", 0)),
        drs.get("dominantResource", ""),
        float(drs.get("fairWeight", 0)),
    )


def run_comparison(path):
    """Compare two contenders by given shares."""
    return run_table(path, _comparison)


def _comparison(case):
    cluster = cluster_of(case)
    gates = Gates.of(case.gates)
    left, right = (_tournament_key(case, cluster, name, gates) for name in ("a", "b"))
    found, wanted = left < right, case.want["wantLess"]
    return "" if found == wanted else f"expected {wanted}, got {found}"


def _tournament_key(case, cluster, name, gates):
    entry = case.input[name]
    key = key_of(entry["Obj"])
    drs = (case.input.get("drsValues") or {}).get(f"test-cohort/{key}", {})
    ticket = Ticket(pending_value(cluster, entry["Obj"], ""), RequestKey())
    ticket.preemptor = entry.get("IsPreemptor", False)
    asked = (case.input.get("requestedFRs") or {}).get(key, {})
    wanted = [tuple(n.split("/", 1)) for n, amount in asked.items() if amount]
    return tournament_key(ticket, _share(drs), wanted, gates)


def run_order(path):
    """Ask queues for candidates, the one with the highest share first."""
    return run_table(path, _order)


def _order(case):
    cluster = cluster_of(case)
    state, given = cluster.state, case.input
    queues = {name: state.queues[name] for name in given["candidateCQs"]}
    preemptor = given["preemptorCQ"]
    cells = state.queues[preemptor].node.cells.values()
    claim = Claim(_somebody(cluster, preemptor), {}, frozenset(cells))
    search = Search(state, claim)
    search.policy = ANYBODY
    nodes = [queue.node for queue in queues.values()]
    waiting = {node: deque(search.candidates(node)) for node in nodes}
    found, actions = [], list(given.get("actions") or ())
    for node in FairSearch(search).turns(waiting):
        found.append(node.name)
        if actions and actions.pop(0) == "drop":
            waiting[node].clear()
        else:
            waiting[node].popleft()
    wanted = case.want["wantOrder"]
    return "" if found == wanted else f"expected {wanted}, got {found}"


ANYBODY = PreemptionPolicy(within_cluster_queue="LowerPriority", reclaim_within_cohort="Any")


def _somebody(cluster, queue):
    """A workload more important than all others."""
    spec = {"podSets": [], "priority": 2**31 - 1}
    return pending_value(cluster, {"metadata": {"name": "somebody"}, "spec": spec}, queue)
