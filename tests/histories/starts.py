"""Judges of what jobs and their workloads have of each other: the workload its job's, and back."""

from collections import defaultdict

from policyd.api.kueue.names import (
    ADMITTED,
    EVICTED,
    FINISHED,
    MIN_PARALLELISM,
    POD_GROUP_NAME,
    PRIORITY_CLASS,
    QUEUE_NAME,
    QUOTA_RESERVED,
)
from tests.histories.objects import INVALID, RESOURCES
from tests.histories.order import LATE_SECONDS
from tests.histories.plan import VALUES
from tests.histories.record import WORKLOADS, condition, is_true, owner_of
from tests.scenarios import foreign
from tests.soak.operators import is_over

OTHERS = tuple(f"{each.plural}.{each.group}" for each in RESOURCES.values())
STARTED = ("pods", "jobs.batch", "jobsets.jobset.x-k8s.io", *OTHERS)
"""Resources of what queues."""
GATE = "kueue.x-k8s.io/admission"
LABELS = {"gpu": "h100"}
"""Of the nodes of the only flavor."""


def starts(v):
    """Tell whether a write starts what is to wait: it is created so, or may run from now on."""
    if v.new is None or v.last["metadata"].get("deletionTimestamp"):
        return False
    return _waits(v.old) is not False and _waits(v.new) is False


def _waits(obj):
    """Tell whether a pod or job waits for the queue; None if it does not queue, or is not there."""
    if obj is None or QUEUE_NAME not in obj["metadata"].get("labels", {}):
        return None
    if "containers" in obj["spec"]:
        return any(gate["name"] == GATE for gate in obj["spec"].get("schedulingGates") or ())
    return foreign.suspended(obj)


def starts_are_as_admitted(world, log):
    """What starts has the nodes and the number of pods of its admission; what waits, its own."""
    made, jobs, admissions = {}, {}, {}
    for v in world.record.versions:
        uid = v.last["metadata"]["uid"]
        if v.resource == WORKLOADS:
            uid = owner_of(v.last)
            if is_true(v.new, QUOTA_RESERVED) and not is_true(v.old, QUOTA_RESERVED):
                admissions[uid] = v.new["status"]["admission"]
                now, before = (_shape(each[uid]) if uid in each else None for each in (jobs, made))
                if now != before and _waits(jobs[uid]):
                    yield f"{v.at:.1f} s: {v.key} gets quota, its job is {now}, and was {before}"
        elif v.resource in STARTED:
            began = starts(v) and v.old is not None
            for text in _unlike(v.new, made.get(uid), admissions.get(uid)) if began else ():
                yield f"{v.at:.1f} s: {v.who} starts {v.resource} {v.key} {text}"
            if v.resource != "pods":
                made.setdefault(uid, v.last)
                jobs[uid] = v.last


def _unlike(job, made, admission):
    """Yield what is not as it should be where something starts."""
    selectors = _shape(job)[1]
    if not all(LABELS.items() <= each.items() for each in selectors):
        yield f"on any nodes: {selectors}"
    if made is None or admission is None:
        return
    wanted = _shape(made)[0]
    if MIN_PARALLELISM in job["metadata"].get("annotations", {}):
        wanted = admission["podSetAssignments"][0].get("count", 1)
    if _shape(job)[0] != wanted:
        yield f"with {_shape(job)[0]} pods, and not with {wanted}"


def _shape(job):
    """Return how many pods a job has, and the nodes that they ask for."""
    spec = job["spec"]
    if "containers" in spec:
        found, count = [job], 1
    elif "template" in spec:
        found, count = [spec["template"]], spec["parallelism"]
    else:
        found = foreign.templates(job)
        count = len(found)
    return count, [each["spec"].get("nodeSelector") or {} for each in found]


