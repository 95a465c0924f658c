"""What is said of how urgently, and from when on, something queues: what the door refuses of it."""

from collections.abc import Iterator, Mapping, Set
from typing import Final

from policyd.api.kueue.names import ADMISSION_GATED_BY, ELASTIC_JOB, PRIORITY_CLASS
from policyd.api.kueue.validation import FieldError
from policyd.api.meta import Json
from policyd.api.names import label_key_problems

GATED_BY: Final = "AdmissionGatedBy"
"""Gate: whether anybody has a say in when something queues."""
NOT_SUPPORTED: Final = "is not supported for this kind"
LONGEST_GATE: Final = 63
_GATED_BY: Final = f"metadata.annotations[{ADMISSION_GATED_BY}]"


def labels_of(obj: Json) -> Mapping[str, str]:
    """Return the labels of an object."""
    return (obj.get("metadata") or {}).get("labels") or {}


def annotations_of(obj: Json) -> Mapping[str, str]:
    """Return the annotations of an object."""
    return (obj.get("metadata") or {}).get("annotations") or {}


def named_by(obj: Json, key: str) -> tuple[str, str]:
    """Return what an object names by `key`, and where: the annotation wins over the label."""
    said = annotations_of(obj).get(key)
    if said:
        return str(said), f"metadata.annotations[{key}]"
    return str(labels_of(obj).get(key) or ""), f"metadata.labels[{key}]"


def elastic_errors(annotations: Mapping[str, str]) -> Iterator[FieldError]:
    """Yield that what is of this kind cannot grow and shrink, if it is to."""
    if annotations.get(ELASTIC_JOB) == "true":
        where = f"metadata.annotations[{ELASTIC_JOB}]"
        yield FieldError(where, "true", NOT_SUPPORTED, "Forbidden")


def priority_changes(
    before: Mapping[str, str], after: Mapping[str, str], *, running: bool
) -> Iterator[FieldError]:
    """Yield what is wrong with a change of the priority class, given the labels."""
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
    """Yield what is wrong with a change of who lets it queue, given the annotations."""
    was, now = (_gates(annotations) for annotations in (before, after))
    if not now <= was and GATED_BY not in off:
        detail = "can only remove gates, not add new ones"
        yield FieldError(_GATED_BY, after.get(ADMISSION_GATED_BY, ""), detail, "Forbidden")


def _gates(annotations: Mapping[str, str]) -> set[str]:
    parts = annotations.get(ADMISSION_GATED_BY, "").split(",")
    return {part.strip() for part in parts if part.strip()}


def gating_errors(annotations: Mapping[str, str], off: Set[str]) -> Iterator[FieldError]:
    """Yield what is wrong with the names of who lets something queue, but for feature gates off."""
    text = "" if GATED_BY in off else annotations.get(ADMISSION_GATED_BY, "")
    names = [part.strip() for part in text.split(",")] if text else []
    if len(set(names)) < len(names):
        yield FieldError(_GATED_BY, text, "must not name a gate twice")
    for name in names:
        problem = _gate_problem(name)
        if problem is not None:
            yield FieldError(_GATED_BY, text, problem)
        elif len(name.rpartition("/")[2]) > LONGEST_GATE:
            detail = f"may not be more than {LONGEST_GATE} bytes"
            yield FieldError(_GATED_BY, text, detail, "TooLong")


def _gate_problem(name: str) -> str | None:
    domain, slash, path = name.partition("/")
    if not slash:
        return f"gate `{name}` must be a path in a domain, such as `example.com/gate`"
    problems = label_key_problems(f"{domain}/{path[:LONGEST_GATE]}")
    return f"gate `{name}`: {problems[0]}" if problems else None
