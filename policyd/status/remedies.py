"""Remedies for a pending workload, and the constraint that was nearest to being met."""

from datetime import UTC, datetime
from typing import Literal

from policyd.alloc.reasons import (
    Held,
    MissingQuota,
    Obstacle,
    OverCapacity,
    PodSetRefusal,
    Refusal,
    Unsuitable,
)
from policyd.alloc.value import Value
from policyd.status.naming import PLAIN, Naming
from policyd.status.quantities import format_amount
from policyd.status.shortages import Holder, and_others

Shortfall = MissingQuota | OverCapacity
"""Quota that is missing."""


class Wait(Value, frozen=True):
    """Others give back enough when they end, `ahead` of it for workloads that are tried before."""

    flavor: str
    resource: str
    missing: int
    holders: tuple[Holder, ...]
    ahead: int = 0


class WaitForProtection(Value, frozen=True):
    """Workloads could be preempted, but are protected until then, in seconds since the epoch."""

    workloads: tuple[str, ...]
    until: float


class UseFlavor(Value, frozen=True):
    """A flavor has room, and the pods could run there with a change of their template.

    Attributes:
        flavor: Which.
        obstacle: The obstacle for the pods.
        taints: Those that they would have to tolerate.
    """

    flavor: str
    obstacle: Unsuitable
    taints: tuple[str, ...] = ()


class Shrink(Value, frozen=True):
    """Fewer pods fit: by how many fewer, and how many that leaves.

    They fit now, or `later`, when others end.
    """

    pod_set: str
    fewer: int
    left: int
    later: bool = False


class AskLess(Value, frozen=True):
    """Smaller pods fit, now or `later`: the amounts of each, and the number of `pods`."""

    pod_set: str
    resource: str
    most: int
    pods: int = 1
    later: bool = False


class UseProfile(Value, frozen=True):
    """A part of a GPU is free, instead of a whole one: on how many nodes.

    Attributes:
        pod_set: Whose pod asks for a whole one.
        profile: The resource that it would request.
        share: The part of a GPU, such as `3/7`.
        gigabytes: How much memory it has.
        nodes: On how many nodes one is free.
    """

    pod_set: str
    profile: str
    share: str
    gigabytes: int
    nodes: int


class AllowPreemption(Value, frozen=True):
    """A preemption policy of the queue would let it preempt, workloads of this priority at most."""

    cluster_queue: str
    field: Literal["withinClusterQueue", "reclaimWithinCohort"]
    policy: str
    victims: tuple[str, ...]
    priority: int


class RaiseLimit(Value, frozen=True):
    """A ClusterQueue or Cohort may borrow more: by how much, `ahead` of it for those before."""

    owner: str
    flavor: str
    resource: str
    by: int
    ahead: int = 0


class RaiseQuota(Value, frozen=True):
    """A ClusterQueue has more nominal quota: by how much, `ahead` of it for those before."""

    cluster_queue: str
    flavor: str
    resource: str
    by: int
    ahead: int = 0


class Cover(Value, frozen=True):
    """A ClusterQueue has quota for a resource at all."""

    cluster_queue: str
    resource: str


Raise = RaiseLimit | RaiseQuota


class RaiseAll(Value, frozen=True):
    """Several changes that help together, and none of them alone."""

    changes: tuple[Raise, ...]


ChangeOfRules = AllowPreemption | Raise | RaiseAll | Cover
ChangeOfJob = UseFlavor | Shrink | AskLess | UseProfile
Remedy = Wait | WaitForProtection | ChangeOfJob | ChangeOfRules


def nearest(refusal: Refusal) -> Obstacle | None:
    """Return the constraint that was nearest to being met; None if no obstacle is known.

    Of each flavor its worst obstacle counts, and the flavor whose worst is the least.
    """
    flavors = (tuple(each) for each in _by_flavor(refusal.pod_sets).values())
    return min((max(each, key=_distance) for each in flavors), key=_distance, default=None)


def _by_flavor(pod_sets: tuple[PodSetRefusal, ...]) -> dict[str, list[Obstacle]]:
    found: dict[str, list[Obstacle]] = {}
    for pod_set in pod_sets:
        for obstacle in pod_set.obstacles:
            found.setdefault(_flavor(obstacle), []).append(obstacle)
    return found


def _flavor(obstacle: Obstacle) -> str:
    if isinstance(obstacle, MissingQuota | OverCapacity):
        return obstacle.flavor
    return obstacle.name if isinstance(obstacle, Unsuitable) else ""


def _distance(obstacle: Obstacle) -> tuple[int, float]:
    """Tell how far an obstacle is from being overcome: its kind, and the missing part."""
    match obstacle:
        case Held():
            return 0, 0.0
        case MissingQuota():
            return 1, obstacle.missing / max(1, obstacle.requested)
        case OverCapacity():
            needed = obstacle.assumed + obstacle.requested
            return 2, 1 - obstacle.capacity / max(1, needed)
        case _:
            return 3, 0.0


