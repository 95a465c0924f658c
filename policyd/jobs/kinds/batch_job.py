"""batch/v1 Job: suspended by `spec.suspend`, one pod set named `main`."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Final

from msgspec.structs import replace

from policyd.api.integers import whole_number
from policyd.api.kueue import PodSet, ReclaimablePod
from policyd.api.kueue.names import (
    DEFAULT_POD_SET,
    ELASTIC_JOB,
    MIN_PARALLELISM,
    PODSET_PREFERRED_TOPOLOGY,
    PODSET_REQUIRED_TOPOLOGY,
)
from policyd.api.kueue.validation import FieldError
from policyd.api.meta import Condition, Json, Wire
from policyd.api.pods import PodTemplate
from policyd.jobs.base import Elastic, JobKind, JobObject, JobOutcome, ended_by
from policyd.jobs.injection import OF_JOBS
from policyd.jobs.topology import NO, YES, topology_request
from policyd.jobs.workload import is_elastic
from policyd.patch.draft import Draft
from policyd.patch.operations import Path

COMPLETIONS_EQUAL_PARALLELISM = "kueue.x-k8s.io/job-completions-equal-parallelism"
_SYNC_PATH: Final = f"metadata.annotations[{COMPLETIONS_EQUAL_PARALLELISM}]"
_LEAST_PATH: Final = f"metadata.annotations[{MIN_PARALLELISM}]"
_FIXED: Final = "field is immutable while the job is not suspended"

POD_INDEX_LABEL = "batch.kubernetes.io/job-completion-index"


class BatchJobSpec(Wire, frozen=True):
    """The spec of a Job."""

    parallelism: int | None = None
    completions: int | None = None
    completion_mode: str = "NonIndexed"
    active_deadline_seconds: int | None = None
    suspend: bool = False
    template: PodTemplate = PodTemplate()


class UncountedPods(Wire, frozen=True):
    """Pods that ended and are not in the counters yet, by uid."""

    succeeded: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()


class BatchJobStatus(Wire, frozen=True):
    """How far a Job has come."""

    active: int = 0
    ready: int = 0
    succeeded: int = 0
    failed: int = 0
    start_time: datetime | None = None
    completed_indexes: str = ""
    failed_indexes: str = ""
    uncounted_terminated_pods: UncountedPods | None = None
    conditions: tuple[Condition, ...] = ()


class BatchJob(JobObject, frozen=True):
    """A Job, trimmed to the fields that the queue reads."""

    spec: BatchJobSpec = BatchJobSpec()
    status: BatchJobStatus = BatchJobStatus()


def pod_sets(job: BatchJob) -> tuple[PodSet, ...]:
    """Return the pods that a Job runs at a time."""
    template = job.spec.template
    metadata = replace(template.metadata, labels=_of_user(template.metadata.labels))
    return (
        PodSet(
            name=DEFAULT_POD_SET,
            template=replace(template, metadata=metadata),
            count=pods_at_a_time(job.spec),
            min_count=_least_pods(job),
            topology_request=topology_request(
                template.metadata.annotations, pod_index_label=POD_INDEX_LABEL
            ),
        ),
    )


_UNTOLD: Final = OF_JOBS - {"batch.kubernetes.io/job-name"}
"""Labels of a template that its workload has not: those by which the Job knows its pods.

It has the name of the Job, by which pods may ask for each other's company."""


def _of_user(labels: Mapping[str, str]) -> dict[str, str]:
    """Return the labels of a template that its workload has, too."""
    return {name: text for name, text in labels.items() if name not in _UNTOLD}


def _whole(_job: BatchJob, found: Sequence[Json]) -> Sequence[Json]:
    drafts = [Draft(each) for each in found]
    for draft in drafts:
        for name in _UNTOLD:
            draft.remove(("metadata", "labels", name))
    return [draft.object for draft in drafts]


def pods_at_a_time(spec: BatchJobSpec) -> int:
    """Return the parallelism, or fewer if fewer complete the Job."""
    parallelism = _parallelism(spec)
    return parallelism if spec.completions is None else min(parallelism, spec.completions)


def _parallelism(spec: BatchJobSpec) -> int:
    return 1 if spec.parallelism is None else spec.parallelism


def _least_pods(job: BatchJob) -> int | None:
    least = whole_number(job.metadata.annotations.get(MIN_PARALLELISM, ""))
    return least if least is not None and least > 0 else None


def templates(_job: BatchJob) -> tuple[Path, ...]:
    """Return where the pod template is."""
    return (("spec", "template"),)


def resize(draft: Draft, counts: Sequence[int]) -> None:
    """Have as many pods run at a time, if the job says that fewer are enough."""
    annotations = draft.get(("metadata", "annotations")) or {}
    if MIN_PARALLELISM not in annotations:
        return
    draft.set(("spec", "parallelism"), counts[0])
    if _synced(annotations):
        draft.set(("spec", "completions"), counts[0])


def active(job: BatchJob) -> bool:
    """Tell whether a Job has pods that have not ended."""
    return job.status.active > 0


def outcome(job: BatchJob) -> JobOutcome | None:
    """Return how a Job ended."""
    ended = ended_by(job.status.conditions, succeeded="Complete", failed="Failed")
    if ended is None or ended.message:
        return ended
    default = "Job finished successfully" if ended.succeeded else "Job failed"
    return JobOutcome(succeeded=ended.succeeded, message=default)


def ready(job: BatchJob) -> bool:
    """Tell whether all pods that a Job runs at a time are ready or have succeeded."""
    uncounted = job.status.uncounted_terminated_pods
    ended = job.status.succeeded + (len(uncounted.succeeded) if uncounted else 0)
    return ended + job.status.ready >= pods_at_a_time(job.spec)


