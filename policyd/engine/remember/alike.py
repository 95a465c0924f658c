"""Objects that are alike to policies: a scan decides once on all that differ in what nobody reads.

Of a pod that is what the policies' footprint leaves out. Of other kinds the whole spec counts but
for what is left out of their pod templates, and of the metadata what is looked at. A policy that
looks at the name, or at more than can be told, is asked about each object.
"""

from collections.abc import Iterable
from typing import Final

import msgspec

from policyd.api.meta import Json
from policyd.engine.model.compiled import CompiledPolicy
from policyd.engine.objects.pods import ORDINARY
from policyd.engine.objects.workloads import EACH, find_kind
from policyd.engine.remember.footprint import looked_at_by
from policyd.engine.remember.footprint_tree import Footprint
from policyd.patch.operations import Path

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
_encode: Final = msgspec.json.Encoder().encode


class Alike:
    """Tells what some policies see of an object: of those that see the same, they say the same."""

    def __init__(self, looked_at: Iterable[Footprint]) -> None:
        """Take what each policy looks at."""
        self._tree = Footprint()
        for path in _ALWAYS:
            self._tree.at(*path).take()
        for each in looked_at:
            self._tree.join(each)
        self._read = {name for name in self._tree.fields if name not in ("metadata", "spec")}

    def seen(self, value: Json, namespace: str) -> bytes | None:
        """Return what the policies see of an object; None if that is too much to compare."""
        kind, tree = find_kind(value), self._tree
        if kind is not None and not kind.places[0].path:
            seen = _project(value, tree)
        else:
            seen = {name: value[name] for name in self._read if name in value}
            seen["metadata"] = _project(value.get("metadata"), tree.fields["metadata"])
            seen["spec"] = value.get("spec")
            if kind is not None and not kind.queued:
                for place in kind.places:
                    seen = _with_templates(seen, place.path, tree, tree)
        written = _encode((namespace, seen))
        return written if len(written) <= LONGEST else None


def looked_at_alike(policy: CompiledPolicy) -> Footprint | None:
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


def _with_templates(value: Json, path: Path, pods: Footprint, own: Footprint | None) -> Json:
    """Return a value in which the pod templates at `path` are left with what is looked at.

    Args:
        value: An object, or something in it.
        path: Where its templates are.
        pods: What is looked at in a pod.
        own: What is looked at in the value itself, by its place in the object.
    """
    if own is not None and (own.whole or not own.fields):
        return value
    if not path:
        return [_project(value, pods), None if own is None else _project(value, own)]
    step, rest = path[0], path[1:]
    inner = None if own is None else own.fields.get(str(step))
    if step == EACH and isinstance(value, list):
        return [_with_templates(item, rest, pods, inner) for item in value]
    if isinstance(value, dict) and step in value:
        return {**value, step: _with_templates(value[step], rest, pods, inner)}
    return value


def _project(value: Json, node: Footprint) -> Json:
    """Return the part of a value that is looked at."""
    fields = node.fields
    if node.devices and not (node.whole or fields):
        return _devices(value)
    if node.whole or node.devices or not fields:
        return value
    if isinstance(value, dict) and EACH not in fields:
        return {name: _project(value[name], fields[name]) for name in fields if name in value}
    if isinstance(value, list) and fields.keys() == {EACH}:
        inner = fields[EACH]
        return [_project(item, inner) for item in value]
    return value


def _devices(resources: Json) -> Json:
    """Return what resources of a container say, but for how much of what is no device."""
    if not isinstance(resources, dict):
        return resources
    return {side: _without_ordinary(amounts) for side, amounts in resources.items()}


def _without_ordinary(amounts: Json) -> Json:
    if not isinstance(amounts, dict):
        return amounts
    return {name: amount for name, amount in amounts.items() if name not in ORDINARY}
