"""trainer.kubeflow.org/v1alpha1 TrainJob: a JobSet that is made of a runtime and a job's additions.

The runtime is an object of its own, which the job names: without it the pods are unknown.
The changes of a start are written into the job as a patch of the runtime, under the queue's name.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from policyd.api.kueue import PodSet, ReclaimablePod
from policyd.api.meta import Condition, Json, Wire
from policyd.jobs.base import Basis, JobKind, JobObject, JobOutcome, ended_by
from policyd.jobs.kinds import job_set
from policyd.jobs.kinds.job_set import JobSet, JobSetSpec, ReplicatedJob, ReplicatedJobStatus
from policyd.patch.draft import Draft
from policyd.patch.operations import Path

MANAGER: Final = "kueue.x-k8s.io/manager"
GROUP: Final = "trainer.kubeflow.org"
ANCESTOR: Final = "trainer.kubeflow.org/trainjob-ancestor-step"
TRAINER: Final = "node"
"""Name of the container that trains."""

PATCHES: Final = ("spec", "runtimePatches")
_JOBS: Final = ("trainingRuntimeSpec", "template", "spec", "replicatedJobs")
_OWN: Final = {"manager": MANAGER, "trainingRuntimeSpec": {"template": {"spec": {}}}}
_TRAINERS_OWN: Final = ("image", "command", "args")


class RuntimeReference(Wire, frozen=True):
    """Which runtime a job is made from."""

    name: str = ""
    kind: str = "ClusterTrainingRuntime"


class Trainer(Wire, frozen=True):
    """The settings of a job for the pods that train, in place of the runtime's."""

    num_nodes: int | None = None
    resources_per_node: Json = None
    image: str | None = None
    command: Json = None
    args: Json = None
    env: Json = None


class TrainJobSpec(Wire, frozen=True):
    """The spec of a TrainJob."""

    suspend: bool = False
    active_deadline_seconds: int | None = None
    runtime_ref: RuntimeReference = RuntimeReference()
    trainer: Trainer | None = None
    runtime_patches: tuple[dict[str, Any], ...] = ()


class TrainJobStatus(Wire, frozen=True):
    """How far a job has come."""

    conditions: tuple[Condition, ...] = ()
    jobs_status: tuple[ReplicatedJobStatus, ...] = ()


class TrainJob(JobObject, frozen=True):
    """A TrainJob, trimmed to the fields that the queue reads; `runtime` is its runtime's spec."""

    spec: TrainJobSpec = TrainJobSpec()
    status: TrainJobStatus = TrainJobStatus()
    runtime: Json = None


def _basis(job: TrainJob) -> Basis:
    reference = job.spec.runtime_ref
    namespaced = reference.kind == "TrainingRuntime"
    plural = "trainingruntimes" if namespaced else "clustertrainingruntimes"
    return Basis(
        group=GROUP,
        version="v1alpha1",
        plural=plural,
        kind=reference.kind,
        name=reference.name,
        namespaced=namespaced,
    )


def requesting(runtime: Json) -> Json:
    """Return the part of a runtime that decides what its jobs request, as a runtime.

    Raises:
        msgspec.ValidationError: If it is not of the type of a runtime.
    """
    spec = runtime.get("spec") or {}
    template = (spec.get("template") or {}).get("spec") or {}
    jobs = []
    for each in _objects(template.get("replicatedJobs")):
        read = msgspec.convert(each, ReplicatedJob)
        draft = Draft(msgspec.json.decode(msgspec.json.encode(read)))
        step = Draft(each).get(("template", "metadata", "labels", ANCESTOR))
        if step is not None:
            draft.set(("template", "metadata", "labels", ANCESTOR), step)
        jobs.append(draft.object)
    nodes = (spec.get("mlPolicy") or {}).get("numNodes")
    return {
        "spec": {"mlPolicy": {"numNodes": nodes}, "template": {"spec": {"replicatedJobs": jobs}}}
    }


def replicated_jobs(job: TrainJob) -> list[Json]:
    """Return the replicated jobs of the JobSet that the trainer will make."""
    runtime = job.runtime or {}
    template = (runtime.get("template") or {}).get("spec") or {}
    given = _objects(template.get("replicatedJobs"))
    jobs = [_with_trainer(job, runtime, each) for each in given]
    for patch in job.spec.runtime_patches:
        changes = _objects(Draft(patch).get(_JOBS))
        if patch.get("manager") == MANAGER:
            # Changes for an earlier runtime must not bring its pods back.
            names = {each.get("name") for each in jobs}
            changes = [each for each in changes if each.get("name") in names]
        jobs = _merged_items(jobs, changes)
    return jobs


def _objects(value: Json) -> list[Json]:
    """Return the objects of a list; runtimes and patches may hold anything."""
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def _with_trainer(job: TrainJob, runtime: Json, replicated: Json) -> Json:
    draft = Draft(replicated)
    if draft.get(("template", "metadata", "labels", ANCESTOR)) != "trainer":
        return replicated
    trainer = job.spec.trainer or Trainer()
    policy = runtime.get("mlPolicy") or {}
    nodes = policy.get("numNodes") if trainer.num_nodes is None else trainer.num_nodes
    if nodes is not None:
        draft.set(("template", "spec", "parallelism"), nodes)
        draft.set(("template", "spec", "completions"), nodes)
    where = ("template", "spec", "template", "spec", "containers")
    for index, container in enumerate(_objects(draft.get(where))):
        if container.get("name") == TRAINER:
            draft.set((*where, index), merged(container, _of_trainer(trainer)))
    return draft.object


