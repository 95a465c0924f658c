"""Elastic jobs: each time one grows, another workload, a slice, asks for the bigger whole.

A slice that holds quota keeps it until the one that is to replace it has its own; a job that
shrinks gives back at once. So there are two slices at most that matter, and the rest is finished.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from typing import Any, Final, Literal

from msgspec.structs import replace

from policyd.alloc.settings import Gates
from policyd.api.kueue import PodSet, Workload
from policyd.api.kueue.names import (
    ELASTIC_JOB,
    EVICTED,
    JOB_UID,
    POD_SET,
    SLICE_NAME,
    SLICE_REPLACEMENT_FOR,
)
from policyd.api.meta import ObjectMeta, OwnerReference, condition_true, find_condition
from policyd.jobs.base import JobKind
from policyd.jobs.injection import PodInjection
from policyd.jobs.lifecycle import has_quota, is_finished
from policyd.jobs.pods import LONGEST_AGO, QueuedPod, by_age, has_ended
from policyd.jobs.steps import Retire
from policyd.jobs.workload import admitted_counts, is_elastic, slice_name, workload_name

SLICE_REPLACED: Final = "WorkloadSliceReplaced"
NO_NOTES: Final[Mapping[str, str]] = {}
OUT_OF_SYNC: Final = "The workload slice is out of sync with its parent job"

Fit = Literal["Same", "Resize", "Replace", "Different"]
"""How a slice fits its job's requests: equal, another size, too small, or different."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceChain:
    """The slices of a job that have not ended.

    Attributes:
        newest: The slice of the job's requests; None if there is none yet.
        held: The one that it runs on until `newest` has quota.
        outdated: Those that are of no use any more, the oldest first.
    """

    newest: Workload | None
    held: Workload | None = None
    outdated: tuple[Workload, ...] = ()


def may_grow(kind: JobKind[Any], job: ObjectMeta, gates: Gates) -> bool:
    """Tell whether a job may grow and shrink while it runs."""
    on = gates.elastic_jobs_via_workload_slices
    return on and kind.elastic is not None and is_elastic(job)


def oldest_first(workloads: Iterable[Workload]) -> list[Workload]:
    """Sort the unfinished workloads of a job by age; a slice follows the one that it replaces."""
    unfinished = sorted(
        (each for each in workloads if not is_finished(each)),
        key=lambda each: (_created(each), each.metadata.name),
    )
    for before, after in pairwise(list(unfinished)):
        if _created(before) == _created(after) and replaces(before, after):
            place = unfinished.index(before)
            unfinished[place : place + 2] = [after, before]
    return unfinished


def _created(workload: Workload) -> datetime:
    return workload.metadata.creation_timestamp or LONGEST_AGO


def replaces(new: Workload, old: Workload) -> bool:
    """Tell whether a slice is to replace another one."""
    return new.metadata.annotations.get(SLICE_REPLACEMENT_FOR) == (
        f"{old.metadata.namespace}/{old.metadata.name}"
    )


def latest_active(workloads: Iterable[Workload]) -> Workload | None:
    """Return the newest slice that has quota and keeps it: the one whose pods may run."""
    active = [each for each in oldest_first(workloads) if has_quota(each) and not _evicted(each)]
    return active[-1] if active else None


def settle(workloads: Iterable[Workload]) -> SliceChain:
    """Return which slices of a job count.

    A slice that stands alone counts even if it is evicted: it will queue again. Of several, those
    that are evicted ask for a size that the job no longer has; but one that was deactivated before
    it had quota asks again once its user lets it.
    """
    slices = oldest_first(workloads)
    if len(slices) < 2:
        return SliceChain(newest=slices[0] if slices else None)
    held = latest_active(slices)
    waiting = [each for each in slices if not has_quota(each) and _asks(each)]
    if held is not None:
        waiting = [each for each in waiting if replaces(each, held)]
    newest = waiting[-1] if waiting else held
    outdated = tuple(each for each in slices if each is not newest and each is not held)
    return SliceChain(newest=newest, held=held if waiting else None, outdated=outdated)


