"""A job that is started, and put back to what it was before."""

from collections.abc import Mapping, Sequence

from policyd.api.kueue import PodSet
from policyd.jobs.base import J, JobKind
from policyd.jobs.injection import PodInjection, StartError, inject, restore
from policyd.patch.draft import Draft


def start(
    draft: Draft,
    job: J,
    *,
    kind: JobKind[J],
    given: Sequence[PodInjection],
    counts: Mapping[str, int],
) -> None:
    """Send the pods that a job will have to where they were given room.

    Args:
        draft: The job.
        job: The same, as its kind reads it.
        kind: Its kind.
        given: What the pods of each pod set get.
        counts: How many pods of each pod set have quota, by its name.

    Raises:
        StartError: If the job says something else already, or has other pod sets.
    """
    paths = kind.templates(job)
    if len(paths) != len(given):
        raise StartError(f"the job has {len(paths)} pod sets, its workload {len(given)}")
    kind.prepare(draft, job)
    for path, injection in zip(paths, given, strict=True):
        inject(draft, path, injection)
    for count in list(counts.values())[:1]:
        kind.resize(draft, count)


def put_back(draft: Draft, job: J, *, kind: JobKind[J], pod_sets: Sequence[PodSet]) -> None:
    """Put the templates of a job back to what its workload says of them.

    Args:
        draft: The job.
        job: The same, as its kind reads it.
        kind: Its kind.
        pod_sets: Of the workload; if they are others than the job's, all stays as it is.
    """
    if kind.clear is not None:
        kind.clear(draft)
        return
    paths = kind.templates(job)
    if len(paths) != len(pod_sets):
        return
    for path, pod_set in zip(paths, pod_sets, strict=True):
        restore(draft, path, pod_set)
    for pod_set in pod_sets[:1]:
        kind.resize(draft, pod_set.count)