def _of_trainer(trainer: Trainer) -> Json:
    """Return the settings of a job for the container that trains."""
    overrides = {name: getattr(trainer, name) for name in _TRAINERS_OWN}
    overrides["resources"] = trainer.resources_per_node
    found = {name: value for name, value in overrides.items() if value}
    return {**found, "env": trainer.env} if trainer.env else found


def merged(value: Json, change: Json) -> Json:
    """Lay a change over a value: objects by field, lists of named items by name, others after it.

    A list of words is replaced: a command must not be merged.
    """
    if isinstance(value, dict) and isinstance(change, dict):
        fields = {**value, **change}
        both = value.keys() & change.keys()
        return {k: merged(value[k], change[k]) if k in both else v for k, v in fields.items()}
    if isinstance(value, list) and isinstance(change, list):
        items = (*value, *change)
        return _merged_items(value, change) if all(isinstance(i, dict) for i in items) else change
    return change


def _merged_items(items: Sequence[Json], changes: Iterable[Json]) -> list[Json]:
    found = list(items)
    names = {each.get("name"): index for index, each in enumerate(items) if "name" in each}
    for change in changes:
        index = names.get(change.get("name"))
        if index is None:
            found.append(change)
        else:
            found[index] = merged(found[index], change)
    return found


def _job_set(job: TrainJob) -> JobSet:
    spec = msgspec.convert({"replicatedJobs": replicated_jobs(job)}, JobSetSpec)
    status = replace(JobSet().status, replicated_jobs_status=job.status.jobs_status)
    return JobSet(metadata=job.metadata, spec=spec, status=status)


def _pod_sets(job: TrainJob) -> tuple[PodSet, ...]:
    return job_set.pod_sets(_job_set(job))


def _whole(job: TrainJob, _templates: Sequence[Json]) -> Sequence[Json]:
    where = ("template", "spec", "template")
    return [Draft(each).get(where) or {} for each in replicated_jobs(job)]


def _own_patch(patches: Sequence[Any]) -> int:
    """Return the index of the queue's patch; that of the next, if there is none."""
    managers = [each.get("manager") for each in patches]
    return managers.index(MANAGER) if MANAGER in managers else len(managers)


def _templates(job: TrainJob) -> tuple[Path, ...]:
    own = (*PATCHES, _own_patch(job.spec.runtime_patches), *_JOBS)
    where = ("template", "spec", "template")
    return tuple((*own, index, *where) for index in range(len(replicated_jobs(job))))


def _prepare(draft: Draft, job: TrainJob) -> None:
    """Write the queue's patch, with a place for each pod set."""
    clear(draft)
    own = (*PATCHES, _own_patch(draft.get(PATCHES)), *_JOBS)
    places = [
        {"name": each.get("name"), "template": {"spec": {"template": {"spec": {}}}}}
        for each in replicated_jobs(job)
    ]
    draft.set(own, places)


def clear(draft: Draft) -> None:
    """Empty the queue's patch, which exists from the creation: none can be added later."""
    patches = draft.get(PATCHES) or []
    index = _own_patch(patches)
    if index == len(patches):
        draft.append(PATCHES, _OWN)
    else:
        draft.set((*PATCHES, index), _OWN)


def _outcome(job: TrainJob) -> JobOutcome | None:
    return ended_by(job.status.conditions, succeeded="Complete", failed="Failed")


def _ready(job: TrainJob) -> bool:
    """Tell whether the Job of every replicated job, of which it has one, is ready or over."""
    jobs = job.status.jobs_status
    return bool(jobs) and all(each.ready + each.succeeded > 0 for each in jobs)


def _reclaimable(job: TrainJob) -> tuple[ReclaimablePod, ...]:
    return job_set.reclaimable(_job_set(job))


def _annotation_paths(job: TrainJob) -> Sequence[str]:
    return [f"job[{each.get('name')}].annotations" for each in replicated_jobs(job)]


TRAIN_JOB = JobKind(
    group=GROUP,
    version="v1alpha1",
    plural="trainjobs",
    kind="TrainJob",
    limit=lambda job: job.spec.active_deadline_seconds,
    type=TrainJob,
    basis=_basis,
    on_basis=lambda job, runtime: replace(job, runtime=runtime.get("spec")),
    made=requesting,
    pod_sets=_pod_sets,
    templates=_templates,
    annotation_paths=_annotation_paths,
    whole=_whole,
    defaults=clear,
    prepare=_prepare,
    clear=clear,
    fixed_while_started=True,
    suspended=lambda job: job.spec.suspend,
    active=lambda job: any(each.active for each in job.status.jobs_status),
    outcome=_outcome,
    ready=_ready,
    reclaimable=_reclaimable,
)
