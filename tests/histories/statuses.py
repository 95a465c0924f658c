"""Judges of statuses: what they say is so, or was a moment ago."""

from collections import Counter
from datetime import datetime

from policyd.api.kueue.names import ADMITTED, FINISHED, GROUP, QUOTA_RESERVED
from tests.histories.accounts import OWN
from tests.histories.loop import START
from tests.histories.objects import GPU
from tests.histories.order import LATE_SECONDS, as_waiting
from tests.histories.record import WORKLOADS, held_gpus, is_true

QUEUES = f"clusterqueues.{GROUP}"
LOCAL_QUEUES = f"localqueues.{GROUP}"
RETRY_SECONDS = 300.0
"""So long after it was made may a write arrive."""


def statuses_are_true(world, log):
    """The status of each queue is right, or was a moment ago: what waits, and what holds quota."""
    queues = {
        (resource, prefix + name): Figures(name)
        for name in world.plan.setting["queues"]
        for resource, prefix in ((QUEUES, "/"), (LOCAL_QUEUES, "team/"))
    }
    for v in world.record.versions:
        if v.resource == WORKLOADS:
            for queue in queues.values():
                yield from queue.note(v, world.record)
        elif queue := queues.get((v.resource, v.key)):
            yield from queue.judged(v.at, world.record)
            queue.take(v)
    if world.record.quiet_since:
        for queue in queues.values():
            yield from queue.judged(world.loop.time(), world.record)


class Figures:
    """The figures of a queue, as they are and as it states them, and since when these differ."""

    def __init__(self, name):
        self._name = name
        self._stated, self._since = None, None
        self._of, self._sums = {}, Counter()

    def take(self, v):
        """Take a write of the queue."""
        status = (v.new or {}).get("status") or {}
        self._stated = {
            "reserving": status.get("reservingWorkloads", 0),
            "admitted": status.get("admittedWorkloads", 0),
            "GPUs reserved": _gpus(status.get("flavorsReservation")),
            "GPUs used": _gpus(status.get("flavorsUsage")),
            "pending": status.get("pendingWorkloads", 0),
        }
        self._compare(v.at)

    def note(self, v, record):
        """Take a write of a workload; yield what is wrong before it."""
        before = self._of.pop(v.key, {})
        now = self._of[v.key] = _counted(v.new, self._name)
        if before != now:
            yield from self.judged(v.at, record)
            self._sums.subtract(before)
            self._sums.update(now)
            self._compare(v.at)

    def _compare(self, at):
        sums = {name: self._sums[name] for name in self._stated or () if name != "pending"}
        right = self._stated is None or (
            sums.items() <= self._stated.items()
            and self._sums["waiting"] <= self._stated["pending"] <= self._sums["pending"]
        )
        self._since = None if right else at if self._since is None else self._since

    def judged(self, at, record):
        """Yield that what it states has been wrong for long."""
        if self._since is not None and at - self._since > LATE_SECONDS:
            if record.was_calm(at, at - self._since):
                texts = [f"{name} {n}" for name, n in self._sums.items() if n]
                yield f"{at:.1f} s: queue {self._name} says {self._stated}: {', '.join(texts)}"
            self._since = at


def _gpus(flavors):
    return sum(
        int(resource.get("total", 0))
        for flavor in flavors or () for resource in flavor["resources"] if resource["name"] == GPU
    )  # fmt: skip


def _counted(workload, queue):
    """Return the figures of a queue that a workload counts in, and how much."""
    if workload is None or is_true(workload, FINISHED) or not workload["spec"].get("active", True):
        return {}
    if is_true(workload, QUOTA_RESERVED):
        gpus = held_gpus(workload)[queue]
        if workload["status"]["admission"]["clusterQueue"] != queue:
            return {}
        runs = is_true(workload, ADMITTED)
        found = {"reserving": 1, "admitted": int(runs), "GPUs reserved": gpus}
        return found | {"GPUs used": gpus * runs}
    if workload["spec"].get("queueName") != queue:
        return {}
    return {"pending": 1, "waiting": int(as_waiting(workload, 0.0) is not None)}


def times_are_now(world, log):
    """What the controller writes is of now, whatever zone the machine is in."""
    skews = (abs(e.about["seconds"]) for e in world.plan.events if e.act == "clock")
    most = RETRY_SECONDS + sum(skews)
    for v in world.record.versions:
        if v.who != OWN or v.new is None or "status" not in v.new:
            continue
        if _parts(v.old) == _parts(v.new):
            continue
        before = set(_times((v.old or {}).get("status")))
        for text in {*_times(v.new["status"])} - before:
            if abs(datetime.fromisoformat(text).timestamp() - START - v.at) > most:
                yield f"{v.at:.1f} s: {v.resource} {v.key} has a condition since {text}"


def _parts(obj):
    status = (obj or {}).get("status", {})
    return status.get("conditions"), status.get("admissionChecks")


def _times(part):
    """Yield since when the conditions and checks of a status are as they are."""
    if isinstance(part, dict):
        parts = part.values()
        if part.get("lastTransitionTime"):
            yield part["lastTransitionTime"]
    else:
        parts = part if isinstance(part, list) else ()
    for each in parts:
        yield from _times(each)
