"""Hand a gang over to another scheduler: the PodGroups to create, and the labels of its pods."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from policyd.api.kueue import Workload
from policyd.api.meta import Json
from policyd.jobs.gangs.gang import CreationOrder, Gang, Role, gang_of, short_name
from policyd.jobs.gangs.schedulers import (
    MADE_OF_ONE,
    POD_GROUP,
    SCHEDULERS,
    GangMetadata,
    GangScheduler,
)
from policyd.patch.draft import Draft
from policyd.patch.operations import Path

GANG_SCHEDULER: Final = "policyd.io/gang-scheduler"
"""Annotation of a ClusterQueue: the scheduler of its gangs, one of `SCHEDULERS`."""

GANG_QUEUE: Final = "policyd.io/gang-queue"
"""Annotation of a ClusterQueue: the queue of that scheduler, unless the pods name one."""

GANG_WAIT: Final = "policyd.io/gang-wait"
"""Annotation of a ClusterQueue: how long pods of a gang that have a node wait for the others."""


@dataclass(frozen=True, slots=True)
class ExternalGang:
    """A gang as another scheduler sees it.

    Attributes:
        specs: Of the PodGroups to create, by name.
        marks: Labels and annotations of the pods of each pod set, by its name.
        unsupported: Properties that the PodGroups cannot express, as noun phrases.
        hindrance: Why the gang cannot be handed over, as a clause; empty if it can.
    """

    specs: Mapping[str, Json]
    marks: Mapping[str, GangMetadata]
    unsupported: tuple[str, ...] = ()
    hindrance: str = ""


def hand_over(gang: Gang, scheduler: GangScheduler) -> ExternalGang:
    """Return the PodGroups of a gang for a scheduler.

    Roles that start in order would wait for each other forever in one PodGroup, so each gets its
    own. So do roles of different priorities, if the scheduler requires a single one. Pods that
    name a PodGroup already belong to that one.
    """
    hindrance = _hindrance(gang, scheduler)
    if hindrance:
        return ExternalGang({}, {}, hindrance=hindrance)
    parts = list(_parts(gang, scheduler))
    waits = gang.wait_seconds is not None and scheduler is not SCHEDULERS["Coscheduling"]
    unsupported = [f"the annotation {GANG_WAIT}"] if waits else []
    unsupported += [
        *_unsupported_between(gang, parts),
        *(text for part in parts for text in scheduler.unsupported(part)),
    ]
    return ExternalGang(
        specs={part.name: scheduler.spec(part) for part in parts},
        marks={role.name: scheduler.marks(part, role) for part in parts for role in part.roles},
        unsupported=tuple(unsupported),
    )


def possible_names(workload: Workload, scheduler: GangScheduler) -> frozenset[str]:
    """Return all names that a PodGroup of a workload can have, however its pods were created."""
    ways: tuple[CreationOrder, ...] = ("", "RoleByRole")
    gangs = [gang_of(workload, comes=comes) for comes in ways]
    return frozenset(name for gang in gangs for name in hand_over(gang, scheduler).specs)


def _hindrance(gang: Gang, scheduler: GangScheduler) -> str:
    """Return why a gang cannot be handed over; empty if it can."""
    others = [role for role in gang.roles if role.scheduler in {"", "default-scheduler"}]
    if scheduler.scheduler and others:
        name = scheduler.scheduler
        return f"the pods of `{others[0].name}` do not have `schedulerName: {name}`"
    if gang.comes == "PodByPod":
        return "each pod is created only when the previous one is ready"
    if scheduler is SCHEDULERS["Native"] and gang.made and not all(r.group for r in gang.roles):
        return f"only new pods can join a native PodGroup, by the label {POD_GROUP}"
    return ""


def _parts(gang: Gang, scheduler: GangScheduler) -> Iterator[Gang]:
    named: dict[str, list[Role]] = {}
    for role in gang.roles:
        named.setdefault(scheduler.named(role), []).append(role)
    free = named.pop("", [])
    for name, roles in named.items():
        yield gang.part(name, roles)
    whole = gang.part(gang.name, free)
    if free and (gang.comes or (scheduler.one_priority and not whole.same_priority)):
        names = [gang.name] if len(gang.roles) == 1 else [f"{gang.name}-{r.name}" for r in free]
        for name, role in zip(names, free, strict=True):
            yield gang.part(short_name(name), [role])
    elif free:
        yield whole


def _unsupported_between(gang: Gang, parts: list[Gang]) -> Iterator[str]:
    if len(parts) > 1:
        why = "start in order" if gang.comes else "have several PodGroups"
        yield f"the gang as a whole (its roles {why}: each is a separate gang)"
    elif gang.comes and len(gang.roles) > 1:
        yield "the start order of its roles (they name one PodGroup, so no pod ever starts)"


def mark(draft: Draft, labels: Path, annotations: Path, marks: GangMetadata) -> None:
    """Label a pod template, or a pod, as a member of its PodGroup, at the paths of both maps.

    Existing values are kept, except for a PodGroup that the scheduler created for that pod alone.
    """
    for path, values in ((labels, marks.labels), (annotations, marks.annotations)):
        for key, value in values.items():
            current = draft.get((*path, key))
            if current is None or str(current).startswith(MADE_OF_ONE):
                draft.set((*path, key), value)
