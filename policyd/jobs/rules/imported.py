"""Running jobs and pods that come into a queue: only with quota that they have there already.

`policyd import` first creates a Workload with quota, and then writes the label of the queue. The
webhooks look for that Workload. It has quota because the controller gave it some, or because an
account wrote its status that an administrator trusts with this. The label itself gives no quota.
"""

from dataclasses import dataclass
from typing import Any

import msgspec

from policyd.api.kueue import Workload
from policyd.api.kueue.names import EVICTED, MANAGED, POD_SET, QUEUE_NAME
from policyd.api.meta import Json, ObjectMeta, OwnerReference, condition_true
from policyd.api.pods import PodSpec
from policyd.jobs.kinds.registry import find_kind
from policyd.jobs.lifecycle import has_quota, is_finished
from policyd.jobs.pods import group_name
from policyd.jobs.rules.submission import labels_of
from policyd.jobs.workload import workload_name


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedObject:
    """An object that was in no queue, and now names one.

    Attributes:
        namespace: Its namespace.
        uid: Its UID.
        queue: The LocalQueue that it names.
        workload: The name that its Workload must have.
        pod: Its specification, if it is a pod.
    """

    namespace: str
    uid: str
    queue: str
    workload: str
    pod: PodSpec | None = None


def imported_object(new: Json, old: Json, *, group: str, kind: str) -> ImportedObject | None:
    """Return the object that comes into a queue; None if it does not, or was in one.

    Args:
        new: The object as it would be stored.
        old: As it is stored now.
        group: API group of the object.
        kind: Kind of the object.
    """
    before, queue = labels_of(old), labels_of(new).get(QUEUE_NAME)
    if not queue or before.get(QUEUE_NAME) or MANAGED in before or POD_SET in before:
        return None
    try:
        metadata = msgspec.convert(old.get("metadata"), ObjectMeta)
        pod = msgspec.convert(new.get("spec"), PodSpec) if (group, kind) == ("", "Pod") else None
    except msgspec.ValidationError:
        return None
    known = find_kind(group, kind)
    version = "v1" if pod is not None else "" if known is None else known.api_version
    if not version:
        return None
    owner = OwnerReference(api_version=version, kind=kind, name=metadata.name, uid=metadata.uid)
    named = group_name(metadata) if pod is not None else ""
    return ImportedObject(
        namespace=metadata.namespace,
        uid=metadata.uid,
        queue=queue,
        workload=named or workload_name(owner),
        pod=pod,
    )


def has_quota_for(workload: Workload, obj: ImportedObject) -> bool:
    """Tell whether a Workload has quota for an object, in the queue that it comes into.

    The requests of a pod are compared here: a group of pods that has quota may change its pods. The
    controller compares those of other jobs, and stops a job that has other requests.
    """
    owned = any(owner.uid == obj.uid for owner in workload.metadata.owner_references)
    if not owned or workload.spec.queue_name != obj.queue or not workload.spec.active:
        return False
    if is_finished(workload) or condition_true(workload.status.conditions, EVICTED):
        return False
    return has_quota(workload) and (obj.pod is None or _has_place(workload, obj.pod))


def _has_place(workload: Workload, pod: PodSpec) -> bool:
    templates: tuple[Any, ...] = tuple(each.template.spec for each in workload.spec.pod_sets)
    asked = (pod.init_containers, pod.containers, pod.resource_claims)
    return any(asked == (t.init_containers, t.containers, t.resource_claims) for t in templates)
