"""The errors in jobs and pods that are submitted to a queue, in Kueue's words."""

import dataclasses
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import suppress
from functools import partial
from typing import Any, Final, TypeVar

import msgspec
from msgspec.structs import replace

from policyd.api.gpus import asks_for_part, part_changes, part_errors
from policyd.api.integers import whole_number
from policyd.api.kueue import PodSet
from policyd.api.kueue.names import (
    ADMISSION_GATE,
    DEFAULT_LOCAL_QUEUE,
    ELASTIC_JOB,
    MANAGED,
    MAX_EXEC_TIME_SECONDS,
    POD_GROUP_NAME,
    POD_GROUP_TOTAL_COUNT,
    PREBUILT_WORKLOAD,
    QUEUE_NAME,
    RETRIABLE_IN_GROUP,
)
from policyd.api.kueue.validation import FieldError
from policyd.api.meta import Json
from policyd.api.names import SUBDOMAIN_RULE, is_subdomain
from policyd.api.pods import PodSpec
from policyd.jobs.base import J, JobKind
from policyd.jobs.kinds.registry import find_kind, find_parent
from policyd.jobs.parents import ParentKind
from policyd.jobs.pods import SUSPENDING_PARENT
from policyd.jobs.rules.defaults import ELASTIC_GATE
from policyd.jobs.rules.leaving import departures
from policyd.jobs.rules.ownership import lost_owners, owner_errors
from policyd.jobs.rules.parents_validation import is_others, parent_errors
from policyd.jobs.rules.submission import (
    NOT_SUPPORTED,
    annotations_of,
    elastic_errors,
    gate_changes,
    gate_errors,
    labels_of,
    named_by,
    priority_changes,
)
from policyd.jobs.rules.surroundings import NOWHERE, JobContext
from policyd.jobs.rules.topology_validation import (
    TopologyTemplate,
    template_errors,
    topology_errors,
)
from policyd.jobs.shape import check_shape
from policyd.patch.operations import Path

KEEPS_RAY_QUEUES: Final = "ValidateRayAndSparkJobUpdates"
"""Gate: whether it is checked that a running job keeps its queue, of kinds that may have none."""
_IMMUTABLE = "field is immutable"
T = TypeVar("T")
_JOB_INSTEAD = (
    "while the job runs: set `{}` to true in the same change, which stops its pods, and the queue"
    " starts it again"
)
_STOP_FIRST = (
    "while the job runs: stop it with `policyd stop {0}`, name the other queue, and continue with"
    " `policyd resume {0}`"
)
_IMPORT = "; an administrator can bring it into a queue while it runs: `policyd import`"
_POD_INSTEAD = (
    "once the pod was let go: no gate can be added to a pod; delete it, and create it with the"
    " label"
)
_ELASTIC: Final = f"metadata.annotations[{ELASTIC_JOB}]"


def validate_job(
    new: Json,
    old: Json | None = None,
    *,
    group: str,
    kind: str,
    surroundings: JobContext = NOWHERE,
) -> tuple[FieldError, ...]:
    """Check a job or a pod that is created or, with `old`, changed.

    Args:
        new: The object as it would be stored, decoded.
        old: As it is stored now; None on creation.
        group: API group; empty for the core group.
        kind: Kind of the object.
        surroundings: Other inputs.

    Returns:
        All errors; none for unknown kinds, nor for an object that is being deleted.

    Raises:
        MisshapenError: If an object is not of its kind.
    """
    for obj in (new, old):
        if obj is not None:
            check_shape(obj, group=group, kind=kind)
    # A deleted object may run on for hours: it must not leave its queue either.
    known, parent = find_kind(group, kind), find_parent(group, kind)
    left = [*_unreadable(known or parent, new, old, surroundings)]
    left += departures(new, old, group=group, kind=kind, surroundings=surroundings)
    if old is not None and (new.get("metadata") or {}).get("deletionTimestamp"):
        return tuple(left)  # other errors must not prevent its deletion
    surroundings = dataclasses.replace(surroundings, before=old)
    # An object that others own only now had its own queue before.
    sent = (new,) if old is None or surroundings.requester == "queue" else (new, old)
    if parent is not None and all(is_others(parent, each, surroundings) for each in sent):
        return tuple(left)
    errors = [
        *left,
        *_names(new, surroundings, created=old is None),
        *owner_errors(new, old, surroundings),
    ]
    if (group, kind) == ("", "Pod"):
        return (*errors, *_pod(new, old, surroundings))
    if known is not None:
        errors += _job(known, new, old, surroundings)
    if parent is not None:
        errors += parent_errors(parent, new, old, surroundings)
    return tuple(errors)


