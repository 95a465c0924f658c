"""Compile `inject`: which value is set where, and on which kinds.

The names of a queue and of a workload's priority belong to the object that is queued; everything of
a pod's spec belongs to the pod, or to the templates it is made from. Fields that cannot be changed
once an object exists is set when it is created, and left alone afterwards.
"""

from dataclasses import dataclass
from functools import partial
from typing import Literal

import msgspec

from policyd.api.inject import Inject, Text
from policyd.api.meta import Json
from policyd.engine.inject.merging import (
    Edit,
    Merge,
    add_affinity,
    add_scheduling_gates,
    add_spread_constraints,
    add_tolerations,
    default_resources,
    form_gang_of_job,
    form_gang_of_pods,
    request_topology,
    set_annotations,
    set_labels,
    set_named,
    set_node_selector,
    set_priority_class,
    set_queue_name,
    set_workload_priority_class,
)
from policyd.engine.inject.templates import (
    Compile,
    ValueTemplate,
    build_template,
    fields_of_type,
    set_fields,
)
from policyd.engine.objects.workloads import WorkloadKind
from policyd.patch.draft import Draft
from policyd.patch.operations import Path

Level = Literal["workload", "pods", "pods-metadata", "object"]
"""The target of a field: the queued object, the pods' spec, their metadata, any object."""


OBJECT: Path = ()
"""The path of the object itself."""


@dataclass(frozen=True, slots=True)
class _Field:
    name: str
    level: Level
    merge: Merge
    writes: frozenset[str]


def _field(name: str, level: Level, merge: Merge, *writes: str) -> _Field:
    return _Field(name, level, merge, frozenset(writes))


_RULES = (
    _field("queueName", "workload", set_queue_name, "labels"),
    _field("workloadPriorityClassName", "workload", set_workload_priority_class, "labels"),
    _field("gang", "workload", form_gang_of_pods, "labels", "annotations"),
    _field("objectLabels", "object", set_labels, "labels"),
    _field("objectAnnotations", "object", set_annotations, "annotations"),
    _field("labels", "pods-metadata", set_labels, "labels"),
    _field("annotations", "pods-metadata", set_annotations, "annotations"),
    _field(
        "priorityClassName",
        "pods",
        set_priority_class,
        "priorityClassName",
        "priority",
        "preemptionPolicy",
    ),
    _field("tolerations", "pods", add_tolerations, "tolerations"),
    _field("nodeSelector", "pods", set_node_selector, "nodeSelector"),
    _field("affinity", "pods", add_affinity, "affinity"),
    _field(
        "topologySpreadConstraints", "pods", add_spread_constraints, "topologySpreadConstraints"
    ),
    _field("topology", "pods", request_topology, "annotations"),
    _field("schedulingGates", "pods", add_scheduling_gates, "schedulingGates"),
    _field("resources", "pods", default_resources, "resources"),
)
"""The fields that are merged by a rule of their own, and the fields that each changes."""

_NAMED = tuple(
    _field(name, "pods", partial(set_named, field=name), name)
    for name in fields_of_type(Inject, Text | None)
    if name not in {rule.name for rule in _RULES}
)
"""The texts without a rule: each names something in the field of the pod spec that is called alike,
unless the author did."""

_FIELDS = (*_RULES, *_NAMED)
"""All fields that can be injected, in their order."""

READ_BY_MERGING = {
    "gang": frozenset({"labels", "annotations"}),
    "resources": frozenset({"resources"}),
}
"""The fields that a merge reads besides its own, which others may change."""


@dataclass(frozen=True, slots=True)
class InjectedField:
    """One field to set; `writes` are the names of the object's fields that it changes."""

    field: str
    level: Level
    merge: Merge
    writes: frozenset[str]
    template: ValueTemplate
    override: bool


class InjectionTarget(msgspec.Struct, frozen=True):  # made for each policy, three times as fast
    """The target of an injection: the object's kind, its pods, and whether it is new.

    `kind` is None for kinds that make no pods; `pods` are the paths of the pod or its templates.
    """

    kind: WorkloadKind | None
    pods: tuple[Path, ...]
    created: bool


def compile_inject(inject: Inject, path: Path, compile_: Compile) -> tuple[InjectedField, ...]:
    """Turn the fields that are given into steps, their expressions compiled."""
    given = set_fields(inject)
    return tuple(
        InjectedField(
            field.name,
            field.level,
            field.merge,
            field.writes,
            build_template(given[field.name], (*path, field.name), compile_),
            inject.override is True or field.name in _named(inject.override),
        )
        for field in _FIELDS
        if field.name in given
    )


def apply_step(step: InjectedField, value: Json, target: InjectionTarget, draft: Draft) -> None:
    """Merge a step's value into all places of an object where it belongs.

    Raises:
        PolicydError: If the object is so misshapen that it cannot be merged.
    """
    if step.field == "gang":
        _form_gang(step, value, target, draft)
        return
    for at in places(step.level, target):
        step.merge(Edit(draft, at, step.override), value)


def places(level: Level, target: InjectionTarget) -> tuple[Path, ...]:
    """Return the paths at which a level's fields belong in an object."""
    kind = target.kind
    if level == "object" or (level == "pods-metadata" and kind is None):
        return (OBJECT,)
    if kind is None:
        return ()
    if kind.frozen and not target.created:
        return target.pods if level == "pods-metadata" and kind.kind == "Pod" else ()
    return (kind.queued,) if level == "workload" else target.pods


def _form_gang(step: InjectedField, value: Json, target: InjectionTarget, draft: Draft) -> None:
    """Form a gang the way the kind is queued: plain pods by group, a Job by its parallelism.

    Every other kind is admitted whole, or not as a gang at all.
    """
    if target.kind is None or not target.created or "minMember" not in value:
        return
    edit = Edit(draft, OBJECT, step.override)
    if target.kind.kind == "Pod":
        form_gang_of_pods(edit, value)
    elif target.kind.kind == "Job":
        form_gang_of_job(edit, value)


def _named(override: bool | tuple[str, ...]) -> tuple[str, ...]:  # noqa: FBT001 - as it is written
    return override if isinstance(override, tuple) else ()
