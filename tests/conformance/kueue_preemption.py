"""Kueue's tables of preemption: who may be preempted, who is, and in which order."""

from unittest.mock import patch

from msgspec.structs import replace

from policyd.alloc.ledger import Holding
from policyd.alloc.preemption.fair import FairSearch
from policyd.alloc.preemption.search import (
    PreemptionCandidate,
    candidate_rank,
    in_order,
    may_preempt,
)
from policyd.alloc.preemption.targets import Claim, find_targets
from policyd.alloc.settings import FairSharingRules, Gates, QueueingSettings
from policyd.alloc.workload import ReservedQuota
from policyd.api.kueue import Workload
from policyd.api.kueue.names import JOB_UID
from policyd.controller.watch.preemptions import preempt, preemption_message
from tests.conformance.kueue_objects import NOW, Case, Cluster, decode, read_table, run_table

_SETUP = ("ResourceFlavor", "ClusterQueue", "Cohort")


def cluster_of(case, *, fair_sharing=None):
    """Load what a case has: flavors, queues, cohorts, and the workloads in the API server."""
    cluster = Cluster(QueueingSettings(gates=Gates.of(case.gates), fair_sharing=fair_sharing))
    for kind in _SETUP:
        cluster.put_all(case, kind)
    for clients in case.env.get("client") or ():
        for key in clients:
            cluster.put(case.objects[key])
    cluster.state.settle()
    return cluster


def claim_of(cluster, info, assignment):
    """Make the claim that Kueue's workload and its flavor assignment stand for."""
    workload = pending_value(cluster, info["Obj"], info["ClusterQueue"])
    tree, node = cluster.state.tree, cluster.state.queues[info["ClusterQueue"]].node
    charges, short = {}, set()
    for asked, assigned in zip(
        info.get("TotalRequests") or (), assignment.get("PodSets") or (), strict=True
    ):
        for resource, flavor in (assigned.get("Flavors") or {}).items():
            cell = tree.cell(node, (flavor["Name"], resource))
            of_one = (asked.get("Requests") or {}).get(resource, 0) // (asked.get("Count") or 1)
            amount = of_one * assigned.get("Count", 0)
            charges[cell] = charges.get(cell, 0) + amount
            if flavor["Mode"] == "Preempt":
                short.add(cell)
    return Claim(workload, charges, frozenset(short))


def pending_value(cluster, body, queue):
    """Convert a workload as pending in a queue, whatever its status says it holds."""
    status = {k: v for k, v in (body.get("status") or {}).items() if k != "admission"}
    return cluster.value({**body, "status": status}, queue)


def targets_of(case):
    """Return what a case's search finds and what Kueue found, and the cluster; both sorted."""
    sharing = None
    if "Fair" in case.data["subtest"]:
        strategies = case.input.get("strategies")
        sharing = (
            FairSharingRules(strategies=tuple(strategies)) if strategies else FairSharingRules()
        )
    cluster = cluster_of(case, fair_sharing=sharing)
    ((_, arguments, result),) = case.operations("preemption.Preemptor.GetTargets")
    claim = claim_of(cluster, arguments["wl"], arguments["assignment"])
    before = list(cluster.state.tree.usage)
    targets = find_targets(cluster.state, claim)
    assert cluster.state.tree.usage == before, "a search leaves the tree as it was"
    return cluster, claim, targets, case.resolve(result[0] or [])


def run_targets(path):
    """Search victims, and compare them with those that Kueue found, and what they are told."""
    return run_table(path, _targets)


def _targets(case):
    cluster, claim, targets, wanted = targets_of(case)
    found = sorted((target.workload.key, target.reason) for target in targets)
    wanted = sorted((key_of(each["WorkloadInfo"]["Obj"]), each["Reason"]) for each in wanted)
    if found != wanted:
        return f"expected {wanted}, got {found}"
    return _statuses(case, cluster, claim, targets) if "wantWorkloads" in case.want else ""


def _statuses(case, cluster, claim, targets):
    """Compare what the status of every workload says once the targets are preempted."""
    workloads = cluster.mirrors.workloads
    labels = case.input["incoming"]["metadata"].get("labels", {})
    path = cluster.state.tree.hierarchy.queues[claim.workload.cluster_queue].path
    victims = {target.workload.key: target for target in targets}
    for body in case.want["wantWorkloads"] or ():
        workload = workloads.get(key_of(body))
        target = victims.get(key_of(body))
        status = workload.status
        if target is not None and not target.workload.evicted:
            queue = target.workload.admission.cluster_queue
            message = preemption_message(
                uid=case.input["incoming"]["metadata"].get("uid", ""),
                job_uid=labels.get(JOB_UID, ""),
                reason=target.reason,
                preemptor_path=path,
                path=cluster.state.tree.hierarchy.queues[queue].path,
            )
            status = preempt(workload, reason=target.reason, message=message, now=NOW)
        wanted = decode(body, Workload).status
        if _sorted(status) != _sorted(wanted):
            return f"{key_of(body)}: expected {wanted}, got {status}"
    return ""


