"""Kueue's tables of what makes pods that are held for it: StatefulSets and LeaderWorkerSets."""

import asyncio
import copy
from contextlib import suppress

from policyd.api.kueue.names import QUEUE_NAME
from policyd.controller.jobs.parent_reconciler import parent_reconcilers
from policyd.controller.watch.keys import ReconcileKey
from policyd.controller.writes import Writes
from policyd.jobs.integrations import Integrations
from policyd.jobs.kinds.registry import PARENTS
from policyd.jobs.kinds.stateful_set import STATEFUL_SET, StatefulSet
from policyd.jobs.parents import group_name_of
from policyd.jobs.pods import SUSPENDING_PARENT
from policyd.jobs.rules.ownership import is_held_otherwise
from policyd.kube.errors import ApiError
from policyd.testing.objects import refusal
from tests.conformance.kueue_objects import TRUSTED, TRUSTING, decode, run_table
from tests.conformance.kueue_scene import Scene, compared, difference, events, pruned
from tests.conformance.kueue_writes import failure_of, raised

UNTOLD = frozenset({"annotations", "ownerReferences"})
WORDS = {kind.kind: kind.word for kind in PARENTS}
UPDATE_FAILS = "workload update failed"
INDEX = "an annotation of Kueue's own that nothing here reads"


class ParentScene(Scene):
    """Pods go to their parents, as the webhook has marked them."""

    def __init__(self, case, kind):
        super().__init__(case, stored=lambda body: marked(body, WORDS[kind]))
        cache, pace = self.cluster.cache, self.cluster.clock.pace()
        cache.integrations = Integrations(manages_all=manages_all(case, kind), makers=TRUSTING)
        writes = Writes(self.cluster.client, self.notes, leading=lambda: True, pace=pace)
        self.jobs |= parent_reconcilers(cache, writes, self.pods._steps)


def manages_all(case, kind):
    """Tell whether a parent without a queue is managed; LeaderWorkerSets are chosen elsewhere."""
    return kind == "LeaderWorkerSet" or bool(case.input.get("manageJobsWithoutQueueName"))


def marked(body, word):
    if body["kind"] == "Pod":
        body["metadata"].setdefault("annotations", {}).setdefault(SUSPENDING_PARENT, word)
    if body["kind"] in WORDS:
        body["metadata"].setdefault("uid", "")
    return body


def run_sets(path):
    """Parents, their workloads and pods, after one look of Kueue."""
    kind = "StatefulSet" if "statefulset" in path.stem else "LeaderWorkerSet"

    def failure(case):
        scene = ParentScene(case, kind)
        if (case.want.get("wantErr") or {}).get("$error") == UPDATE_FAILS:
            refused = refusal(500, "InternalError", UPDATE_FAILS)
            scene.cluster.client.fail(refused, verb="patch", plural="workloads", times=100)
            with suppress(ApiError):
                scene.reconcile(key_of(case, kind))
            return unlike(scene, case, kind)
        return scene.unlike_once_reconciled([key_of(case, kind)], lambda: unlike(scene, case, kind))

    yield from run_table(path, failure, rule=left_out)


def left_out(case):
    if "multikueue-origin" in str(case.input):
        return "MultiKueue"
    return ""


def key_of(case, kind):
    parent = case.input.get("leaderWorkerSet") or case.input.get("sts")
    if parent is not None:
        return ReconcileKey(
            "Job", parent["metadata"]["namespace"], parent["metadata"]["name"], kind
        )
    if "stsKey" in case.input:
        return ReconcileKey("Job", *case.input["stsKey"].split("/"), kind)
    label = "leaderworkerset.sigs.k8s.io/name"
    pod = case.input["pods"][0]["metadata"]
    return ReconcileKey("Job", pod["namespace"], pod["labels"][label], kind)


def unlike(scene, case, kind):
    want = case.want
    wanted = [summarize_pod(each, kind) for each in want.get("wantPods") or ()]
    workloads, wanted_workloads = (
        sorted((summarize_workload(each) for each in some), key=by_name)
        for some in (scene.all("Workload"), want.get("wantWorkloads") or ())
    )
    return (
        difference([summarize_pod(each, kind) for each in scene.all("Pod")], wanted, "pods")
        or ("wantWorkloads" in want and difference(workloads, wanted_workloads, "workloads"))
        or ("wantEvents" in want and unlike_events(scene, want["wantEvents"]))
        or ""
    )


def summarize_workload(workload):
    return {**compared(workload), "annotations": workload["metadata"].get("annotations") or {}}


def by_name(workload):
    return workload["metadata"]["name"]


