"""A judge of gangs: all pods of a workload have quota, and all of them start."""

from policyd.api.kueue.names import ADMITTED, EVICTED, FINISHED, POD_GROUP_NAME, QUOTA_RESERVED
from tests.histories.record import WORKLOADS, is_true

GATE = "kueue.x-k8s.io/admission"
PART_SECONDS = 400.0
"""So long a gang may be on its way: while a controller restarts, or a pod is replaced."""


def gangs_are_whole(world, log):
    """A workload gets quota for all its pods or none, and its pods start together."""
    gangs = {}
    for v in world.record.versions:
        if v.resource == WORKLOADS:
            yield from _whole_quota(v)
        key = v.key if v.resource == WORKLOADS else _group(v.last) if v.resource == "pods" else ""
        if key:
            gang = gangs.setdefault(key, Gang(key))
            gang.take(v)
            yield from gang.in_part(v.at, world.record)
    if world.record.quiet_since:
        for gang in gangs.values():
            yield from gang.in_part(float("inf"), world.record)


class Gang:
    """The pods of one group, and since when some of them run and others may not."""

    def __init__(self, key):
        self._key = key
        self._pods, self._runs, self._since = {}, False, None

    def take(self, v):
        if v.resource == WORKLOADS:
            self._runs = v.new is not None and _runs(v.new)
        else:
            self._pods.pop(v.key, None)
            if v.new is not None and not _over(v.new):
                gates = v.new["spec"].get("schedulingGates") or ()
                self._pods[v.key] = any(gate["name"] == GATE for gate in gates)
        in_part = self._runs and len(set(self._pods.values())) == 2
        self._since = (v.at if self._since is None else self._since) if in_part else None

    def in_part(self, at, record):
        """Yield that it runs in part since long ago."""
        if self._since is None or at - self._since <= PART_SECONDS:
            return
        if at == float("inf") or record.was_calm(at, at - self._since):
            yield f"{self._key} runs in part since {self._since:.1f} s"
            self._since = None


def _whole_quota(v):
    if v.new is None or not is_true(v.new, QUOTA_RESERVED) or is_true(v.old, QUOTA_RESERVED):
        return
    wanted = {each["name"]: each for each in v.new["spec"]["podSets"]}
    status = v.new["status"]
    assigned = status["admission"]["podSetAssignments"]
    back = {each["name"]: each["count"] for each in status.get("reclaimablePods") or ()}
    if {each["name"] for each in assigned} != wanted.keys():
        yield f"{v.at:.1f} s: {v.key} has quota for other pod sets than its own"
        return
    for each in assigned:
        pod_set = wanted[each["name"]]
        most, count = pod_set.get("count", 1) - back.get(each["name"], 0), each.get("count", 1)
        if not min(most, pod_set.get("minCount", most)) <= count <= most:
            yield f"{v.at:.1f} s: {v.key} has quota for {count} of {most} pods of {each['name']}"


def _runs(workload):
    ended = is_true(workload, FINISHED) or is_true(workload, EVICTED)
    return is_true(workload, ADMITTED) and not ended


def _group(pod):
    name = pod["metadata"].get("labels", {}).get(POD_GROUP_NAME)
    return f"{pod['metadata']['namespace']}/{name}" if name else ""


def _over(pod):
    ended = pod.get("status", {}).get("phase") in {"Succeeded", "Failed"}
    return ended or bool(pod["metadata"].get("deletionTimestamp"))