def _new_errors(
    errors_of: Callable[[T], Iterable[FieldError]], new: T, old: T | None
) -> Iterator[FieldError]:
    """Yield the errors in an object; existing errors do not prevent changes."""
    errors = [*errors_of(new)]
    known = {str(each) for each in errors_of(old)} if errors and old is not None else set()
    yield from (each for each in errors if str(each) not in known)


def _pod(new: Json, old: Json | None, surroundings: JobContext) -> Iterator[FieldError]:
    off = surroundings.integrations.off
    yield from pod_errors(new, off)
    yield from template_errors(
        TopologyTemplate("metadata.annotations", annotations_of(new)), off=off
    )
    if surroundings.integrations.gpu_fractions:
        yield from _new_errors(_part_errors_of_pod, new, old)
        if old is not None:
            yield from part_changes(annotations_of(old), annotations_of(new))
    if old is not None:
        yield from pod_changes(new, old, off)
        gated = is_gated_object(old), is_gated_object(new)
        if not gated[1]:
            yield from lost_owners(new, old, surroundings)
        # The queue's controller passes on what the parent's labels say, also to pods that started.
        follows = surroundings.requester == "queue" and SUSPENDING_PARENT in annotations_of(old)
        suspended = (True, True) if follows else gated
        yield from _changes(
            new, old, suspended=suspended, surroundings=surroundings, instead=_POD_INSTEAD
        )


def _part_errors_of_pod(pod: Json) -> Iterator[FieldError]:
    annotations = annotations_of(pod)
    if asks_for_part(annotations):
        with suppress(msgspec.ValidationError):  # the API server refuses it
            yield from part_errors(annotations, msgspec.convert(pod.get("spec") or {}, PodSpec))


def _unreadable(
    kind: JobKind[Any] | ParentKind[Any] | None,
    new: Json,
    old: Json | None,
    surroundings: JobContext,
) -> Iterator[FieldError]:
    """Yield an error if the queue could not read a job, and so not follow it.

    The API server has checked it by now: an object that a schema allows is stored.
    """
    named = any(QUEUE_NAME in labels_of(each or {}) for each in (new, old))
    queues = named or surroundings.integrations.manages_all
    same = old is not None and new.get("spec") == old.get("spec")
    if kind is None or same or not queues:
        return
    try:
        job = msgspec.convert(new, kind.type)
        if isinstance(kind, JobKind):
            kind.pod_sets(job)
    except msgspec.ValidationError as error:
        detail = f"the queue cannot read it: {error}; without such a value it can"
        yield FieldError("spec", None, detail, "Forbidden")


def _job(
    kind: JobKind[Any], new: Json, old: Json | None, surroundings: JobContext
) -> Iterator[FieldError]:
    everywhere = surroundings.integrations.manages_all
    held, was_held = (everywhere or QUEUE_NAME in labels_of(each) for each in (new, old or {}))
    if (
        kind.only_managed
        and not held
        and (not was_held or KEEPS_RAY_QUEUES in surroundings.integrations.off)
    ):
        return
    try:
        job = msgspec.convert(new, kind.type)
        before = None if old is None else msgspec.convert(old, kind.type)
    except msgspec.ValidationError:
        return
    if surroundings.basis is not None:
        job = kind.on_basis(job, surroundings.basis)
    off = surroundings.integrations.off
    job = _without_gated(job, off)
    if held or not kind.only_managed:
        yield from _new_errors(partial(_unsupported, kind), job, before)
        fractions = surroundings.integrations.gpu_fractions
        errors = [*_contents(kind, job, before, off, fractions=fractions)]
        # Existing errors do not prevent a start, a stop, or changes of the rest.
        known: set[str] = set()
        if errors and before is not None:
            known = {str(e) for e in _contents(kind, before, None, off, fractions=fractions)}
        yield from (each for each in errors if str(each) not in known)
    if before is not None:
        suspended = kind.suspended(before), kind.suspended(job)
        if not suspended[1]:
            yield from lost_owners(new, old, surroundings)
        instead = _to_another_queue(kind, before)
        yield from _changes(
            new, old, suspended=suspended, surroundings=surroundings, instead=instead
        )


