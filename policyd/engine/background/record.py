"""The record of generated objects: which they are, by uid, and what they were generated for.

It is stored where tenants cannot write, as everything in an object itself can be forged.
"""

import zlib
from collections.abc import Mapping
from typing import Final, NamedTuple

import msgspec

from policyd.api.meta import Json
from policyd.errors import PolicydError

MOST_RECORDED: Final = 10_000
"""Objects in a record."""

MOST_BYTES: Final = 1_000_000
"""Bytes of a stored record: what a ConfigMap can hold."""

_MOST_READ: Final = 16 * 1024 * 1024
"""Bytes of a record that is read, unpacked."""


class ObjectName(NamedTuple):
    """The names of an object; the namespace is empty if it has none."""

    api_version: str
    kind: str
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}" if self.namespace else self.short

    @property
    def short(self) -> str:
        """Kind and name."""
        return f"{self.kind} {self.name}"


class RecordedObject(NamedTuple):
    """What is recorded of a generated object.

    Attributes:
        policy: The id of its policy.
        trigger: The kind and names of its trigger.
        trigger_uid: The uid of its trigger.
        uid: Its own uid; empty while it is being created.
        state: A digest of it, as it was after the last write.
        synchronize: Whether it follows its trigger and its policy.
        orphan: Whether it stays when its policy is deleted.
    """

    policy: str
    trigger: str
    trigger_uid: str
    uid: str
    state: str
    synchronize: bool
    orphan: bool

    @property
    def trigger_namespace(self) -> str:
        """The namespace of its trigger; empty if that has none."""
        namespace, slash, _ = self.trigger.partition(" ")[2].partition("/")
        return namespace if slash else ""


Record = Mapping[ObjectName, RecordedObject]
"""What was generated, by the names of the objects."""


class RecordDamagedError(PolicydError):
    """A stored record cannot be read."""


class RecordFullError(PolicydError):
    """A record has too many objects to be stored."""


def name_of(obj: Json) -> ObjectName:
    """Return the names of an object."""
    metadata = obj["metadata"]
    return ObjectName(
        str(obj["apiVersion"]),
        str(obj["kind"]),
        str(metadata.get("namespace") or ""),
        str(metadata.get("name") or ""),
    )


def packed(record: Record) -> bytes:
    """Return a record as it is stored.

    Raises:
        RecordFullError: If it has too many objects.
    """
    rows = sorted((*name, *entry) for name, entry in record.items())
    body = zlib.compress(msgspec.json.encode(rows))
    if len(rows) > MOST_RECORDED or len(body) > MOST_BYTES:
        raise RecordFullError(
            f"the record has no room for {len(rows):,} generated objects",
            hint=f"let policies generate {MOST_RECORDED:,} objects at most, all together",
        )
    return body


def unpacked(body: bytes) -> dict[ObjectName, RecordedObject]:
    """Return a record that was stored.

    Raises:
        RecordDamagedError: If it is none.
    """
    try:
        opened = zlib.decompressobj()
        text = opened.decompress(body, _MOST_READ)
        text = text if opened.eof else b""  # what is cut off is no JSON
        rows = msgspec.json.decode(
            text, type=list[tuple[str, str, str, str, str, str, str, str, str, bool, bool]]
        )
    except (zlib.error, ValueError) as error:
        raise RecordDamagedError(
            f"the record of generated objects cannot be read: {error}",
            hint="restore the ConfigMap, or delete it: objects that exist are conflicts then",
        ) from error
    return {ObjectName(*row[:4]): RecordedObject(*row[4:]) for row in rows}
