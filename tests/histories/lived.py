"""Short histories for the tests of judges: some writes, each at its time."""

from types import SimpleNamespace

from tests.histories import accounts
from tests.histories.objects import GPU
from tests.histories.plan import Event, Plan
from tests.histories.record import WORKLOADS as STORED
from tests.histories.record import Record, Version

QUEUE = {
    "gpus": 8, "cohort": "", "strategy": "BestEffortFIFO", "reclaim": "Never", "weight": 1,
    "checked": False,
}  # fmt: skip
RESOURCES = {
    "schedulingGates": "pods",
    "template": "jobs.batch",
    "cohortName": "clusterqueues.kueue.x-k8s.io",
    "parentName": "cohorts.kueue.x-k8s.io",
    "podSets": STORED,
}
"""Resources by a field that only they have."""
TEXT = (
    "couldn't assign flavors to pod set main: insufficient unused quota for {} in flavor gpus, {}"
)


def workload(
    name, *true, pods=1, gpus=4, priority=0, counts=None, message="", queue="a", back=0, why="",
    checks=(),
):  # fmt: skip
    """Return a workload with some conditions; with quota for `counts` pods, or for all.

    So many pods as `back` says have succeeded, and need no quota any more. What is preempted says
    `why`: the reason, and the uid of the preemptor. The checks have these states.
    """
    reason, _, uid = why.partition(" ")
    text = f"Preempted to accommodate a workload (UID: {uid}, JobUID: j)"
    conditions = [
        {"type": each, "status": "True", "reason": reason, "message": text} for each in true
    ]
    if message:
        conditions = [{"type": "QuotaReserved", "status": "False", "message": message}]
    container = {"resources": {"requests": {GPU: str(gpus)}}}
    pod_set = {
        "name": "main",
        "count": pods,
        "template": {"spec": {"containers": [container]}},
        "topologyRequest": {"podIndexLabel": "batch.kubernetes.io/job-completion-index"},
    }
    status = {"conditions": conditions, "admissionChecks": [{"state": each} for each in checks]}
    if back:
        status["reclaimablePods"] = [{"name": "main", "count": back}]
    if "QuotaReserved" in true:
        count = counts or pods
        usage = {GPU: str(gpus * count)}
        assigned = {"name": "main", "count": count, "resourceUsage": usage}
        status["admission"] = {"clusterQueue": queue, "podSetAssignments": [assigned]}
    return {
        "metadata": {
            "name": name,
            "namespace": "team",
            "creationTimestamp": name,
            "uid": name,
            "ownerReferences": [{"uid": f"job {name}", "name": name, "controller": True}],
        },
        "spec": {"queueName": queue, "priority": priority, "podSets": [pod_set]},
        "status": status,
    }


def cluster_queue(nominal, name="a", *, cohort="", within="Never", reclaim="Never", **limits):
    preemption = {"withinClusterQueue": within, "reclaimWithinCohort": reclaim}
    spec = {
        "cohortName": cohort,
        "preemption": preemption,
        "resourceGroups": _quota(nominal, limits),
    }
    return {"metadata": {"name": name, "uid": name}, "spec": spec}


def cohort(name, parent="", nominal=0, **limits):
    spec = {"parentName": parent, "resourceGroups": _quota(nominal, limits)}
    return {"metadata": {"name": name, "uid": name}, "spec": spec}


def _quota(nominal, limits):
    resource = {"name": GPU, "nominalQuota": str(nominal), **limits}
    return [{"flavors": [{"resources": [resource]}]}]


def job(name, *, runs=False, pods=2, nodes=False, least=False, queue="a", priority_class=""):
    """Return the Job of a workload."""
    labels = {"kueue.x-k8s.io/queue-name": queue}
    if priority_class:
        labels["kueue.x-k8s.io/priority-class"] = priority_class
    annotations = {"kueue.x-k8s.io/job-min-parallelism": "1"} if least else {}
    template = {"spec": {"nodeSelector": {"gpu": "h100"} if nodes else {}}}
    return {
        "metadata": {
            "name": name, "namespace": "team", "uid": f"job {name}", "labels": labels,
            "annotations": annotations,
        },
        "spec": {"suspend": not runs, "parallelism": pods, "template": template},
    }  # fmt: skip


def pod(name, *, gated=False, of="", gpus=0):
    """Return a pod of the group `g`, or of the job of a workload."""
    gates = [{"name": "kueue.x-k8s.io/admission"}] if gated else []
    labels = {"kueue.x-k8s.io/pod-group-name": "g"}
    return {
        "metadata": {"name": name, "namespace": "team", "uid": name, "labels": labels}
        | ({"ownerReferences": [{"uid": f"job {of}", "controller": True}]} if of else {}),
        "spec": {
            "schedulingGates": gates,
            "containers": [{"resources": {"limits": {GPU: str(gpus)}}}],
        },
    }


def lived(*writes, faults=(), **queue):
    """Return a world in which these objects were written, each at its time."""
    fair = queue.pop("fair", True)
    setting = {"queues": {name: {**QUEUE, **queue} for name in ("a", "b")}, "fair": fair}
    plan = Plan(0, 1000.0, setting, tuple(Event(at, "freeze", {"lasts": 60.0}) for at in faults))
    listen = SimpleNamespace(listen=lambda _listener: None, items=lambda _resource: [])
    record = Record(SimpleNamespace(loop=SimpleNamespace(time=lambda: 0.0), store=listen), plan)
    before = {}
    for at, new in writes:
        name = new["metadata"]["name"]
        resource = next(found for part, found in RESOURCES.items() if part in new["spec"])
        key = f"{new['metadata'].get('namespace', '')}/{name}"
        old = before.get((resource, name))
        version = Version(at, accounts.OWN, resource, "MODIFIED", key, old, new, new)
        record.versions.append(version)
        before[resource, name] = new
    return SimpleNamespace(plan=plan, record=record)


def judged(judge, *writes, **options):
    return list(judge(lived(*writes, **options), None))


HELD = ("QuotaReserved", "Admitted")