def unlike_events(scene, wanted):
    unique = [dict(pairs) for pairs in dict.fromkeys(tuple(e.items()) for e in events(wanted))]
    got = [dict(pairs) for pairs in dict.fromkeys(tuple(e.items()) for e in scene.notes.recorded)]
    return difference(got, unique, "events")


def summarize_pod(pod, kind):
    """Return what is compared of a pod: what Kueue's finalizer is for, nothing here is."""
    pod = marked(pod, WORDS[kind])
    metadata = {name: pod["metadata"].get(name) for name in ("name", "labels", "annotations")}
    gates = pod["spec"].get("schedulingGates")
    return pruned({"metadata": metadata, "gates": gates})


def run_names(path):
    """Whether two sets have the same name of a workload."""

    def failure(case):
        given = case.input
        names = [
            group_name_of(
                STATEFUL_SET,
                decode({"metadata": {"name": given[f"name{n}"]}}, StatefulSet),
                "",
                uid=given[f"uid{n}"],
            )
            for n in (1, 2)
        ]
        return difference(names[0] == names[1], case.want["wantEqual"], "equal")

    yield from run_table(path, failure)


def run_branches(path):
    """What is to be done for a parent is done, though another part of it fails."""
    kind = "StatefulSet" if "statefulset" in path.stem else "LeaderWorkerSet"
    verb, plural = ("patch", "pods") if kind == "StatefulSet" else ("delete", "workloads")

    def failure(case):
        scene, observed = ParentScene(case, kind), case.data["observed"]
        expected = failure_of(observed["err"])
        scene.cluster.client.fail(expected, verb=verb, plural=plural)
        (parent,) = scene.all(kind)
        metadata = parent["metadata"]
        error = raised(
            scene.reconcile, ReconcileKey("Job", metadata["namespace"], metadata["name"], kind)
        )
        name = observed["created"]["metadata"]["name"]
        made = {each["metadata"]["name"]: compared(each) for each in scene.all("Workload")}
        wanted = [expected, compared(observed["created"])]
        return difference([error, made.get(name)], wanted, "error, workload")

    yield from run_table(path, failure)


def run_indexes(path):
    yield from run_table(path, lambda _case: "", rule=lambda _case: INDEX)


def run_choice(path):
    """Which sets are looked at at all."""

    def failure(case):
        obj = case.input.get("obj") or {}
        obj = obj.get("StatefulSet") or obj
        if obj.get("kind") != "StatefulSet":
            return difference([], [] if not case.want["want"] else ["a set"], "looked at")
        return difference(
            not is_held_otherwise(STATEFUL_SET, obj, TRUSTED), case.want["want"], "looked at"
        )

    yield from run_table(path, failure)


def run_scaled_down(path):
    """What becomes of the quota of a set that wants no pods any more."""

    def failure(case):
        scene = ParentScene(case, "StatefulSet")
        parent = {"metadata": {"name": "sts", "namespace": "ns", "labels": {QUEUE_NAME: "lq"}}}
        scene.put(
            {"apiVersion": "apps/v1", "kind": "StatefulSet", "spec": {"replicas": 0}, **parent}
        )
        (stored,) = scene.all("StatefulSet")
        uid = stored["metadata"]["uid"]
        name = group_name_of(STATEFUL_SET, decode(stored, StatefulSet), "", uid=uid)
        workload = copy.deepcopy(case.input["workload"])
        workload["metadata"] |= {"name": name, "namespace": "ns"}
        scene.put({**workload, "kind": "Workload"})
        scene.reconcile(ReconcileKey("Job", "ns", "sts", "StatefulSet"))
        status = next(w["status"] for w in scene.all("Workload") if w["metadata"]["name"] == name)
        by_type = {each["type"]: each for each in status.get("conditions", ())}
        fields = ("type", "status", "reason", "message")
        got, wanted = (
            each and {name: each.get(name, "") for name in fields}
            for each in (by_type.get("QuotaReserved"), case.want["wantQuotaReserved"])
        )
        return difference(got, wanted, "reservation") or difference(
            status.get("admission") is None, case.want["wantAdmissionNil"], "released"
        )

    yield from run_table(path, failure)


def run_hold(path):
    """Why a workload waits once its set wants pods again."""

    def failure(case):
        scene = ParentScene(case, "StatefulSet")
        asyncio.run(
            scene.jobs["StatefulSet"].reconcile(ReconcileKey("Job", "ns", "sts", "StatefulSet"))
        )
        (workload,) = scene.all("Workload")
        reasons = {each["type"]: each["reason"] for each in workload["status"]["conditions"]}
        return difference(reasons["QuotaReserved"], case.want["wantReason"], "reason")

    yield from run_table(path, failure)
