"""Kueue's tables of Ray's kinds and of TrainJobs, where they look into a job."""

import copy

import msgspec

from policyd.api.kueue import PodSet, Workload, WorkloadSpec
from policyd.api.kueue.names import ELASTIC_JOB, QUEUE_NAME
from policyd.api.meta import ObjectMeta
from policyd.controller.watch.keys import ReconcileKey
from policyd.jobs.injection import StartError, put_back, start
from policyd.jobs.kinds.ray_cluster import (
    RAY_CLUSTER,
    RayCluster,
    RayClusterSpec,
    cluster_mistakes,
)
from policyd.jobs.kinds.ray_growth import CLUSTER_GENERATION
from policyd.jobs.kinds.ray_job import RAY_JOB, RayJob
from policyd.jobs.kinds.train_job import GROUP, TRAIN_JOB, TrainJob
from policyd.jobs.rules.topology_validation import TopologyTemplate, topology_errors
from policyd.jobs.slices import fit_of
from policyd.kube.errors import ApiError
from policyd.kube.resources import Resource
from policyd.patch.draft import Draft
from policyd.testing.objects import refusal
from tests.conformance.kueue_objects import convert, run_table
from tests.conformance.kueue_scene import Scene, difference, job_key, pruned
from tests.conformance.kueue_starts import injection_of, pod_set_of

RUNTIMES = Resource(
    GROUP, "v1alpha1", "clustertrainingruntimes", "ClusterTrainingRuntime", namespaced=False
)

CLUSTER = "test-raycluster"


def run_pod_sets(path):
    """What clusters demand; what they ask of a topology is not compared."""

    def failure(case):
        spec = convert(case.input["rayClusterSpec"], RayClusterSpec)
        metadata = ObjectMeta(annotations=case.input.get("annotations") or {})
        got = RAY_CLUSTER.pod_sets(RayCluster(metadata=metadata, spec=spec))
        if case.want["wantErr"]:
            asked = [
                TopologyTemplate(each.name, each.template.metadata.annotations) for each in got
            ]
            return "" if list(topology_errors(asked)) else "nothing speaks against it"
        got = [msgspec.structs.replace(each, topology_request=None) for each in got]
        wanted = convert(case.want["wantPodSets"] or [], list[PodSet])
        return difference([repr(each) for each in got], [repr(each) for each in wanted], "pod sets")

    yield from run_table(path, failure)


def run_specs(path):
    """What is wrong with clusters."""

    def failure(case):
        spec = convert(case.input["rayClusterSpec"], RayClusterSpec)
        annotations = case.input["object"]["metadata"].get("annotations") or {}
        errors = cluster_mistakes(spec, at="spec", annotations=annotations)
        got = sorted([f"FieldValue{e.problem}", e.path] for e in errors)
        wanted = sorted([e["type"], e["field"]] for e in case.want["wantErrors"] or ())
        return difference(got, wanted, "errors")

    yield from run_table(path, failure)


def run_starts(path):
    """What is written into a cluster that starts."""

    def failure(case):
        body = {"spec": case.input["rayClusterSpec"]}
        draft, wrong = Draft(body), ""
        try:
            started(draft, RAY_CLUSTER, case.input.get("podSetsInfo") or ())
        except StartError as error:
            wrong = str(error)
        if wrong or case.want["wantErr"]:
            return difference(bool(wrong), case.want["wantErr"], "error")
        draft.remove(("spec", "suspend"))
        return difference(pruned(draft.object), pruned({"spec": case.want["wantSpec"]}), "cluster")

    yield from run_table(path, failure)


def run_ways(path):
    """What a job is after it was started, and after it was put back."""

    def failure(case):
        draft = Draft(case.input["job"])
        if "wantRunError" in case.want:
            wrong = ""
            try:
                started(draft, RAY_JOB, case.input.get("runInfo") or ())
            except StartError as error:
                wrong = str(error)
            wrong_start = difference(
                bool(wrong), bool(case.want["wantRunError"]), "error"
            ) or difference(
                compared(draft.object),
                compared(case.want["wantAfterRun"] or case.input["job"]),
                "started",
            )
            if wrong_start or wrong:
                return wrong_start
            RAY_JOB.suspend(draft)
        before = draft.object
        infos = case.input.get("restoreInfo") or case.input.get("podSetsInfo") or ()
        pod_sets = [pod_set_of(each) for each in infos]
        job = convert(before, RayJob)
        put_back(draft, job, kind=RAY_JOB, pod_sets=pod_sets)
        if "wantChanged" in case.want:
            return difference(draft.object != before, case.want["wantChanged"], "changed")
        return difference(compared(draft.object), compared(case.want["wantFinal"]), "put back")

    yield from run_table(path, failure)


