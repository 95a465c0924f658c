"""Mirrors of all resources that the controller watches, and the parts of objects that they keep."""

from dataclasses import dataclass
from sys import intern
from typing import Any, Final, TypeVar

import msgspec

from policyd.api.kueue import (
    AdmissionCheck,
    ClusterQueue,
    Cohort,
    LocalQueue,
    ProvisioningRequest,
    ProvisioningRequestConfig,
    ResourceFlavor,
    Topology,
    Workload,
    WorkloadPriorityClass,
)
from policyd.api.kueue.names import MANAGED, QUEUE_NAME, SAFE_TO_DELETE
from policyd.api.limit_ranges import LimitRange
from policyd.api.meta import ObjectMeta, Wire
from policyd.api.nodes import Node
from policyd.api.pods import PodSpec
from policyd.api.schema import QuantityText
from policyd.controller.watch.claimed_devices import DeviceMirrors, open_device_mirrors
from policyd.controller.watch.mirror import Mirror
from policyd.controller.watch.pod_places import workload_keys
from policyd.jobs.base import JobKind, JobObject, controller_of
from policyd.jobs.integrations import EVERYTHING, Integrations
from policyd.jobs.kinds.registry import KINDS, PARENTS
from policyd.jobs.parents import ParentKind
from policyd.jobs.places import waits_for_place
from policyd.jobs.pods import QueuedPod, QueuedPodStatus
from policyd.jobs.rules.submission import IDENTIFIERS, fits_label
from policyd.jobs.topology import asks_for_topology
from policyd.kube.client import PartialObject, Reader
from policyd.kube.pace import Pace
from policyd.kube.resources import (
    ADMISSION_CHECKS,
    CLUSTER_QUEUES,
    COHORTS,
    LIMIT_RANGES,
    LOCAL_QUEUES,
    NAMESPACES,
    NODES,
    PODS,
    PRIORITY_CLASSES,
    PROVISIONING_CONFIGS,
    PROVISIONING_REQUESTS,
    RESOURCE_FLAVORS,
    RUNTIME_CLASSES,
    TOPOLOGIES,
    WORKLOAD_PRIORITY_CLASSES,
    WORKLOADS,
    Resource,
)

CUSTOM_RESOURCES = (
    WORKLOADS,
    CLUSTER_QUEUES,
    LOCAL_QUEUES,
    COHORTS,
    RESOURCE_FLAVORS,
    TOPOLOGIES,
    ADMISSION_CHECKS,
    WORKLOAD_PRIORITY_CLASSES,
)
"""Resources that must be served before the controller starts."""


class PriorityClass(Wire, frozen=True):
    """A scheduling.k8s.io/v1 PriorityClass."""

    metadata: ObjectMeta = ObjectMeta()
    value: int = 0
    global_default: bool = False


class Overhead(Wire, frozen=True):
    """Requests of a pod beyond those of its containers."""

    pod_fixed: dict[str, QuantityText] = {}


class RuntimeClass(Wire, frozen=True):
    """A node.k8s.io/v1 RuntimeClass."""

    metadata: ObjectMeta = ObjectMeta()
    overhead: Overhead | None = None