def _to_another_queue(kind: JobKind[J], job: J) -> str:
    """Say how a job that runs gets into a queue: suspended by its user, it stays in the one it has.

    Its Workload keeps its quota then, and starts it again.
    """
    if QUEUE_NAME in job.metadata.labels:
        return _STOP_FIRST.format(f"{kind.kind.lower()}/{job.metadata.name}")
    return _JOB_INSTEAD.format(".".join(map(str, kind.suspend_path))) + _IMPORT


def _without_gated(job: J, off: Set[str]) -> J:
    """Return a job without the annotation that means nothing while its feature gate is off."""
    if ELASTIC_GATE not in off:
        return job
    kept = {name: text for name, text in job.metadata.annotations.items() if name != ELASTIC_JOB}
    return replace(job, metadata=replace(job.metadata, annotations=kept))


def _unsupported(kind: JobKind[J], job: J) -> Iterator[FieldError]:
    """Yield the settings of a job that its kind does not support."""
    if kind.elastic is None:
        yield from elastic_errors(job.metadata.annotations)
    if kind.takes_prebuilt:
        return
    metadata = job.metadata
    for section, values in (("labels", metadata.labels), ("annotations", metadata.annotations)):
        if PREBUILT_WORKLOAD in values:
            where = f"metadata.{section}[{PREBUILT_WORKLOAD}]"
            yield FieldError(where, values[PREBUILT_WORKLOAD], NOT_SUPPORTED, "Forbidden")


def _contents(
    kind: JobKind[J], job: J, before: J | None, off: Set[str], *, fractions: bool
) -> Iterator[FieldError]:
    try:
        pod_sets = kind.pod_sets(job)
    except msgspec.ValidationError:
        return  # as with an unreadable job
    paths: Sequence[str] = [
        f"{_written(path)}.metadata.annotations" for path in kind.templates(job)
    ]
    if kind.annotation_paths is not None:
        paths = kind.annotation_paths(job)
    if fractions:
        yield from _parts(kind, pod_sets, paths, before)
    yield from topology_errors(
        [
            TopologyTemplate(path, each.template.metadata.annotations, _asked_pods(kind, job, each))
            for path, each in zip(paths, pod_sets, strict=True)
        ],
        off=off,
    )
    yield from kind.mistakes(job, before)


def _parts(
    kind: JobKind[J], pod_sets: Sequence[PodSet], paths: Sequence[str], before: J | None
) -> Iterator[FieldError]:
    """Yield the errors in parts of GPUs, and changes of them."""
    old: dict[str, Mapping[str, str]] = {}
    if before is not None:
        with suppress(msgspec.ValidationError):
            old = {each.name: each.template.metadata.annotations for each in kind.pod_sets(before)}
    for path, each in zip(paths, pod_sets, strict=True):
        annotations = each.template.metadata.annotations
        yield from part_errors(annotations, each.template.spec, path)
        yield from part_changes(old.get(each.name, annotations), annotations, path)


def _asked_pods(kind: JobKind[J], job: J, pod_set: PodSet) -> int | None:
    """Return how many pods were asked for; None for a running job that may have fewer."""
    fewer = pod_set.min_count is not None and not kind.suspended(job)
    return None if fewer else pod_set.count


def _written(path: Path) -> str:
    """Write a path; no field begins with a capital, so a name that does is the key of a map."""
    steps = [str(step) for step in path]
    written = [f".{s}" if s[0].islower() else f"[{s}]" for s in steps]
    return "".join(written).removeprefix(".")


