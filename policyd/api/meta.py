"""The fields of every Kubernetes object: metadata, owners, conditions."""

from collections.abc import Iterable
from datetime import UTC, datetime
from functools import lru_cache
from typing import Annotated, Any, Final, Literal

import msgspec

from policyd.api.schema import WRITTEN, Int64, LabelKey, limits, texts

ConditionStatus = Literal["True", "False", "Unknown"]

_REASON: Final = "[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?"


class Wire(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, gc=False):
    """Base of the types that cross the process boundary: immutable, camelCase, defaults left out.

    A field with a factory for its default is always written, as schemas ask for it; a builtin
    container is not such a factory. Unknown fields are skipped, as the API server's objects grow
    with every version. Kinds that are policyd's own add `forbid_unknown_fields=True`. `gc=False` is
    safe because decoded JSON has no cycles, and keeps caches of many thousand objects out of the
    garbage collector's way.
    """


class OwnerReference(Wire, frozen=True):
    """An owner of an object."""

    api_version: str
    kind: str
    name: str
    uid: str
    controller: bool = False
    block_owner_deletion: bool = False


class ObjectMeta(Wire, frozen=True):
    """The part of ObjectMeta that policyd reads."""

    name: str = ""
    generate_name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    creation_timestamp: datetime | None = None
    deletion_timestamp: datetime | None = None
    deletion_grace_period_seconds: int | None = None
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    finalizers: tuple[str, ...] = ()
    owner_references: tuple[OwnerReference, ...] = ()

    @property
    def key(self) -> str:
        """`namespace/name`, or the name alone for cluster objects."""
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


class Condition(Wire, frozen=True):
    """One aspect of an object's state, with a reason for machines and a message for people."""

    type: Annotated[LabelKey, texts(316)]
    """The aspect of the status; each type occurs once."""
    status: ConditionStatus
    """`True`, `False`, or `Unknown`."""
    reason: Annotated[str, texts(1_024, shortest=1, pattern=_REASON), WRITTEN] = ""
    """Why, in one word for machines."""
    message: Annotated[str, texts(32_768)] = msgspec.field(default_factory=str)
    """Why, in a sentence for people."""
    last_transition_time: Annotated[datetime | None, WRITTEN] = None
    """When the status last changed."""
    observed_generation: Annotated[Int64, limits(minimum=0)] = 0
    """The generation of the object that this is about."""


class ObjectReference(Wire, frozen=True):
    """Points at another object, as events do."""

    api_version: str = ""
    kind: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""
    resource_version: str = ""


Json = Any
"""Decoded JSON: the one place where a value's type is known only at run time."""


def timestamp(seconds: float) -> datetime:
    """Turn seconds since the epoch into the API's timestamp, which has whole seconds."""
    return datetime.fromtimestamp(int(seconds), tz=UTC)


@lru_cache(maxsize=1024)  # tables and snapshots have the same moments in many rows
def rfc3339(seconds: float) -> str:
    """Write seconds since the epoch as the API does: whole seconds, UTC."""
    return f"{timestamp(seconds).replace(tzinfo=None).isoformat()}Z"


def cut(message: str, most_bytes: int, *, end: str) -> str:
    """Return a message that has at most so many bytes; one that had more ends in `end`."""
    encoded = message.encode()
    if len(encoded) <= most_bytes:
        return message
    return encoded[: most_bytes - len(end)].decode(errors="ignore") + end


def condition_true(conditions: tuple[Condition, ...], kind: str) -> bool:
    """Tell whether the condition of type `kind` exists and is True."""
    found = find_condition(conditions, kind)
    return found is not None and found.status == "True"


def find_condition(conditions: tuple[Condition, ...], kind: str) -> Condition | None:
    """Return the condition of type `kind`, if there is one."""
    for condition in conditions:  # asked so often that a generator's cost shows
        if condition.type == kind:
            return condition
    return None


def with_condition(conditions: tuple[Condition, ...], new: Condition) -> tuple[Condition, ...]:
    """Return `conditions` with `new` in the place of the one of its type.

    The transition time of the old one stays when the status does, as the API conventions ask.
    """
    old = find_condition(conditions, new.type)
    if old is None:
        return (*conditions, new)
    if old.status == new.status:
        new = msgspec.structs.replace(new, last_transition_time=old.last_transition_time)
    return tuple(new if c.type == new.type else c for c in conditions)


def without_condition(conditions: Iterable[Condition], kind: str) -> tuple[Condition, ...]:
    """Return conditions without the one of a type."""
    return tuple(each for each in conditions if each.type != kind)
