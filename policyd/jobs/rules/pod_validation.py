"""What the webhooks refuse of pods, alone and in groups."""

from collections.abc import Iterator, Set
from typing import Final

from policyd.api.integers import whole_number
from policyd.api.kueue.names import (
    ADMISSION_GATE,
    MANAGED,
    POD_GROUP_NAME,
    POD_GROUP_TOTAL_COUNT,
    PREBUILT_WORKLOAD,
    RETRIABLE_IN_GROUP,
)
from policyd.api.kueue.validation import FieldError
from policyd.api.meta import Json
from policyd.api.names import SUBDOMAIN_RULE, is_subdomain
from policyd.jobs.rules.submission import annotations_of, labels_of, named_by

_TOTAL: Final = f"metadata.annotations[{POD_GROUP_TOTAL_COUNT}]"
_IMMUTABLE: Final = "field is immutable"


def pod_errors(pod: Json, off: Set[str]) -> Iterator[FieldError]:
    """Yield what is wrong with a pod; feature gates `off` are those that are set to off."""
    managed = labels_of(pod).get(MANAGED, "true")
    if managed != "true":
        yield FieldError(f"metadata.labels[{MANAGED}]", managed, "can only be `true`", "Forbidden")
    name, where = named_by(pod, POD_GROUP_NAME, off)
    if name and not is_subdomain(name):
        yield FieldError(where, name, SUBDOMAIN_RULE)
    yield from _total_errors(pod, name, where)
    prebuilt, at = named_by(pod, PREBUILT_WORKLOAD, off)
    if name and prebuilt and name != prebuilt:
        yield FieldError(at, prebuilt, "a prebuilt workload has the name of the group")


def is_gated_object(pod: Json) -> bool:
    """Tell whether a pod still waits for the queue, as it is sent."""
    gates = (pod.get("spec") or {}).get("schedulingGates") or ()
    return any(gate.get("name") == ADMISSION_GATE for gate in gates)


def _total_errors(pod: Json, name: str, where: str) -> Iterator[FieldError]:
    total = annotations_of(pod).get(POD_GROUP_TOTAL_COUNT)
    if total is None:
        if name:
            yield FieldError(_TOTAL, "", f"must be set together with {POD_GROUP_NAME}", "Required")
        return
    if not name:
        yield FieldError(where, "", f"must be set together with {_TOTAL}", "Required")
    elif (whole_number(total) or 0) < 1:
        yield FieldError(_TOTAL, total, "must be a whole number greater than 0")


def pod_changes(new: Json, old: Json, off: Set[str]) -> Iterator[FieldError]:
    """Yield what must not change of a pod."""
    (before, _), (after, where) = (named_by(pod, POD_GROUP_NAME, off) for pod in (old, new))
    if before and before != after:
        yield FieldError(where, after, _IMMUTABLE)
    was, now = (annotations_of(pod).get(RETRIABLE_IN_GROUP) for pod in (old, new))
    if was == "false" and now != "false":
        detail = "an unretriable pod cannot become retriable"
        path = f"metadata.annotations[{RETRIABLE_IN_GROUP}]"
        yield FieldError(path, now or "", detail, "Forbidden")
