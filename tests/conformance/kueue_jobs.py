"""Kueue's tables of jobs: what becomes of them, and what is read of them."""

import json

import msgspec

from policyd.api.configuration.frameworks import KINDS as FRAMEWORKS
from policyd.api.kueue import AdmissionCheck, ClusterQueue, LocalQueue, PodSet
from policyd.api.kueue.names import DEFAULT_PRIORITY_CLASS, PRIORITY_CLASS, QUEUE_NAME
from policyd.jobs.integrations import POD, Integrations
from policyd.jobs.kinds.batch_job import BATCH_JOB, count_indexes
from policyd.jobs.kinds.registry import KINDS
from policyd.jobs.rules.defaults import ELASTIC_GATE, default_on_create, gate_elastic, is_held_twice
from policyd.jobs.rules.surroundings import JobContext
from policyd.jobs.rules.validation import validate_job
from policyd.kube.changes import Added
from policyd.patch.draft import Draft
from policyd.testing import FakeClient, FakeClock, ObjectStore
from tests.conformance.kueue_objects import NOW, TRUSTED, TRUSTING, convert, decode, run_table
from tests.conformance.kueue_scene import (
    Scene,
    compared,
    difference,
    events,
    job_key,
    workload_key,
)
from webhooks.sent_queues import SentQueues

PARENTS = ("deployment", "lws", "statefulset", "sts")
CHANGES = (
    ("oldJob", "newJob"),
    ("oldObj", "newObj"),
    ("oldDeployment", "newDeployment"),
    ("oldService", "newService"),
    ("oldSparkApp", "newSparkApp"),
    ("oldPod", "newPod"),
)
"""What tables call a job before and after a change."""

UNNAMED = frozenset({"name", "admission"})
"""What is not compared of the workloads of jobs."""


def run_reconciler(path):
    """Jobs, their workloads and what is told of them, after one look of Kueue."""

    def failure(case):
        scene = Scene(case)
        job = next(filter(None, map(case.input.get, ("job", "trainJob", "sparkApp"))), None)
        keys, kind = ([], "Job") if job is None else ([job_key(job)], job["kind"])
        if job is None or job["metadata"].get("deletionTimestamp"):
            # Its workloads find out by themselves.
            keys += [workload_key(each) for each in case.input.get("workloads") or ()]
        return scene.unlike_once_reconciled(keys, lambda: unlike(scene, case.want, kind))

    yield from run_table(path, failure)


def unlike(scene, want, kind):
    """Say what is not as the table wants it; empty if all is."""
    job = want.get("wantJob") or {}
    name = job.get("metadata", {}).get("name")
    got = [compared(each) for each in scene.all(kind) if each["metadata"]["name"] == name]
    wanted = [compared(job)] if name else []
    workloads = want.get("wantWorkloads") or ()
    expected_events = events(want["wantEvents"]) if "wantEvents" in want else scene.notes.recorded
    # Where no workload is wanted with finalizers, Kueue's test looks at what pods it has only.
    exactly = not workloads or any(each["metadata"].get("finalizers") for each in workloads)
    got_workloads, wanted_workloads = (
        unnamed(each, exactly) for each in (scene.all("Workload"), workloads)
    )
    return (
        difference(got, wanted, "job")
        or difference(got_workloads, wanted_workloads, "workloads")
        or difference(scene.notes.recorded, expected_events, "events")
    )


def unnamed(workloads, exactly):
    untold = UNNAMED if exactly else UNNAMED | {"finalizers", "labels"}
    found = [compared(each, untold=untold) for each in workloads]
    for pod_set in () if exactly else (p for each in found for p in each["spec"]["podSets"]):
        pod_set.pop("template", None)
    return sorted(found, key=json.dumps)


def run_creation(path):
    """What is refused of new jobs."""
    yield from run_table(path, lambda case: refused(case, job_of(given(case))))


def run_change(path):
    """What is refused of changes."""

    def failure(case):
        found = next(pair for pair in CHANGES if pair[0] in case.input)
        old, new = (job_of(case.input[name]) for name in found)
        return refused(case, new, old)

    yield from run_table(path, failure, rule=waits_for_workload)


def waits_for_workload(case):
    """Leave out what is refused until a workload is gone: the controller waits for that instead."""
    there = (each for each in case.input.get("objs") or () if each.get("kind") == "Workload")
    going = any(each["metadata"].get("deletionTimestamp") for each in there)
    return "workloads are not looked up at the webhook" if going and case.want["wantErr"] else ""