def _names(obj: Json, surroundings: JobContext, *, created: bool) -> Iterator[FieldError]:
    yield from gate_errors(annotations_of(obj), surroundings.integrations.off)
    queue = labels_of(obj).get(QUEUE_NAME)
    if queue is not None and not is_subdomain(queue) and (queue or created):
        yield FieldError(f"metadata.labels[{QUEUE_NAME}]", queue, SUBDOMAIN_RULE)
    for section, values in (("labels", labels_of(obj)), ("annotations", annotations_of(obj))):
        prebuilt = values.get(PREBUILT_WORKLOAD)
        if prebuilt and not is_subdomain(prebuilt):
            where = f"metadata.{section}[{PREBUILT_WORKLOAD}]"
            yield FieldError(where, prebuilt, SUBDOMAIN_RULE)
    limit = labels_of(obj).get(MAX_EXEC_TIME_SECONDS)
    if limit is not None:
        where = f"metadata.labels[{MAX_EXEC_TIME_SECONDS}]"
        if not re.fullmatch(r"[+-]?\d+", limit):
            yield FieldError(where, limit, "must be a whole number of seconds")
        elif int(limit) <= 0:
            yield FieldError(where, limit, "should be greater than 0")


def _changes(
    new: Json, old: Json, *, suspended: tuple[bool, bool], surroundings: JobContext, instead: str
) -> Iterator[FieldError]:
    """Yield changes that are not allowed; `instead` says how a job that runs gets another queue."""
    before, after = labels_of(old), labels_of(new)
    queue, limit = (f"metadata.labels[{name}]" for name in (QUEUE_NAME, MAX_EXEC_TIME_SECONDS))
    if before.get(QUEUE_NAME, "") != after.get(QUEUE_NAME, ""):
        if not (suspended[1] or surroundings.imported):
            yield FieldError(queue, after.get(QUEUE_NAME, ""), f"{_IMMUTABLE} {instead}")
        if surroundings.default_queue and not after.get(QUEUE_NAME):
            detail = f"cannot be removed while there is a LocalQueue `{DEFAULT_LOCAL_QUEUE}`"
            yield FieldError(queue, "", detail)
    if before.get(MAX_EXEC_TIME_SECONDS) != after.get(MAX_EXEC_TIME_SECONDS) and not all(suspended):
        yield FieldError(limit, after.get(MAX_EXEC_TIME_SECONDS, ""), _IMMUTABLE)
    yield from _fixed(new, old, suspended=suspended[1], off=surroundings.integrations.off)
    running = not (any(suspended) or surroundings.imported)
    yield from priority_changes(before, after, running=running)
    yield from gate_changes(annotations_of(old), annotations_of(new), surroundings.integrations.off)


def _fixed(new: Json, old: Json, *, suspended: bool, off: Set[str]) -> Iterator[FieldError]:
    """Yield changes of which workload stands for a job, and of how it may grow."""
    on = ELASTIC_GATE not in off
    was, now = (on and annotations_of(each).get(ELASTIC_JOB) == "true" for each in (old, new))
    if was != now:
        yield FieldError(_ELASTIC, annotations_of(new).get(ELASTIC_JOB, ""), _IMMUTABLE)
    names = [named_by(each, PREBUILT_WORKLOAD, off)[0] for each in (old, new)]
    if names[0] != names[1] and not (suspended or now):
        section = "annotations" if PREBUILT_WORKLOAD in annotations_of(new) else "labels"
        yield FieldError(f"metadata.{section}[{PREBUILT_WORKLOAD}]", names[1], _IMMUTABLE)


_TOTAL: Final = f"metadata.annotations[{POD_GROUP_TOTAL_COUNT}]"


def pod_errors(pod: Json, off: Set[str]) -> Iterator[FieldError]:
    """Yield the errors in a pod; feature gates `off` are those that are set to off."""
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
    """Yield the forbidden changes of a pod."""
    (before, _), (after, where) = (named_by(pod, POD_GROUP_NAME, off) for pod in (old, new))
    if before and before != after:
        yield FieldError(where, after, _IMMUTABLE)
    was, now = (annotations_of(pod).get(RETRIABLE_IN_GROUP) for pod in (old, new))
    if was == "false" and now != "false":
        detail = "an unretriable pod cannot become retriable"
        path = f"metadata.annotations[{RETRIABLE_IN_GROUP}]"
        yield FieldError(path, now or "", detail, "Forbidden")
