"""Check that an object really belongs to its owner, and so queues with it.

An object with a true controller reference need not queue itself. The reference is true if it was
written by the account that creates the objects of such owners; on an update, if it existed while
the object queued, since it was checked then. With `--owner-references trust`, it is true if an
object of that name and UID exists.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from policyd.api.kueue.names import QUEUE_NAME
from policyd.api.kueue.validation import FieldError
from policyd.api.makers import (
    CORE,
    GARBAGE_COLLECTORS,
    GroupKind,
    controllers_of,
    group_kind_of,
)
from policyd.api.meta import Json
from policyd.jobs.ancestors import may_queue
from policyd.jobs.integrations import Integrations
from policyd.jobs.kinds.registry import PARENTS, find_kind, find_parent
from policyd.jobs.parents import ParentKind
from policyd.jobs.pods import SUSPENDING_PARENT
from policyd.jobs.rules.submission import annotations_of, labels_of
from policyd.jobs.rules.surroundings import NOWHERE, JobContext
from policyd.patch.draft import Draft

Identity = tuple[GroupKind, Any, Any]
"""Group and kind, name and uid of an owner."""

_SETS: Final = ("apps", "StatefulSet")
"""The kind that makes pods that start in groups, also those of a LeaderWorkerSet."""
_OF_GROUPS: Final = frozenset(each.word for each in PARENTS if each.in_groups)
_WORD: Final = f"metadata.annotations[{SUSPENDING_PARENT}]"


def belongs_to_managed(obj: Json, surroundings: JobContext = NOWHERE) -> bool:
    """Tell whether the controller of an object is of a kind that the queue holds itself.

    Whether that very owner has a queue cannot be seen here; if it has none, its pods say so by
    having none either, as both take it from the same template.
    """
    return any(
        _is_managed(group_kind_of(owner), surroundings.integrations)
        and _is_true(owner, surroundings)
        for owner in controllers_of(obj)
    )


def is_made(obj: Json, surroundings: JobContext) -> bool:
    """Tell whether the maker of an object queues, or could: its queue would be that one's."""
    return any(
        may_queue(group_kind_of(owner), surroundings.integrations) and _is_true(owner, surroundings)
        for owner in controllers_of(obj)
    )


def is_part(obj: Json, surroundings: JobContext = NOWHERE) -> bool:
    """Tell whether an object belongs to one that is held, or whose pods are: that one counts."""
    return belongs_to_managed(obj, surroundings) or any(
        find_parent(*group_kind_of(owner)) is not None and _is_true(owner, surroundings)
        for owner in controllers_of(obj)
    )


def is_held_for_set(pod: Json, surroundings: JobContext) -> bool:
    """Tell whether a pod is gated for a kind that starts pods in groups, and is of such a set."""
    word = annotations_of(pod).get(SUSPENDING_PARENT)
    if word not in _OF_GROUPS:
        return False
    makers = {_SETS, *((each.group, each.kind) for each in PARENTS if each.word == word)}
    return surroundings.integrations.makers.trusted or any(
        group_kind_of(owner) in makers and _is_true(owner, surroundings)
        for owner in controllers_of(pod)
    )


def is_held_otherwise(kind: ParentKind[Any], obj: Json, surroundings: JobContext = NOWHERE) -> bool:
    """Tell whether the pods of a parent are held for something else, which has made it.

    Raises:
        msgspec.ValidationError: If the object is not of its kind.
    """
    now, was = Draft(obj), Draft(surroundings.before)
    kept = _was_queued(surroundings)
    for path in kind.templates(msgspec.convert(obj, kind.type)):
        at = (*path, "metadata", "annotations", SUSPENDING_PARENT)
        word = now.get(at)
        if word in {None, kind.word}:
            continue
        if _has_put(word, surroundings) or (kept and was.get(at) == word):
            return True
    return False


def _has_put(word: Json, surroundings: JobContext) -> bool:
    """Tell whether the user makes objects of the kind that a word stands for."""
    makers = surroundings.integrations.makers
    return makers.trusted or any(
        each.word == word and makers.vouch(surroundings.account, each.group) for each in PARENTS
    )


