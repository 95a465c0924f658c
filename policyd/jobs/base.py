"""The interface of a kind of job to the queue.

A kind is a value: where its objects are served, which Struct reads the part of them that matters,
and a few functions on that Struct. Changes are made on a draft, so that the same function works at
the webhooks, on the whole object, and in the controller, on the part it has read.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import msgspec

from policyd.api.kueue import PodSet, ReclaimablePod
from policyd.api.kueue.names import PREBUILT_WORKLOAD, QUEUE_NAME
from policyd.api.kueue.validation import FieldError
from policyd.api.meta import Condition, Json, ObjectMeta, OwnerReference, Wire
from policyd.errors import PolicydError
from policyd.jobs.gangs.gang import CreationOrder
from policyd.patch.draft import Draft
from policyd.patch.operations import Path


class JobObject(Wire, frozen=True):
    """The base of a job as it is read: every kind adds its `spec` and `status`."""

    metadata: ObjectMeta = ObjectMeta()


J = TypeVar("J", bound=JobObject)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobOutcome:
    """How a job ended."""

    succeeded: bool
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Basis:
    """An object that a job is made from, so that nothing is known of its pods without it."""

    group: str
    version: str
    plural: str
    kind: str
    name: str
    namespaced: bool

    def key(self, namespace: str) -> str:
        """Return a name among all such objects, given the namespace of a job that names it."""
        return f"{self.kind}/{namespace if self.namespaced else ''}/{self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Elastic(Generic[J]):
    """How jobs of a kind grow and shrink while they run, those that are annotated so.

    Attributes:
        templates: Where the templates are whose pods wait for quota when they are added.
        selector: Labels by which such pods name their job, `name=value`; empty if there are none.
        sized_by: The object that sets the size of a running job; None if the job does.
        sized: The job with the number of pods of that object.
        notes: Annotations of a slice: of which state of that its size is.
    """

    templates: Callable[[J], tuple[Path, ...]]
    selector: Callable[[J], str]
    sized_by: Callable[[J], Basis | None] = lambda _job: None
    sized: Callable[[J, Json], J] = lambda job, _found: job
    notes: Callable[[J], Mapping[str, str]] = lambda _job: {}


class SizeError(PolicydError):
    """The object that sets the size of a job names pods that the job does not know."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobKind(Generic[J]):
    """A kind of job that can be suspended.

    Attributes:
        group: API group of the objects.
        version: API version that is read and written.
        plural: Name of the collection in paths.
        kind: Kind of the objects.
        type: Struct that reads what the functions below need.
        pod_sets: The pod sets of the job, with the parts of templates that the queue reads.
        templates: The paths of the pod templates in the object, one for each pod set.
        suspended: Whether the job is suspended.
        suspend_path: The path of that boolean.
        fixed_while_active: Whether the API server denies changes of the templates until the pods
            are gone.
        priority_class: PriorityClass that the job names outside of its templates; empty if none.
        active: Whether the job has pods that still run.
        outcome: How the job ended; None while it has not.
        ready: Whether all its pods run or have succeeded.
        reclaimable: Pods that no longer need their quota; those of no pod set are left out.
        mistakes: The errors in a job of this kind in particular, given the old one.
        resize: Has other numbers of pods run at a time, where a kind can be admitted in part, or
            where a stop restores them.
        reset: Merge patch of the status that must follow a suspension before the templates may
            change back; None if none is needed.
        whole: The templates as the job's pods will have them, given those at their paths.
        prepare: Makes the places that the paths name, before a start writes there.
        moved: Fields of a template that are elsewhere in this kind, by their path in a template;
            both are relative to the path of the template.
        settle: Completes what a start or a stop wrote, where the operator asks for more.
        on_hold: Whether the job cannot use quota for now.
        ignored: Whether the job has no pods of its own, so that no queue concerns it.
        lingers: Whether a job that is being deleted still has pods to clear up with, which use its
            quota.
        only_managed: Whether a job that names no queue is not checked.
        defaults: The fields that every new job gets from the webhooks, in a queue or not, since it
            cannot be added later; None if none.
        elastic: How they grow and shrink while they run; None if they cannot.
        basis: The object that the job is made from, if there is one to read.
        on_basis: The job with its basis as it was read.
        made: The part of a basis that `on_basis` needs to tell what is requested; None if the kind
            has no basis.
        annotation_paths: The paths of each template's annotations in errors;
            None for their real paths.
        clear: Takes away all that a start wrote, where the user wrote nothing there; None if the
            templates are put back instead.
        fixed_while_started: Whether a start has to be written before the job is resumed.
        comes: How its pods are made, if not all at once.
        number: Says at which index the pods of a template begin, where it is not the first.
        takes_prebuilt: Whether a job may name a prebuilt workload.
        limit: How long it may run by its own fields, in seconds; None if they do not say.
    """

    group: str
    version: str
    plural: str
    kind: str
    type: type[J]
    pod_sets: Callable[[J], tuple[PodSet, ...]]
    templates: Callable[[J], tuple[Path, ...]]
    suspended: Callable[[J], bool]
    active: Callable[[J], bool]
    outcome: Callable[[J], JobOutcome | None]
    ready: Callable[[J], bool]
    reclaimable: Callable[[J], tuple[ReclaimablePod, ...]]
    suspend_path: Path = ("spec", "suspend")
    fixed_while_active: bool = False
    priority_class: Callable[[J], str] = lambda _job: ""
    mistakes: Callable[[J, J | None], Iterable[FieldError]] = lambda _job, _old: ()
    resize: Callable[[Draft, Sequence[int]], None] = lambda _draft, _counts: None
    reset: Callable[[J], Json] = lambda _job: None
    whole: Callable[[J, Sequence[Json]], Sequence[Json]] = lambda _job, templates: templates
    prepare: Callable[[Draft, J], None] = lambda _draft, _job: None
    moved: Mapping[Path, Path] = field(default_factory=dict)
    settle: Callable[[Draft], None] = lambda _draft: None
    on_hold: Callable[[J], bool] = lambda _job: False
    ignored: Callable[[J], bool] = lambda _job: False
    lingers: Callable[[J], bool] = lambda _job: False
    only_managed: bool = False
    defaults: Callable[[Draft], None] | None = None
    elastic: Elastic[J] | None = None
    basis: Callable[[J], Basis | None] = lambda _job: None
    on_basis: Callable[[J, Json], J] = lambda job, _found: job
    made: Callable[[Json], Json] | None = None
    annotation_paths: Callable[[J], Sequence[str]] | None = None
    clear: Callable[[Draft], None] | None = None
    fixed_while_started: bool = False
    comes: Callable[[J], CreationOrder] = lambda _job: ""
    number: Callable[[Draft, J], None] = lambda _draft, _job: None
    takes_prebuilt: bool = True
    limit: Callable[[J], int | None] = lambda _job: None

    def suspend(self, draft: Draft) -> None:
        """Tell the job to have no pods."""
        draft.set(self.suspend_path, value=True)

    def resume(self, draft: Draft) -> None:
        """Tell the job to have its pods."""
        draft.set(self.suspend_path, value=False)

    @property
    def key(self) -> str:
        """Its name among all kinds of jobs."""
        return self.kind

    @property
    def api_version(self) -> str:
        """`group/version`."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def owns(self, owner: OwnerReference) -> bool:
        """Tell whether `owner` names a job of this kind, in whichever version."""
        group = owner.api_version.rpartition("/")[0]
        return (owner.kind, group) == (self.kind, self.group)


def is_ignored(kind: JobKind[Any], obj: Json) -> bool:
    """Tell whether the queue has nothing to do with an object of a kind; not if it is not of it."""
    try:
        return kind.ignored(msgspec.convert(obj, kind.type))
    except msgspec.ValidationError:
        return False


def queue_name(metadata: ObjectMeta) -> str:
    """Return the LocalQueue that an object is submitted to; empty if to none."""
    return metadata.labels.get(QUEUE_NAME, "")


def prebuilt_name(metadata: ObjectMeta) -> str:
    """Return the name of the prebuilt workload of a job; empty if it has none."""
    annotated = metadata.annotations.get(PREBUILT_WORKLOAD)
    return annotated or metadata.labels.get(PREBUILT_WORKLOAD, "")


def is_pod(owner: OwnerReference) -> bool:
    """Tell whether an owner reference names a pod."""
    return (owner.api_version, owner.kind) == ("v1", "Pod")


def controller_of(metadata: ObjectMeta) -> OwnerReference | None:
    """Return the object that manages this one, if one does."""
    return next((owner for owner in metadata.owner_references if owner.controller), None)


def ended_by(conditions: Iterable[Condition], *, succeeded: str, failed: str) -> JobOutcome | None:
    """Return how a job ended, by the types of the conditions that say so; None if it has not."""
    for condition in conditions:
        if condition.type in {succeeded, failed} and condition.status == "True":
            return JobOutcome(succeeded=condition.type == succeeded, message=condition.message)
    return None
