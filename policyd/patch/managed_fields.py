"""Read and write `metadata.managedFields`: which manager owns which fields."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from policyd.api.meta import Json
from policyd.patch.fields_v1 import (
    EMPTY,
    FieldsError,
    FieldSet,
    decode_fields,
    encode_fields,
    field_element,
    field_set,
)

WriteKind = Literal["Apply", "Update"]

MAX_UPDATE_MANAGERS = 10
"""Most separate managers that update; the oldest beyond that are merged."""

ANCIENT = "ancient-changes"
"""The manager that replaces the oldest ones when there are too many."""

UNOWNED = field_set(
    tuple(field_element(name) for name in path.split("."))
    for path in (
        "apiVersion",
        "kind",
        "metadata",
        "metadata.name",
        "metadata.namespace",
        "metadata.creationTimestamp",
        "metadata.selfLink",
        "metadata.uid",
        "metadata.clusterName",
        "metadata.generation",
        "metadata.managedFields",
        "metadata.resourceVersion",
    )
)
"""Fields without owners: they identify the object or belong to the API server."""


@dataclass(frozen=True, slots=True, order=True)
class Manager:
    """A writer of an object, identified by all of these.

    An applier is the same whichever version it applies, so its `api_version` is empty here.
    """

    name: str
    kind: WriteKind
    api_version: str = ""
    subresource: str = ""

    def __str__(self) -> str:
        """Name the manager as the API server does in conflicts."""
        text = json.dumps(self.name, ensure_ascii=False)
        if self.subresource:
            text += f" with subresource {json.dumps(self.subresource)}"
        return text if self.kind == "Apply" else f"{text} using {self.api_version}"


@dataclass(frozen=True, slots=True)
class Owned:
    """The fields of a manager, their API version, and the time of the write (RFC 3339)."""

    fields: FieldSet
    api_version: str
    time: str | None = None

    def without(self, fields: FieldSet) -> "Owned":
        """Take members away."""
        return replace(self, fields=self.fields - fields)


Managers = Mapping[Manager, Owned]


def managed_fields(obj: Json) -> Json:
    """Return an object's managedFields as they stand there; None if it has none."""
    metadata = obj.get("metadata") if isinstance(obj, dict) else None
    return metadata.get("managedFields") if isinstance(metadata, dict) else None


def with_managed_fields(obj: dict[str, Json], entries: list[Json]) -> dict[str, Json]:
    """Return an object with these managedFields, or without any if there are none."""
    metadata = {**(obj.get("metadata") or {})}
    metadata.pop("managedFields", None)
    if entries:
        metadata["managedFields"] = entries
    return {**obj, "metadata": metadata}


def decode_managers(entries: Json) -> dict[Manager, Owned]:
    """Read managedFields.

    Raises:
        FieldsError: If an entry is not one that the API server would have written.
    """
    managers: dict[Manager, Owned] = {}
    for entry in entries or ():
        if not isinstance(entry, dict) or entry.get("operation") not in {"Apply", "Update"}:
            raise FieldsError("operation must be `Apply` or `Update`")
        version = entry.get("apiVersion")
        if not version:
            raise FieldsError("apiVersion must not be empty")
        if entry.get("fieldsType") != "FieldsV1":
            raise FieldsError("fieldsType must be `FieldsV1`")
        manager = Manager(
            entry.get("manager", ""),
            entry["operation"],
            "" if entry["operation"] == "Apply" else version,
            entry.get("subresource", ""),
        )
        fields = decode_fields(entry.get("fieldsV1") or {})
        managers[manager] = Owned(fields, version, entry.get("time"))
    return managers


def encode_managers(managers: Managers) -> list[Json]:
    """Write managedFields: appliers first, then by time and name."""
    entries = [_encode(manager, owned) for manager, owned in managers.items()]
    return sorted(
        entries,
        key=lambda entry: (
            entry["operation"],
            entry.get("time", ""),
            entry["manager"],
            entry["apiVersion"],
            entry.get("subresource", ""),
        ),
    )


def _encode(manager: Manager, owned: Owned) -> dict[str, Json]:
    entry: dict[str, Json] = {
        "manager": manager.name,
        "operation": manager.kind,
        "apiVersion": owned.api_version,
    }
    if owned.time is not None:
        entry["time"] = owned.time
    entry |= {"fieldsType": "FieldsV1", "fieldsV1": encode_fields(owned.fields)}
    if manager.subresource:
        entry["subresource"] = manager.subresource
    return entry


def capped(managers: dict[Manager, Owned]) -> dict[Manager, Owned]:
    """Take the oldest updaters of each version together, so that at most ten are left."""
    updaters = [manager for manager in managers if manager.kind == "Update"]
    surplus = len(updaters) - MAX_UPDATE_MANAGERS
    if surplus <= 0:
        return managers
    left = dict(managers)
    first: dict[str, Manager] = {}
    for manager in sorted(updaters, key=lambda manager: (managers[manager].time or "", manager)):
        version = manager.api_version
        if version not in first:
            first[version] = manager
            continue
        bucket = Manager(ANCIENT, "Update", version)
        if bucket not in left:
            left[bucket] = left.pop(first[version])
        owned = left.pop(manager)
        fields = owned.fields | left.get(bucket, Owned(EMPTY, version)).fields
        left[bucket] = replace(owned, fields=fields)
        surplus -= 1
        if surplus <= 0:
            break
    return left
