"""What the door does to jobs that are submitted to a queue: they begin suspended, pods gated.

It runs on the draft that the policies have changed, so a queue name that a policy injects counts.
Doing it twice changes nothing more. No pod ever gets a finalizer: the queue must not be able to
keep a pod from being deleted.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from policyd.api.kueue.names import (
    ADMISSION_GATE,
    DEFAULT_LOCAL_QUEUE,
    MANAGED,
    QUEUE_NAME,
    ROLE_HASH,
    TOPOLOGY_GATE,
)
from policyd.api.meta import Json
from policyd.jobs.base import JobKind
from policyd.jobs.injection import add_gate
from policyd.jobs.kinds import KINDS, find_kind
from policyd.jobs.pods import POD_INDEX_LABEL, SUSPENDING_PARENT
from policyd.jobs.roles import role_hash
from policyd.jobs.shape import check_shape
from policyd.jobs.surroundings import NOWHERE, Surroundings
from policyd.patch.draft import Draft

POD_INDEX_LABEL_NAME = "kueue.x-k8s.io/pod-group-pod-index-label"
"""Annotation of a pod that names the label in which its index is."""

_LABELS = ("metadata", "labels")
_ANNOTATIONS = ("metadata", "annotations")


def default_on_create(
    draft: Draft, *, group: str, kind: str, around: Surroundings = NOWHERE
) -> None:
    """Hold a new job or pod that is submitted to a queue; leave all others as they are.

    What belongs to a job that is held itself is left alone, too: it starts and stops with it.

    Args:
        draft: The object as the policies left it.
        group: API group of the object; empty for the core group.
        kind: Kind of the object.
        around: What counts beside it.

    Raises:
        MisshapenError: If the object is not of its kind.
        PatchError: If it is so even where nothing was looked at.
    """
    named = _text(draft, _LABELS, QUEUE_NAME)
    if not (named or around.default_queue or around.manages_all):
        return
    check_shape(draft.object, group=group, kind=kind)
    if belongs_to_managed(draft.object):
        return
    if around.default_queue and not named:
        draft.set((*_LABELS, QUEUE_NAME), DEFAULT_LOCAL_QUEUE)
    if (group, kind) == ("", "Pod"):
        _hold_pod(draft)
        return
    known = find_kind(group, kind)
    if known is not None and not _is_ignored(known, draft):
        known.suspend(draft)
        known.defaults(draft)


def holds(group: str, kind: str) -> bool:
    """Tell whether the door has anything to do with objects of this kind."""
    return (group, kind) == ("", "Pod") or find_kind(group, kind) is not None


def belongs_to_managed(obj: Json) -> bool:
    """Tell whether the controller of an object is of a kind that the queue holds itself.

    Whether that very owner has a queue cannot be seen here; if it has none, its pods say so by
    having none either, as both take it from the same template.
    """
    owners = (obj.get("metadata") or {}).get("ownerReferences") or ()
    controllers = [owner for owner in owners if owner.get("controller")]
    return any(_is_known(owner) for owner in controllers)


def _is_known(owner: Mapping[str, Any]) -> bool:
    group, slash, _ = str(owner.get("apiVersion", "")).partition("/")
    name = (group if slash else "", owner.get("kind"))
    return any((known.group, known.kind) == name for known in KINDS)


def _is_ignored(kind: JobKind[Any], draft: Draft) -> bool:
    try:
        return kind.ignored(msgspec.convert(draft.object, kind.type))
    except msgspec.ValidationError:
        return False  # the API server says what is wrong with an object that is not of its type


def _hold_pod(draft: Draft) -> None:
    draft.set((*_LABELS, MANAGED), "true")
    # Which flavor it gets, and so whether its place is chosen too, is not known yet; later the API
    # server takes no more gates.
    for gate in (ADMISSION_GATE, TOPOLOGY_GATE):
        add_gate(draft, (), gate)
    index = _text(draft, _LABELS, _text(draft, _ANNOTATIONS, POD_INDEX_LABEL_NAME))
    if index:
        draft.set((*_LABELS, POD_INDEX_LABEL), index)
    if _text(draft, _ANNOTATIONS, SUSPENDING_PARENT):
        return
    if not _text(draft, _ANNOTATIONS, ROLE_HASH):
        draft.set((*_ANNOTATIONS, ROLE_HASH), role_hash(draft.get(("spec",)) or {}))


def _text(draft: Draft, section: tuple[str, ...], name: str) -> str:
    value = draft.get((*section, name))
    return value if isinstance(value, str) else ""
