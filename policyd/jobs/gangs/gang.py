"""A gang as it is handed to another scheduler: its roles, and with how many pods each can run."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from hashlib import sha1
from typing import Final, Literal

from policyd.api.integers import whole_number
from policyd.api.kueue import PodSet, PodSetAssignment, TopologyRequest, Workload
from policyd.api.kueue.names import DEFAULT_POD_SET
from policyd.api.meta import ObjectMeta
from policyd.api.pod_requests import pod_requests
from policyd.api.quantity import QuantityError
from policyd.jobs.topology import topology_request
from policyd.status.quantities import format_amount

MIN_MEMBERS: Final = "policyd.io/min-members"
"""Annotation of a pod template: with how many of its pods the gang can run; all, if missing."""

START_ORDER: Final = "policyd.io/start-order"
"""Annotation of pods: those of a higher number start when all of the lower ones are ready."""

CreationOrder = Literal["", "RoleByRole", "PodByPod"]
"""How pods are made: all at once, or those of a role, or each, when those before are ready."""

LONGEST_NAME: Final = 63
"""Pods name their group in a label."""
_DIGITS: Final = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Role:
    """Pods of a gang that are alike: one pod set.

    Attributes:
        name: Of the pod set.
        minimum: The least number of its pods with which the gang can run, at least 1.
        requests: The requests of one pod, in canonical units.
        priority_class: PriorityClass of the pods; empty for the default.
        scheduler: Which scheduler they name; empty for the default.
        metadata: Labels and annotations of the pods.
        group: The native pod group that they name already; empty if none.
        topology: How close together they must be; None if that is settled, or does not matter.
    """

    name: str
    minimum: int
    requests: Mapping[str, int]
    priority_class: str = ""
    scheduler: str = ""
    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    group: str = ""
    topology: TopologyRequest | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Gang:
    """Pods that start together or not at all.

    Attributes:
        name: Of the object that stands for it.
        roles: Its roles; at least one.
        queue: The other scheduler's queue; empty if not set.
        topology: The Topology whose levels the roles name; empty if none.
        comes: How its pods are made and start.
        made: Whether its pods exist already.
        wait_seconds: How long the first of its pods that have a node wait for the others, at most;
            None if the other scheduler decides that.
    """

    name: str
    roles: tuple[Role, ...]
    queue: str = ""
    topology: str = ""
    comes: CreationOrder = ""
    made: bool = False
    wait_seconds: int | None = None

    @property
    def minimum(self) -> int:
        """With how many pods it can run."""
        return sum(role.minimum for role in self.roles)

    @property
    def min_resources(self) -> dict[str, str]:
        """The requests of these, as quantities."""
        total: dict[str, int] = {}
        for role in self.roles:
            for resource, amount in role.requests.items():
                total[resource] = total.get(resource, 0) + amount * role.minimum
        return {name: format_amount(name, amount) for name, amount in sorted(total.items())}

    @property
    def priority_class(self) -> str:
        """The PriorityClass of all its pods; empty if they have none, or not the same."""
        return self.roles[0].priority_class if self.same_priority else ""

    @property
    def same_priority(self) -> bool:
        """Whether all its pods are equally important."""
        return len({role.priority_class for role in self.roles}) == 1

    @property
    def together(self) -> TopologyRequest | None:
        """How close together all its pods must be; None if roles are on their own in that."""
        asked = [role.topology for role in self.roles]
        first = asked[0]
        if first is None or len(asked) == 1:
            return first
        grouped = {each.pod_set_group_name if each else "" for each in asked}
        return first if grouped == {first.pod_set_group_name} != {""} else None

    def part(self, name: str, roles: Iterable[Role]) -> "Gang":
        """Return some of its roles as a gang of their own."""
        return replace(self, name=name, roles=tuple(roles))


def gang_of(
    workload: Workload,
    *,
    queue: str = "",
    topology: str = "",
    comes: CreationOrder = "",
    pods: Mapping[str, ObjectMeta] | None = None,
) -> Gang:
    """Return the gang of an admitted workload, as many pods as it was admitted with.

    Args:
        workload: The workload.
        queue: The other scheduler's queue.
        topology: The Topology of its flavor.
        comes: How the pods are created.
        pods: Labels and annotations of pods that exist already, by pod set; None if none does yet.
    """
    admission = workload.status.admission
    assigned = {} if admission is None else {a.name: a for a in admission.pod_set_assignments}
    pod_sets = workload.spec.pod_sets
    metadata_by_set = {each.name: each.template.metadata for each in pod_sets} | dict(pods or {})
    if not comes and len({start_order(metadata) for metadata in metadata_by_set.values()}) > 1:
        comes = "RoleByRole"
    return Gang(
        name=short_name(workload.metadata.name),
        roles=tuple(
            _role(each, assigned.get(each.name), metadata_by_set[each.name]) for each in pod_sets
        ),
        queue=queue,
        topology=topology,
        comes=comes,
        made=pods is not None,
    )


def start_order(metadata: ObjectMeta) -> int:
    """Return when pods start: after those of lower numbers are ready. At once, if they say none."""
    return max(0, whole_number(metadata.annotations.get(START_ORDER, "")) or 0)


def _role(pod_set: PodSet, assigned: PodSetAssignment | None, metadata: ObjectMeta) -> Role:
    count = pod_set.count if assigned is None or assigned.count is None else assigned.count
    spec = pod_set.template.spec
    least = whole_number(metadata.annotations.get(MIN_MEMBERS, ""))
    placed = assigned is not None and assigned.topology_assignment is not None
    try:
        requests = pod_requests(spec)
    except QuantityError:
        requests = {}
    group = spec.scheduling_group
    return Role(
        name=pod_set.name or DEFAULT_POD_SET,
        minimum=max(1, count if least is None or least < 0 else min(count, least)),
        requests=requests,
        priority_class=spec.priority_class_name,
        scheduler=spec.scheduler_name,
        metadata=metadata,
        group="" if group is None else group.pod_group_name,
        topology=None if placed else topology_request(metadata.annotations),
    )


def short_name(*parts: str) -> str:
    """Join the parts of a name; one that is too long for a label ends in a hash of the whole."""
    name = "-".join(parts)
    if len(name) <= LONGEST_NAME:
        return name
    digest = sha1(name.encode(), usedforsecurity=False).hexdigest()[:_DIGITS]
    return f"{name[: LONGEST_NAME - _DIGITS - 1].rstrip('-.')}-{digest}"
