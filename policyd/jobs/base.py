"""What a kind of job is to the queue.

A kind is a value: where its objects are served, which Struct reads the part of them that matters,
and a few functions on that Struct. Changes are made on a draft, so that the same function works at
the door, on the whole object, and in the controller, on the part it has read.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from policyd.api.kueue import PodSet, ReclaimablePod
from policyd.api.kueue.names import QUEUE_NAME
from policyd.api.meta import Json, ObjectMeta, OwnerReference, Wire
from policyd.patch.draft import Draft
from policyd.patch.operations import Path


class JobObject(Wire, frozen=True):
    """The base of what is read of a job: every kind adds its `spec` and `status`."""

    metadata: ObjectMeta = ObjectMeta()


J = TypeVar("J", bound=JobObject)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How a job ended."""

    succeeded: bool
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class JobKind(Generic[J]):
    """A kind of job that can be suspended.

    Attributes:
        group: API group of the objects.
        version: API version that is read and written.
        plural: Name of the collection in paths.
        kind: Kind of the objects.
        type: Struct that reads what the functions below need.
        pod_sets: What the job demands, the templates as far as the queue reads them.
        templates: Where the pod templates are in the object, one path for each pod set.
        suspended: Whether the job is told to have no pods.
        suspend: Tells it so.
        resume: Tells it to have its pods.
        active: Whether the job has pods that still run.
        outcome: How the job ended; None while it has not.
        ready: Whether all its pods run or have succeeded.
        reclaimable: Pods that no longer need their quota; those of no pod set are left out.
        reset: Merge patch of the status that must follow a suspension before the templates may
            change back; None if nothing must.
    """

    group: str
    version: str
    plural: str
    kind: str
    type: type[J]
    pod_sets: Callable[[J], tuple[PodSet, ...]]
    templates: Callable[[J], tuple[Path, ...]]
    suspended: Callable[[J], bool]
    suspend: Callable[[Draft], None]
    resume: Callable[[Draft], None]
    active: Callable[[J], bool]
    outcome: Callable[[J], Outcome | None]
    ready: Callable[[J], bool]
    reclaimable: Callable[[J], tuple[ReclaimablePod, ...]]
    reset: Callable[[J], Json] = lambda _job: None

    @property
    def api_version(self) -> str:
        """`group/version`."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def owns(self, owner: OwnerReference) -> bool:
        """Tell whether `owner` names a job of this kind, in whichever version."""
        group = owner.api_version.rpartition("/")[0]
        return (owner.kind, group) == (self.kind, self.group)


def queue_name(metadata: ObjectMeta) -> str:
    """Return the LocalQueue that an object is submitted to; empty if to none."""
    return metadata.labels.get(QUEUE_NAME, "")


def controller_of(metadata: ObjectMeta) -> OwnerReference | None:
    """Return the object that manages this one, if one does."""
    return next((owner for owner in metadata.owner_references if owner.controller), None)
