"""A judge of gangs: all pods of a workload have quota, and all of them start."""

from collections import defaultdict

from policyd.api.kueue.names import ADMITTED, EVICTED, FINISHED, POD_GROUP_NAME, QUOTA_RESERVED
from tests.histories.record import WORKLOADS, is_true

GATE = "kueue.x-k8s.io/admission"
PART_SECONDS = 400.0
"""So long a gang may be on its way: while a controller restarts, or a pod is replaced."""


def gangs_are_whole(world, log):
    """A workload gets quota for all its pods or none, and its pods start together."""
    pods, admitted, parts = defaultdict(dict), {}, {}
    for v in world.record.versions:
        group = ""
        if v.resource == WORKLOADS:
            yield from _whole_quota(v)
            group = v.key
            admitted[group] = v.new is not None and _runs(v.new)
        elif v.resource == "pods":
            group = _group(v.last)
            pods[group].pop(v.key, None)
            if v.new is not None and not _over(v.new):
                pods[group][v.key] = any(
                    gate["name"] == GATE for gate in v.new["spec"].get("schedulingGates") or ()
                )
        if not group:
            continue
        if not (admitted.get(group) and len(set(pods[group].values())) == 2):
            parts.pop(group, None)
        began = parts.setdefault(group, v.at) if admitted.get(group) else v.at
        if len(set(pods[group].values())) < 2:
            parts.pop(group, None)
        elif v.at - began > PART_SECONDS and world.record.was_calm(v.at, v.at - began):
            yield f"{v.at:.1f} s: {group} runs in part since {began:.1f} s"
            parts[group] = v.at
    if world.record.quiet_since:
        for group, began in parts.items():
            yield f"{group} runs in part since {began:.1f} s, to the end"


def _whole_quota(v):
    if v.new is None or not is_true(v.new, QUOTA_RESERVED) or is_true(v.old, QUOTA_RESERVED):
        return
    wanted = {each["name"]: each for each in v.new["spec"]["podSets"]}
    assigned = v.new["status"]["admission"]["podSetAssignments"]
    if {each["name"] for each in assigned} != wanted.keys():
        yield f"{v.at:.1f} s: {v.key} has quota for other pod sets than its own"
        return
    for each in assigned:
        pod_set = wanted[each["name"]]
        most, count = pod_set.get("count", 1), each.get("count", 1)
        if not pod_set.get("minCount", most) <= count <= most:
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