def reclaimable(job: BatchJob) -> tuple[ReclaimablePod, ...]:
    """Return the number of pods whose quota is no longer needed, as fewer are left to complete."""
    parallelism = _parallelism(job.spec)
    if parallelism == 1:
        return ()
    completions = parallelism if job.spec.completions is None else job.spec.completions
    ended = _ended_pods(job, completions)
    if not ended:
        return ()
    # Places beyond the completions never have pods: counted, they free quota of pods that run.
    count = pods_at_a_time(job.spec) - max(completions - ended, 0)
    return (ReclaimablePod(name=DEFAULT_POD_SET, count=count),) if count > 0 else ()


def _ended_pods(job: BatchJob, completions: int) -> int:
    if job.spec.completion_mode != "Indexed":
        return job.status.succeeded
    written = f"{job.status.completed_indexes},{job.status.failed_indexes}"
    return count_indexes(written, below=completions)


def count_indexes(text: str, *, below: int) -> int:
    """Count the indexes of a Job's status, such as `1,3-5,7`, that are smaller than `below`.

    An index that is written twice counts once; a text that is not a number is skipped.
    """
    spans = []
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        last = last or first
        if first.isdecimal() and last.isdecimal():
            spans.append((int(first), min(int(last), below - 1)))
    counted, after = 0, 0
    for start, end in sorted(spans):
        counted += max(0, end + 1 - max(start, after))
        after = max(after, end + 1)
    return counted


def reset(job: BatchJob) -> Json:
    """Return a status that makes the template of a suspended Job mutable: it was never started."""
    return None if job.status.start_time is None else {"status": {"startTime": None}}


def mistakes(job: BatchJob, old: BatchJob | None) -> Iterator[FieldError]:
    """Yield the errors in the number of pods that a Job may be admitted with.

    A Job that runs with fewer pods than it asked for may have its minimum, and not one more: so
    the minimum is compared with the size only where it is set.
    """
    annotations = job.metadata.annotations
    before = {} if old is None else old.metadata.annotations
    if old is None or before.get(MIN_PARALLELISM) != annotations.get(MIN_PARALLELISM):
        yield from _wrong_least(annotations, pods_at_a_time(job.spec))
    yield from _wrong_sync(annotations, job.spec)
    yield from _wrong_topology(job)
    if old is None or old.spec.suspend:
        return
    if MIN_PARALLELISM in before and _parallelism(old.spec) != _parallelism(job.spec):
        detail = "cannot change when partial admission is enabled and the job is not suspended"
        yield FieldError("spec.parallelism", job.spec.parallelism, detail, "Forbidden")
    if not job.spec.suspend and _synced(before) != _synced(annotations):
        value, detail = annotations.get(COMPLETIONS_EQUAL_PARALLELISM, ""), _FIXED
        yield FieldError(_SYNC_PATH, value, detail, "Forbidden")


def _wrong_least(annotations: Mapping[str, str], pods: int) -> Iterator[FieldError]:
    text = annotations.get(MIN_PARALLELISM)
    if text is None:
        return
    least = whole_number(text)
    if least is None:
        yield FieldError(_LEAST_PATH, text, "must be a whole number")
    elif not 0 < least < pods:
        yield FieldError(_LEAST_PATH, least, f"should be between 0 and {pods}")
    if annotations.get(ELASTIC_JOB) == "true":
        detail = "partial admission and elastic job cannot be used together"
        yield FieldError(_LEAST_PATH, text, detail)


def _wrong_topology(job: BatchJob) -> Iterator[FieldError]:
    """Yield the topology requests of an elastic job: places of later pods are not known."""
    asked = job.spec.template.metadata.annotations
    for name in (PODSET_REQUIRED_TOPOLOGY, PODSET_PREFERRED_TOPOLOGY):
        if name in asked and is_elastic(job.metadata):
            where = f"spec.template.metadata.annotations[{name}]"
            detail = "may not be set for an elastic job: its pods can be placed anywhere only"
            yield FieldError(where, asked[name], detail, "Forbidden")


def _wrong_sync(annotations: Mapping[str, str], spec: BatchJobSpec) -> Iterator[FieldError]:
    text = annotations.get(COMPLETIONS_EQUAL_PARALLELISM)
    if text is None:
        return
    if text.lower() not in YES | NO:
        yield FieldError(_SYNC_PATH, text, "must be true or false")
    elif not _synced(annotations):
        return
    elif spec.completion_mode != "Indexed":
        yield FieldError(_SYNC_PATH, text, "should not be enabled for NonIndexed jobs")
    elif (1 if spec.completions is None else spec.completions) != _parallelism(spec):
        detail = f"should be equal to parallelism when {COMPLETIONS_EQUAL_PARALLELISM} is true"
        yield FieldError("spec.completions", spec.completions, detail)


def _synced(annotations: Mapping[str, str]) -> bool:
    return annotations.get(COMPLETIONS_EQUAL_PARALLELISM, "").lower() in YES


BATCH_JOB = JobKind(
    group="batch",
    version="v1",
    plural="jobs",
    kind="Job",
    type=BatchJob,
    limit=lambda job: job.spec.active_deadline_seconds,
    pod_sets=pod_sets,
    templates=templates,
    suspended=lambda job: job.spec.suspend,
    active=active,
    outcome=outcome,
    ready=ready,
    reclaimable=reclaimable,
    fixed_while_active=True,
    elastic=Elastic(
        templates=templates,
        selector=lambda job: f"batch.kubernetes.io/job-name={job.metadata.name}",
    ),
    mistakes=mistakes,
    resize=resize,
    reset=reset,
    whole=_whole,
)