def owner_errors(new: Json, old: Json | None, surroundings: JobContext) -> Iterator[FieldError]:
    """Yield owner references that are false, and removed owners that must be kept.

    Args:
        new: The object as it would be stored.
        old: As it is stored now; None on creation.
        surroundings: The owners that need no queue, and the user.
    """
    integrations = surroundings.integrations
    if integrations.makers.trusted:
        return
    # Without a queue there is nothing to be excused from, and the owner was there already.
    queues = integrations.manages_all or bool(labels_of(new).get(QUEUE_NAME))
    kept = set() if old is None or queues else {identity(each) for each in controllers_of(old)}
    for index, owner in enumerate((new.get("metadata") or {}).get("ownerReferences") or ()):
        name = group_kind_of(owner)
        excuses = owner.get("controller") is True and _is_managed(name, integrations)
        if excuses and identity(owner) not in kept and not _is_true(owner, surroundings):
            where = f"metadata.ownerReferences[{index}]"
            yield FieldError(where, "", _not_true(name, owner, surroundings.account), "Forbidden")
    yield from _held_for(new, old, surroundings)


def lost_owners(new: Json, old: Json, surroundings: JobContext) -> Iterator[FieldError]:
    """Yield the owners that something which runs for them would lose, and run on by itself."""
    makers = surroundings.integrations.makers
    if makers.trusted:
        return
    kept = {identity(owner) for owner in controllers_of(new)}
    for owner in controllers_of(old):
        group, kind = group_kind_of(owner)
        if identity(owner) in kept or not _is_managed((group, kind), surroundings.integrations):
            continue
        if not (
            makers.vouch(surroundings.account, group) or surroundings.account in GARBAGE_COLLECTORS
        ):
            detail = f"runs in the quota of the {kind} `{owner.get('name')}`, and stays one of it"
            yield FieldError("metadata.ownerReferences", "", detail, "Forbidden")


def _held_for(new: Json, old: Json | None, surroundings: JobContext) -> Iterator[FieldError]:
    """Yield that a pod is not held for a set, if it says so."""
    word, was = (annotations_of(each or {}).get(SUSPENDING_PARENT) for each in (new, old))
    if old is not None and word == was:
        return
    if not {word, was} & _OF_GROUPS or is_held_for_set(new, surroundings):
        return
    detail = "is only written by the StatefulSet of the pod; remove it"
    yield FieldError(_WORD, word or "", detail, "Forbidden")


def _not_true(name: GroupKind, owner: Mapping[str, Any], account: str) -> str:
    group, kind = name
    return (
        f"`{account}` does not make what a {kind} owns, so that the {kind} `{owner.get('name')}`"
        f" does not queue for this: leave the owner out; if `{account}` is the controller of"
        f" {kind}s, have it named by `--makers {group or CORE}={account}`, in the chart"
        " `webhooks.makers`"
    )


def _is_managed(name: GroupKind, integrations: Integrations) -> bool:
    """Tell whether this queue, or another one, holds the objects of a kind themselves."""
    if name in integrations.external:
        return True
    return find_kind(*name) is not None and integrations.has(*name)


def _is_true(owner: Mapping[str, Any], surroundings: JobContext) -> bool:
    makers = surroundings.integrations.makers
    before = {identity(each) for each in controllers_of(surroundings.before)}
    if makers.trusted:
        return identity(owner) in before or surroundings.is_there(owner)
    if makers.vouch(surroundings.account, group_kind_of(owner)[0]):
        return True
    return identity(owner) in before and _was_queued(surroundings)


def _was_queued(surroundings: JobContext) -> bool:
    """Tell whether an object that is changed was looked at before, as one that queues."""
    if surroundings.before is None:
        return False
    return surroundings.integrations.manages_all or bool(
        labels_of(surroundings.before).get(QUEUE_NAME)
    )


def identity(owner: Mapping[str, Any]) -> Identity:
    """Return the identity of an owner."""
    return group_kind_of(owner), owner.get("name"), owner.get("uid")
