"""Changes by which something leaves its queue, or takes more than it was admitted with.

A user who may change a pod or a job could remove the fields that hold it: a scheduling gate,
`spec.suspend`, a label by which it is found. Kueue leaves that to its controller, which finds some
of it a moment later. Here it is refused, unless an account of the queue asks for it, or one of
Kubernetes' own controllers that has to.
"""

from collections.abc import Iterable, Iterator, Mapping, Set
from typing import Any, Final

import msgspec

from policyd.api.kueue.names import (
    ADMISSION_GATE,
    ELASTIC_JOB,
    MANAGED,
    POD_GROUP_TOTAL_COUNT,
    POD_SET,
    QUEUE_NAME,
    ROLE_HASH,
    SLICE_NAME,
    TOPOLOGY_GATE,
    WORKLOAD,
)
from policyd.api.kueue.validation import FieldError
from policyd.api.makers import controllers_of
from policyd.api.meta import Json
from policyd.api.pod_requests import pod_requests
from policyd.api.pods import PodSpec
from policyd.api.quantity import QuantityError
from policyd.jobs.base import JobKind, is_ignored
from policyd.jobs.kinds.registry import find_kind
from policyd.jobs.pod_groups import FAST_ADMISSION
from policyd.jobs.pods import SERVING, SUSPENDING_PARENT
from policyd.jobs.rules.ownership import Identity, belongs_to_managed, identity
from policyd.jobs.rules.submission import IDENTIFIERS, annotations_of, labels_of, named_by
from policyd.jobs.rules.surroundings import JobContext
from policyd.patch.draft import Draft

GATES: Final = frozenset({ADMISSION_GATE, TOPOLOGY_GATE, ELASTIC_JOB})
"""By which pods are held."""

_LABELS: Final = (MANAGED, POD_SET)
_NOTES: Final = (
    POD_GROUP_TOTAL_COUNT,
    ROLE_HASH,
    SUSPENDING_PARENT,
    FAST_ADMISSION,
    SERVING,
    WORKLOAD,
    SLICE_NAME,
)
"""Annotations that say which workload a pod is of, and as which part."""
"""The same, as a label or as an annotation."""

_KEPT: Final = (
    "only the queue's controller changes it once the pod is queued; create a new pod instead"
)
_STAYS: Final = (
    "a pending job stays in its queue; name another queue, or delete it and create it again"
)
_OTHERS: Final = "`--starters` of the webhooks names other permitted users"
_HELD: Final = f"only the queue's controller removes it, once the pod is admitted; {_OTHERS}"
_STARTS: Final = f"only the queue's controller starts it, once it is admitted; {_OTHERS}"
_BEGINS: Final = "the job gets pods of its own, and so queues: set this to true in the same change"
_OWNED: Final = "the owner determines the queue, and must be set at creation"
_CONTROLLER: Final = "metadata.ownerReferences"


def departures(
    new: Json, old: Json | None, *, group: str, kind: str, surroundings: JobContext
) -> Iterator[FieldError]:
    """Yield the changes that take an object out of its queue, unless the queue itself makes them.

    Args:
        new: The object as it would be stored.
        old: As it is stored now; None on creation.
        group: API group; empty for the core group.
        kind: Kind of the object.
        surroundings: Other inputs.
    """
    if old is None or surroundings.requester == "queue":
        return
    if (group, kind) == ("", "Pod"):
        if _queues(old) or _queues(new):
            if not surroundings.imported:
                yield from _of_pod(new, old, surroundings.integrations.off)
            yield from _of_owner(new, old, surroundings)
        return
    if not _is_held(old, surroundings):
        return
    yield from _of_owner(new, old, surroundings)
    known = find_kind(group, kind)
    stays = surroundings.integrations.requires_queue or known is None or _is_deleted(new)
    if stays and _queue(old) and not _queue(new):
        yield FieldError(f"metadata.labels[{QUEUE_NAME}]", "", _STAYS, "Forbidden")
    if known is not None and not belongs_to_managed(old, surroundings):
        yield from _of_suspension(known, new, old)


