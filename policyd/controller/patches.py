"""The smallest writes that say a change, bound to the version that the change is based on."""

from collections.abc import Sequence

import msgspec

from policyd.api.kueue import Workload, WorkloadStatus
from policyd.api.kueue.names import RESOURCE_IN_USE_FINALIZER
from policyd.api.meta import Json, ObjectMeta
from policyd.patch.draft import Draft
from policyd.patch.merge_patch import merge_difference
from policyd.patch.operations import Operation

_VERSION = "/metadata/resourceVersion"


def merge_patch(metadata: ObjectMeta, **parts: Json) -> Json:
    """Return a merge patch of an object's parts, to be applied only to the version given."""
    return {"metadata": {"resourceVersion": metadata.resource_version}, **parts}


def without_finalizer(metadata: ObjectMeta, name: str = RESOURCE_IN_USE_FINALIZER) -> Json:
    """Return the merge patch that removes a finalizer, such as that of an object in use."""
    return _finalizers(metadata, [f for f in metadata.finalizers if f != name])


def with_finalizer(metadata: ObjectMeta) -> Json:
    """Return the merge patch that keeps an object that may be in use."""
    return _finalizers(metadata, [*metadata.finalizers, RESOURCE_IN_USE_FINALIZER])


def _finalizers(metadata: ObjectMeta, finalizers: Sequence[str]) -> Json:
    return {"metadata": {"resourceVersion": metadata.resource_version, "finalizers": finalizers}}


def status_difference(metadata: ObjectMeta, old: Json, new: Json) -> Json:
    """Return the merge patch from one status to another; None if they are the same."""
    difference = merge_difference(old, new)
    return merge_patch(metadata, status=difference) if difference else None


def status_patch(workload: Workload, status: WorkloadStatus) -> Json:
    """Return the patch that gives a workload a status, if it did not change; None for no change."""
    return status_difference(workload.metadata, as_json(workload.status), as_json(status))


def as_json(status: WorkloadStatus) -> Json:
    """Return a status as it is sent, with the reasons that schemas ask for."""
    plain: Json = msgspec.to_builtins(status)
    for condition in plain.get("conditions", ()):
        condition.setdefault("reason", condition["type"])
    return plain


def draft_of(obj: msgspec.Struct) -> Draft:
    """Return a draft of the parts of an object that were read.

    Other parts are not in it, and its operations leave them alone: every list that is read is read
    whole, and a part that is left out of an object is empty.
    """
    return Draft(msgspec.json.decode(msgspec.json.encode(obj)))


def versioned(draft: Draft, metadata: ObjectMeta) -> Sequence[Operation]:
    """Return a draft's operations, to be applied only to the version that it was made of."""
    version = Operation("replace", _VERSION, value=metadata.resource_version)
    return [version, *draft.operations]
