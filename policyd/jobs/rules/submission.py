"""The errors in the priority and start of objects that queue."""

from collections.abc import Iterator, Mapping, Set
from typing import Final

from policyd.api.kueue.gating import gating_changes, gating_errors
from policyd.api.kueue.names import (
    ELASTIC_JOB,
    POD_GROUP_NAME,
    PREBUILT_WORKLOAD,
    PRIORITY_CLASS,
)
from policyd.api.kueue.validation import FieldError
from policyd.api.meta import Json
from policyd.api.names import LONGEST_LABEL

GATED_BY: Final = "AdmissionGatedBy"
"""Gate: whether others may delay the queueing of an object."""
ANNOTATED: Final = "WorkloadIdentifierAnnotations"
"""Gate: whether annotations name groups and workloads, as labels do."""
IDENTIFIERS: Final = (POD_GROUP_NAME, PREBUILT_WORKLOAD)
"""The keys that name groups and workloads."""
NOT_SUPPORTED: Final = "is not supported for this kind"


def labels_of(obj: Json) -> Mapping[str, str]:
    """Return the labels of an object."""
    return (obj.get("metadata") or {}).get("labels") or {}


def annotations_of(obj: Json) -> Mapping[str, str]:
    """Return the annotations of an object, empty when it has none or is misshapen."""
    metadata = obj.get("metadata") if isinstance(obj, Mapping) else None
    found = metadata.get("annotations") if isinstance(metadata, Mapping) else None
    return found if isinstance(found, Mapping) else {}


def fits_label(name: str) -> bool:
    """Tell whether a label has room for a name."""
    return len(name) <= LONGEST_LABEL


def named_by(obj: Json, key: str, off: Set[str]) -> tuple[str, str]:
    """Return the name that an object gives by `key`, and its path, under feature gates `off`.

    The annotation wins over the label; without the gate it counts where no label has room for it.
    """
    value = annotations_of(obj).get(key)
    if value and not (ANNOTATED in off and fits_label(str(value))):
        return str(value), f"metadata.annotations[{key}]"
    return str(labels_of(obj).get(key) or ""), f"metadata.labels[{key}]"


def elastic_errors(annotations: Mapping[str, str]) -> Iterator[FieldError]:
    """Yield an error if an object of this kind is to grow and shrink, as it cannot."""
    if annotations.get(ELASTIC_JOB) == "true":
        where = f"metadata.annotations[{ELASTIC_JOB}]"
        yield FieldError(where, "true", NOT_SUPPORTED, "Forbidden")


def priority_changes(
    before: Mapping[str, str], after: Mapping[str, str], *, running: bool
) -> Iterator[FieldError]:
    """Yield the errors in a change of the priority class, given the labels."""
    where = f"metadata.labels[{PRIORITY_CLASS}]"
    was, now = before.get(PRIORITY_CLASS, ""), after.get(PRIORITY_CLASS, "")
    if was and not now:
        detail = "WorkloadPriorityClass cannot be removed from a workload"
        yield FieldError(where, "", detail)
    if now and not was and running:
        detail = "WorkloadPriorityClass cannot be added to a running workload"
        yield FieldError(where, now, detail)


def gate_changes(
    before: Mapping[str, str], after: Mapping[str, str], off: Set[str]
) -> Iterator[FieldError]:
    """Yield the errors in a change of admission gates, under feature gates `off`."""
    return iter(()) if GATED_BY in off else gating_changes(before, after)


def gate_errors(annotations: Mapping[str, str], off: Set[str]) -> Iterator[FieldError]:
    """Yield the errors in the names of admission gates, under feature gates `off`."""
    return iter(()) if GATED_BY in off else gating_errors(annotations)
