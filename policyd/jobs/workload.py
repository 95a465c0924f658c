"""The Workload that stands for a job: its name, its body, and whether it still fits the job."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha1

import msgspec

from policyd.api.gpus import part_of
from policyd.api.kueue import (
    PodSet,
    PriorityClassReference,
    ReclaimablePod,
    Workload,
    WorkloadSpec,
    workload_body,
)
from policyd.api.kueue.names import (
    ADMITTED,
    ELASTIC_JOB,
    JOB_UID,
    MAX_EXEC_TIME_SECONDS,
    RESOURCE_IN_USE_FINALIZER,
    SLICE_NAME,
)
from policyd.api.meta import Json, ObjectMeta, OwnerReference, Wire, condition_true
from policyd.api.pods import PodSpec, PodTemplate
from policyd.jobs.base import queue_name
from policyd.jobs.copied import NOTHING_COPIED, CopiedMetadata

LONGEST_NAME = 253
LONGEST_LABEL = 63
LONGEST_TIME = 2**31 - 1
"""Seconds; a Workload has no room for more."""
HASH_DIGITS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Priority:
    """How important a workload is, and which class says so."""

    value: int = 0
    reference: PriorityClassReference | None = None


def workload_name(owner: OwnerReference, *more: str) -> str:
    """Return the name that Kueue gives the workload of a job: the same for the same object.

    Args:
        owner: The job.
        more: Parts that distinguish its workloads, if it has several.
    """
    group = owner.api_version.rpartition("/")[0]
    text = "\n".join((owner.kind, group, owner.name, owner.uid, *more))
    digest = sha1(text.encode(), usedforsecurity=False).hexdigest()[:HASH_DIGITS]
    prefix = f"{owner.kind.lower()}-{owner.name}"[: LONGEST_NAME - HASH_DIGITS - 1]
    return f"{prefix}-{digest}"


def new_workload(
    job: ObjectMeta, *, owner: OwnerReference, pod_sets: tuple[PodSet, ...], priority: Priority
) -> Workload:
    """Return the workload to create for a job that stands alone.

    Args:
        job: The job's metadata.
        owner: The job, as its controller.
        pod_sets: Its pod sets.
        priority: Its priority.
    """
    metadata = ObjectMeta(
        name=workload_name(owner),
        namespace=job.namespace,
        labels=uid_label(job.uid),
        finalizers=(RESOURCE_IN_USE_FINALIZER,),
        owner_references=(owner,),
    )
    return Workload(metadata=metadata, spec=new_spec(job, pod_sets=pod_sets, priority=priority))


def uid_label(uid: str) -> dict[str, str]:
    """Return the label that names the job of a workload, if it can be one."""
    return {JOB_UID: uid} if 0 < len(uid) <= LONGEST_LABEL else {}


def new_spec(job: ObjectMeta, *, pod_sets: tuple[PodSet, ...], priority: Priority) -> WorkloadSpec:
    """Return the spec of a job's workload: requests and queue."""
    return WorkloadSpec(
        pod_sets=pod_sets,
        queue_name=queue_name(job),
        priority=priority.value,
        priority_class_ref=priority.reference,
        maximum_execution_time_seconds=maximum_execution_time(job),
    )


def body_of(
    workload: Workload, templates: Sequence[Json], copied: CopiedMetadata = NOTHING_COPIED
) -> dict[str, Json]:
    """Return the body to create a workload, or to replace its spec.

    Args:
        workload: The workload.
        templates: Of its pod sets, whole.
        copied: The metadata copied from its job.
    """
    metadata = workload.metadata
    whole = msgspec.structs.replace(
        metadata,
        labels={**copied.labels, **metadata.labels},
        annotations={**copied.annotations, **metadata.annotations},
    )
    body = workload_body(msgspec.structs.replace(workload, metadata=whole), templates)
    body["spec"].setdefault("priority", workload.spec.priority)
    for pod_set, given in zip(workload.spec.pod_sets, body["spec"].get("podSets", ()), strict=True):
        given.setdefault("name", pod_set.name)
        given.setdefault("count", pod_set.count)
        given["template"] = given["template"] or {}
        _tidy(given["template"])
    return body


def _tidy(template: dict[str, Json]) -> None:
    """Keep one of each variable of a container: the last value, in the place of the first.

    Duplicates cannot be merged, so the API server rejects them in its own lists.
    """
    spec = template.get("spec") or {}
    for section in ("initContainers", "containers"):
        for container in spec.get(section) or ():
            variables = container.get("env")
            if variables:
                container["env"] = list({each["name"]: each for each in variables}.values())


def is_elastic(job: ObjectMeta) -> bool:
    """Tell whether a job may grow and shrink while it runs."""
    return job.annotations.get(ELASTIC_JOB) == "true"