def workloads_are_as_their_jobs(world, log):
    """A workload has the queue and the priority that its job names, and what holds quota keeps it.

    A single pod, or a job, says it by its labels; the pods of a group are not edited.
    """
    jobs, workloads, wrong = {}, defaultdict(dict), {}
    for v in world.record.versions:
        uid = owner_of(v.last) if v.resource == WORKLOADS else v.last["metadata"]["uid"]
        if v.resource == WORKLOADS:
            yield from _illegal(v, world.plan.setting["queues"])
            yield from _ended_otherwise(v, jobs.get(uid))
            gone = v.new is None or is_true(v.new, FINISHED)
            workloads[uid] |= {v.key: None if gone else v.new}
        elif v.resource in STARTED:
            yield from _moved(v)
            jobs[uid] = v.new
        else:
            continue
        began, text = wrong.pop(uid, (v.at, ""))
        if v.at - began > LATE_SECONDS and world.record.was_calm(v.at, v.at - began):
            yield f"{v.at:.1f} s: {text} since {began:.1f} s"
        if text := "; ".join(_unequal(jobs.get(uid), workloads[uid])):
            wrong[uid] = began, text


def _moved(v):
    """Yield that a job is given another queue while it runs."""
    parts = [(each or {}).get("metadata", {}).get("labels", {}) for each in (v.old, v.new)]
    was, now = (each.get(QUEUE_NAME) for each in parts)
    moved = was and now and was != now
    if moved and _waits(v.old) is False and not is_over(v.old):
        yield f"{v.at:.1f} s: {v.who} moves {v.key}, which runs, from {was} to {now}"


def _unequal(job, workloads):
    """Yield how workloads are not what their job says."""
    metadata = (job or {}).get("metadata", {})
    labels = metadata.get("labels", {})
    if QUEUE_NAME not in labels or metadata.get("deletionTimestamp"):
        return
    value = VALUES.get(labels.get(PRIORITY_CLASS), 0)
    invalid = job.get("status", {}).get("jobDeploymentStatus") == INVALID
    for key, workload in workloads.items():
        if workload is None:
            continue
        spec, held = workload["spec"], is_true(workload, QUOTA_RESERVED)
        if spec.get("queueName") != labels[QUEUE_NAME] and not held:
            yield f"{key} is in queue {spec.get('queueName')}, and its job in {labels[QUEUE_NAME]}"
        # As in Kueue, what holds quota gets no class that it had none of.
        if spec.get("priority", 0) != value and not (held and "priorityClassRef" not in spec):
            yield f"{key} has priority {spec.get('priority', 0)}, and its job {value}"
        if invalid and held:
            yield f"{key} holds quota, and its job is invalid"


def _ended_otherwise(v, job):
    """Yield that a workload finishes otherwise than its job."""
    begins = is_true(v.new, FINISHED) and not is_true(v.old, FINISHED)
    if not begins or job is None or POD_GROUP_NAME in job["metadata"].get("labels", {}):
        return
    reason = condition(v.new, FINISHED)["reason"]
    failed = is_true(job, "Failed") or job["status"].get("phase") == "Failed"
    if not is_over(job):
        yield f"{v.at:.1f} s: {v.key} finishes by {reason}, and its job goes on"
    elif reason in {"Succeeded", "Failed"} and failed != (reason == "Failed"):
        yield f"{v.at:.1f} s: {v.key} finishes by {reason}, and its job has {job['status']}"


def _illegal(v, queues):
    """Yield what changed of a workload that holds quota, and must not; what admits it too early."""
    states = [each["state"] for each in (v.new or {}).get("status", {}).get("admissionChecks", ())]
    was, held = (is_true(each, QUOTA_RESERVED) for each in (v.old, v.new))
    for name in ("podSets", "queueName") if was and held else ():
        if v.old["spec"].get(name) != v.new["spec"].get(name):
            yield f"{v.at:.1f} s: {v.who} changes {name} of {v.key}, which holds quota"
    if is_true(v.new, ADMITTED) and not is_true(v.old, ADMITTED):
        queue = queues.get((v.new["status"].get("admission") or {}).get("clusterQueue"), {})
        if set(states) - {"Ready"} or (queue.get("checked") and not states):
            yield f"{v.at:.1f} s: {v.key} is admitted while its checks are {states}"
    evicted = is_true(v.new, EVICTED) and not is_true(v.old, EVICTED)
    if evicted and set(states) - {"Pending"}:
        yield f"{v.at:.1f} s: {v.key} is evicted, and keeps the answers {states}"
