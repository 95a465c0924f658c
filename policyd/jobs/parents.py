"""Objects that make pods and cannot be suspended: their pods are held instead, alone or in groups.

A parent marks the templates of its pods, so that the webhooks hold them. The pods of a Deployment
queue one by one. Those of the other kinds start together: a group has one workload, which exists
before its pods are.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

from msgspec.structs import replace

from policyd.api.kueue import PodSet, Workload
from policyd.api.kueue.names import (
    IS_GROUP_WORKLOAD,
    MANAGED,
    POD_GROUP_NAME,
    POD_GROUP_TOTAL_COUNT,
    PREBUILT_WORKLOAD,
    PRIORITY_CLASS,
    QUEUE_NAME,
    RESOURCE_IN_USE_FINALIZER,
    ROLE_HASH,
)
from policyd.api.kueue.validation import FieldError
from policyd.api.meta import ObjectMeta, OwnerReference, Wire
from policyd.jobs.base import JobObject, JobOutcome, controller_of
from policyd.jobs.gangs.gang import CreationOrder
from policyd.jobs.pods import SUSPENDING_PARENT, QueuedPod, group_name, is_gated
from policyd.jobs.rules.surroundings import JobContext
from policyd.jobs.workload import (
    LONGEST_LABEL,
    Priority,
    new_spec,
    uid_label,
    workload_name,
)
from policyd.patch.draft import Draft
from policyd.patch.operations import Path

COMPONENT_INDEX: Final = "kueue.x-k8s.io/component-workload-index"
"""Annotation of a workload: which of its parent's groups it stands for."""
OWNER_KIND: Final = "kueue.x-k8s.io/job-owner-gvk"
"""Annotation of a workload: the kind of its parent, `group/version, Kind=kind`."""
OWNER_NAME: Final = "kueue.x-k8s.io/job-owner-name"
"""Annotation of a workload: the name of its parent."""


class ParentStatus(Wire, frozen=True):
    """How far a parent has come."""

    replicas: int = 0
    ready_replicas: int = 0
    updated_replicas: int = 0
    current_revision: str = ""
    update_revision: str = ""


class Parent(JobObject, frozen=True):
    """The base of a parent as it is read: every kind adds its `spec`."""

    status: ParentStatus = ParentStatus()


P = TypeVar("P", bound=Parent)


@dataclass(frozen=True, slots=True, kw_only=True)
class ParentPodGroup:
    """Pods of a parent that start together.

    Attributes:
        index: The number of the group; empty if the parent has only one.
        pod_sets: Its pod sets.
        paths: The paths of its templates in the parent.
    """

    index: str
    pod_sets: tuple[PodSet, ...]
    paths: tuple[Path, ...]

    @property
    def total(self) -> int:
        """How many pods it has."""
        return sum(each.count for each in self.pod_sets)


def _controller(pod: QueuedPod) -> str:
    owner = controller_of(pod.metadata)
    return "" if owner is None else owner.name


@dataclass(frozen=True, slots=True, kw_only=True)
class ParentKind(Generic[P]):
    """A kind whose pods are held for it.

    Attributes:
        group: API group of the objects.
        version: API version that is read.
        plural: Name of the collection in paths.
        kind: Kind of the objects.
        type: Struct that reads what the functions below need.
        word: Kueue's name of the kind in the annotation of pods that are gated for it.
        templates: The paths of the templates of its pods.
        mark: Marks the templates so that their pods are gated.
        groups: Groups of pods that start together; None if pods queue one by one.
        name_of: The name of a pod's parent; empty if it has none.
        index_of: Which group a pod is in, by its index.
        role_of: Which pod set of its group a pod is in.
        notes: Annotations that pods of a group get beside those that all groups have.
        mistakes: The errors in this kind in particular, given the old one; both queue.
        bare: Whether the workload has the templates without their labels and annotations.
        fixed: Whether pods of another shape would not fit the existing workload.
        comes: How the pods of a group are made, if not all at once.
        outcome: How it ended; None while it has not, or if it never ends.
        alias: Its name among all kinds of jobs, if there is another one of its kind's name.
        relabels: Whether ungated pods are relabelled, too, when it gets another queue or class.
    """

    group: str
    version: str
    plural: str
    kind: str
    type: type[P]
    word: str
    templates: Callable[[P], tuple[Path, ...]]
    mark: Callable[[Draft, P], None]
    groups: Callable[[P], tuple[ParentPodGroup, ...]] | None = None
    name_of: Callable[[QueuedPod], str] = _controller
    index_of: Callable[[QueuedPod], str] = lambda _pod: ""
    role_of: Callable[[P, QueuedPod], str] = lambda _parent, _pod: ""
    notes: Mapping[str, str] = field(default_factory=dict)
    mistakes: Callable[[P, P | None, JobContext], Iterable[FieldError]] = (
        lambda _parent, _old, _surroundings: ()
    )
    bare: bool = False
    fixed: bool = False
    comes: Callable[[P], CreationOrder] = lambda _parent: ""
    relabels: bool = False
    outcome: Callable[[P], JobOutcome | None] = lambda _parent: None
    alias: str = ""

    @property
    def key(self) -> str:
        """Its name among all kinds of jobs."""
        return self.alias or self.kind

    @property
    def api_version(self) -> str:
        """`group/version`."""
        return f"{self.group}/{self.version}"

    @property
    def in_groups(self) -> bool:
        """Whether pods of this kind start together."""
        return self.groups is not None

    def owns(self, owner: OwnerReference) -> bool:
        """Tell whether `owner` names a parent of this kind, in whichever version."""
        return (owner.kind, owner.api_version.rpartition("/")[0]) == (self.kind, self.group)

    def holds(self, pod: ObjectMeta) -> bool:
        """Tell whether a pod is held for a parent of this kind."""
        return pod.annotations.get(SUSPENDING_PARENT) == self.word

    def owner(self, parent: P) -> OwnerReference:
        """Return the reference by which a parent owns its workloads."""
        metadata = parent.metadata
        return OwnerReference(
            api_version=self.api_version, kind=self.kind, name=metadata.name, uid=metadata.uid
        )


