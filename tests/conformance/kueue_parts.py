"""Kueue's tables of single questions about workloads and pods, and of what their pods get."""

import asyncio
import copy
from datetime import UTC, datetime

import msgspec

from policyd.alloc.settings import QueueingSettings
from policyd.api.kueue import Admission, ReclaimablePod, ResourceFlavor, Workload
from policyd.api.kueue.names import (
    ADMITTED,
    EVICTED,
    POD_GROUP_NAME,
    POD_GROUP_TOTAL_COUNT,
    QUOTA_RESERVED,
    REQUEUED,
    ROLE_HASH,
    SLICE_NAME,
    SLICE_REPLACEMENT_FOR,
)
from policyd.api.meta import condition_true, find_condition
from policyd.api.pods import Toleration
from policyd.controller.watch.workload_values import needs_second_pass, queued_at
from policyd.jobs.injection import (
    FlavorMissingError,
    PodInjection,
    StartError,
    add_gate,
    inject,
    injections,
    restore,
)
from policyd.jobs.lifecycle import change_of_priority, is_finished, is_on_hold
from policyd.jobs.parents import pass_on
from policyd.jobs.pod_groups import PodGroup
from policyd.jobs.pods import (
    POD_INDEX_LABEL,
    QueuedPod,
    by_age,
    group_name,
    has_ended,
    role_hash,
    without_gates,
)
from policyd.jobs.slices import latest_active, oldest_first, scaled_down, settle
from policyd.jobs.steps import JobView
from policyd.jobs.workload import Priority, is_elastic
from policyd.kube.errors import ApiError
from policyd.patch.draft import Draft
from policyd.testing.objects import refusal
from policyd.workload.lifecycle import next_status
from policyd.workload.obstacles import StatusContext
from policyd.workload.time_limits import ReadyRules, after_checks, give_up_waiting
from policyd.workload.transitions import (
    after_eviction,
    eviction_end,
    execution_seconds,
    fell_back,
    finish,
    reserve,
    sync_admitted,
    with_status,
)
from tests.conformance.kueue_objects import (
    NOW,
    Cluster,
    convert,
    decode,
    run_table,
    seconds,
    settings_of,
)
from tests.conformance.kueue_scene import Scene, compared, difference, plain, pruned, seconds_of
from tests.conformance.kueue_scheduler import Scheduler

REFUSED = refusal(500, "InternalError", "refused by test")

MOST_PODS = 2**63 - 1
"""More are not a number of pods that a group can have."""


def workload_of(body):
    """Decode a Workload; some tables leave all out but what they ask for."""
    return decode({"metadata": {"name": "wl", "namespace": "ns"}, **body}, Workload)


def asked(question):
    """Return a runner for tables that ask one question: `question(case)` answers it."""

    def run(path):
        def failure(case):
            wanted = next(iter(case.want.values()))
            return difference(question(case), wanted, "answer")

        yield from run_table(path, failure)

    return run


def all_left_out(rule):
    """Return a runner for a table of a feature that is left out."""

    def run(path):
        yield from run_table(path, None, rule=lambda _case: rule)

    return run


# What is measured of workloads.


def run_eviction_ends(path):
    """How long it took until the quota of who was evicted was free."""

    def failure(case):
        before, after = (workload_of(case.input[name]) for name in ("oldWl", "newWl"))
        found = eviction_end(before, after, now=seconds(case.input["now"]))
        want = case.want
        wanted = (want["wantCQ"], want["wantReason"], seconds_of(want["wantLatency"]))
        return difference(list(found or ("", "", 0.0)), list(wanted), "end") or difference(
            found is not None, want["wantOK"], "ended"
        )

    yield from run_table(path, failure)


def execution_time(case):
    took = execution_seconds(workload_of(case.input["wl"]))
    return None if took is None else f"{took:g}s"


# Workloads.


def deactivated(case):
    """Tell whether a workload whose eviction is over goes on once it is active again."""
    workload = workload_of(case.input["workload"])
    if not condition_true(workload.status.conditions, EVICTED):
        return False
    ended = with_status(workload, after_eviction(workload, now=NOW))
    context = StatusContext(local_queue=None, cluster_queue=None)
    after = next_status(ended, context, now=NOW)
    requeued = find_condition(after.conditions, REQUEUED)
    return requeued.reason == "Reactivated"


