"""Judges of gangs: all pods of a workload have quota and places, and all of them start."""

from collections import Counter

import msgspec

from policyd.api.kueue.names import (
    ADMITTED,
    EVICTED,
    FINISHED,
    POD_GROUP_NAME,
    POD_GROUP_TOTAL_COUNT,
    QUOTA_RESERVED,
    WAITING_FOR_REPLACEMENT,
)
from policyd.api.kueue.topology_assignment import decode_topology
from policyd.api.kueue.workload import TopologyAssignment
from tests.histories.objects import GPU
from tests.histories.plan import GPUS
from tests.histories.record import WORKLOADS, has_ended, is_true

GATE = "kueue.x-k8s.io/admission"
PART_SECONDS = 400.0
"""So long a gang may be on its way: while a controller restarts, or a pod is replaced."""


def gangs_are_whole(world, log):
    """A workload gets quota for all its pods or none, and its pods start together.

    It waits for no pods that are there.
    """
    gangs = {}
    for v in world.record.versions:
        if v.resource == WORKLOADS:
            yield from _whole_quota(v)
        key = v.key if v.resource == WORKLOADS else _group(v.last) if v.resource == "pods" else ""
        if key:
            gang = gangs.setdefault(key, Gang(key))
            gang.take(v)
            yield from gang.objections(v.at, world.record)
    if world.record.quiet_since:
        for gang in gangs.values():
            yield from gang.objections(float("inf"), world.record)


class Gang:
    """The pods of one group, and since when it is as it must not be for long."""

    def __init__(self, key):
        self._key = key
        self._pods, self._done, self._total = {}, set(), 0
        self._runs = self._waits = False
        self._back = 0
        self._since = {}

    def take(self, v):
        if v.resource == WORKLOADS:
            self._runs = v.new is not None and _runs(v.new)
            over = v.new is None or is_true(v.new, FINISHED)
            back = () if over else v.new.get("status", {}).get("reclaimablePods") or ()
            self._back = sum(each["count"] for each in back)
            self._waits = not over and is_true(v.new, WAITING_FOR_REPLACEMENT)
        else:
            self._pods.pop(v.key, None)
            annotations = v.last["metadata"].get("annotations", {})
            self._total = int(annotations.get(POD_GROUP_TOTAL_COUNT, 1))
            if v.new is not None and not has_ended(v.new):
                gates = v.new["spec"].get("schedulingGates") or ()
                self._pods[v.key] = any(gate["name"] == GATE for gate in gates)
            elif v.last.get("status", {}).get("phase") == "Succeeded":
                self._done.add(v.key)
        there = len(self._pods) + len(self._done)
        wrong = {
            "runs in part": self._runs and len(set(self._pods.values())) == 2,
            "keeps the quota of pods that succeeded": self._runs and self._back < len(self._done),
            "waits for pods that are there": self._waits and there >= self._total > 0,
        }
        self._since = {text: self._since.get(text, v.at) for text in wrong if wrong[text]}

    def objections(self, at, record):
        """Yield what is wrong since long ago."""
        for text, since in list(self._since.items()):
            calm = at == float("inf") or record.was_calm(at, at - since)
            if at - since > PART_SECONDS and calm:
                yield f"{self._key} {text} since {since:.1f} s"
                self._since[text] = float("inf")


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


def places_are_free(world, log):
    """No node is given to more pods than fit, and a gang that asks for one rack gets one."""
    taken = {}
    if not world.plan.setting["topology"]:
        return
    for v in world.record.of(WORKLOADS):
        over = is_true(v.new, FINISHED) or not (v.new and v.new["spec"].get("active", True))
        held = is_true(v.new, QUOTA_RESERVED) and not over
        before, now = taken.pop(v.key, Counter()), _nodes(v.new) if held else Counter()
        if v.new is not None and not v.new.get("status", {}).get("reclaimablePods"):
            taken[v.key] = now  # else fewer pods are there than have places
        total = sum(taken.values(), Counter())
        for node in now:
            if now[node] > before[node] and total[node] > GPUS:
                yield f"{v.at:.1f} s: with {v.key}, {total[node]} GPUs of {node} are given"
        asked = (
            [each.get("topologyRequest") or {} for each in v.new["spec"]["podSets"]] if now else ()
        )
        racks = {int(node.rpartition("-")[2]) // 2 for node in now}
        if len(racks) > 1 and len(asked) == 1 and asked[0].get("required"):
            yield f"{v.at:.1f} s: {v.key} is placed in the racks {sorted(racks)}"


def _nodes(workload):
    """Return the GPUs that a workload is given, by node."""
    found = Counter()
    for each in (workload["status"].get("admission") or {}).get("podSetAssignments", ()):
        if each.get("topologyAssignment"):
            gpus = int(each["resourceUsage"].get(GPU, 0)) // max(1, each.get("count", 1))
            assigned = msgspec.convert(each["topologyAssignment"], TopologyAssignment)
            for values, pods in decode_topology(assigned):
                found[values[-1]] += gpus * pods
    return found
