"""The changes to jobs that are submitted to a queue: jobs begin suspended, pods gated.

It runs on the draft that the policies have changed, so a queue name that a policy injects counts.
Doing it twice changes nothing more. Pods that queue by themselves get a finalizer, as in Kueue:
the workload of a group outlives an eviction by the pods that stay, until others replace them.
"""

from typing import Any, Final

import msgspec

from policyd.api.kueue.names import (
    ADMISSION_GATE,
    DEFAULT_LOCAL_QUEUE,
    DEFAULT_PRIORITY_CLASS,
    ELASTIC_JOB,
    MANAGED,
    PRIORITY_CLASS,
    QUEUE_NAME,
    ROLE_HASH,
    TOPOLOGY_GATE,
)
from policyd.api.meta import Json
from policyd.jobs.base import JobKind, is_ignored
from policyd.jobs.injection import add_gate
from policyd.jobs.integrations import EVERYTHING, POD, Integrations
from policyd.jobs.kinds.batch_job import BATCH_JOB
from policyd.jobs.kinds.cron_job import CRON_JOB, pass_on_queue
from policyd.jobs.kinds.registry import find_kind, find_parent
from policyd.jobs.managers import hand_over
from policyd.jobs.pods import POD_INDEX_LABEL, SUSPENDING_PARENT, role_hash
from policyd.jobs.rules.ownership import (
    belongs_to_managed,
    is_held_for_set,
    is_held_otherwise,
    is_made,
    is_part,
)
from policyd.jobs.rules.surroundings import NOWHERE, JobContext
from policyd.jobs.shape import check_shape
from policyd.jobs.topology import POD_INDEX_LABEL_NAME
from policyd.patch.draft import Draft

TOPOLOGIES: Final = "TopologyAwareScheduling"
ELASTIC_GATE: Final = "ElasticJobsViaWorkloadSlices"
CLUSTERS_GATE: Final = "MultiKueue"
CLASSES_GATE: Final = "WorkloadPriorityClassDefaulting"
_LABELS = ("metadata", "labels")
_ANNOTATIONS = ("metadata", "annotations")
_FINALIZERS = ("metadata", "finalizers")


def default_on_create(
    draft: Draft, *, group: str, kind: str, surroundings: JobContext = NOWHERE
) -> None:
    """Hold a new job or pod that is submitted to a queue; leave all others as they are.

    Those of some kinds get fields that cannot be added later, in case they are submitted then. The
    pods and jobs of a job that is held itself are left alone: they start and stop with it.

    Args:
        draft: The object as the policies left it.
        group: API group of the object; empty for the core group.
        kind: Kind of the object.
        surroundings: Other inputs.

    Raises:
        MisshapenError: If the object is not of its kind.
        PatchError: If it is so even where nothing was looked at.
    """
    if kind == "Pod" and group == "":
        _default_pod(draft, surroundings)
        return
    known = find_kind(group, kind)
    if known is not None:
        _prepare(draft, known)
    if not _submit(draft, surroundings, group=group, kind=kind):
        return
    if known is not None and not is_ignored(known, draft.object):
        known.suspend(draft)
        if _goes_away(draft, surroundings):
            hand_over(draft, group=group, kind=kind)
        if ELASTIC_GATE not in surroundings.integrations.off:
            gate_elastic(draft, known)
        if TOPOLOGIES not in surroundings.integrations.off:
            _number(draft, known)
    default_parent(draft, group=group, kind=kind, surroundings=surroundings)


def _goes_away(draft: Draft, surroundings: JobContext) -> bool:
    on = CLUSTERS_GATE not in surroundings.integrations.off
    return on and surroundings.sent_away(_text(draft, _LABELS, QUEUE_NAME))


def is_marked_on_change(group: str, kind: str) -> bool:
    """Tell whether objects of a kind are changed by the webhooks when they change, too."""
    return (group, kind) == CRON_JOB or find_parent(group, kind) is not None


def _prepare(draft: Draft, kind: JobKind[Any]) -> None:
    """Give a new job the fields that cannot be added later."""
    if kind.defaults is None:
        return
    try:
        msgspec.convert(draft.object, kind.type)
    except msgspec.ValidationError:
        return  # the API server reports an object that is not of its type
    kind.defaults(draft)


def gate_elastic(draft: Draft, kind: JobKind[Any]) -> None:
    """Hold the pods of a job that may grow while it runs: those that are added wait for quota."""
    if kind.elastic is None or _text(draft, _ANNOTATIONS, ELASTIC_JOB) != "true":
        return
    try:
        job = msgspec.convert(draft.object, kind.type)
    except msgspec.ValidationError:
        return  # the API server reports an object that is not of its type
    for path in kind.elastic.templates(job):
        add_gate(draft, path, ELASTIC_JOB)


def _number(draft: Draft, kind: JobKind[Any]) -> None:
    try:
        kind.number(draft, msgspec.convert(draft.object, kind.type))
    except msgspec.ValidationError:
        return  # the API server reports an object that is not of its type