def timed_out(case):
    """Tell whether it depends on the administrator where a workload queues since its eviction."""
    body = copy.deepcopy(case.input["workload"])
    body["metadata"] = {**body.get("metadata", {}), "creationTimestamp": "2025-01-01T00:00:00Z"}
    for condition in body.get("status", {}).get("conditions", ()):
        condition["lastTransitionTime"] = "2026-01-01T00:00:00Z"
    workload = workload_of(body)
    kept, lost = (QueueingSettings(requeues_by_creation=keeps) for keeps in (True, False))
    return queued_at(workload, kept) != queued_at(workload, lost)


def retry_time(case):
    checks = [
        {**each, "lastTransitionTime": each.get("lastTransitionTime")}
        for each in case.input.get("checkStates") or ()
    ]
    workload = workload_of({"status": {"admissionChecks": checks}})
    state = after_checks(workload, now=0).requeue_state
    return None if state is None else moment(state.requeue_at)


def moment(time):
    return None if time is None else time.strftime("%Y-%m-%dT%H:%M:%SZ")


def on_hold(case):
    return is_on_hold(workload_of(case.input["wl"]))


def second_pass(case):
    return needs_second_pass(workload_of(case.input["wl"]))


def priority_changed(case):
    """Tell whether a job gives its workload another WorkloadPriorityClass, or the value it has now.

    One that runs keeps it if it had none; all that had one may get another.
    """
    old, new = (workload_of(case.input[name]) for name in ("oldWorkload", "newWorkload"))
    before, after = (each.spec.priority_class_ref for each in (old, new))
    priority = Priority(value=new.spec.priority or 0, reference=after)
    job = JobView(metadata=new.metadata, held=False, running=True, active=True, priority=priority)
    if before is not None:
        old = with_status(old, reserve(old, Admission(cluster_queue="cq"), now=NOW))
    of_workloads = after is not None and after.kind == "WorkloadPriorityClass"
    return of_workloads and change_of_priority(job, old) is not None


def run_finish(path):
    def failure(case):
        args, want = case.input["args"], case.want["want"]
        scene = Scene(case)
        stored = scene.all("Workload")
        if want.get("err"):
            scene.cluster.client.fail(REFUSED, verb="patch", plural="workloads")
        workload = workload_of(args["wl"])
        expected_reason = (args.get("reason", ""), args.get("message", ""))
        status = finish(workload, reason=expected_reason[0], message=expected_reason[1], now=NOW)
        error = None
        try:
            asyncio.run(scene.writes.status(scene.cluster.mirrors.workloads, workload, status))
        except ApiError as refused:
            error = refused
        if want.get("err"):
            return difference([error, scene.all("Workload")], [REFUSED, stored], "refused")
        return unlike_status(status, want["wl"])

    yield from run_table(path, failure)


def run_reservation(path):
    """What a workload is once it has quota: the product sees at once whether that admits it."""

    def failure(case):
        args = case.input["args"]
        admission = convert(args["admission"], Admission)
        status = reserve(workload_of(args["workload"]), admission, now=NOW)
        wanted = workload_of(case.want["want"])
        return difference(exact(status), exact(sync_admitted(wanted, now=NOW)), "status")

    yield from run_table(path, failure)


def exact(status):
    """Return all of a status, with its conditions in no order."""
    plain_status = plain(msgspec.to_builtins(status))
    conditions = sorted(plain_status.get("conditions", ()), key=lambda each: each["type"])
    return {**plain_status, "conditions": conditions}


def unlike_status(status, wanted):
    got = {"metadata": {}, "status": plain(msgspec.to_builtins(status))}
    wanted = {"metadata": {}, "status": copy.deepcopy(wanted.get("status", {}))}
    return difference(compared(got), compared(wanted), "workload")


def run_requeue_state(path):
    """Until when a workload waits, and how often it has."""

    def failure(case):
        workload, until = workload_of(case.input["workload"]), seconds(case.input["waitUntil"])
        if case.input["incrementCount"]:
            rules = ReadyRules(first_wait=60, longest_wait=60)
            now = until - 60
            status = give_up_waiting(workload, rules, "WaitForStart", now=now, jitter=0)
        else:
            check = {
                "name": "check",
                "state": "Retry",
                "requeueAfterSeconds": 60,
                "lastTransitionTime": moment_of(until - 60),
            }
            body = copy.deepcopy(case.input["workload"])
            body.setdefault("status", {})["admissionChecks"] = [check]
            status = after_checks(workload_of(body), now=until - 60)
        state, want = status.requeue_state, case.want
        got = [state != workload.status.requeue_state, moment(state.requeue_at), state.count]
        return difference(
            got, [want["wantUpdated"], want["wantRequeueAt"], want["wantCount"]], "state"
        )

    yield from run_table(path, failure)