def growth(new: Json, old: Json, surroundings: JobContext) -> Iterator[FieldError]:
    """Yield that a pod that queues is resized to more than its workload was admitted with.

    Args:
        new: The pod as it would be.
        old: The stored object.
        surroundings: Other inputs.
    """
    if surroundings.requester == "queue" or not (_queues(old) or _is_held(old, surroundings)):
        return
    try:
        was, now = (pod_requests(msgspec.convert(_spec(pod), PodSpec)) for pod in (old, new))
    except (msgspec.ValidationError, QuantityError) as error:
        yield FieldError("spec.containers", None, f"cannot be added up: {error}", "Forbidden")
        return
    for name, amount in sorted(now.items()):
        if amount > was.get(name, 0):
            detail = f"requests more `{name}` than it was queued with; create a new pod"
            yield FieldError("spec.containers", None, detail, "Forbidden")


def _queues(pod: Json) -> bool:
    """Tell whether a pod is held, or was: alone, in a group, or as one of a job."""
    labels = labels_of(pod)
    return MANAGED in labels or POD_SET in labels or bool(_gates(pod))


def _is_held(obj: Json, surroundings: JobContext) -> bool:
    return surroundings.integrations.manages_all or bool(_queue(obj))


def _queue(obj: Json) -> str:
    return labels_of(obj).get(QUEUE_NAME) or ""


def _is_deleted(obj: Json) -> bool:
    return bool((obj.get("metadata") or {}).get("deletionTimestamp"))


def _spec(obj: Json) -> Mapping[str, Json]:
    return obj.get("spec") or {}


def _gates(pod: Json) -> frozenset[str]:
    gates = _spec(pod).get("schedulingGates") or ()
    return GATES.intersection(gate.get("name") for gate in gates)


def _of_pod(new: Json, old: Json, off: Set[str]) -> Iterator[FieldError]:
    for gate in sorted(_gates(old) - _gates(new)):
        yield FieldError("spec.schedulingGates", gate, f"`{gate}`: {_HELD}", "Forbidden")
    if _queue(old) and not _queue(new):
        yield FieldError(f"metadata.labels[{QUEUE_NAME}]", "", _STAYS, "Forbidden")
    values = (("labels", labels_of, _LABELS), ("annotations", annotations_of, _NOTES))
    for section, read, names in values:
        before, after = read(old), read(new)
        for name in names:
            if before.get(name) != after.get(name):
                where = f"metadata.{section}[{name}]"
                yield FieldError(where, after.get(name), _KEPT, "Forbidden")
    for name in IDENTIFIERS:
        (was, _), (now, where) = (named_by(each, name, off) for each in (old, new))
        if was != now:
            yield FieldError(where, now, _KEPT, "Forbidden")


def _of_owner(new: Json, old: Json, surroundings: JobContext) -> Iterator[FieldError]:
    was, now = ([identity(each) for each in controllers_of(obj)] for obj in (old, new))
    if was != now and not (surroundings.requester == "system" or _vouches(surroundings, was + now)):
        yield FieldError(_CONTROLLER, None, _OWNED, "Forbidden")


def _vouches(surroundings: JobContext, owners: Iterable[Identity]) -> bool:
    """Tell whether the user makes objects of such owners: controllers adopt, and release."""
    groups = {group for (group, _), *_ in owners}
    return all(
        surroundings.integrations.makers.vouch(surroundings.account, group) for group in groups
    )


def _of_suspension(kind: JobKind[Any], new: Json, old: Json) -> Iterator[FieldError]:
    was, now = (Draft(each).get(kind.suspend_path) is True for each in (old, new))
    path = ".".join(map(str, kind.suspend_path))
    if is_ignored(kind, old):
        if not (now or is_ignored(kind, new)):
            yield FieldError(path, None, _BEGINS, "Forbidden")
    elif was and not now:
        yield FieldError(path, None, _STARTS, "Forbidden")