@dataclass(slots=True)
class Mirrors:
    """Everything that is watched."""

    workloads: Mirror[Workload]
    cluster_queues: Mirror[ClusterQueue]
    local_queues: Mirror[LocalQueue]
    cohorts: Mirror[Cohort]
    flavors: Mirror[ResourceFlavor]
    topologies: Mirror[Topology]
    checks: Mirror[AdmissionCheck]
    priorities: Mirror[WorkloadPriorityClass]
    priority_classes: Mirror[PriorityClass]
    namespaces: Mirror[PartialObject]
    limit_ranges: Mirror[LimitRange]
    runtime_classes: Mirror[RuntimeClass]
    pods: Mirror[QueuedPod]
    jobs: dict[str, Mirror[JobObject]]
    """By kind."""
    children: dict[str, Mirror[PartialObject]]
    """Owners of jobs that name no queue, by kind: a job in a queue may have made them.

    Empty where `jobs` has all of them.
    """
    integrations: Integrations
    """The kinds that are watched, and their settings."""
    nodes: Mirror[Node]
    """Watched once a flavor has a topology, as `placed` is."""
    placed: Mirror[QueuedPod]
    """All pods, in a queue or not."""
    provisioning_configs: Mirror[ProvisioningRequestConfig]
    """Watched once a check asks an autoscaler, as `provisioning_requests` is."""
    provisioning_requests: Mirror[ProvisioningRequest]
    devices: DeviceMirrors
    """Watched while a device class is mapped to a resource."""

    @property
    def of_provisioning(self) -> tuple[Mirror[Any], ...]:
        """Resources that are watched only where an autoscaler is asked for nodes."""
        return self.provisioning_configs, self.provisioning_requests

    @property
    def of_topologies(self) -> tuple[Mirror[Any], ...]:
        """Resources that are watched only where topologies place pods, as they are many.

        Nodes come last: no pod is placed on one before the pods there are known.
        """
        return self.placed, self.nodes

    def all(self) -> tuple[Mirror[Any], ...]:
        """Return every mirror that is always watched."""
        return (
            self.workloads,
            self.cluster_queues,
            self.local_queues,
            self.cohorts,
            self.flavors,
            self.topologies,
            self.checks,
            self.priorities,
            self.priority_classes,
            self.namespaces,
            self.limit_ranges,
            self.runtime_classes,
            self.pods,
            *self.watched_jobs,
        )

    @property
    def watched_jobs(self) -> tuple[Mirror[JobObject], ...]:
        """The jobs of the kinds that are on; the others stay unseen."""
        on = self.integrations.has
        return tuple(m for m in self.jobs.values() if on(m.resource.group, m.resource.kind))

    @property
    def watched_children(self) -> tuple[Mirror[PartialObject], ...]:
        """The owners of jobs of these kinds that name no queue."""
        on = self.integrations.has
        return tuple(m for m in self.children.values() if on(m.resource.group, m.resource.kind))


CHILD_KINDS: Final = ("Job", "JobSet", "RayCluster")
"""Kinds that operators of other kinds make for their own."""


def job_resource(kind: JobKind[Any] | ParentKind[Any]) -> Resource:
    """Return where the jobs of a kind are served."""
    return Resource(kind.group, kind.version, kind.plural, kind.kind)


def open_mirrors(
    reader: Reader,
    pace: Pace,
    integrations: Integrations = EVERYTHING,
    *,
    annotated: bool = True,
) -> Mirrors:
    """Return mirrors of all that is watched: of jobs and `pods`, only those that queue.

    Args:
        reader: The API server.
        pace: Time.
        integrations: Which kinds queue.
        annotated: Whether annotations name groups and workloads, as labels do.
    """
    trim = None if annotated else without_annotated_names

    def mirror(resource: Resource, into: type[Any], selector: str = "") -> Mirror[Any]:
        return Mirror(reader, resource, into=into, pace=pace, label_selector=selector)

    def named_mirror(resource: Resource, into: type[Any], selector: str) -> Mirror[Any]:
        return Mirror(reader, resource, into=into, pace=pace, trim=trim, label_selector=selector)

    parents = (kind for kind in PARENTS if kind.in_groups)
    kinds: tuple[JobKind[Any] | ParentKind[Any], ...] = (*KINDS, *parents)
    named = "" if integrations.manages_all else QUEUE_NAME
    jobs = {kind.key: named_mirror(job_resource(kind), kind.type, named) for kind in kinds}
    children = {
        name: Mirror(
            reader,
            jobs[name].resource,
            into=PartialObject,
            pace=pace,
            trim=_without_strangers,
            label_selector=f"!{QUEUE_NAME}",
        )
        for name in CHILD_KINDS
        if named
    }
    return Mirrors(
        workloads=mirror(WORKLOADS, Workload),
        cluster_queues=mirror(CLUSTER_QUEUES, ClusterQueue),
        local_queues=mirror(LOCAL_QUEUES, LocalQueue),
        cohorts=mirror(COHORTS, Cohort),
        flavors=mirror(RESOURCE_FLAVORS, ResourceFlavor),
        topologies=mirror(TOPOLOGIES, Topology),
        checks=mirror(ADMISSION_CHECKS, AdmissionCheck),
        priorities=mirror(WORKLOAD_PRIORITY_CLASSES, WorkloadPriorityClass),
        priority_classes=mirror(PRIORITY_CLASSES, PriorityClass),
        namespaces=mirror(NAMESPACES, PartialObject),
        limit_ranges=mirror(LIMIT_RANGES, LimitRange),
        runtime_classes=mirror(RUNTIME_CLASSES, RuntimeClass),
        pods=named_mirror(PODS, QueuedPod, f"{MANAGED}=true"),
        jobs=jobs,
        children=children,
        integrations=integrations,
        nodes=mirror(NODES, Node),
        placed=Mirror(reader, PODS, into=QueuedPod, pace=pace, trim=Trimmer().trimmed),
        provisioning_configs=mirror(PROVISIONING_CONFIGS, ProvisioningRequestConfig),
        provisioning_requests=mirror(PROVISIONING_REQUESTS, ProvisioningRequest),
        devices=open_device_mirrors(reader, pace),
    )