def moment_of(time):
    return datetime.fromtimestamp(time, UTC).isoformat()


def run_admitted(path):
    """Whether a workload is admitted, and for how long it was."""

    def failure(case):
        given, want = case.input, case.want
        body = {
            "metadata": {"name": "foo", "namespace": "ns", "generation": 1},
            "status": {
                "admission": given.get("admission"),
                "admissionChecks": given.get("checkStates") or [],
                "conditions": given.get("conditions") or [],
                "accumulatedPastExecutionTimeSeconds": given.get("pastAdmittedTime") or None,
            },
        }
        body["status"] = {k: v for k, v in body["status"].items() if v is not None}
        workload = workload_of(body)
        detailed = settings_of(case).gates.unadmitted_workloads_observability
        status = sync_admitted(workload, now=NOW, detailed=detailed)
        conditions = [(c.type, c.status, c.reason) for c in status.conditions]
        ran = status.accumulated_past_execution_time_seconds or 0
        # Kueue's test compares no time of 0.
        got = [
            sorted(conditions),
            status != workload.status,
            ran if want["wantAdmittedTime"] else 0,
        ]
        wanted = sorted(
            (c["type"], c["status"], c.get("reason", "")) for c in want["wantConditions"] or ()
        )
        return difference(got, [wanted, want["wantChange"], want["wantAdmittedTime"]], "")

    yield from run_table(path, failure)


# Slices of elastic jobs.


def names(workloads):
    return [each.metadata.name for each in workloads]


def elastic(case):
    job = decode((case.input.get("args") or {}).get("object") or {}, QueuedPod)
    return is_elastic(job.metadata) and settings_of(case).gates.elastic_jobs_via_workload_slices


def shrunk(case):
    args = case.input.get("args") or {}
    return scaled_down(*(args.get(name) or {} for name in ("oldCounts", "newCounts")))


def newest_active(case):
    found = latest_active([workload_of(each) for each in case.input.get("workloads") or ()])
    return "" if found is None else found.metadata.name


def run_settled(path):
    """Which slices of a job count, and what becomes of the others."""

    def failure(case):
        slices = [workload_of(in_ns(each)) for each in case.input.get("workloads") or ()]
        chain, want = settle(slices), case.want["want"]
        newest, held = (
            "" if each is None else each.metadata.name for each in (chain.newest, chain.held)
        )
        return difference(
            [newest, held], [want.get("survivor", ""), want.get("keptAdmitted", "")], ""
        )

    yield from run_table(path, failure)


def in_ns(body):
    return {**body, "metadata": {"namespace": "ns", **body["metadata"]}}


def run_unfinished(path):
    """The slices of a job that have not ended, in their order."""

    def failure(case):
        args, cluster = case.input["args"], Cluster(settings_of(case))
        cluster.put(*map(in_default, args["clnt"]["$fakeClient"]))
        owned = cluster.cache.workloads_of(args["jobObject"]["metadata"].get("uid", ""))
        got = names(oldest_first(owned))
        return difference(got, [each["metadata"]["name"] for each in case.want["want"] or ()], "")

    yield from run_table(path, failure, rule=lambda case: LISTS if case.want.get("wantErr") else "")


LISTS = "lists that fail: the product watches, and looks at what it has seen"


def in_default(body):
    return {**body, "metadata": {"namespace": "default", **body["metadata"]}}


def replaced(case):
    """Return the slice that a workload is there to replace."""
    cluster = Cluster(settings_of(case))
    body = copy.deepcopy(case.input["args"]["wl"])
    replaced_key = (
        body.setdefault("metadata", {}).get("annotations", {}).get(SLICE_REPLACEMENT_FOR, "")
    )
    body["metadata"] = {
        "name": "a",
        **body["metadata"],
        "namespace": replaced_key.rpartition("/")[0],
    }
    return cluster.value(body, "cq").replaces or None


