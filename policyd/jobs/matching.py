"""Match a job with its workload, and find the next step of both.

Most jobs have one that was made for them. Some name a prebuilt workload, and elastic jobs
have a chain of slices.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

import msgspec

from policyd.api.kueue import Workload
from policyd.api.kueue.names import EVICTED, IS_GROUP_WORKLOAD
from policyd.api.meta import condition_true
from policyd.jobs.base import controller_of
from policyd.jobs.lifecycle import (
    change_of_priority,
    has_finalizer,
    has_quota,
    is_finished,
    next_step,
)
from policyd.jobs.slices import Fit, SliceChain, fit_of, retired, settle
from policyd.jobs.steps import (
    Adopt,
    CreateWorkload,
    DropFinalizer,
    JobView,
    Resize,
    Retire,
    Step,
    Stop,
)
from policyd.jobs.workload import equivalent, keeps_time

MISSING_WORKLOAD = "missing workload"
OUT_OF_SYNC = "The prebuilt workload is out of sync with its user job"

Choice = tuple[Workload | None, Step | None]
"""The workload of a job, and the next step of both."""


def choose(
    job: JobView,
    owned: Sequence[Workload],
    named: Workload | None,
    *,
    watched: Callable[[Workload], bool],
) -> Choice:
    """Return the workload of a job, and the next step.

    Args:
        job: The job.
        owned: Its workloads, by name.
        named: The one that it names, if it does and that exists.
        watched: Whether the controller waits for the pods of workloads.
    """
    if job.prebuilt:
        return _prebuilt(job, named, watched)
    if job.elastic:
        chosen = _elastic(job, owned, watched)
        if chosen is not None:
            return chosen
    found, others = _match(job, owned)
    waited = found is not None and watched(found)
    return found, next_step(job, found, others, watched=waited)


def _match(job: JobView, owned: Sequence[Workload]) -> tuple[Workload | None, list[Workload]]:
    """Return the workload that is equal to the job's requests, and the others."""
    found = next((each for each in owned if _fits(job, each)), None)
    return found, [each for each in owned if each is not found]


def _fits(job: JobView, workload: Workload) -> bool:
    same_time = keeps_time(job.metadata, workload)
    return same_time and equivalent(job.pod_sets, workload, running=not job.held)


def _prebuilt(job: JobView, named: Workload | None, watched: Callable[[Workload], bool]) -> Choice:
    owner = None if named is None else controller_of(named.metadata)
    if named is None or (owner is not None and owner.uid != job.metadata.uid):
        return None, without_prebuilt(job, None)
    if owner is None:
        return (None, without_prebuilt(job, None)) if is_of_group(named) else (named, Adopt(named))
    if _fits(job, named) or (job.elastic and _fits(_resized(job, named), named)):
        return named, next_step(job, named, watched=watched(named))
    return named, without_prebuilt(job, named)


def _resized(job: JobView, slice_: Workload) -> JobView:
    """Return an elastic job with the size of a slice: another cluster resizes them one by one.

    In between, the gates of its pods keep those from running that the slice has no quota for.
    """
    counts = {each.name: each.count for each in slice_.spec.pod_sets}
    pod_sets = (
        msgspec.structs.replace(each, count=counts.get(each.name, each.count))
        for each in job.pod_sets
    )
    return replace(job, pod_sets=tuple(pod_sets))


def is_of_group(workload: Workload) -> bool:
    """Tell whether a workload stands for a group of pods, so that nothing else may take it over."""
    metadata = workload.metadata
    return metadata.annotations.get(IS_GROUP_WORKLOAD) == "true" or any(
        owner.kind == "Pod" and not owner.controller for owner in metadata.owner_references
    )


def without_prebuilt(job: JobView, named: Workload | None) -> Step | None:
    """Return the next step of a job whose prebuilt workload is another's, or does not fit."""
    if named is not None and not is_finished(named):
        return Retire(named, "OutOfSync", OUT_OF_SYNC)
    runs = job.running and job.outcome is None
    return Stop(None, "NoMatchingWorkload", MISSING_WORKLOAD) if runs else None


def _elastic(
    job: JobView, owned: Sequence[Workload], watched: Callable[[Workload], bool]
) -> Choice | None:
    """Return the next step of an elastic job; None if its pod sets are others than before."""
    chain = settle(owned)
    if chain.outdated:
        return chain.newest, retired(chain.outdated[0], chain)
    if chain.newest is None:
        ended = [each for each in owned if has_finalizer(each)] if job.outcome else []
        return None, DropFinalizer(ended[0]) if ended else next_step(job, None)
    fit = fit_of(job.pod_sets, chain.newest)
    if fit == "Different":
        return None
    if fit == "Resize":
        return chain.newest, Resize(chain.newest)
    # The job runs on the quota of an earlier slice, until a later one is admitted.
    seen = job if chain.held is None else replace(job, running=False)
    # The readiness of pods depends on the job's requests now, which exceed those of this slice.
    waited = fit == "Same" and watched(chain.newest)
    step = next_step(seen, chain.newest, watched=waited)
    return chain.newest, step or _next_slice(job, chain, fit)


def _next_slice(job: JobView, chain: SliceChain, fit: Fit) -> Step | None:
    newest = chain.newest
    assert newest is not None, "a slice that fits or not is there"
    grows = fit == "Replace" and has_quota(newest)
    if grows and not condition_true(newest.status.conditions, EVICTED):
        return CreateWorkload(newest)
    return None if chain.held is None else change_of_priority(job, chain.held)
