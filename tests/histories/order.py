"""Judges of order: priority within a queue, and the quota that a queue has for itself."""

from dataclasses import dataclass

from policyd.api.kueue.names import EVICTED, FINISHED, GROUP, QUOTA_RESERVED
from policyd.api.meta import Json
from tests.histories.objects import GPU
from tests.histories.record import WORKLOADS, condition, held_gpus, is_true

LATE_SECONDS = 75.0
"""So long ago something must have been so that a decision has to heed it."""
RECLAIM_SECONDS = 400.0
"""Within which a queue gets its own quota back from others that may be preempted."""


@dataclass(slots=True)
class Waiting:
    """A workload that waits, and since when it is as it is."""

    since: float
    queue: str
    priority: int
    gpus: int
    created: str
    placed: bool
    """Whether a topology decides as well."""
    again: bool
    """Whether it held quota before: then its place in the queue is another one."""


def as_waiting(workload, at):
    """Return a workload that waits for quota; None if it does not, or may not have any now."""
    spec, status = workload["spec"], workload.get("status", {})
    if (
        is_true(workload, FINISHED)
        or is_true(workload, QUOTA_RESERVED)
        or not spec.get("active", True)
        or workload["metadata"].get("deletionTimestamp")
        or is_true(workload, "WaitingForReplacementPods")
        or status.get("requeueState", {}).get("requeueAt")
    ):
        return None
    return Waiting(
        at, spec.get("queueName", ""), spec.get("priority", 0), requested(workload),
        workload["metadata"]["creationTimestamp"],
        any(each.get("topologyRequest") for each in spec["podSets"]),
        bool(condition(workload, EVICTED)),
    )  # fmt: skip


def requested(workload):
    """Return the GPUs that all pods of a workload request."""
    return sum(
        each.get("count", 1) * sum(map(_gpus, each["template"]["spec"]["containers"]))
        for each in workload["spec"]["podSets"]
    )


def _gpus(container):
    resources: Json = container.get("resources", {})
    return int((resources.get("requests") or {}).get(GPU) or resources.get("limits", {}).get(GPU, 0))


def priority_is_heeded(world, log):
    """No workload overtakes one of its queue that comes first, and that it leaves room for."""
    waiting, record = {}, world.record
    for v in record.of(WORKLOADS):
        before, now = waiting.pop(v.key, None), v.new and as_waiting(v.new, v.at)
        if now:
            same = before and (before.queue, before.priority) == (now.queue, now.priority)
            now.since = before.since if same else v.at
            waiting[v.key] = now
        elif before and is_true(v.new, QUOTA_RESERVED) and record.was_calm(v.at, LATE_SECONDS):
            queue = world.plan.setting["queues"].get(before.queue)
            for key, other in waiting.items():
                if other.queue == before.queue and _overtaken(other, before, queue, v.at):
                    yield f"{v.at:.1f} s: {v.key} overtakes {key} in queue {other.queue}"


def _overtaken(other, winner, queue, at):
    if other.since > at - LATE_SECONDS or other.again or winner.again:
        return False
    strict = queue is not None and queue["strategy"] == "StrictFIFO"
    fits = strict or (other.gpus <= winner.gpus and not other.placed)
    first = other.priority > winner.priority or (
        other.priority == winner.priority and other.created < winner.created
    )
    return fits and first


def own_quota_comes_back(world, log):
    """A queue that may reclaim does not wait long for quota that is its own."""
    setting = {
        name: queue
        for name, queue in world.plan.setting["queues"].items()
        if queue["cohort"] and queue["reclaim"] == "Any"
    }
    waiting, used, nominal, since = {}, {}, {}, {}
    for v in world.record.versions:
        if v.resource == f"clusterqueues.{GROUP}" and v.new is not None:
            (group,) = v.new["spec"]["resourceGroups"]
            stopped = v.new["spec"].get("stopPolicy", "None") != "None"
            nominal[v.key.lstrip("/")] = (
                -1 if stopped else int(group["flavors"][0]["resources"][0]["nominalQuota"])
            )
        if v.resource != WORKLOADS:
            continue
        for name in setting:
            began = since.get(name)
            if began and v.at - began[0] > RECLAIM_SECONDS and world.record.was_calm(
                v.at, v.at - began[0]
            ):  # fmt: skip
                yield f"{v.at:.1f} s: {began[1]} waits since {began[0]:.1f} s for own quota"
                since.pop(name)
        waiting.pop(v.key, None)
        used.pop(v.key, None)
        if v.new is not None:
            found = as_waiting(v.new, v.at)
            if found:
                waiting[v.key] = found
            used[v.key] = held_gpus(v.new)
        for name in setting:
            head = _head(name, waiting)
            held = sum(each[name] for each in used.values() if each)
            fits = head and not head[1].placed and held + head[1].gpus <= nominal.get(name, -1)
            if not fits or since.get(name, (0, ""))[1] != head[0]:
                since.pop(name, None)
            if fits:
                since.setdefault(name, (v.at, head[0]))


def _head(queue, waiting):
    """Return the key of the workload that is the first of a queue, and the workload."""
    own = [(key, each) for key, each in waiting.items() if each.queue == queue]
    return min(own, key=lambda each: (-each[1].priority, each[1].created), default=None)
