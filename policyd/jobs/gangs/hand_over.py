"""Hands a gang to another scheduler: the objects to make, and what its pods must say."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from policyd.api.kueue import Workload
from policyd.api.meta import Json
from policyd.jobs.gangs.gang import Coming, Gang, Role, gang_of, short_name
from policyd.jobs.gangs.schedulers import (
    MADE_OF_ONE,
    POD_GROUP,
    SCHEDULERS,
    GangScheduler,
    Marks,
)
from policyd.patch.draft import Draft
from policyd.patch.operations import Path

GANG_SCHEDULER: Final = "policyd.io/gang-scheduler"
"""Annotation of a ClusterQueue: which scheduler its gangs are handed to, one of `SCHEDULERS`."""

GANG_QUEUE: Final = "policyd.io/gang-queue"
"""Annotation of a ClusterQueue: the queue of that scheduler; what pods say themselves wins."""

GANG_WAIT: Final = "policyd.io/gang-wait"
"""Annotation of a ClusterQueue: how long pods of a gang that have a node wait for the others."""


@dataclass(frozen=True, slots=True)
class HandedOver:
    """What another scheduler is told of a gang.

    Attributes:
        specs: Of the PodGroups to make, by name.
        marks: What the pods of each pod set must say, by its name.
        lost: What the scheduler is not told, a sentence each.
    """

    specs: Mapping[str, Json]
    marks: Mapping[str, Marks]
    lost: tuple[str, ...] = ()


def hand_over(gang: Gang, scheduler: GangScheduler) -> HandedOver:
    """Say what a scheduler must be told of a gang.

    Roles that start one after the other would wait for each other for ever as one PodGroup, so
    each is one of its own. So are those of another priority, where a scheduler needs one for all.
    Pods that name a PodGroup already belong to that one.
    """
    hindrance = _hindrance(gang, scheduler)
    if hindrance:
        return HandedOver({}, {}, (hindrance,))
    parts = list(_parts(gang, scheduler))
    waits = gang.wait_seconds is not None and scheduler is not SCHEDULERS["Coscheduling"]
    lost = ["how long pods wait for each other"] if waits else []
    lost += [
        *_lost_between(gang, parts),
        *(text for part in parts for text in scheduler.lost(part)),
    ]
    return HandedOver(
        specs={part.name: scheduler.spec(part) for part in parts},
        marks={role.name: scheduler.marks(part, role) for part in parts for role in part.roles},
        lost=tuple(lost),
    )


def possible_names(workload: Workload, scheduler: GangScheduler) -> frozenset[str]:
    """Return every name that a PodGroup of a workload may have got, however its pods were made."""
    ways: tuple[Coming, ...] = ("", "RoleByRole")
    gangs = [gang_of(workload, comes=comes) for comes in ways]
    return frozenset(name for gang in gangs for name in hand_over(gang, scheduler).specs)


def _hindrance(gang: Gang, scheduler: GangScheduler) -> str:
    """Say why a gang cannot be handed over at all; empty if it can."""
    others = [role for role in gang.roles if role.scheduler in {"", "default-scheduler"}]
    if scheduler.scheduler and others:
        name = scheduler.scheduler
        return f"the gang at all: the pods of `{others[0].name}` do not say `schedulerName: {name}`"
    if gang.comes == "PodByPod":
        return "the gang at all: each of its pods is made when the one before is ready"
    if scheduler is SCHEDULERS["Native"] and gang.made and not all(r.group for r in gang.roles):
        return f"the gang at all: only new pods can join it, by the label {POD_GROUP}"
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


def _lost_between(gang: Gang, parts: list[Gang]) -> Iterator[str]:
    if len(parts) > 1:
        why = "start one after the other" if gang.comes else "are not of one PodGroup"
        yield f"that all belong together: its roles {why}, and each is a gang of its own"
    elif gang.comes and len(gang.roles) > 1:
        yield "that its roles start one after the other: they name one PodGroup, and wait for ever"


def mark(draft: Draft, path: Path, marks: Marks) -> None:
    """Let the pod template, or the pod, at `path` say which PodGroup it belongs to.

    What it says already stays, but for a PodGroup that a scheduler made of it alone.
    """
    for section, values in (("labels", marks.labels), ("annotations", marks.annotations)):
        for key, value in values.items():
            said = draft.get((*path, "metadata", section, key))
            if said is None or str(said).startswith(MADE_OF_ONE):
                draft.set((*path, "metadata", section, key), value)