def run_replacements(path):
    """Which slice a cycle ends to let another one have its quota."""

    def failure(case):
        args, want = case.input.get("args") or {}, case.want["want"] or {}
        scheduler = Scheduler(settings_of(case))
        new = args.get("wl") or {}
        queues = (args.get("snap") or {}).get("clusterQueues") or {}
        for name, queue in queues.items():
            held = [info["Obj"] for info in (queue.get("Workloads") or {}).values()]
            put_slices(scheduler, name, held, new.get("Obj"))
        if new.get("Obj"):
            scheduler.put(as_pending(new["Obj"], new.get("ClusterQueue", "")))
        scheduler.schedule()
        ended = filter(is_finished, scheduler.mirrors.workloads)
        got = sorted(each.metadata.name for each in ended)
        targets = [target["WorkloadInfo"] for target in want.get("targets") or ()]
        for found in ([want["wl"]] if want.get("wl") else [], targets):
            wanted = sorted(info["Obj"]["metadata"]["name"] for info in found)
            if wrong := difference(got, wanted, "replaced"):
                return wrong
        return ""

    yield from run_table(path, failure)


def put_slices(scheduler, queue, held, new):
    """Put slices that hold all quota of a queue but what lets another one grow by a pod less."""
    grows = sum(each.get("count", 0) for each in new["spec"]["podSets"]) - 1 if new else 0
    used = sum(each.get("count", 0) for body in held for each in body["spec"]["podSets"])
    cpu = {"name": "cpu", "nominalQuota": str(max(0, used + grows))}
    flavors = [{"name": "default", "resources": [cpu]}]
    groups = [{"coveredResources": ["cpu"], "flavors": flavors}]
    spec = {"namespaceSelector": {}, "resourceGroups": groups}
    scheduler.put(
        {"kind": "ResourceFlavor", "metadata": {"name": "default"}, "spec": {}},
        {"kind": "ClusterQueue", "metadata": {"name": queue}, "spec": spec},
    )
    for namespace in {each["metadata"]["namespace"] for each in (*held, *([new] if new else ()))}:
        metadata = {"name": queue, "namespace": namespace}
        spec = {"clusterQueue": queue}
        scheduler.put({"kind": "Namespace", "metadata": {"name": namespace}})
        scheduler.put({"kind": "LocalQueue", "metadata": metadata, "spec": spec})
    scheduler.put(*(as_holding(body, queue) for body in held))


def as_pending(body, queue):
    """Return a slice that asks for a CPU a pod; in this test some keys have no namespace."""
    metadata = copy.deepcopy(body["metadata"])
    marks = metadata.get("annotations") or {}
    old = marks.get(SLICE_REPLACEMENT_FOR, "/")
    marks[SLICE_REPLACEMENT_FOR] = old if "/" in old else f"{metadata['namespace']}/{old}"
    asked = {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]}
    pod_sets = [{**each, "template": {"spec": asked}} for each in body["spec"]["podSets"]]
    spec = {**body["spec"], "queueName": queue, "podSets": pod_sets}
    return {"kind": "Workload", "metadata": metadata, "spec": spec}


def as_holding(body, queue):
    assigned = [
        {
            "name": each["name"],
            "count": each.get("count", 0),
            "flavors": {"cpu": "default"},
            "resourceUsage": {"cpu": str(each.get("count", 0))},
        }
        for each in body["spec"]["podSets"]
    ]
    admission = {"clusterQueue": queue, "podSetAssignments": assigned}
    conditions = [{"type": kind, "status": "True"} for kind in (QUOTA_RESERVED, ADMITTED)]
    status = {"admission": admission, "conditions": conditions}
    return {**as_pending(body, queue), "status": status}


# Pods.


def run_gates(path):
    """A scheduling gate is there, added or removed."""

    def failure(case):
        draft, name = Draft(copy.deepcopy(case.input["pod"])), case.input["gateName"]
        if "Ungate" in path.stem:
            without_gates(draft, frozenset({name}))
        else:
            add_gate(draft, (), name)
        if "HasGate" in path.stem:
            return difference(not draft.changed, case.want["want"], "there")
        got = [draft.object, draft.changed]
        return difference(got, [case.want["wantPod"], case.want["want"]], "pod")

    yield from run_table(path, failure)


def terminated(case):
    return has_ended(decode(case.input["pod"], QueuedPod))


def group_of(case):
    cluster = Cluster(settings_of(case))
    cluster.put(case.input["pod"])
    (pod,) = cluster.mirrors.pods
    return group_name(pod.metadata)


