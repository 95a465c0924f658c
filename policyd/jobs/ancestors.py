"""Which of the objects that an object belongs to is the job that queues: the topmost of them."""

from collections.abc import Callable
from typing import Final

from policyd.api.meta import ObjectMeta, OwnerReference
from policyd.errors import PolicydError
from policyd.jobs.base import controller_of, queue_name
from policyd.jobs.integrations import GroupKind, Integrations
from policyd.jobs.kinds.registry import find_kind, find_parent

LONGEST_CHAIN: Final = 10
"""How many objects may be above one another."""
_REPLICA_SET: Final = ("apps", "ReplicaSet")
"""Stands between a Deployment and its pods."""

Lookup = Callable[[OwnerReference], ObjectMeta | None]
"""Returns the metadata of an owner; None if it is not there."""


class AncestorError(PolicydError):
    """The job that an object belongs to cannot be determined."""


class NestingError(AncestorError):
    """An object belongs to one that belongs to another, and so on without end."""


def managed_ancestor(
    obj: ObjectMeta, lookup: Lookup, *, integrations: Integrations
) -> OwnerReference | None:
    """Return the topmost job that an object belongs to and that queues; None if none does.

    An owner of an unknown kind ends the chain; one of a kind that is off is skipped.

    Args:
        obj: The object.
        lookup: Finds its owners.
        integrations: Which kinds queue, and whether they do without a queue.

    Raises:
        NestingError: If there are too many owners.
        AncestorError: If one is missing, or owns itself.
    """
    found: OwnerReference | None = None
    seen = {obj.uid}
    current = obj
    for _ in range(LONGEST_CHAIN + 1):
        owner = controller_of(current)
        if owner is None or not (is_known(group_kind(owner)) or _may_queue(owner, integrations)):
            return found
        if owner.uid in seen:
            raise AncestorError(f"`{owner.name}` owns itself")
        above = lookup(owner)
        if above is None:
            raise AncestorError(f"owner {owner.kind} `{owner.name}` not found")
        queues = group_kind(owner) != _REPLICA_SET and _may_queue(owner, integrations)
        if queues and (integrations.manages_all or queue_name(above)):
            found = owner
        seen.add(owner.uid)
        current = above
    raise NestingError(f"more than {LONGEST_CHAIN} objects own one another")


def group_kind(owner: OwnerReference) -> GroupKind:
    """Return the API group and the kind of an owner."""
    return owner.api_version.rpartition("/")[0], owner.kind


def _may_queue(owner: OwnerReference, integrations: Integrations) -> bool:
    return may_queue(group_kind(owner), integrations)


def may_queue(name: GroupKind, integrations: Integrations) -> bool:
    """Tell whether objects made by those of a kind may belong to a job that queues."""
    if name == _REPLICA_SET or name in integrations.external:
        return True
    return is_known(name) and integrations.has(*name)


def is_known(name: GroupKind) -> bool:
    """Tell whether objects of a kind could queue, though they may be off."""
    return find_kind(*name) is not None or find_parent(*name) is not None
