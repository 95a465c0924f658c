"""What the door refuses of jobs and pods that are submitted to a queue, in Kueue's words."""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec

from policyd.api.kueue.names import (
    ADMISSION_GATED_BY,
    DEFAULT_LOCAL_QUEUE,
    ELASTIC_JOB,
    MAX_EXEC_TIME_SECONDS,
    POD_GROUP_NAME,
    POD_GROUP_TOTAL_COUNT,
    PREBUILT_WORKLOAD,
    PRIORITY_CLASS,
    QUEUE_NAME,
    RETRIABLE_IN_GROUP,
)
from policyd.api.kueue.validation import FieldError
from policyd.api.meta import Json
from policyd.api.names import SUBDOMAIN_RULE, is_subdomain
from policyd.jobs.base import J, JobKind
from policyd.jobs.kinds import find_kind
from policyd.jobs.shape import check_shape
from policyd.jobs.surroundings import NOWHERE, Surroundings
from policyd.jobs.topology_validation import Template, topology_errors
from policyd.patch.operations import Path

KEEPS_RAY_QUEUES: Final = "ValidateRayAndSparkJobUpdates"
"""Gate: whether it is checked that a running job keeps its queue, of kinds that may have none."""
_IMMUTABLE = "field is immutable"


def validate_job(
    new: Json,
    old: Json | None = None,
    *,
    group: str,
    kind: str,
    around: Surroundings = NOWHERE,
) -> tuple[FieldError, ...]:
    """Check a job or a pod that is created or, with `old`, changed.

    Args:
        new: The object as it would be stored, decoded.
        old: As it is stored now; None on creation.
        group: API group; empty for the core group.
        kind: Kind of the object.
        around: What counts beside it.

    Returns:
        Every mistake; none for kinds that are not known.

    Raises:
        MisshapenError: If an object is not of its kind.
    """
    for obj in (new, old):
        if obj is not None:
            check_shape(obj, group=group, kind=kind)
    errors = [*_names(new)]
    if (group, kind) == ("", "Pod"):
        errors += _group(new)
        errors += topology_errors([Template("metadata.annotations", _annotations(new))])
        errors += _pod_changes(new, old) if old is not None else ()
        return tuple(errors)
    known = find_kind(group, kind)
    if known is not None:
        errors += _job(known, new, old, around)
    return tuple(errors)


def _job(
    kind: JobKind[Any], new: Json, old: Json | None, around: Surroundings
) -> Iterator[FieldError]:
    held, was_held = (
        around.manages_all or QUEUE_NAME in _labels(each)
        for each in (new, {} if old is None else old)
    )
    if kind.only_managed and not held and (not was_held or KEEPS_RAY_QUEUES in around.off):
        return
    try:
        job = msgspec.convert(new, kind.type)
        before = None if old is None else msgspec.convert(old, kind.type)
    except msgspec.ValidationError:
        return  # the API server says what is wrong with an object that is not of its type
    if around.basis is not None:
        job = kind.on_basis(job, around.basis)
    if held or not kind.only_managed:
        yield from _contents(kind, job, before)
    if before is not None:
        suspended = kind.suspended(before), kind.suspended(job)
        yield from _changes(new, old, suspended=suspended, default_queue=around.default_queue)


def _contents(kind: JobKind[J], job: J, before: J | None) -> Iterator[FieldError]:
    pod_sets = kind.pod_sets(job)
    paths: Iterable[str] = (
        f"{_written(path)}.metadata.annotations" for path in kind.templates(job)
    )
    if kind.annotation_paths is not None:
        paths = kind.annotation_paths(job)
    yield from topology_errors(
        [
            Template(path, each.template.metadata.annotations, each.count)
            for path, each in zip(paths, pod_sets, strict=True)
        ]
    )
    yield from kind.mistakes(job, before)


def _written(path: Path) -> str:
    """Write a path; no field begins with a capital, so what does is the key of a map."""
    steps = [str(step) for step in path]
    written = [f".{s}" if s[0].islower() else f"[{s}]" for s in steps]
    return "".join(written).removeprefix(".")


def _names(obj: Json) -> Iterator[FieldError]:
    queue = _labels(obj).get(QUEUE_NAME)
    if queue and not is_subdomain(queue):
        yield FieldError(f"metadata.labels[{QUEUE_NAME}]", queue, SUBDOMAIN_RULE)
    for section, values in (("labels", _labels(obj)), ("annotations", _annotations(obj))):
        prebuilt = values.get(PREBUILT_WORKLOAD)
        if prebuilt and not is_subdomain(prebuilt):
            where = f"metadata.{section}[{PREBUILT_WORKLOAD}]"
            yield FieldError(where, prebuilt, SUBDOMAIN_RULE)
    limit = _labels(obj).get(MAX_EXEC_TIME_SECONDS)
    if limit is not None:
        where = f"metadata.labels[{MAX_EXEC_TIME_SECONDS}]"
        if not re.fullmatch(r"[+-]?\d+", limit):
            yield FieldError(where, limit, "must be a whole number of seconds")
        elif int(limit) <= 0:
            yield FieldError(where, limit, "should be greater than 0")