def default_parent(
    draft: Draft, *, group: str, kind: str, surroundings: JobContext = NOWHERE
) -> None:
    """Mark the templates of a parent whose pods are gated, when it is created or changed.

    A CronJob passes its queue on. The arguments as in `default_on_create`. Anything else is left
    as it is.
    """
    if (group, kind) == CRON_JOB:
        pass_on_queue(draft)
        return
    known = find_parent(group, kind)
    if known is None or not _queues(draft, surroundings) or is_part(draft.object, surroundings):
        return
    try:
        parent = msgspec.convert(draft.object, known.type)
    except msgspec.ValidationError:
        return  # the API server reports an object that is not of its type
    if is_held_otherwise(known, draft.object, surroundings):
        return
    known.mark(draft, parent)


def _submit(draft: Draft, surroundings: JobContext, *, group: str, kind: str) -> bool:
    """Tell whether an object queues, after it was given the queue and the class of default."""
    if not _queues(draft, surroundings):
        return False
    check_shape(draft.object, group=group, kind=kind)
    if belongs_to_managed(draft.object, surroundings):
        return False
    made, named = is_made(draft.object, surroundings), bool(_text(draft, _LABELS, QUEUE_NAME))
    if surroundings.default_queue and not (named or made):
        draft.set((*_LABELS, QUEUE_NAME), DEFAULT_LOCAL_QUEUE)
        named = True
    queues = named or surroundings.integrations.manages_all
    if queues and _gives_class(draft, surroundings) and not made:
        draft.set((*_LABELS, PRIORITY_CLASS), DEFAULT_PRIORITY_CLASS)
    return queues


def _gives_class(draft: Draft, surroundings: JobContext) -> bool:
    on = surroundings.default_class and CLASSES_GATE not in surroundings.integrations.off
    return on and not _text(draft, _LABELS, PRIORITY_CLASS)


def _queues(draft: Draft, surroundings: JobContext) -> bool:
    everywhere = surroundings.default_queue or surroundings.integrations.manages_all
    return everywhere or bool(_text(draft, _LABELS, QUEUE_NAME))


def _default_pod(draft: Draft, surroundings: JobContext) -> None:
    parent = _text(draft, _ANNOTATIONS, SUSPENDING_PARENT)
    if parent and is_held_for_set(draft.object, surroundings):
        check_shape(draft.object, group="", kind="Pod")
        _gate(draft, surroundings)
    elif (parent or surroundings.integrations.plain_pods) and _submit(
        draft, surroundings, group="", kind="Pod"
    ):
        _hold_pod(draft, surroundings)


def is_prepared(group: str, kind: str) -> bool:
    """Tell whether even those new jobs of a kind are changed by the webhooks that name no queue."""
    known = find_kind(group, kind)
    return known is not None and known.defaults is not None


def holds(group: str, kind: str, integrations: Integrations = EVERYTHING) -> bool:
    """Tell whether the webhooks handle objects of this kind."""
    if (group, kind) == CRON_JOB:
        return integrations.has(BATCH_JOB.group, BATCH_JOB.kind)
    if not integrations.has(group, kind):
        return False
    known = find_kind(group, kind) or find_parent(group, kind)
    return (group, kind) == POD or known is not None


def is_held_twice(pod: Json, surroundings: JobContext = NOWHERE) -> bool:
    """Tell whether a pod is marked as gated by itself, though its job is held."""
    draft = Draft(pod)
    return (
        bool(_text(draft, _LABELS, MANAGED))
        and not _text(draft, _ANNOTATIONS, SUSPENDING_PARENT)
        and belongs_to_managed(pod, surroundings)
    )


def _gate(draft: Draft, surroundings: JobContext) -> None:
    draft.set((*_LABELS, MANAGED), "true")
    # Which flavor it gets, and so whether its place is chosen too, is not known yet; later the API
    # server takes no more gates.
    add_gate(draft, (), ADMISSION_GATE)
    if TOPOLOGIES not in surroundings.integrations.off:
        add_gate(draft, (), TOPOLOGY_GATE)


def _hold_pod(draft: Draft, surroundings: JobContext) -> None:
    _gate(draft, surroundings)
    if not _text(draft, _ANNOTATIONS, SUSPENDING_PARENT):
        _keep(draft)
    named = _text(draft, _ANNOTATIONS, POD_INDEX_LABEL_NAME)
    index = named and _text(draft, _LABELS, named)
    if index:
        draft.set((*_LABELS, POD_INDEX_LABEL), index)
    if not _text(draft, _ANNOTATIONS, ROLE_HASH):
        annotations = draft.get(_ANNOTATIONS) or {}
        role = role_hash(draft.get(("spec",)) or {}, annotations)
        draft.set((*_ANNOTATIONS, ROLE_HASH), role)


def _keep(draft: Draft) -> None:
    """Let a pod that is deleted stay until the queue has taken note of that."""
    finalizers = draft.get(_FINALIZERS) or []
    if MANAGED not in finalizers:
        draft.set(_FINALIZERS, [*finalizers, MANAGED])


def _text(draft: Draft, section: tuple[str, ...], name: str) -> str:
    value = draft.get((*section, name))
    return value if isinstance(value, str) else ""