def refused(case, new, old=None):
    given_kind = case.input.get("gvk")  # as which kind a table has a job looked at
    group, kind = (
        (given_kind.get("Group", ""), given_kind["Kind"]) if given_kind else group_kind(new)
    )
    errors = validate_job(new, old, group=group, kind=kind, surroundings=surroundings(case))
    got = sorted([f"FieldValue{e.problem}", e.path] for e in errors)
    wanted = case.want.get("wantValidationErrs") or case.want.get("wantErr") or []
    if isinstance(wanted, dict):
        wanted = wanted.get("errors", [wanted])
    warned = (group, kind) == POD and is_held_twice(new, TRUSTED)
    return difference(got, sorted([e["type"], e["field"]] for e in wanted), "errors") or difference(
        int(warned), len(case.want.get("wantWarns") or ()), "warnings"
    )


def group_kind(obj):
    return obj["apiVersion"].rpartition("/")[0], obj["kind"]


def surroundings(case):
    """Return what counts beside a case's job."""
    flags = {name for name, value in case.input.items() if value is True}
    return JobContext(
        default_queue=bool(
            flags & {"nsHasDefaultQueue", "defaultLqExist", "withDefaultLocalQueue"}
        ),
        default_class=has_default_class(case),
        integrations=Integrations(
            kinds=enabled(case.input),
            manages_all=bool(flags & {"manageAll", "manageJobsWithoutQueueName"}),
            off=frozenset(name for name, on in case.gates.items() if not on),
            makers=TRUSTING,
        ),
        basis=case.input.get("clusterTrainingRuntime"),
        sent_away=lambda queue: goes_away(case, queue),
    )


def goes_away(case, queue):
    """Tell whether the jobs of a LocalQueue of a case go to other clusters."""
    clock = FakeClock(NOW)
    client = FakeClient(store=ObjectStore(clock=clock))
    known = SentQueues(client, lambda task: task.close(), pace=clock.pace())
    takes = {
        "AdmissionCheck": (known.take_check, AdmissionCheck),
        "ClusterQueue": (known.take_cluster_queue, ClusterQueue),
        "LocalQueue": (known.take_local_queue, LocalQueue),
    }
    namespaces = set()
    for body in case.objects.values():
        if body.get("kind") in takes:
            take, into = takes[body["kind"]]
            take(Added(decode(body, into)))
            namespaces.add(body["metadata"].get("namespace", ""))
    return any(known.sends_away(namespace, queue) for namespace in namespaces)


def has_default_class(case):
    """Tell whether there is a class for jobs that name none."""
    given = (*case.objects.values(), *(case.input.get("wpcObjects") or ()))
    classes = (each for each in given if each.get("kind") == "WorkloadPriorityClass")
    return any(each["metadata"]["name"] == DEFAULT_PRIORITY_CLASS for each in classes)


def enabled(columns):
    """Return the kinds that queue: in tables of Jobs and pods these, and those that they name."""
    own = {"Job": ("batch", "Job"), "Pod": POD}
    table = (columns.get("job") or columns.get("pod") or {}).get("kind")
    if table not in own:
        return None
    named = [FRAMEWORKS[name] for name in columns.get("enableIntegrations") or ()]
    return frozenset({own[table], *((group, kind) for group, _, kind in named)})


def run_defaults(path):
    """What becomes of new jobs."""

    def failure(case):
        draft = Draft(given(case))
        group = draft.object["apiVersion"].rpartition("/")[0]
        default_on_create(
            draft, group=group, kind=draft.object["kind"], surroundings=surroundings(case)
        )
        if "want" in case.want and case.want["want"] is None:
            policy = draft.get(("spec", "runPolicy")) or draft.get(("spec",)) or {}
            return difference(policy.get("managedBy"), case.want["wantManagedBy"], "managed by")
        names = ("want", "wantTrainJob", "wantSparkApp")
        wanted = next(filter(None, map(case.want.get, names)), None) or case.input["newJob"]
        return difference(draft.object, wanted, "job")

    yield from run_table(path, failure)


def run_default_classes(path):
    """Which jobs get the priority class of default; here, all that queue may."""

    def failure(case):
        job = given(case)
        job["metadata"].setdefault("labels", {}).setdefault(QUEUE_NAME, "lq")
        draft, (group, kind) = Draft(job), group_kind(job)
        default_on_create(draft, group=group, kind=kind, surroundings=surroundings(case))
        found = draft.get(("metadata", "labels", PRIORITY_CLASS)) or ""
        return difference(found, case.want["wantPriorityClassLabel"], "class")

    yield from run_table(path, failure)


