"""The errors in objects whose pods are gated for them, in Kueue's words."""

from collections.abc import Iterator, Set
from typing import Any, Final

import msgspec

from policyd.api.kueue.names import QUEUE_NAME
from policyd.api.kueue.validation import IMMUTABLE, FieldError
from policyd.api.meta import Json
from policyd.jobs.parents import P, ParentKind
from policyd.jobs.pods import SHAPE
from policyd.jobs.rules.defaults import ELASTIC_GATE
from policyd.jobs.rules.ownership import is_held_otherwise, is_part
from policyd.jobs.rules.submission import (
    annotations_of,
    elastic_errors,
    gate_changes,
    labels_of,
    priority_changes,
)
from policyd.jobs.rules.surroundings import JobContext
from policyd.jobs.rules.topology_validation import TopologyTemplate, topology_errors
from policyd.patch.draft import Draft
from policyd.patch.operations import Path

_OF_CONTAINERS: Final[tuple[Path, ...]] = (("resources", "requests"), ("ports",))
"""The fields of a container that decide where its pod can run."""


def is_others(kind: ParentKind[Any], obj: Json, surroundings: JobContext) -> bool:
    """Tell whether the pods of an object are held for something else."""
    try:
        return is_part(obj, surroundings) or is_held_otherwise(kind, obj, surroundings)
    except msgspec.ValidationError:
        return False


def parent_errors(
    kind: ParentKind[Any], new: Json, old: Json | None, surroundings: JobContext
) -> Iterator[FieldError]:
    """Yield the errors in an object that makes pods, or in its change."""
    try:
        parent = msgspec.convert(new, kind.type)
        before = None if old is None else msgspec.convert(old, kind.type)
    except msgspec.ValidationError:
        return  # the API server reports an object that is not of its type
    managed = surroundings.integrations.manages_all or QUEUE_NAME in labels_of(new)
    errors = [*_contents(kind, parent, before, surroundings)]
    if errors and before is not None:
        # Existing errors do not prevent changes of the rest.
        known = {str(each) for each in _contents(kind, before, None, surroundings)}
        errors = [each for each in errors if str(each) not in known]
    yield from errors
    if before is not None:
        off = surroundings.integrations.off
        yield from _changes(new, old, ready=before.status.ready_replicas > 0, off=off)
        if managed and kind.fixed:
            yield from _shapes(kind.templates(parent), new, old)


def _contents(
    kind: ParentKind[P], parent: P, before: P | None, surroundings: JobContext
) -> Iterator[FieldError]:
    off, metadata = surroundings.integrations.off, parent.metadata
    if ELASTIC_GATE not in off:
        yield from elastic_errors(metadata.annotations)
    yield from topology_errors(_templates(kind, parent), off=off)
    if surroundings.integrations.manages_all or QUEUE_NAME in metadata.labels:
        yield from kind.mistakes(parent, before, surroundings)


def _templates(kind: ParentKind[P], parent: P) -> list[TopologyTemplate]:
    """Return the topology requests of a group's templates, or of pods that queue one by one."""
    if kind.groups is not None:
        return [
            TopologyTemplate(_annotations_at(path), each.template.metadata.annotations, each.count)
            for group in kind.groups(parent)[:1]
            for path, each in zip(group.paths, group.pod_sets, strict=True)
        ]
    draft = Draft(msgspec.to_builtins(parent))
    return [
        TopologyTemplate(_annotations_at(path), annotations_of(draft.get(path) or {}))
        for path in kind.templates(parent)
    ]


def _changes(new: Json, old: Json, *, ready: bool, off: Set[str]) -> Iterator[FieldError]:
    before, after = labels_of(old), labels_of(new)
    was, now = before.get(QUEUE_NAME, ""), after.get(QUEUE_NAME, "")
    if was != now and (ready or not now):
        yield FieldError(f"metadata.labels[{QUEUE_NAME}]", now, IMMUTABLE)
    yield from priority_changes(before, after, running=ready)
    yield from gate_changes(annotations_of(old), annotations_of(new), off)


def _shapes(paths: tuple[Path, ...], new: Json, old: Json) -> Iterator[FieldError]:
    """Yield the changes after which pods would not fit the workload that they have."""
    now, was = Draft(new), Draft(old)
    for path in paths:
        spec = (*path, "spec")
        for name in SHAPE:
            yield from _change(was, now, (*spec, name))
        for name in ("initContainers", "containers"):
            yield from _containers(was, now, (*spec, name))


def _containers(was: Draft, now: Draft, path: Path) -> Iterator[FieldError]:
    before, after = was.get(path) or (), now.get(path) or ()
    if len(before) != len(after):
        yield FieldError(_written(path), len(after), IMMUTABLE)
        return
    for index in range(len(after)):
        for part in _OF_CONTAINERS:
            yield from _change(was, now, (*path, index, *part))


def _change(was: Draft, now: Draft, path: Path) -> Iterator[FieldError]:
    if (was.get(path) or None) != (now.get(path) or None):
        yield FieldError(_written(path), now.get(path), IMMUTABLE)


def _written(path: Path) -> str:
    steps = (f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)
    return "".join(steps).removeprefix(".")


def _annotations_at(path: Path) -> str:
    return f"{_written(path)}.metadata.annotations"
