"""All that was stored in a history, in its order: what the judges read."""

import re
from collections import Counter
from contextvars import ContextVar
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

import msgspec

from policyd.api.kueue.names import EVICTED, FINISHED, GROUP, PREEMPTED, QUOTA_RESERVED
from tests.histories.objects import GPU
from tests.histories.plan import HOPELESS

WHO: ContextVar[str] = ContextVar("who", default="server")
"""The account of the request that is answered."""
FROM: ContextVar[str] = ContextVar("from", default="")
"""The process that sent it: controllers have one account."""

WORKLOADS = f"workloads.{GROUP}"
PREEMPTOR = re.compile(r"a workload \(UID: ([^,]+),")
TOUCHED = "example.com/touched"
LINGERS, LONGEST = 240.0, 1900.0
"""Seconds that a fault is felt after its end: by calls that are tried again; by a silent watch."""


@dataclass(frozen=True, slots=True)
class Version:
    """One write: when, by whom, and the object before and after it."""

    at: float
    who: str
    resource: str
    change: str
    key: str
    old: Any
    new: Any
    """None once it is deleted."""
    last: Any
    process: str = ""


class Record:
    """Listens to the store."""

    def __init__(self, cluster, plan):
        self.cluster, self.plan = cluster, plan
        self.loop = cluster.loop
        self.versions = []
        self.calm_since = self.quiet_since = 0.0
        self.faults = 0
        self.troubled = []
        """When there were faults, and were felt: from, until."""
        for event in plan.events:
            if event.is_fault:
                lasts = event.about.get("lasts", 0.0)
                self.note_trouble(lasts, at=event.at, long=event.act in {"silence", "leader lost"})
        cluster.store.listen(self._note)

    def _note(self, event):
        metadata = event.object["metadata"]
        key = f"{metadata.get('namespace', '')}/{metadata['name']}"
        new = None if event.type == "DELETED" else event.object
        self.versions.append(
            Version(
                self.loop.time(),
                WHO.get(),
                event.resource,
                event.type,
                key,
                event.previous,
                new,
                event.object,
                FROM.get(),
            )
        )

    def note_trouble(self, lasts, *, at=None, long=False):
        """Note a fault that begins now, or at some time."""
        at = self.loop.time() if at is None else at
        self.troubled.append((at, at + lasts + (LONGEST if long else LINGERS)))

    def was_calm(self, at, seconds):
        """Tell whether no fault was felt in so many seconds before a moment."""
        return all(until < at - seconds or began > at for began, until in self.troubled)

    @property
    def places_decide(self):
        """Whether pods need a place beside their quota: then it may be left, and nothing fits."""
        return self.plan.setting.get("topology", False)

    def of(self, resource):
        """Return the writes of a resource, in their order."""
        return [version for version in self.versions if version.resource == resource]

    def digest(self):
        """Return a digest of every write: when, by whom, and what."""
        found = blake2b(digest_size=16)
        for v in self.versions:
            found.update(msgspec.json.encode((v.at, v.who, v.resource, v.change, v.last)))
        return found.hexdigest()

    def all_ended(self):
        """Tell whether no workload waits or runs."""
        return all(
            is_true(workload, FINISHED)
            or not workload["spec"].get("active", True)
            or waits_for_good(workload)
            for _, workload in self.cluster.store.items(WORKLOADS)
        ) and not any(
            pod["status"].get("phase") in {"Pending", "Running"}
            for _, pod in self.cluster.store.items("pods")
            if not waits_for_good(pod)
        )

    def touch(self, path):
        """Change an object of which a write is on its way; tell whether there is one."""
        parts = path.strip("/").split("/")
        if "namespaces" not in parts or len(parts) < parts.index("namespaces") + 4:
            return False
        at = parts.index("namespaces")
        plural, name = parts[at + 2 : at + 4]
        resource = plural if parts[0] == "api" else f"{plural}.{parts[1]}"
        old = self.cluster.store.get(resource, parts[at + 1], name)
        if old is None:
            return False
        annotations = {**old["metadata"].get("annotations", {}), TOUCHED: f"{self.loop.time()}"}
        metadata = {**old["metadata"], "annotations": annotations}
        self.cluster.store.put(resource, {**old, "metadata": metadata}, replacing=old)
        return True

    def peak_load(self):
        """Return the most GPUs that jobs asked for at a time, as a share of the queues' quota."""
        asked, now, peak = {}, 0, 0
        for v in self.of(WORKLOADS):
            gone = v.new is None or is_true(v.new, FINISHED) or waits_for_good(v.new)
            now -= asked.get(v.key, 0)
            asked[v.key] = 0 if gone else requested(v.new)
            now += asked[v.key]
            peak = max(peak, now)
        return peak / sum(queue["gpus"] for queue in self.plan.setting["queues"].values())

    def evictions(self):
        """Return how often workloads were evicted, by the reason."""
        found = Counter()
        for v in self.of(WORKLOADS):
            if is_true(v.new, EVICTED) and not is_true(v.old, EVICTED):
                reason = condition(v.new, EVICTED)["reason"]
                why = condition(v.new, PREEMPTED)["reason"] if reason == PREEMPTED else reason
                found[f"eviction: {why}"] += 1
        return found