def _group(pod: Json) -> Iterator[FieldError]:
    annotations = _annotations(pod)
    name = annotations.get(POD_GROUP_NAME) or _labels(pod).get(POD_GROUP_NAME)
    total = annotations.get(POD_GROUP_TOTAL_COUNT)
    where = f"metadata.annotations[{POD_GROUP_TOTAL_COUNT}]"
    if name and not is_subdomain(name):
        yield FieldError(f"metadata.labels[{POD_GROUP_NAME}]", name, SUBDOMAIN_RULE)
    if total is not None and not (total.isdecimal() and int(total)):
        yield FieldError(where, total, "must be a whole number greater than 0")
    if name and total is None:
        yield FieldError(where, "", f"must be set together with {POD_GROUP_NAME}")
    if total is not None and not name:
        detail = f"must be set together with {POD_GROUP_TOTAL_COUNT}"
        yield FieldError(f"metadata.labels[{POD_GROUP_NAME}]", "", detail)


def _pod_changes(new: Json, old: Json) -> Iterator[FieldError]:
    before, after = _group_of(old), _group_of(new)
    if before and before != after:
        yield FieldError(f"metadata.labels[{POD_GROUP_NAME}]", after, _IMMUTABLE)
    was, now = (_annotations(pod).get(RETRIABLE_IN_GROUP) for pod in (old, new))
    if was == "false" and now != "false":
        detail = "an unretriable pod cannot become retriable"
        yield FieldError(f"metadata.annotations[{RETRIABLE_IN_GROUP}]", now or "", detail)


def _group_of(pod: Json) -> str:
    name = _annotations(pod).get(POD_GROUP_NAME) or _labels(pod).get(POD_GROUP_NAME) or ""
    return str(name)


def _changes(
    new: Json, old: Json, *, suspended: tuple[bool, bool], default_queue: bool
) -> Iterator[FieldError]:
    before, after = _labels(old), _labels(new)
    queue, limit = (f"metadata.labels[{name}]" for name in (QUEUE_NAME, MAX_EXEC_TIME_SECONDS))
    if before.get(QUEUE_NAME) != after.get(QUEUE_NAME):
        if not suspended[1]:
            yield FieldError(queue, after.get(QUEUE_NAME, ""), _IMMUTABLE)
        elif default_queue and not after.get(QUEUE_NAME):
            detail = f"cannot be removed while there is a LocalQueue `{DEFAULT_LOCAL_QUEUE}`"
            yield FieldError(queue, "", detail)
    if before.get(MAX_EXEC_TIME_SECONDS) != after.get(MAX_EXEC_TIME_SECONDS) and not all(suspended):
        yield FieldError(limit, after.get(MAX_EXEC_TIME_SECONDS, ""), _IMMUTABLE)
    yield from _fixed(new, old, suspended=suspended[1])
    yield from _priority_changes(before, after, running=not any(suspended))
    yield from _gate_changes(_annotations(old), _annotations(new))


def _fixed(new: Json, old: Json, *, suspended: bool) -> Iterator[FieldError]:
    """Yield changes of which workload stands for a job, and of how it may grow."""
    was, now = (each.get(ELASTIC_JOB, "") for each in (_annotations(old), _annotations(new)))
    if was != now:
        yield FieldError(f"metadata.annotations[{ELASTIC_JOB}]", now, _IMMUTABLE)
    names = [_prebuilt(each) for each in (old, new)]
    if names[0] != names[1] and not suspended:
        section = "annotations" if PREBUILT_WORKLOAD in _annotations(new) else "labels"
        yield FieldError(f"metadata.{section}[{PREBUILT_WORKLOAD}]", names[1], _IMMUTABLE)


def _prebuilt(job: Json) -> str:
    for values in (_annotations(job), _labels(job)):
        if PREBUILT_WORKLOAD in values:
            return values[PREBUILT_WORKLOAD]
    return ""


def _priority_changes(
    before: Mapping[str, str], after: Mapping[str, str], *, running: bool
) -> Iterator[FieldError]:
    where = f"metadata.labels[{PRIORITY_CLASS}]"
    was, now = before.get(PRIORITY_CLASS, ""), after.get(PRIORITY_CLASS, "")
    if was and not now:
        detail = "WorkloadPriorityClass cannot be removed from a workload"
        yield FieldError(where, "", detail)
    if now and not was and running:
        detail = "WorkloadPriorityClass cannot be added to a running workload"
        yield FieldError(where, now, detail)


def _gate_changes(before: Mapping[str, str], after: Mapping[str, str]) -> Iterator[FieldError]:
    was, now = (_gates(annotations) for annotations in (before, after))
    if not now <= was:
        where = f"metadata.annotations[{ADMISSION_GATED_BY}]"
        detail = "can only remove gates, not add new ones"
        yield FieldError(where, after.get(ADMISSION_GATED_BY, ""), detail, "Forbidden")


def _gates(annotations: Mapping[str, str]) -> set[str]:
    parts = annotations.get(ADMISSION_GATED_BY, "").split(",")
    return {part.strip() for part in parts if part.strip()}


def _labels(obj: Json) -> Mapping[str, str]:
    return (obj.get("metadata") or {}).get("labels") or {}


def _annotations(obj: Json) -> Mapping[str, str]:
    return (obj.get("metadata") or {}).get("annotations") or {}
