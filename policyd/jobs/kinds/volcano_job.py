"""batch.volcano.sh/v1alpha1 Job: tasks of pods that are admitted together, and Volcano's gang.

The pods are held by gates, as the kind has no field that suspends it. Those that are stopped are
made again by Volcano, by the job's policies such as `RestartJob` on `PodEvicted`, and wait again.
"""

from collections.abc import Iterator
from typing import Final

from policyd.api.kueue import PodSet
from policyd.api.kueue.validation import IMMUTABLE, FieldError
from policyd.api.meta import Wire
from policyd.api.pods import PodTemplate
from policyd.jobs.base import JobOutcome
from policyd.jobs.parents import (
    SUBMISSION,
    Parent,
    ParentKind,
    ParentPodGroup,
    ParentStatus,
    annotate,
    pass_on,
)
from policyd.jobs.pods import SUSPENDING_PARENT, QueuedPod
from policyd.jobs.rules.surroundings import JobContext
from policyd.jobs.topology import topology_request
from policyd.patch.draft import Draft
from policyd.patch.operations import Path

TASK: Final = "volcano.sh/task-spec"
"""Annotation of a pod: the task that it is of."""
_OVER: Final = frozenset({"Aborted", "Completed", "Failed", "Terminated"})
"""Phases after which Volcano makes no pods."""


class TaskDependency(Wire, frozen=True):
    """The tasks that must be ready before one starts."""

    name: tuple[str, ...] = ()


class Task(Wire, frozen=True):
    """Pods that are made from one template."""

    name: str = ""
    replicas: int = 0
    depends_on: TaskDependency | None = None
    template: PodTemplate = PodTemplate()


class VolcanoJobSpec(Wire, frozen=True):
    """The spec of a Volcano Job."""

    tasks: tuple[Task, ...] = ()


class JobState(Wire, frozen=True):
    """The phase of a job."""

    phase: str = ""
    message: str = ""


class VolcanoJobStatus(ParentStatus, frozen=True):
    """How far a job has come."""

    state: JobState = JobState()


class VolcanoJob(Parent, frozen=True):
    """A Volcano Job, trimmed to the fields that the queue reads."""

    spec: VolcanoJobSpec = VolcanoJobSpec()
    status: VolcanoJobStatus = VolcanoJobStatus()


def _templates(parent: VolcanoJob) -> tuple[Path, ...]:
    return tuple(("spec", "tasks", index, "template") for index in range(len(parent.spec.tasks)))


def _groups(parent: VolcanoJob) -> tuple[ParentPodGroup, ...]:
    pod_sets = tuple(
        PodSet(
            name=_name(task.name, index),
            template=task.template,
            count=max(task.replicas, 0),
            topology_request=topology_request(task.template.metadata.annotations),
        )
        for index, task in enumerate(parent.spec.tasks)
    )
    return (ParentPodGroup(index="", pod_sets=pod_sets, paths=_templates(parent)),)


def _name(task: str, index: int) -> str:
    """Return the name of a task in lower case; Volcano numbers those without one."""
    return task.lower() or f"default{index}"


def _outcome(parent: VolcanoJob) -> JobOutcome | None:
    state = parent.status.state
    if state.phase not in _OVER:
        return None
    message = state.message or f"the job is in the phase {state.phase}"
    return JobOutcome(succeeded=state.phase == "Completed", message=message)


def _mark(draft: Draft, parent: VolcanoJob) -> None:
    for path in _templates(parent):
        annotate(draft, path, {SUSPENDING_PARENT: VOLCANO_JOB.word})
        pass_on(draft, path, SUBMISSION)


def _role_of(_parent: VolcanoJob, pod: QueuedPod) -> str:
    return pod.metadata.annotations.get(TASK, "").lower()


def _mistakes(
    parent: VolcanoJob, old: VolcanoJob | None, _surroundings: JobContext
) -> Iterator[FieldError]:
    """Yield changes of the number of pods: a group is admitted as a whole."""
    before = () if old is None else old.spec.tasks
    for index, (task, was) in enumerate(zip(parent.spec.tasks, before, strict=False)):
        if task.replicas != was.replicas:
            yield FieldError(f"spec.tasks[{index}].replicas", task.replicas, IMMUTABLE)


VOLCANO_JOB: Final[ParentKind[VolcanoJob]] = ParentKind(
    group="batch.volcano.sh",
    version="v1alpha1",
    plural="jobs",
    kind="Job",
    alias="Job.batch.volcano.sh",
    type=VolcanoJob,
    word="batch.volcano.sh/job",
    templates=_templates,
    mark=_mark,
    groups=_groups,
    role_of=_role_of,
    mistakes=_mistakes,
    fixed=True,
    outcome=_outcome,
    comes=lambda parent: "RoleByRole" if any(t.depends_on for t in parent.spec.tasks) else "",
)