def _sorted(status):
    conditions = sorted(
        (replace(c, observed_generation=0) for c in status.conditions), key=lambda c: c.type
    )
    return replace(status, conditions=tuple(conditions))


def run_messages(path):
    """Write the message of a preemption."""
    return run_table(path, _message)


def _message(case):
    preemptor = (case.input.get("preemptor") or {}).get("metadata") or {}
    found = preemption_message(
        uid=preemptor.get("uid", ""),
        job_uid=(preemptor.get("labels") or {}).get(JOB_UID, ""),
        reason=case.input.get("reason", ""),
        preemptor_path=case.input.get("preemptorPath", ""),
        path=case.input.get("preempteePath", ""),
    )
    return "" if found == case.want["want"] else f"expected {case.want['want']}, got {found}"


def run_hopeless(path):
    """Count which shares are compared in a search that cannot succeed."""
    return run_table(path, _hopeless)


def _hopeless(case):
    counts = {"_contest": 0, "_starts_justified": 0, "_pass_over": 0}

    def counting(name):
        original = getattr(FairSearch, name)

        def counted(*arguments):
            counts[name] += 1
            return original(*arguments)

        return patch.object(FairSearch, name, counted)

    with counting("_contest"), counting("_starts_justified"), counting("_pass_over"):
        why = _targets(case)
    contests, second, skipped = counts.values()
    found = [contests - skipped, second, skipped]
    want = case.want
    wanted = [want["wantFirstStrategyEvals"], want["wantSecondStrategyEvals"]]
    wanted.append(want["wantSkippedQueues"])
    return why or ("" if found == wanted else f"expected {wanted}, got {found}")


def run_candidates(path):
    """Sort candidates."""
    return run_table(path, _candidates)


def _candidates(case):
    cluster = Cluster(QueueingSettings(gates=Gates.of(case.gates)))
    nodes, used, candidates = {}, {}, []
    for info in case.input["candidates"]:
        queue = info.get("ClusterQueue", "")
        node = nodes.setdefault(queue, object())
        workload = cluster.value(info["Obj"], queue)
        if "LocalQueueFSUsage" in info:
            used[workload.local_queue] = info["LocalQueueFSUsage"]
        holding = Holding(workload, ReservedQuota(cluster_queue=queue, pod_sets=()), assumed=False)
        rank = candidate_rank(holding, own=queue == "preemptor")
        candidates.append(PreemptionCandidate(rank, holding, node))
    found = in_order(candidates, used, lambda each: each)
    found = [each.holding.workload.key.lstrip("/") for each in found]
    wanted = case.want["wantCandidates"]
    return "" if found == wanted else f"expected {wanted}, got {found}"


def run_policies(path):
    """Say whether a policy lets one workload preempt another."""
    return run_table(path, _policy)


def _policy(case):
    cluster = Cluster(QueueingSettings(gates=Gates.of(case.gates)))
    preemptor, candidate = (
        pending_value(cluster, case.input[name], "") for name in ("preemptor", "candidate")
    )
    found = may_preempt(case.input["policy"], preemptor, candidate)
    return "" if found == case.want["want"] else f"got {found}"


def run_what_if(path):
    """Take workloads out and put some back, in a trial, and compare usage in the whole tree."""
    setup = read_table(path)["setup"]
    return run_table(path, lambda case: _what_if(case, setup))


def _what_if(case, setup):
    env = {"objects": setup["objects"], "client": setup["client"]}
    state = cluster_of(Case("setup", {}, {}, {}, env, {})).state
    tree, want = state.tree, case.want["want"]
    before = list(tree.usage)
    with tree.trial():
        for key in case.input.get("remove") or ():
            tree.release(state.holding(key.lstrip("/")).charges)
        for key in case.input.get("add") or ():
            tree.charge(state.holding(key.lstrip("/")).charges)
        found = [_figures(tree, name, tree.hierarchy.queues) for name in want["clusterQueues"]]
        found += [_figures(tree, name, tree.hierarchy.cohorts) for name in want["cohorts"]]
    assert tree.usage == before, "a trial leaves the tree as it was"
    nodes = [*want["clusterQueues"].values(), *want["cohorts"].values()]
    wanted = [
        (node["ResourceNode"]["SubtreeQuota"], _present(node["ResourceNode"]["Usage"]))
        for node in nodes
    ]
    return "" if found == wanted else f"expected {wanted}, got {found}"


def _figures(tree, name, nodes):
    cells = {"/".join(names): cell for names, cell in nodes[name].cells.items()}
    usage = {name: tree.usage[cell] for name, cell in cells.items()}
    return {name: tree.subtree[cell] for name, cell in cells.items()}, _present(usage)


def _present(amounts):
    return {name: amount for name, amount in amounts.items() if amount}


def key_of(body):
    """Return `namespace/name` as the product makes it."""
    metadata = body["metadata"]
    return f"{metadata.get('namespace', '')}/{metadata['name']}".removeprefix("/")
