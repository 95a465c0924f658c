"""Kueue's tables of priorities: classes, boosts, and what both come to."""

from policyd.alloc.settings import Gates
from policyd.api.kueue import Workload
from policyd.api.kueue.names import PRIORITY_CLASS
from policyd.api.meta import ObjectMeta
from policyd.controller.watch.preemptions import priority_parts
from policyd.controller.watch.priorities import (
    PriorityBoostError,
    PriorityClassMissingError,
    effective_priority,
    priority_boost,
    priority_of,
)
from tests.conformance.kueue_objects import Cluster, decode, run_table


def _workload(case, name="workload"):
    body = case.input.get(name) or {}
    return decode({"metadata": {}, **body}, Workload)


def run_parts(path):
    """Say what an effective priority is made of."""
    return run_table(path, _parts)


def _parts(case):
    found = priority_parts(_workload(case, "wl"), Gates.of(case.gates))
    wanted = tuple(case.want[name] for name in ("wantEffective", "wantBase", "wantBoost"))
    return "" if found == wanted else f"expected {wanted}, got {found}"


def run_effective(path):
    """Work out the priority that counts, and whether its boost could be read."""
    return run_table(path, _effective)


def _effective(case):
    workload, gates = _workload(case), Gates.of(case.gates)
    found = {"wantPriority": effective_priority(workload, gates)}
    found["want"] = found["wantPriority"]
    try:
        found["wantBoost"], found["wantErr"] = priority_boost(workload, gates), False
    except PriorityBoostError:
        found["wantBoost"], found["wantErr"] = 0, True
    found = {name: found[name] for name in case.want}
    return "" if found == case.want else f"expected {case.want}, got {found}"


def run_classes(path):
    """Find the priority of a job by the class of its pods, or its own."""
    return run_table(path, _class)


def _class(case):
    cluster = Cluster()
    own = "workloadPriorityClassList" in case.input
    listed = case.input["workloadPriorityClassList" if own else "priorityClassList"]
    group = "kueue.x-k8s.io/v1beta2" if own else "scheduling.k8s.io/v1"
    kind = "WorkloadPriorityClass" if own else "PriorityClass"
    for body in (listed or {}).get("items") or ():
        cluster.put({"apiVersion": group, "kind": kind, **body})
    name = case.input["workloadPriorityClassName" if own else "priorityClassName"]
    labels = {PRIORITY_CLASS: name} if own else {}
    spec = {"priorityClassName": "" if own else name, "containers": []}
    pods = decode({"podSets": [{"name": "main", "template": {"spec": spec}}]}, dict)["podSets"]
    job = ObjectMeta(name="job", labels=labels)
    try:
        priority = priority_of(job, [_pod_set(each) for each in pods], cluster.mirrors)
    except PriorityClassMissingError as error:
        return "" if case.want["wantErr"] else f"unexpected error: {error}"
    reference = priority.reference
    found = None if reference is None else (reference.group, reference.kind, reference.name)
    ref = case.want["wantPriorityClassRef"]
    wanted = None if ref is None else (ref["group"], ref["kind"], ref["name"])
    value = case.want["wantPriorityClassValue"]
    ok = not case.want["wantErr"] and found == wanted and (priority.value or 0) == value
    return "" if ok else f"expected {wanted}: {value}, got {found}: {priority.value}"


def _pod_set(body):
    return decode({"metadata": {}, "spec": {"podSets": [body]}}, Workload).spec.pod_sets[0]