def started(draft, kind, infos):
    job = convert(draft.object, kind.type)
    given = [injection_of(each) for each in infos]
    start(draft, job, kind=kind, given=given, counts={})
    kind.resume(draft)


def compared(job):
    return {"spec": pruned(job["spec"])}


def run_states(path):
    """Whether a job has ended, and whether it is on hold."""

    def failure(case):
        deployment = case.input.get("jobDeploymentStatus")
        status = case.input.get("status") or {"jobDeploymentStatus": deployment}
        job = convert({"status": status}, RayJob)
        if "expectedOnHold" in case.want:
            return difference(RAY_JOB.on_hold(job), case.want["expectedOnHold"], "on hold")
        ended = RAY_JOB.outcome(job)
        got = {
            "expectedFinished": ended is not None,
            "expectedSuccess": ended is not None and ended.succeeded,
        }
        return difference(got, case.want, "ended")

    yield from run_table(path, failure)


def run_trainers(path):
    """What is written into a TrainJob that starts."""

    def failure(case):
        body = case.input["trainJob"]
        runtimes = [o for o in case.objects.values() if o["kind"].endswith("TrainingRuntime")]
        job = TRAIN_JOB.on_basis(convert(body, TrainJob), runtimes[0])
        draft = Draft(body)
        infos = {each["Name"]: each for each in case.input.get("podsetsInfo") or ()}
        names = [each.name for each in TRAIN_JOB.pod_sets(job)]
        if infos.keys() ^ set(names) or case.want["wantErr"]:
            wrong = infos.keys() ^ set(names)
            return difference(bool(wrong), case.want["wantErr"], "other pod sets")
        given = [injection_of(infos[name]) for name in names]
        start(draft, job, kind=TRAIN_JOB, given=given, counts={})
        TRAIN_JOB.resume(draft)
        got, wanted = draft.object["spec"], case.want["wantTrainJob"]["spec"]
        return difference(by_job(spelled_out(got)), by_job(spelled_out(wanted)), "spec")

    yield from run_table(path, failure)


def by_job(spec):
    """Sort what patches say of replicated jobs: the API server knows those by their names."""
    for patch in spec["runtimePatches"]:
        patch["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"].sort(
            key=lambda each: each["name"]
        )
    return spec


def run_demands(path):
    """What the workload of a TrainJob demands; its name and templates are not compared."""

    def failure(case):
        scene = Scene(case)
        for body in case.objects.values():
            if body["kind"] == RUNTIMES.kind:
                scene.store.put(RUNTIMES, body)
        job = case.input["trainJob"]

        def unlike():
            got = [demanded(each) for each in scene.all("Workload")]
            return difference(
                got, [demanded(e) for e in case.want["wantWorkloads"] or ()], "workloads"
            )

        return scene.unlike_once_reconciled([job_key(job)], unlike)

    yield from run_table(path, failure)


def demanded(workload):
    spec = workload["spec"]
    pod_sets = [{**each, "template": None} for each in spec["podSets"]]
    return pruned({"queue": spec.get("queueName"), "podSets": pod_sets})


def spelled_out(value):
    """Write down that keys are equal, where tolerations say nothing of it."""
    match value:
        case {"key": _, "value": _}:
            return {"operator": "Equal", **value}
        case dict():
            return {name: spelled_out(each) for name, each in pruned(value).items()}
        case list():
            return [spelled_out(each) for each in value]
    return value


def run_changes(path):
    """Whether the sizes of pod sets are others than those of the slice that is there."""

    def failure(case):
        wanted = convert(case.input.get("podSets") or (), tuple[PodSet, ...])
        sizes = case.input.get("referenceCounts") or {}
        held = tuple(PodSet(name=name, count=count) for name, count in sizes.items())
        fit = fit_of(wanted, Workload(spec=WorkloadSpec(pod_sets=held)))
        return difference(fit != "Same", case.want["wantChanged"], "changed")

    yield from run_table(path, failure)