def waits_for_good(obj):
    """Tell whether a workload or pod asks for more than there ever is."""
    if "podSets" in obj["spec"]:
        return requested(obj) >= HOPELESS
    return gpus_of(obj["spec"]) >= HOPELESS


def requested(workload):
    """Return the GPUs that the pods of a workload request, without those that are done for good."""
    back = _given_back(workload)
    return sum(
        max(0, each.get("count", 1) - back.get(each["name"], 0)) * gpus_of(each["template"]["spec"])
        for each in workload["spec"]["podSets"]
    )


def _given_back(workload):
    found = workload.get("status", {}).get("reclaimablePods") or ()
    return {each["name"]: each["count"] for each in found}


def gpus_of(pod_spec):
    """Return the GPUs that a pod requests."""
    found = [each.get("resources", {}) for each in pod_spec["containers"]]
    return sum(int({**r.get("limits", {}), **r.get("requests", {})}.get(GPU, 0)) for r in found)


def has_ended(pod):
    """Tell whether a pod has ended, or is about to."""
    ended = pod.get("status", {}).get("phase") in {"Succeeded", "Failed"}
    return ended or bool(pod["metadata"].get("deletionTimestamp"))


def condition(obj, kind):
    """Return a condition; an empty one if there is none."""
    found = (obj or {}).get("status", {}).get("conditions") or ()
    return next((each for each in found if each["type"] == kind), {})


def is_true(obj, kind):
    """Tell whether a condition is true."""
    return condition(obj, kind).get("status") == "True"


def preemptor_of(workload):
    """Return the uid of the workload for which this one was preempted last; empty if of none."""
    found = PREEMPTOR.search(condition(workload, PREEMPTED).get("message", ""))
    return found[1] if found else ""


def owner_of(obj):
    """Return the uid of the owner; of an object without one, empty."""
    owners = obj["metadata"].get("ownerReferences") or ({"uid": ""},)
    return owners[0]["uid"]


def held_gpus(workload):
    """Return the GPUs that a workload holds, by queue."""
    if workload is None or is_true(workload, FINISHED) or not is_true(workload, QUOTA_RESERVED):
        return Counter()
    if not workload["spec"].get("active", True):
        return (
            Counter()
        )  # as in Kueue: what is deactivated holds nothing, though it may run on a moment
    admission = workload["status"].get("admission") or {}
    back = _given_back(workload)
    wanted = {p["name"]: p.get("count", 1) for p in workload["spec"]["podSets"]}
    found = Counter()
    for each in admission.get("podSetAssignments", ()):
        count = each.get("count", 1)
        # As in Kueue: what is given back is of all pods, not of those that were admitted.
        name = each["name"]
        left = max(0, min(count, wanted.get(name, count) - back.get(name, 0)))
        amount = int(each.get("resourceUsage", {}).get(GPU, 0))
        found[admission["clusterQueue"]] += amount * left // max(1, count)
    return +found