def job_of(given):
    """Return a job as it is sent; some tables write it as Go names its parts."""
    if not {"ObjectMeta", "Spec", "Status"} & given.keys():
        return given
    return {
        "metadata": given.get("ObjectMeta", {}),
        "spec": given.get("Spec", {}),
        "status": given.get("Status", {}),
    }


def read(path, case):
    """Return a table's kind of job, and a case's job of it."""
    kind = kind_of(path)
    return kind, convert(job_of(given(case)), kind.type)


def kind_of(path):
    """Return the kind of job that the file of a table is named after; None without a module."""
    package = path.stem.partition("__")[0].rpartition("-")[2]
    return next((kind for kind in KINDS if kind.kind.lower() == package), None)


def given(case):
    """Return the job of a case, whatever its table calls it; of a cluster there may be its spec."""
    if "rayClusterSpec" in case.input:
        return {"spec": case.input["rayClusterSpec"]}
    names = (
        "job",
        "jobSet",
        "mpiJob",
        "oldJob",
        "pod",
        "rayJob",
        "rayCluster",
        "rayService",
        "service",
        "sparkApp",
        "trainJob",
        *PARENTS,
    )
    return next(case.input[name] for name in names if case.input.get(name) is not None)


def run_pod_sets(path):
    """What jobs demand."""

    def failure(case):
        kind, job = read(path, case)
        pod_sets = Scene(case).steps.requested(kind.pod_sets(job))
        wanted = convert(case.data["observed"]["gotPodSets"], list[PodSet])
        return difference([repr(each) for each in pod_sets], [repr(each) for each in wanted], "")

    yield from run_table(path, failure)


def run_labels(path):
    """Which labels of a Job's template say something of its pods to others than the Job."""

    def failure(case):
        template = {"metadata": {"labels": case.input.get("labels") or {}}}
        job = convert({"spec": {"template": template}}, BATCH_JOB.type)
        (pod_set,), (whole,) = BATCH_JOB.pod_sets(job), BATCH_JOB.whole(job, [template])
        got = [pod_set.template.metadata.labels, whole["metadata"]["labels"]]
        return difference(got, [case.want["wantLabels"] or {}] * 2, "labels")

    yield from run_table(path, failure)


def run_priorities(path):
    """Which PriorityClass a job names: of itself, else of its pods."""

    def failure(case):
        kind, job = read(path, case)
        named = (each.template.spec.priority_class_name for each in kind.pod_sets(job))
        found = kind.priority_class(job) or next(filter(None, named), "")
        return difference(found, case.want["wantPriorityClassName"], "class")

    yield from run_table(path, failure)


def run_roles(path):
    """In which order the roles of a job come."""

    def failure(case):
        kind, job = read(path, case)
        wanted = [name.lower() for name in case.want["wantReplicaTypes"] or ()]
        return difference([each.name for each in kind.pod_sets(job)], wanted, "roles")

    yield from run_table(path, failure)


def run_reclaimable(path):
    """Which pods need their quota no longer."""

    def failure(case):
        kind, job = read(path, case)
        got = msgspec.to_builtins(kind.reclaimable(job))
        return difference(list(got), case.want["want"] or [], "pods")

    yield from run_table(path, failure)


def run_readiness(path):
    """Whether all pods run."""

    def failure(case):
        kind, job = read(path, case)
        return difference(kind.ready(job), case.want["want"], "ready")

    yield from run_table(path, failure)


def run_states(path):
    """Whether a job is told to have no pods, and whether it has some."""

    def failure(case):
        kind, job = read(path, case)
        asked = kind.suspended if path.stem.endswith("TestIsSuspended") else kind.active
        return difference(asked(job), case.want["want"], "state")

    yield from run_table(path, failure)


def run_indexes(path):
    """How many indexes of a Job have ended."""

    def failure(case):
        given = case.input
        written = f"{given['completedIndexes']},{given['failedIndexes']}"
        return difference(count_indexes(written, below=given["completions"]), case.want["want"], "")

    yield from run_table(path, failure)


def run_elastic_gates(path):
    """By what the pods of jobs wait that may grow."""

    def failure(case):
        job = job_of(case.input["args"]["job"])
        draft = Draft({"metadata": job.get("metadata") or {}, "spec": job.get("spec") or {}})
        off = {name for name, on in case.gates.items() if not on}
        if ELASTIC_GATE not in off:
            gate_elastic(draft, BATCH_JOB)
        got = draft.get(("spec", "template", "spec", "schedulingGates"))
        return difference(got, case.want["want"], "gates")

    yield from run_table(path, failure)