def run_sizes(path):
    """How big a RayJob is whose cluster runs, and which cluster its slice says that of."""

    def failure(case):
        want = case.want
        if case.input.get("registerRayType") is False and want["wantErr"]:
            return unreadable(case)
        scene, key = running(case)
        scene.reconcile(key)
        if want.get("wantErr"):
            types = {each["EventType"] for each in scene.notes.recorded}
            return difference([len(scene.all("Workload")), types], [0, {"Warning"}], "refused")
        (workload,) = scene.all("Workload")
        notes = workload["metadata"].get("annotations") or {}
        noted = {name: value for name, value in notes.items() if name == CLUSTER_GENERATION}
        sizes = {each["name"]: each["count"] for each in workload["spec"]["podSets"]}
        return (
            unlike(noted, want, "wantAnnotation", "wantCustomAnnotation")
            or unlike(sizes, want, "wantPodSets", read=sizes_of)
            or unlike(sizes.get("group1"), want, "wantGroupCount")
        )

    yield from run_table(path, failure)


def run_unreadable(path):
    """A cluster that cannot be read stops the job's reconciling, which is tried again."""

    yield from run_table(path, unreadable)


def unreadable(case):
    scene, key = running(case)
    broken = refusal(500, "InternalError", "simulated get error")
    scene.cluster.client.fail(broken, verb="get", plural="rayclusters")
    try:
        scene.reconcile(key)
    except ApiError as error:
        return difference([error.code, len(scene.all("Workload"))], [500, 0], "error")
    return "no error"


def unlike(got, want, *names, read=lambda value: value):
    """Say what differs from a column of the table, by the name that it has there, if it has one."""
    found = next((name for name in names if name in want), None)
    return "" if found is None else difference(got or None, read(want[found]) or None, found)


def sizes_of(pod_sets):
    return {each["name"]: each["count"] for each in pod_sets or ()}


def running(case):
    """Return a RayJob whose cluster runs, in a queue: a table has it, or the parts of it."""
    given = case.input
    scene = Scene(case)
    live = given.get("rayCluster") or given.get("rayClusterInClient")
    pod_sets = given.get("podSets") or [{"name": "head", "count": 1}]
    if live is None and given.get("createRayCluster"):
        live = {"kind": "RayCluster", "metadata": {"name": CLUSTER}, "spec": cluster_of(pod_sets)}
    if live is not None:
        scene.put(in_namespace(live))
    if given.get("standalone"):
        labels = {QUEUE_NAME: "lq"}
        metadata = {"name": CLUSTER, "labels": labels, "annotations": notes_of(given)}
        spec = {**cluster_of(pod_sets), "suspend": True}
        scene.put(in_namespace({"kind": "RayCluster", "metadata": metadata, "spec": spec}))
        return scene, ReconcileKey("Job", "ns", CLUSTER, "RayCluster")
    scaled = {"enableInTreeAutoscaling": bool(given.get("enableInTreeAutoscaling"))}
    spec = {"rayClusterSpec": {**cluster_of(pod_sets), **scaled}}
    job = copy.deepcopy(given.get("rayJob") or {"spec": spec})
    named = CLUSTER if live is None else live["metadata"]["name"]
    job["status"] = {"rayClusterName": given.get("rayClusterName", named)}
    job["spec"]["suspend"] = True
    job["metadata"] = {"name": "job", "labels": {QUEUE_NAME: "lq"}, "annotations": notes_of(given)}
    scene.put(in_namespace({**job, "apiVersion": "ray.io/v1", "kind": "RayJob"}))
    return scene, ReconcileKey("Job", "ns", "job", "RayJob")


def notes_of(given):
    """Return the annotations of a case's job; whether it is elastic is said there."""
    job = given.get("rayJob") or given.get("object")
    if job is not None:
        return job["metadata"].get("annotations") or {}
    return given.get("annotations", {ELASTIC_JOB: "true"})


def in_namespace(body):
    return {**body, "metadata": {**body["metadata"], "namespace": "ns"}}


def cluster_of(pod_sets):
    """Return a cluster that demands some pod sets, the first of which is its head."""
    groups = [
        {"groupName": each["name"], "replicas": each["count"], "template": {"spec": {}}}
        for each in pod_sets[1:]
    ]
    return {"headGroupSpec": {"template": {"spec": {}}}, "workerGroupSpecs": groups}