def annotate(draft: Draft, path: Path, notes: Mapping[str, str]) -> None:
    """Give the template at `path` annotations."""
    for name, value in notes.items():
        draft.set((*path, "metadata", "annotations", name), value)


def pass_on(draft: Draft, path: Path, names: Iterable[str]) -> None:
    """Give a template the labels of its parent, those that the parent has."""
    for name in names:
        value = draft.get(("metadata", "labels", name))
        if value:
            draft.set((*path, "metadata", "labels", name), value)


SUBMISSION: Final = (QUEUE_NAME, PRIORITY_CLASS)
"""Labels that say where, and how urgently, pods queue."""


def group_name_of(kind: ParentKind[P], parent: P, index: str, *, uid: str) -> str:
    """Return the name of a group's workload; without `uid`, that which it had long ago."""
    name = "-".join(filter(None, (parent.metadata.name, index)))
    owner = kind.owner(parent)
    return workload_name(replace(owner, name=name, uid=uid))


def group_workload(
    kind: ParentKind[P], parent: P, group: ParentPodGroup, *, name: str, priority: Priority
) -> Workload:
    """Return the workload to create for a group."""
    job = parent.metadata
    index = {COMPONENT_INDEX: group.index} if group.index else {}
    metadata = ObjectMeta(
        name=name,
        namespace=job.namespace,
        labels=uid_label(job.uid),
        annotations={IS_GROUP_WORKLOAD: "true", **index, **owner_notes(kind, parent)},
        finalizers=(RESOURCE_IN_USE_FINALIZER,),
        owner_references=(kind.owner(parent),),
    )
    return Workload(
        metadata=metadata, spec=new_spec(job, pod_sets=group.pod_sets, priority=priority)
    )


def owner_notes(kind: ParentKind[P], parent: P) -> dict[str, str]:
    """Return the annotations by which a workload says whose group it stands for."""
    return {
        OWNER_KIND: f"{kind.api_version}, Kind={kind.kind}",
        OWNER_NAME: parent.metadata.name,
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class PodParent(Generic[P]):
    """Where a pod belongs.

    Attributes:
        kind: Its parent's kind.
        parent: Its parent.
        group: Its group.
        workload: The name of the group's workload.
        in_labels: Whether names that labels have room for are written where Kueue has them without
            the gate WorkloadIdentifierAnnotations.
    """

    kind: ParentKind[P]
    parent: P
    group: ParentPodGroup
    workload: str
    in_labels: bool = False


def take_parent(draft: Draft, pod: QueuedPod, seat: PodParent[P]) -> None:
    """Make a pod one of its group, or let one that is keep to the queue of its parent."""
    seated = bool(group_name(pod.metadata))
    for name in SUBMISSION:
        value = seat.parent.metadata.labels.get(name)
        if value and (seat.kind.relabels or is_gated(pod) or not seated):
            draft.set(("metadata", "labels", name), value)
    if seated:
        return
    draft.set(("metadata", "labels", MANAGED), "true")
    fits = len(seat.workload) <= LONGEST_LABEL
    section = "labels" if seat.in_labels and fits else "annotations"
    for each in (POD_GROUP_NAME, PREBUILT_WORKLOAD):
        draft.set(("metadata", section, each), seat.workload)
    notes = {
        POD_GROUP_TOTAL_COUNT: str(seat.group.total),
        ROLE_HASH: seat.kind.role_of(seat.parent, pod),
        **seat.kind.notes,
    }
    annotate(draft, (), notes)
