"""Kueue's tables of Ray's kinds and of TrainJobs, where they look into a job."""

import msgspec

from policyd.api.kueue import PodSet
from policyd.api.meta import ObjectMeta
from policyd.api.pods import PodTemplate, Toleration
from policyd.jobs.injection import Injection, StartError
from policyd.jobs.ray_cluster import RAY_CLUSTER, RayCluster, RayClusterSpec, cluster_mistakes
from policyd.jobs.ray_job import RAY_JOB, RayJob
from policyd.jobs.starting import put_back, start
from policyd.jobs.train_job import GROUP, TRAIN_JOB, TrainJob
from policyd.kube.resources import Resource
from policyd.patch.draft import Draft
from tests.conformance.kueue_objects import run_table
from tests.conformance.kueue_scene import Scene, difference, job_key, pruned

RUNTIMES = Resource(
    GROUP, "v1alpha1", "clustertrainingruntimes", "ClusterTrainingRuntime", namespaced=False
)


def run_pod_sets(path):
    """What clusters demand; what they ask of a topology is not compared."""

    def failure(case):
        spec = msgspec.convert(case.input["rayClusterSpec"], RayClusterSpec)
        metadata = ObjectMeta(annotations=case.input.get("annotations") or {})
        got = RAY_CLUSTER.pod_sets(RayCluster(metadata=metadata, spec=spec))
        got = [msgspec.structs.replace(each, topology_request=None) for each in got]
        wanted = msgspec.convert(case.want["wantPodSets"], list[PodSet])
        return difference([repr(each) for each in got], [repr(each) for each in wanted], "pod sets")

    yield from run_table(path, failure)


def run_specs(path):
    """What is wrong with clusters."""

    def failure(case):
        spec = msgspec.convert(case.input["rayClusterSpec"], RayClusterSpec)
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
        draft = Draft(body)
        started(draft, RAY_CLUSTER, case.input["podSetsInfo"])
        draft.remove(("spec", "suspend"))
        return difference(pruned(draft.object), pruned({"spec": case.want["wantSpec"]}), "cluster")

    yield from run_table(path, failure)


def run_ways(path):
    """What a job is after it was started, and after it was put back."""

    def failure(case):
        draft = Draft(case.input["job"])
        if "runInfo" in case.input:
            wrong = ""
            try:
                started(draft, RAY_JOB, case.input["runInfo"])
            except StartError as error:
                wrong = str(error)
            said = difference(bool(wrong), bool(case.want["wantRunError"]), "error") or difference(
                compared(draft.object), compared(case.want["wantAfterRun"]), "started"
            )
            if said or wrong:
                return said
            RAY_JOB.suspend(draft)
        before = draft.object
        infos = case.input.get("restoreInfo") or case.input["podSetsInfo"]
        pod_sets = [pod_set_of(each) for each in infos]
        job = msgspec.convert(before, RayJob)
        put_back(draft, job, kind=RAY_JOB, pod_sets=pod_sets)
        if "wantChanged" in case.want:
            return difference(draft.object != before, case.want["wantChanged"], "changed")
        return difference(compared(draft.object), compared(case.want["wantFinal"]), "put back")

    yield from run_table(path, failure)


def started(draft, kind, infos):
    job = msgspec.convert(draft.object, kind.type)
    given = [injection_of(each) for each in infos]
    start(draft, job, kind=kind, given=given, counts={})
    kind.resume(draft)


def injection_of(info):
    """Return what a pod set gets, of what Kueue calls its info."""
    return Injection(
        labels=info.get("Labels") or {},
        annotations=info.get("Annotations") or {},
        node_selector=info.get("NodeSelector") or {},
        tolerations=msgspec.convert(info.get("Tolerations") or [], list[Toleration]),
        gates=[each["name"] for each in info.get("SchedulingGates") or ()],
    )


def pod_set_of(info):
    selector = {"nodeSelector": info.get("NodeSelector") or {}}
    return PodSet(name="any", count=1, template=msgspec.convert({"spec": selector}, PodTemplate))


def compared(job):
    return {"spec": pruned(job["spec"])}


def run_states(path):
    """Whether a job has ended, and whether it is on hold."""

    def failure(case):
        deployment = case.input.get("jobDeploymentStatus")
        status = case.input.get("status") or {"jobDeploymentStatus": deployment}
        job = msgspec.convert({"status": status}, RayJob)
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
        job = TRAIN_JOB.on_basis(msgspec.convert(body, TrainJob), runtimes[0])
        draft = Draft(body)
        infos = {each["Name"]: each for each in case.input["podsetsInfo"]}
        given = [injection_of(infos.pop(each.name)) for each in TRAIN_JOB.pod_sets(job)]
        if infos:
            return f"no pod sets: {sorted(infos)}"
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
            return difference(got, [demanded(e) for e in case.want["wantWorkloads"]], "workloads")

        return scene.reconcile_until([job_key(job)], unlike)

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


def run_slices(path):
    """Numbers of workers that change while a cluster runs."""
    rule = "Ray clusters that grow or shrink while they run (elastic slices)"
    yield from run_table(path, lambda _case: "", rule=lambda _case: rule)
