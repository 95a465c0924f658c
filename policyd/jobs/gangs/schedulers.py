"""Other schedulers: the PodGroup of a gang for each, and the limits of each.

Every scheduler has a kind PodGroup of its own; pods say in a label, an annotation or a field which
one they belong to. The facts are of Volcano 1.15, KAI 0.17, scheduler-plugins and Kubernetes 1.36.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from policyd.api.kueue import TopologyRequest
from policyd.api.meta import Json
from policyd.jobs.gangs.gang import Gang, Role

VOLCANO_GROUP: Final = "scheduling.k8s.io/group-name"
VOLCANO_QUEUE: Final = "scheduling.volcano.sh/queue-name"
VOLCANO_TASK: Final = "volcano.sh/task-spec"
KAI_GROUP: Final = "pod-group-name"
KAI_QUEUE: Final = "kai.scheduler/queue"
KAI_SUB_GROUP: Final = "kai.scheduler/subgroup-name"
KAI_OUR_GROUP: Final = "kai.scheduler/skip-podgrouper"
COSCHEDULING_GROUP: Final = "scheduling.x-k8s.io/pod-group"
POD_GROUP: Final = "policyd.io/pod-group"
"""Label by which the library's policy `native-gang` lets new pods join a native pod group."""

MADE_OF_ONE: Final = "podgroup-"
"""How the PodGroups begin that Volcano makes of single pods."""

Spec = dict[str, Json]


@dataclass(slots=True)
class GangMetadata:
    """Labels and annotations that the pods of a role get."""

    labels: dict[str, str] = field(default_factory=dict)
    annotations: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class GangScheduler:
    """A scheduler that starts gangs whole.

    Attributes:
        group: API group of its PodGroup.
        versions: Supported versions of it, the preferred one first.
        named: The PodGroup that the pods of a role name already; empty if none.
        spec: The `spec` of the PodGroup of a gang.
        marks: Labels and annotations of the pods of a role, given the gang.
        unsupported: Properties of a gang that its PodGroup cannot express, as noun phrases.
        scheduler: The `schedulerName` that pods must have; empty if any will do.
        one_priority: Whether all pods of a PodGroup must have the same priority.
    """

    group: str
    versions: tuple[str, ...]
    named: Callable[[Role], str]
    spec: Callable[[Gang], Spec]
    marks: Callable[[Gang, Role], GangMetadata]
    unsupported: Callable[[Gang], Iterator[str]]
    scheduler: str = ""
    one_priority: bool = False


def _level(asked: TopologyRequest | None) -> tuple[str, str]:
    """Return how pods keep together, `required` or `preferred`, and by which level; or nothing."""
    if asked is None:
        return "", ""
    return ("required", asked.required) if asked.required else ("preferred", asked.preferred)


def _filled(**fields: Json) -> Spec:
    return {name: value for name, value in fields.items() if value}


def _unsupported_apart(gang: Gang) -> Iterator[str]:
    """Yield the topology levels of single roles, and their slices."""
    if gang.together is None:
        for role in gang.roles:
            mode, level = _level(role.topology)
            if level:
                yield f"the {mode} topology level `{level}` of role `{role.name}`"
    yield from _unsupported_slices(gang)


def _unsupported_topology(gang: Gang) -> Iterator[str]:
    """Yield all topology requests."""
    mode, level = _level(gang.together)
    if level:
        yield f"the {mode} topology level `{level}`"
    yield from _unsupported_apart(gang)


def _unsupported_slices(gang: Gang) -> Iterator[str]:
    for role in gang.roles:
        asked = role.topology
        if asked is not None and (
            asked.pod_set_slice_size or asked.podset_slice_required_topology_constraints
        ):
            yield f"the topology slices of role `{role.name}`"


# Volcano: its HyperNodes have tiers, here expected to be named as the levels are.


def _volcano_named(role: Role) -> str:
    name = role.metadata.annotations.get(VOLCANO_GROUP, "")
    return "" if name.startswith(MADE_OF_ONE) else name


def _volcano_spec(gang: Gang) -> Spec:
    mode, level = _level(gang.together)
    modes = {"required": "hard", "preferred": "soft"}
    queues = (role.metadata.annotations.get(VOLCANO_QUEUE, "") for role in gang.roles)
    several = len(gang.roles) > 1
    return _filled(
        minMember=gang.minimum,
        minTaskMember={role.name: role.minimum for role in gang.roles} if several else None,
        minResources=gang.min_resources,
        queue=next(filter(None, queues), gang.queue),
        priorityClassName=gang.priority_class,
        networkTopology={"mode": modes[mode], "highestTierName": level} if level else None,
    )


def _volcano_marks(gang: Gang, role: Role) -> GangMetadata:
    return GangMetadata(annotations={VOLCANO_GROUP: gang.name, VOLCANO_TASK: role.name})


