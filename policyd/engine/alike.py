"""Objects that are alike to policies: a scan decides once on all that differ in what nobody reads.

Of a pod that is what the policies' footprint leaves out. Of other kinds, whose pods are further
down, the whole spec counts, and of the metadata what is looked at. A policy that looks at the name,
or at more than can be told, is asked about each object.
"""

from collections.abc import Iterable
from typing import Final

import msgspec

from policyd.api.meta import Json
from policyd.engine.compiled import CompiledPolicy
from policyd.engine.footprint import looked_at_by
from policyd.engine.footprint_tree import Footprint
from policyd.engine.workloads import EACH

LONGEST: Final = 64 * 1024
"""Bytes of what is compared: larger objects are decided on one by one."""

_OF_ONE: Final = frozenset(
    ("name", "generateName", "uid", "resourceVersion", "creationTimestamp", "generation", EACH)
)
"""Fields of the metadata that are another object's in each object."""

_OF_REQUESTS: Final = frozenset(
    (
        *("kind", "resource", "subResource", "operation", "namespace", "userInfo", "dryRun"),
        *("requestKind", "requestResource", "requestSubResource", "options"),
    )
)
"""What requests of a scan have in common, for objects of a kind and namespace."""

_ALWAYS: Final = (("apiVersion",), ("kind",), ("metadata", "ownerReferences"))
_encode: Final = msgspec.json.Encoder(order="deterministic").encode


class Alike:
    """Tells which of some policies decide alike on objects that are, and which objects are."""

    def __init__(self, policies: Iterable[CompiledPolicy]) -> None:
        """Find out what each policy looks at."""
        self._tree = Footprint()
        for path in _ALWAYS:
            self._tree.at(*path).take()
        self._decided: set[str] = set()
        for policy in policies:
            looked_at = _looked_at(policy)
            if looked_at is not None:
                self._tree.join(looked_at)
                self._decided.add(policy.id)
        self._read = {name for name in self._tree.fields if name not in ("metadata", "spec")}

    def decides(self, policy: CompiledPolicy) -> bool:
        """Tell whether a policy decides alike on what is alike."""
        return policy.id in self._decided

    def seen(self, value: Json, namespace: str) -> bytes | None:
        """Return what the policies see of an object; None if that is too much to compare."""
        if value.get("kind") == "Pod" and value.get("apiVersion") == "v1":
            seen = _project(value, self._tree)
        else:
            seen = {name: value[name] for name in self._read if name in value}
            seen["metadata"] = _project(value.get("metadata"), self._tree.fields["metadata"])
            seen["spec"] = value.get("spec")
        written = _encode((namespace, seen))
        return written if len(written) <= LONGEST else None


def _looked_at(policy: CompiledPolicy) -> Footprint | None:
    """Return what a policy looks at in an object; None if that may be another in each object."""
    try:
        tree, request = looked_at_by(policy)
    except Exception:  # noqa: BLE001 - whatever a policy holds, it can be asked about each object
        return None
    metadata = tree.fields.get("metadata")
    named = metadata is not None and (
        metadata.whole or not metadata.fields or not _OF_ONE.isdisjoint(metadata.fields)
    )
    if tree.whole or named or EACH in tree.fields:
        return None
    asks = request.whole or not request.fields.keys() <= _OF_REQUESTS
    return None if asks else tree


def _project(value: Json, node: Footprint) -> Json:
    """Return the part of a value that is looked at."""
    fields = node.fields
    if node.whole or not fields:
        return value
    if isinstance(value, dict) and EACH not in fields:
        return {name: _project(value[name], fields[name]) for name in fields if name in value}
    if isinstance(value, list) and fields.keys() == {EACH}:
        inner = fields[EACH]
        return [_project(item, inner) for item in value]
    return value