def retired(slice_: Workload, chain: SliceChain) -> Retire:
    """Return the step that ends a slice that is of no use any more, and says why."""
    for other in (chain.held, chain.newest):
        if other is not None and has_quota(other) and replaces(other, slice_):
            return Retire(slice_, SLICE_REPLACED, replacement_message(other))
    return Retire(slice_, "OutOfSync", OUT_OF_SYNC)


def replacement_message(workload: Workload) -> str:
    """Name the slice for which a smaller one is finished; in Kueue's words."""
    uid, job_uid = workload.metadata.uid, workload.metadata.labels.get(JOB_UID, "")
    return (
        f"Replaced to accommodate a workload (UID: {uid}, JobUID: {job_uid}) due to workload slice"
        " aggregation"
    )


def _evicted(workload: Workload) -> bool:
    return condition_true(workload.status.conditions, EVICTED)


def _asks(workload: Workload) -> bool:
    eviction = find_condition(workload.status.conditions, EVICTED)
    deactivated = eviction is not None and eviction.reason.startswith("Deactivated")
    return deactivated or not _evicted(workload)


def fit_of(pod_sets: Sequence[PodSet], newest: Workload) -> Fit:
    """Return how the newest slice of a job fits the job's requests."""
    wanted = {each.name: each.count for each in pod_sets}
    has = {each.name: each.count for each in newest.spec.pod_sets}
    if wanted.keys() != has.keys():
        return "Different"
    if wanted == has:
        return "Same"
    return "Resize" if not has_quota(newest) or scaled_down(has, wanted) else "Replace"


def scaled_down(old: Mapping[str, int], new: Mapping[str, int]) -> bool:
    """Tell whether some pod sets shrink and none grows; those that are in one only do not count."""
    both = old.keys() & new.keys()
    shrinks = any(new[name] < old[name] for name in both)
    return shrinks and not any(new[name] > old[name] for name in both)


def as_slice(
    workload: Workload,
    *,
    owner: OwnerReference,
    generation: int,
    old: Workload | None,
    notes: Mapping[str, str] = NO_NOTES,
) -> Workload:
    """Return a new workload as a slice of an elastic job.

    Args:
        workload: As it would be for a job that is not elastic.
        owner: The job.
        generation: Of the job: every slice has another name.
        old: The slice that it is to replace; None for the first.
        notes: Annotations for other inputs of its size; a change of them changes its name.
    """
    metadata = workload.metadata
    name = workload_name(owner, "-".join((str(generation), *notes.values())))
    annotations = {**metadata.annotations, **notes, ELASTIC_JOB: "true", SLICE_NAME: name}
    if old is not None:
        annotations[SLICE_NAME] = slice_name(old)
        annotations[SLICE_REPLACEMENT_FOR] = old.metadata.key
    return replace(workload, metadata=replace(metadata, name=name, annotations=annotations))


def to_let_go(
    pods: Iterable[QueuedPod], granted: Workload, given: Mapping[str, PodInjection]
) -> list[tuple[QueuedPod, PodInjection]]:
    """Return the gated pods of a job to ungate, the oldest first, and their changes.

    Args:
        pods: All pods of the job.
        granted: The slice that has quota for some of them; those that run already count.
        given: The changes to the pods of each pod set.
    """
    sizes, leaving = admitted_counts(granted), []
    there: dict[str, list[QueuedPod]] = {}
    for pod in by_age(pods):
        if not has_ended(pod) and pod.metadata.deletion_timestamp is None:
            there.setdefault(pod.metadata.labels.get(POD_SET, ""), []).append(pod)
    for pod_set in granted.spec.pod_sets:
        own = there.get(pod_set.name, [])
        gated = [pod for pod in own if _is_gated(pod)]
        size = min(pod_set.count, sizes.get(pod_set.name, pod_set.count))
        room = max(0, size - (len(own) - len(gated)))
        leaving += [(pod, given[pod_set.name]) for pod in gated[:room]]
    return leaving


def _is_gated(pod: QueuedPod) -> bool:
    return any(gate.name == ELASTIC_JOB for gate in pod.spec.scheduling_gates)
