"""Kueue's tables of workloads: what becomes of them between the cycles."""

from policyd.alloc.pending import becomes_inadmissible
from policyd.alloc.plan import Requeue
from policyd.alloc.reasons import Refusal
from policyd.api.kueue import ClusterQueue, Workload, WorkloadStatus
from policyd.kube.errors import NotFoundError
from policyd.workload.lifecycle import required_checks, sync_checks
from policyd.workload.time_limits import ready_time_left
from tests.conformance.kueue_objects import NOW, convert, decode, run_table, settings_of
from tests.conformance.kueue_scene import (
    Scene,
    compared,
    difference,
    events,
    ready_rules,
    seconds_of,
    workload_key,
)
from tests.conformance.kueue_writes import failure_of, raised

NOW_TEXT = "2026-01-02T03:04:05Z"

ABOUT = 1.0
"""Seconds by which a wait may differ."""


def run_reconciler(path):
    """Workloads, and what is told of them, after one look of Kueue."""

    def failure(case):
        scene = Scene(case)
        for flag, queue in (("shouldDeleteLQ", "lq"), ("shouldDeleteCQ", "cq")):
            if case.input.get(flag):
                scene.put(terminating(case.input[queue]))
        forget_unknown(scene, case)
        for _, arguments, _ in case.operations("qcache.Manager.RequeueWorkload"):
            requeue(scene, arguments)
        key = workload_key(case.input["workload"])
        if case.input.get("patchErr"):
            return unwritten(scene, case, key)
        return scene.unlike_once_reconciled([key], lambda: unlike(scene, case))

    yield from run_table(path, failure)


def unwritten(scene, case, key):
    """Say what is wrong after nothing could be written; that somebody is gone is no failure."""
    expected = failure_of(case.input["patchErr"])
    scene.cluster.client.fail(expected, verb="patch", plural="workloads", times=MOST_TRIES)
    error = raised(scene.reconcile, key)
    failed = error is not None and not isinstance(error, NotFoundError)
    wanted = bool(case.want.get("wantError") or case.want.get("wantErrorMsg"))
    return difference(failed, wanted, "failed") or unlike(scene, case)


MOST_TRIES = 100


def requeue(scene, arguments):
    """Put aside the workload that a cycle has considered."""
    scene.cluster.state.settle()
    (pending,) = (queue.pending for queue in scene.cluster.state.queues.values())
    reason = arguments["reason"]
    (ticket,) = pending
    action = Requeue(
        workload=ticket.workload,
        reason=reason,
        refusal=Refusal(arguments.get("quotaReservedReason") or "PendingEvaluation"),
        requests={},
        inadmissible=becomes_inadmissible(reason, None, strict=False),
    )
    pending.requeue(action, strict=False, equivalents=True)


def forget_unknown(scene, case):
    """Have the allocator know those ClusterQueues only that Kueue's scheduler knows.

    What its queue manager alone knows is there, as one that was read, and gives out no quota.
    """
    queued, cached = (
        {
            arguments["cq"]["metadata"]["name"]
            for _, arguments, result in case.operations(f"{name}.AddClusterQueue")
        }
        for name in ("qcache.Manager", "schdcache.Cache")
    )
    for name in queued - cached:
        scene.cluster.state.remove_queue(name)


def terminating(queue):
    return {**queue, "metadata": {**queue["metadata"], "deletionTimestamp": NOW_TEXT}}


def unlike(scene, case):
    want = case.want
    if not want.get("wantWorkload") and want.get("wantWorkloadsInQueue") is not None:
        queued = sum(len(list(queue.pending)) for queue in scene.cluster.state.queues.values())
        return difference(queued, want["wantWorkloadsInQueue"], "queued")
    # The product writes merge patches only; server-side apply leaves what nobody owned.
    wanted = want.get("wantWorkloadUseMergePatch") or want.get("wantWorkload")
    # What the tables want holds with the gate on; what holds without it, Kueue's test computes.
    if not settings_of(case).gates.unadmitted_workloads_observability:
        wanted = (case.data.get("observed") or {}).get("gotWorkload") or wanted
        wanted = without_what_is_left(wanted, want)
    got = [timeless(each) for each in scene.all("Workload")]
    expected_events = events(want.get("wantEvents"))
    after = seconds_of((want.get("wantResult") or {}).get("RequeueAfter", "0s"))
    late = not scene.wrote and abs((scene.wait or 0.0) - after) > ABOUT
    return (
        difference(got, [timeless(wanted)] if wanted else [], "workload")
        or difference(scene.notes.recorded, expected_events, "events")
        or (f"looks again after {scene.wait} s, wanted {after}" if late else "")
    )


def without_what_is_left(workload, want):
    """Leave out what server-side apply leaves of an admission, or of nodes, that nobody owned."""
    conditions = (workload or {}).get("status", {}).get("conditions", ())
    over = any(c["type"] == "QuotaReserved" and c["status"] == "False" for c in conditions)
    merged = (want.get("wantWorkloadUseMergePatch") or workload or {}).get("status", {})
    left = {"unhealthyNodes"} - merged.keys() | ({"admission"} if over else set())
    if not workload:
        return workload
    status = {k: v for k, v in workload.get("status", {}).items() if k not in left}
    return {**workload, "status": status}


def timeless(workload):
    found = compared(workload)
    found.get("status", {}).get("requeueState", {}).pop("requeueAt", None)
    return found


def run_readiness(path):
    """How long the pods of a workload are waited for."""

    def failure(case):
        workload = decode({"metadata": {"name": "a"}, **case.input["workload"]}, Workload)
        rules = ready_rules(case.input.get("waitForPodsReady") or {})
        found = ready_time_left(workload, rules, now=NOW)
        cause, left = found or ("", 0.0)
        wanted = case.want["wantUnderlyingCause"], seconds_of(case.want["wantRecheckAfter"])
        return difference([cause, max(left, 0.0)], list(wanted), "wait")

    yield from run_table(path, failure)


def run_checks(path):
    """The checks that a workload must pass."""

    def failure(case):
        workload = decode({"metadata": {"name": "wl"}, **case.input["wl"]}, Workload)
        queue = decode(case.input["cq"], ClusterQueue)
        names = required_checks(workload, queue)
        status = sync_checks(workload.status, names, now=NOW)
        return unlike_checks(status, case.want["wantChecks"])

    yield from run_table(path, failure)


def run_check_states(path):
    """The states of checks, once others are to be passed."""

    def failure(case):
        given = case.input.get("states") or ()
        before = convert({"admissionChecks": given}, WorkloadStatus)
        status = sync_checks(before, case.input.get("list") or (), now=NOW)
        changed = difference(status != before, case.want["wantChange"], "changed")
        return changed or unlike_checks(status, case.want["wantStates"])

    yield from run_table(path, failure)


def unlike_checks(status, wanted):
    got = [[each.name, each.state, each.message] for each in status.admission_checks]
    return difference(got, [[e["name"], e["state"], e["message"]] for e in wanted or ()], "checks")