def _without_strangers(job: PartialObject) -> PartialObject:
    """Return the part to keep of a job that names no queue: least, if it has no owner."""
    metadata = job.metadata
    owner = controller_of(metadata)
    return PartialObject(
        ObjectMeta(
            name=metadata.name,
            namespace=metadata.namespace,
            uid=metadata.uid,
            resource_version=metadata.resource_version,
            owner_references=() if owner is None else (owner,),
        )
    )


MOST_ALIKE = 10_000
"""Specifications that are remembered, so that pods that are alike share one."""


J = TypeVar("J", bound=JobObject)


def without_annotated_names(obj: J) -> J:
    """Leave out annotations that name a group or a workload, as without their feature gate.

    Names that no label has room for are in annotations all the same.
    """
    annotations = obj.metadata.annotations
    unread = {name for name in IDENTIFIERS if fits_label(annotations.get(name, ""))}
    if unread.isdisjoint(annotations):
        return obj
    kept = {name: value for name, value in annotations.items() if name not in unread}
    metadata = msgspec.structs.replace(obj.metadata, annotations=kept)
    return msgspec.structs.replace(obj, metadata=metadata)


class Trimmer:
    """Trims pods, and lets them share equal parts."""

    def __init__(self) -> None:
        self._specs: dict[bytes, PodSpec] = {}

    def trimmed(self, pod: QueuedPod) -> QueuedPod:
        """Return the part to keep of a pod: all, if a topology places it or force may end it."""
        annotations = pod.metadata.annotations
        placed = workload_keys(pod) or waits_for_place(pod) or asks_for_topology(annotations)
        if placed or annotations.get(SAFE_TO_DELETE) == "true":
            return pod
        metadata = pod.metadata
        kept = ObjectMeta(
            name=metadata.name,
            namespace=intern(metadata.namespace),
            uid=metadata.uid,
            resource_version=metadata.resource_version,
            deletion_timestamp=metadata.deletion_timestamp,
        )
        return QueuedPod(kept, self._shared(pod.spec), QueuedPodStatus(intern(pod.status.phase)))

    def _shared(self, spec: PodSpec) -> PodSpec:
        """Return a specification that shares equal parts with others, except for the node."""
        bare = PodSpec(
            containers=spec.containers,
            init_containers=spec.init_containers,
            overhead=spec.overhead,
            resources=spec.resources,
            node_selector=spec.node_selector,
        )
        content = msgspec.json.encode(bare)
        if len(self._specs) >= MOST_ALIKE:
            self._specs.clear()
        known = self._specs.setdefault(content, bare)
        return msgspec.structs.replace(known, node_name=intern(spec.node_name))
