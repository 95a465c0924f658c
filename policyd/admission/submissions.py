"""New jobs as they are submitted to a queue: their pods, and what a verdict on them is about."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec

from policyd.api.kueue import PodSet
from policyd.api.kueue.names import DEFAULT_POD_SET
from policyd.api.meta import Json, ObjectMeta
from policyd.api.pods import PodTemplate
from policyd.engine.objects.pods import PodError, claims
from policyd.jobs.base import prebuilt_name, queue_name
from policyd.jobs.integrations import POD
from policyd.jobs.kinds.registry import find_kind, find_parent
from policyd.jobs.lifecycle import gates_of
from policyd.jobs.pod_groups import PodGroup
from policyd.jobs.pods import SUSPENDING_PARENT, QueuedPod, group_name, is_gated
from policyd.jobs.rules.ownership import is_part
from policyd.jobs.rules.surroundings import JobContext


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """A job as it is submitted.

    Attributes:
        metadata: The job's, with its namespace.
        pod_sets: The pods that queue together; none where `made` returns them.
        named: The PriorityClass that the job names outside of its templates; "" for none.
        about: What the verdict is about, if not all of the job; "" if it is.
        basis: Key of the object that the job is made from; "" for none.
        made: Returns the pods, given that object.
    """

    metadata: ObjectMeta
    pod_sets: tuple[PodSet, ...]
    named: str = ""
    about: str = ""
    basis: str = ""
    made: Callable[[Json], tuple[PodSet, ...]] | None = None


def submission_of(
    obj: Json, group: str, kind: str, surroundings: JobContext, namespace: str
) -> Submission | None:
    """Return how an object is submitted to a queue; None if it is not, or that is not known yet.

    Args:
        obj: The object, as the webhooks changed it.
        group: Its API group.
        kind: Its kind.
        surroundings: Other inputs.
        namespace: Of the request; objects often leave it out.
    """
    try:
        metadata = msgspec.convert(obj.get("metadata"), ObjectMeta)
        metadata = msgspec.structs.replace(metadata, namespace=namespace)
        if (
            not queue_name(metadata)
            or prebuilt_name(metadata)
            or gates_of(metadata)
            or is_part(obj, surroundings)
            or claims(obj)
        ):
            return None
        if (group, kind) == POD:
            pod = msgspec.convert(obj, QueuedPod)
            return _of_pod(msgspec.structs.replace(pod, metadata=metadata))
        return _of_job(obj, metadata, group, kind)
    except (msgspec.ValidationError, PodError):
        return None  # the API server reports an object that is not of its type


def _of_job(obj: Json, metadata: ObjectMeta, group: str, kind: str) -> Submission | None:
    known = find_kind(group, kind)
    if known is None:
        return _of_parent(obj, metadata, group, kind)
    job = msgspec.convert(obj, known.type)
    if known.ignored(job) or known.on_hold(job):
        return None
    basis = known.basis(job)
    if basis is not None:
        return Submission(
            metadata=metadata,
            pod_sets=(),
            named=known.priority_class(job),
            basis=basis.key(metadata.namespace),
            made=lambda found: known.pod_sets(known.on_basis(job, found)),
        )
    return Submission(
        metadata=metadata, pod_sets=known.pod_sets(job), named=known.priority_class(job)
    )


def _of_parent(obj: Json, metadata: ObjectMeta, group: str, kind: str) -> Submission | None:
    known = find_parent(group, kind)
    if known is None:
        return None
    parent: Any = msgspec.convert(obj, known.type)
    if known.groups is None:
        template = (obj.get("spec") or {}).get("template")
        replicas = (obj.get("spec") or {}).get("replicas", 1)
        pod_set = PodSet(
            name=DEFAULT_POD_SET, count=1, template=msgspec.convert(template, PodTemplate)
        )
        about = "each of its pods queues by itself; the first " if replicas > 1 else ""
        return Submission(metadata=metadata, pod_sets=(pod_set,), about=about) if replicas else None
    groups = known.groups(parent)
    if not groups or not groups[0].total:
        return None
    about = f"each of its {len(groups)} groups queues by itself; the first "
    return Submission(
        metadata=metadata, pod_sets=groups[0].pod_sets, about=about if len(groups) > 1 else ""
    )


def _of_pod(pod: QueuedPod) -> Submission | None:
    metadata = pod.metadata
    if SUSPENDING_PARENT in metadata.annotations or not is_gated(pod):
        return None
    group = PodGroup(name=group_name(metadata), pods=(pod,))
    if group.contradiction():
        return None
    (pod_set,) = group.pod_sets()
    about = ""
    if group.name and group.total > 1 and not group.fast:
        pod_set = msgspec.structs.replace(pod_set, count=group.total)
        about = f"if all {group.total} pods of the group are like this one, it "
    return Submission(metadata=metadata, pod_sets=(pod_set,), about=about)