def run_hashes(path):
    """The role of pods of a shape."""

    def failure(case):
        wanted = case.data["observed"]["gotHash"]
        return difference(role_hash(case.input["podSpec"], {}), wanted, "hash")

    yield from run_table(path, failure)


def same_hash(case):
    return len({role_hash(each["pod"]["spec"], {}) for each in case.input["pods"]}) <= 1


def run_shapes(path):
    """Whether the resources of a whole pod tell it apart."""

    def failure(case):
        spec = case.input["podSpec"]
        bare = {name: value for name, value in spec.items() if name != "resources"}
        return difference(
            role_hash(spec, {}) != role_hash(bare, {}), case.want["wantPresent"], "counts"
        )

    yield from run_table(path, failure)


def run_indexes(path):
    """The index of a pod in its group."""

    def failure(case):
        text = case.input["obj"]["metadata"].get("labels", {}).get(case.input["label"])
        labels = {} if text is None else {POD_INDEX_LABEL: text}
        total = str(min(case.input["max"], MOST_PODS - 1) + 1)
        notes = {POD_GROUP_NAME: "g", POD_GROUP_TOTAL_COUNT: total}
        pod = decode(
            {"metadata": {"name": "pod", "labels": labels, "annotations": notes}}, QueuedPod
        )
        wrong = bool(PodGroup(name="g", pods=(pod,)).contradiction()) or text is None
        return difference(wrong, case.want["wantErr"] is not None, "wrong")

    yield from run_table(path, failure)


def run_activity(path):
    """Whether a pod of a group runs."""

    def failure(case):
        pods = case.input["fields"].get("list", {}).get("items", ())
        group = PodGroup(name="g", pods=tuple(by_age(decode(each, QueuedPod) for each in pods)))
        gates = settings_of(case).gates
        got = group.active(now=NOW, fast=gates.fast_quota_release_in_pod_integration)
        return difference(got, case.want["want"], "active")

    yield from run_table(path, failure)


def pod_group(given):
    """Return the group, or the pod, of a table that writes it as Go holds it."""
    first = given["pod"]
    pods = given.get("list", {}).get("items") or [first]
    metadata = first["metadata"]
    marked = [
        {**each, "metadata": {**metadata, **each["metadata"]}} if given.get("isGroup") else each
        for each in pods
    ]
    name = group_name(decode(first, QueuedPod).metadata) if given.get("isGroup") else ""
    return PodGroup(name=name, pods=tuple(decode(each, QueuedPod) for each in marked))


def pods_ready(case):
    return pod_group(case.input["pod"]).ready()


def run_role_limit(path):
    """How many roles a group may have."""

    def failure(case):
        pods = tuple(
            decode(
                {
                    "metadata": {
                        "name": f"p{number}",
                        "annotations": {
                            POD_GROUP_TOTAL_COUNT: str(case.input["roleCount"]),
                            ROLE_HASH: f"r{number}",
                        },
                    }
                },
                QueuedPod,
            )
            for number in range(case.input["roleCount"])
        )
        got = PodGroup(name="g", pods=pods).contradiction()
        return difference(got, case.want["wantErr"], "")

    yield from run_table(path, failure)


# What pods get.


def run_assignment(path):
    """What the pods of a pod set get of its assignment."""

    def failure(case):
        assignment = case.input["assignment"]
        name, count = assignment["name"], case.input["defaultCount"]
        workload = workload_of(
            {
                "spec": {"podSets": [{"name": name, "count": count, "template": {"spec": {}}}]},
                "status": {"admission": {"clusterQueue": "", "podSetAssignments": [assignment]}},
            }
        )
        flavors = [decode(each, ResourceFlavor) for each in case.input.get("flavors") or ()]
        by_name = {each.metadata.name: each for each in flavors}
        try:
            (got,) = injections(workload, by_name, settings_of(case).gates)
        except FlavorMissingError:
            return "" if case.want["wantError"] else "a flavor is missing"
        return "a flavor is not missed" if case.want["wantError"] else unlike_injection(got, case)

    yield from run_table(path, failure)