def slice_name(workload: Workload) -> str:
    """Return the name that all slices of an elastic workload share; its own if it is in none."""
    return workload.metadata.annotations.get(SLICE_NAME) or workload.metadata.name


def maximum_execution_time(job: ObjectMeta) -> int | None:
    """Return how many seconds a job may run; None if it may run for ever."""
    text = job.labels.get(MAX_EXEC_TIME_SECONDS, "")
    seconds = int(text) if text.isdecimal() else 0
    return min(seconds, LONGEST_TIME) or None


def keeps_time(job: ObjectMeta, workload: Workload) -> bool:
    """Tell whether a workload may run as long as its job says."""
    return workload.spec.maximum_execution_time_seconds == maximum_execution_time(job)


def equivalent(demanded: Sequence[PodSet], workload: Workload, *, running: bool = False) -> bool:
    """Tell whether a workload still has its job's requests.

    A job that was let go with fewer pods than it asked for demands these from then on, until it
    is put back. The tolerations of a job that is admitted are those of its flavors too, so then
    they do not count. Nor does a part of a GPU then: quota is held for the one that it had.
    """
    held = workload.spec.pod_sets
    admitted = condition_true(workload.status.conditions, ADMITTED)
    forms = [_as_started(workload)] if running else [held, _as_started(workload)]
    return any(
        len(form) == len(demanded)
        and all(
            _same_pods(ours, theirs, admitted=admitted)
            for ours, theirs in zip(demanded, form, strict=True)
        )
        for form in forms
    )


def _as_started(workload: Workload) -> tuple[PodSet, ...]:
    """Return the pod sets with as many pods as there is quota for, where fewer are enough."""
    counts = admitted_counts(workload)
    return tuple(
        each
        if each.min_count is None
        else msgspec.structs.replace(each, count=counts.get(each.name, each.count))
        for each in workload.spec.pod_sets
    )


def admitted_counts(workload: Workload) -> dict[str, int]:
    """Return how many pods of each pod set have quota, by its name; nothing without quota."""
    admission = workload.status.admission
    assigned = () if admission is None else admission.pod_set_assignments
    return {each.name: each.count for each in assigned if each.count}


def _same_pods(left: PodSet, right: PodSet, *, admitted: bool) -> bool:
    if (left.count, left.min_count) != (right.count, right.min_count):
        return False
    if not admitted and _before_start(left.template) != _before_start(right.template):
        return False
    return _demand(left.template) == _demand(right.template)


def _before_start(template: PodTemplate) -> tuple[object, ...]:
    return template.spec.tolerations, part_of(template.metadata.annotations)


def _demand(template: PodTemplate) -> tuple[tuple[Wire, ...], ...]:
    return template.spec.init_containers, template.spec.containers, template.spec.resource_claims


def within_sizes(
    reclaimable: Iterable[ReclaimablePod], pod_sets: Iterable[PodSet]
) -> tuple[ReclaimablePod, ...]:
    """Return the pods that are given back, of no pod set more than it has."""
    sizes = {pod_set.name: pod_set.count for pod_set in pod_sets}
    return tuple(
        ReclaimablePod(name=each.name, count=min(each.count, sizes.get(each.name, each.count)))
        for each in reclaimable
    )


def pods_given_back(workload: Workload) -> dict[str, int]:
    """Return how many pods of each pod set no longer need their quota.

    A claim that pods share has its devices until the last of them ends, so that pod sets that name
    one keep all of their quota.
    """
    if not workload.status.reclaimable_pods:
        return {}
    sharing = {each.name for each in workload.spec.pod_sets if shares_claims(each.template.spec)}
    return {
        each.name: each.count
        for each in workload.status.reclaimable_pods
        if each.name not in sharing
    }


def pods_left(workload: Workload, given_back: Mapping[str, int]) -> dict[str, int]:
    """Return how many pods of each admitted pod set still need their quota.

    An elastic job that shrank has fewer than it was admitted with; but a claim that its pods share
    does not shrink.
    """
    admission = workload.status.admission
    pod_sets = {each.name: each for each in workload.spec.pod_sets}
    left: dict[str, int] = {}
    for assigned in () if admission is None else admission.pod_set_assignments:
        pod_set = pod_sets.get(assigned.name)
        count, before = 0 if pod_set is None else pod_set.count, assigned.count or 0
        if pod_set is not None and count < before and shares_claims(pod_set.template.spec):
            count = before
        left[assigned.name] = max(0, count - given_back.get(assigned.name, 0))
    return left


def shares_claims(spec: PodSpec) -> bool:
    """Tell whether pods of `spec` name a claim, which they share."""
    return any(each.resource_claim_name for each in spec.resource_claims)