# KAI: takes its queue from the group, and skips pods that are marked as grouped.


def _kai_queue(gang: Gang) -> str:
    queues = (role.metadata.labels.get(KAI_QUEUE, "") for role in gang.roles)
    return next(filter(None, queues), gang.queue)


def _kai_constraint(gang: Gang, asked: TopologyRequest | None) -> Spec | None:
    mode, level = _level(asked)
    if not level or not gang.topology:
        return None
    return {"topology": gang.topology, f"{mode}TopologyLevel": level}


def _kai_sub_group(gang: Gang, role: Role) -> Spec:
    apart = None if gang.together is not None else _kai_constraint(gang, role.topology)
    return _filled(name=role.name, minMember=role.minimum, topologyConstraint=apart)


def _kai_spec(gang: Gang) -> Spec:
    several = len(gang.roles) > 1
    return _filled(
        minMember=gang.minimum,
        queue=_kai_queue(gang),
        priorityClassName=gang.priority_class,
        topologyConstraint=_kai_constraint(gang, gang.together),
        subGroups=[_kai_sub_group(gang, role) for role in gang.roles] if several else None,
    )


def _kai_marks(gang: Gang, role: Role) -> GangMetadata:
    queue = _kai_queue(gang)
    labels = {KAI_QUEUE: queue} if queue else {}
    if len(gang.roles) > 1:
        labels[KAI_SUB_GROUP] = role.name
    return GangMetadata(labels=labels, annotations={KAI_GROUP: gang.name, KAI_OUR_GROUP: "true"})


def _kai_unsupported(gang: Gang) -> Iterator[str]:
    if not _kai_queue(gang):
        yield f"a default queue (pods without the label {KAI_QUEUE} stay pending)"
    yield from _unsupported_slices(gang) if gang.topology else _unsupported_topology(gang)


# The coscheduling plug-in knows no queues, roles or topologies.


def _coscheduling_spec(gang: Gang) -> Spec:
    return _filled(
        minMember=gang.minimum,
        minResources=gang.min_resources,
        scheduleTimeoutSeconds=gang.wait_seconds,
    )


def _unsupported_roles(gang: Gang) -> Iterator[str]:
    if len(gang.roles) > 1:
        yield "the minimum size of each role (only their sum)"


def _coscheduling_unsupported(gang: Gang) -> Iterator[str]:
    yield from _unsupported_roles(gang)
    yield from _unsupported_topology(gang)


# Kubernetes' own: one required level, no queue.


def _native_spec(gang: Gang) -> Spec:
    mode, level = _level(gang.together)
    return _filled(
        schedulingPolicy={"gang": {"minCount": gang.minimum}},
        schedulingConstraints={"topology": [{"key": level}]} if mode == "required" else None,
        priorityClassName=gang.priority_class,
    )


def _native_marks(gang: Gang, role: Role) -> GangMetadata:
    return GangMetadata() if role.group else GangMetadata(labels={POD_GROUP: gang.name})


def _native_unsupported(gang: Gang) -> Iterator[str]:
    yield from _unsupported_roles(gang)
    mode, level = _level(gang.together)
    if mode == "preferred" and level:
        yield f"the preferred topology level `{level}`"
    yield from _unsupported_apart(gang)


SCHEDULERS: Final[Mapping[str, GangScheduler]] = {
    "Volcano": GangScheduler(
        group="scheduling.volcano.sh",
        versions=("v1beta1",),
        named=_volcano_named,
        spec=_volcano_spec,
        marks=_volcano_marks,
        unsupported=_unsupported_apart,
        scheduler="volcano",
    ),
    "KAI": GangScheduler(
        group="scheduling.run.ai",
        versions=("v2alpha2",),
        named=lambda role: role.metadata.annotations.get(KAI_GROUP, ""),
        spec=_kai_spec,
        marks=_kai_marks,
        unsupported=_kai_unsupported,
        scheduler="kai-scheduler",
    ),
    "Coscheduling": GangScheduler(
        group="scheduling.x-k8s.io",
        versions=("v1alpha1",),
        named=lambda role: role.metadata.labels.get(COSCHEDULING_GROUP, ""),
        spec=_coscheduling_spec,
        marks=lambda gang, _role: GangMetadata(labels={COSCHEDULING_GROUP: gang.name}),
        unsupported=_coscheduling_unsupported,
        one_priority=True,
    ),
    "Native": GangScheduler(
        group="scheduling.k8s.io",
        versions=("v1beta1", "v1alpha2"),
        named=lambda role: role.group or role.metadata.labels.get(POD_GROUP, ""),
        spec=_native_spec,
        marks=_native_marks,
        unsupported=_native_unsupported,
        one_priority=True,
    ),
}
"""By the name that a ClusterQueue's annotation gives them."""