def unlike_injection(got, case):
    wanted = case.want["wantInfo"]
    # Queues and workloads are told to the pods elsewhere in Kueue.
    annotations = {k: v for k, v in got.annotations.items() if k != "kueue.x-k8s.io/workload"}
    actual = {
        "Annotations": annotations,
        "NodeSelector": got.node_selector,
        "Tolerations": msgspec.to_builtins(got.tolerations),
        "SchedulingGates": [{"name": name} for name in got.gates],
    }
    wanted = {**wanted, "Tolerations": tolerations(wanted.get("Tolerations"))}
    return difference(
        actual, {name: wanted.get(name) or type(actual[name])() for name in actual}, "info"
    )


def tolerations(given):
    return msgspec.to_builtins(convert(given or [], list[Toleration]))


def run_merge(path):
    """What a template becomes, and what it was before."""

    def failure(case):
        info, pod_set = case.input["info"] or {}, case.input["podSet"]
        sliced = SLICE_NAME in (info.get("Annotations") or {})
        injection = PodInjection(
            labels=dict(info.get("Labels") or {}),
            annotations=dict(info.get("Annotations") or {}),
            node_selector=dict(info.get("NodeSelector") or {}),
            tolerations=convert(info.get("Tolerations") or [], list[Toleration]),
            gates=[each["name"] for each in info.get("SchedulingGates") or ()],
            renews=sliced and settings_of(case).gates.elastic_jobs_via_workload_slices,
        )
        draft = Draft(copy.deepcopy(pod_set["template"]))
        try:
            inject(draft, (), injection)
        except StartError as error:
            return "" if case.want["wantError"] else str(error)
        wanted = case.want["wantPodSet"]
        if wanted is None:
            return "no contradiction is seen"
        before = workload_of({"spec": {"podSets": [pod_set]}}).spec.pod_sets[0]
        back = Draft(copy.deepcopy(draft.object))
        restore(back, (), before)
        changed = back.changed and back.object != draft.object
        return difference(draft.object, wanted["template"], "template") or difference(
            changed, case.want["wantRestoreChanges"], "restored"
        )

    yield from run_table(path, failure)


def run_label(path):
    """A label that a template is given, whatever it was before."""

    def failure(case):
        name, there = case.input["k"], (case.input["info"] or {}).get("Labels") or {}
        template = {"metadata": {"labels": dict(there)}}
        labels = {name: case.input["v"]}
        draft = Draft({"metadata": {"labels": labels}, "spec": {"template": template}})
        pass_on(draft, ("spec", "template"), [name])
        got = draft.get(("spec", "template", "metadata", "labels"))
        return difference(got, case.want["wantInfo"]["Labels"], "labels")

    yield from run_table(path, failure)


def run_reclaimed(path):
    """How many pods of a workload need their quota no longer."""

    def failure(case):
        scene = Scene(case)
        body = {**copy.deepcopy(case.data["locals"]["workload"]), "kind": "Workload"}
        scene.put({**body, "status": case.input["oldStatus"]})
        (workload,) = scene.cluster.mirrors.workloads
        pods = convert(case.input.get("reclaimablePods") or (), tuple[ReclaimablePod, ...])
        if case.want["wantErr"]:
            scene.cluster.client.fail(REFUSED, verb="patch", plural="workloads")
        error = None
        try:
            asyncio.run(scene.steps.report(workload, pods))
        except ApiError as refused:
            error = refused
        (stored,) = scene.all("Workload")
        got = [compared(stored).get("status", {}), error is not None]
        wanted = [pruned(case.want["wantStatus"] or {}), bool(case.want["wantErr"])]
        return difference(got, wanted, "status, error")

    yield from run_table(path, failure)


run_deactivated = asked(deactivated)
run_timed_out = asked(timed_out)
run_fallen_back = asked(lambda case: fell_back(case.input["prev"], case.input["new"]))
run_execution_times = asked(execution_time)
run_retry_time = asked(retry_time)
run_on_hold = asked(on_hold)
run_second_pass = asked(second_pass)
run_priority = asked(priority_changed)
run_elastic = asked(elastic)
run_shrunk = asked(shrunk)
run_latest = asked(newest_active)
run_replaced = asked(replaced)
run_terminated = asked(terminated)
run_group_name = asked(group_of)
run_same_hash = asked(same_hash)
run_pods_ready = asked(pods_ready)
run_own_sizes = all_left_out("an annotation of Kueue's own that nothing here reads")
run_earlier_requests = all_left_out("requests of earlier attempts: only that of this one counts")
run_other_infos = all_left_out("pods that are given what other pod sets have: a pod has one")
run_pod_finalizers = all_left_out("finalizers on pods, which the product never puts there")