def nearest_shortfalls(refusal: Refusal) -> list[Shortfall]:
    """Return the missing amounts of the nearest flavor for each pod set."""
    found: dict[tuple[str, str], Shortfall] = {}
    for pod_set in refusal.pod_sets:
        flavors = _by_flavor((pod_set,)).values()
        for each in min(flavors, key=lambda o: max(map(_distance, o)), default=[]):
            if isinstance(each, MissingQuota | OverCapacity):
                found[each.flavor, each.resource] = each
    return list(found.values())


def remedy_text(remedy: Remedy, naming: Naming = PLAIN, *, limit: int | None = None) -> str:
    """Return a remedy as a sentence.

    Args:
        remedy: The remedy.
        naming: How workloads are called.
        limit: The most workloads to wait for that are named; None for all.
    """
    match remedy:
        case Wait():
            amounts = naming.sums((each.workload, each.amount) for each in remedy.holders)
            held = ", ".join(
                f"{name} ({format_amount(remedy.resource, amount)})"
                for name, amount in list(amounts.items())[:limit]
            )
            held += and_others(0 if limit is None else max(0, len(amounts) - limit))
            missing = f"{format_amount(remedy.resource, remedy.missing)} {remedy.resource}"
            end = "end" if len(amounts) > 1 else "ends"
            enough = f"{missing} of flavor {remedy.flavor} will be enough"
            return f"wait until {held} {end}: {enough}{_for_those_before(remedy)}"
        case WaitForProtection():
            until = datetime.fromtimestamp(remedy.until, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
            protected = naming.several(remedy.workloads)
            return f"wait until {until}: {protected} could be preempted, but are protected"
        case UseFlavor() | Shrink() | AskLess() | UseProfile():
            return _job_text(remedy)
        case _:
            return _rule_text(remedy, naming)


def _for_those_before(remedy: Wait | Raise) -> str:
    if not remedy.ahead:
        return ""
    return f", with {format_amount(remedy.resource, remedy.ahead)} for those ahead of it"


def _job_text(remedy: ChangeOfJob) -> str:
    match remedy:
        case UseFlavor():
            return _flavor_text(remedy)
        case Shrink():
            fit = "fits" if remedy.left == 1 else "fit"
            fit = "could fit once others end" if remedy.later else fit
            fewer = "1 pod" if remedy.fewer == 1 else f"{remedy.fewer} pods"
            return f"run {fewer} fewer of pod set {remedy.pod_set}: {remedy.left} {fit}"
        case AskLess(most=0):
            return f"ask for no {remedy.resource} in pod set {remedy.pod_set}"
        case AskLess():
            most = format_amount(remedy.resource, remedy.most)
            fits = "could fit once others end" if remedy.later else "fits"
            each = f" in each pod of pod set {remedy.pod_set}" if remedy.pods > 1 else ""
            return f"ask for at most {most} {remedy.resource}{each}: that {fits}"
        case UseProfile():
            return (
                f"ask for 1 {remedy.profile} instead of 1 nvidia.com/gpu, if {remedy.share} of a"
                f" GPU with {remedy.gigabytes} GB is enough: it is free on {remedy.nodes} node(s)"
            )


def _flavor_text(remedy: UseFlavor) -> str:
    flavor = f"flavor {remedy.flavor}, which has room"
    if remedy.taints:
        return f"tolerate the taint {', '.join(remedy.taints)} of {flavor}"
    if remedy.obstacle.kind == "AffinityMismatch":
        return f"let node selector and affinity of the pods allow {flavor}"
    return f"add to the annotation of allowed flavors: {flavor}"


def _rule_text(remedy: ChangeOfRules, naming: Naming) -> str:
    match remedy:
        case AllowPreemption():
            victims = naming.several(remedy.victims)
            return (
                f"set preemption.{remedy.field} of ClusterQueue {remedy.cluster_queue} to"
                f" {remedy.policy}: it would preempt {victims}, up to priority {remedy.priority}"
            )
        case RaiseLimit():
            by = format_amount(remedy.resource, remedy.by)
            return (
                f"raise the borrowingLimit of {remedy.owner} for {remedy.resource} of flavor"
                f" {remedy.flavor} by {by}{_for_those_before(remedy)}"
            )
        case RaiseQuota():
            by = format_amount(remedy.resource, remedy.by)
            return (
                f"raise the nominalQuota of ClusterQueue {remedy.cluster_queue} for"
                f" {remedy.resource} of flavor {remedy.flavor} by {by}{_for_those_before(remedy)}"
            )
        case RaiseAll():
            return " and ".join(_rule_text(each, naming) for each in remedy.changes)
        case Cover():
            return f"give ClusterQueue {remedy.cluster_queue} quota for {remedy.resource}"
