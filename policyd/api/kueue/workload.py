"""The unit of queueing: the requests of a job, and their status."""

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Literal

import msgspec

from policyd.api.kueue.names import API_VERSION, DEFAULT_POD_SET
from policyd.api.kueue.queues import SOME, Conditions
from policyd.api.meta import Json, ObjectMeta, Wire
from policyd.api.pods import PodTemplate, Toleration
from policyd.api.schema import (
    PRESERVED,
    REQUIRED,
    WRITTEN,
    CheckName,
    Int32,
    LabelName,
    QuantityText,
    SubdomainName,
    at_least,
    at_most,
    keyed,
    limits,
    no_items,
    texts,
)

Level = Annotated[str, texts(63)]
"""A node label that is a level of a topology, as a job names it."""
LevelKey = Annotated[str, texts(317)]
LevelValue = Annotated[str, texts(63)]
ClusterName = Annotated[str, texts(256)]
ShortName = Annotated[str, texts(63, shortest=1)]
Cause = Annotated[str, texts(316)]
Tolerations = Annotated[tuple[Toleration, ...], at_most(8)]

CheckStatus = Literal["Pending", "Ready", "Retry", "Rejected"]


def default_pod_set() -> str:
    """Name the pod set of a workload that has one; as a factory it makes the name be written."""
    return DEFAULT_POD_SET


class SliceConstraint(Wire, frozen=True):
    """Pods of one slice stay within one domain of `topology`."""

    topology: Annotated[str, texts(63, shortest=1)]
    """The node label of the level that each slice stays in."""
    size: Annotated[Int32, at_least(1)]
    """Pods of a slice."""


class TopologyRequest(Wire, frozen=True):
    """How close together the pods of a pod set must or should be."""

    required: Level = ""
    """The node label of a level: all pods go to one domain of it, or wait."""
    preferred: Level = ""
    """The node label of a level: one domain of it if possible, else as few as possible."""
    unconstrained: bool = False
    """Whether pods may go anywhere, with the free capacity of each node looked at."""
    pod_index_label: LevelKey = ""
    """The pod label with the index of a pod in its pod set."""
    sub_group_index_label: LevelKey = ""
    """The pod label with the index of a pod's group, such as a replicated Job."""
    sub_group_count: Annotated[Int32, limits(minimum=0)] | None = None
    """How many groups the pods form."""
    pod_set_group_name: ClusterName = ""
    """Pod sets of one name are placed together."""
    pod_set_slice_required_topology: Level = ""
    """The node label of the level that each slice of the pods stays in."""
    pod_set_slice_size: Annotated[Int32, at_least(1)] | None = None
    """Pods of a slice."""
    podset_slice_required_topology_constraints: Annotated[
        tuple[SliceConstraint, ...], at_most(3)
    ] = ()
    """Slices within slices, from the widest level to the narrowest."""


class PodSet(Wire, frozen=True):
    """Identical pods with a count. The template is trimmed on reading, stored whole."""

    name: LabelName = DEFAULT_POD_SET
    """Unique in the workload."""
    template: Annotated[PodTemplate, PRESERVED, WRITTEN] = PodTemplate()
    """The pods' template."""
    count: Annotated[Int32, at_least(0)] = 1
    """How many pods."""
    min_count: Annotated[Int32, at_least(1)] | None = None
    """How many are enough, with partial admission."""
    topology_request: TopologyRequest | None = None


class PriorityClassReference(Wire, frozen=True):
    """Where a workload's priority comes from."""

    group: Literal["kueue.x-k8s.io", "scheduling.k8s.io"]
    """The group of the class."""
    kind: Literal["WorkloadPriorityClass", "PriorityClass"]
    """WorkloadPriorityClass orders the queue alone; PriorityClass is that of the pods."""
    name: Annotated[SubdomainName, limits(minLength=1)]
    """The name of the class."""


class PreemptionGate(Wire, frozen=True):
    """Something that must open before the workload may preempt."""

    name: ShortName
    """Unique in the workload."""


class WorkloadSpec(Wire, frozen=True):
    """The requests of a job, and its queue."""

    pod_sets: Annotated[tuple[PodSet, ...], keyed("name", limit=18), SOME, REQUIRED] = ()
    """The pods that are admitted together: identical ones are one entry."""
    queue_name: SubdomainName = ""
    """The LocalQueue that it waits in."""
    priority_class_ref: PriorityClassReference | None = None
    """The class that `priority` is from."""
    priority: Int32 | None = None
    """Decides which workloads go first, and which may be preempted."""
    active: bool = True
    """Whether it may be admitted; `false` evicts it."""
    maximum_execution_time_seconds: Annotated[Int32, at_least(1)] | None = None
    """How long it may be admitted in all; it is deactivated then."""
    preemption_gates: Annotated[tuple[PreemptionGate, ...], keyed("name", limit=8)] = ()
    """Gates that must open before others are preempted for it."""


class IndividualValues(Wire, frozen=True):
    """Label values that differ by domain: a root each, between a common prefix and suffix."""

    roots: Annotated[tuple[LevelValue, ...], at_most(100_000), SOME]
    """The part that differs, for each domain."""
    prefix: LevelValue = ""
    """The common prefix."""
    suffix: LevelValue = ""
    """The common suffix."""


class LevelValues(Wire, frozen=True):
    """Node label values of one level: one for all domains, or one each."""

    universal: LevelValue | None = None
    """The value that all domains have."""
    individual: IndividualValues | None = None
    """A value for each domain."""


class PodCounts(Wire, frozen=True):
    """Pods of each domain: one number for all, or one each."""

    universal: Annotated[Int32, limits(minimum=1)] | None = None
    """The number that each domain has."""
    individual: Annotated[
        tuple[Annotated[Int32, limits(minimum=1)], ...], at_most(100_000), SOME
    ] = ()
    """A number for each domain."""


class TopologySlice(Wire, frozen=True):
    """Some of the domains of a topology assignment, and how many pods go to each."""

    domain_count: Annotated[Int32, at_least(1)]
    """How many domains there are in this slice."""
    values_per_level: Annotated[tuple[LevelValues, ...], at_most(16), SOME, REQUIRED] = (
        msgspec.field(default_factory=no_items)
    )
    """The values of the domains' node labels, for each level."""
    pod_counts: PodCounts = msgspec.field(default_factory=PodCounts)
    """How many pods each domain gets."""


class TopologyAssignment(Wire, frozen=True):
    """Where in the topology the pods of a pod set go."""

    levels: Annotated[tuple[LevelKey, ...], at_most(16), SOME, REQUIRED] = msgspec.field(
        default_factory=no_items
    )
    """The node labels that tell the domains apart."""
    slices: Annotated[tuple[TopologySlice, ...], at_most(1_000)] = msgspec.field(
        default_factory=no_items
    )
    """The domains, some at a time."""


class PodSetAssignment(Wire, frozen=True):
    """The assignment of one pod set: a flavor for each resource, and its quota."""

    name: Annotated[LabelName, msgspec.Meta(extra_json_schema={"default": DEFAULT_POD_SET})] = (
        msgspec.field(default_factory=default_pod_set)
    )
    """The pod set."""
    flavors: dict[str, SubdomainName] = {}
    """The ResourceFlavor of each resource."""
    resource_usage: dict[str, QuantityText] = {}
    """How much of each resource all its pods hold."""
    count: Annotated[Int32, at_least(0)] | None = None
    """How many pods were admitted; fewer than were asked for with partial admission."""
    topology_assignment: TopologyAssignment | None = None
    delayed_topology_request: Literal["Pending", "Ready"] | None = None
    """`Pending` while pods are to be placed after their admission checks."""


class Admission(Wire, frozen=True):
    """The ClusterQueue whose quota is reserved, and the assignment of each pod set."""

    cluster_queue: SubdomainName
    """The ClusterQueue."""
    pod_set_assignments: Annotated[tuple[PodSetAssignment, ...], keyed("name", limit=18)] = ()
    """The assignment of each pod set."""


class RequeueState(Wire, frozen=True):
    """How often a workload was requeued, and when it may be tried again."""

    count: Annotated[Int32, at_least(0)] | None = None
    """How often; it counts until the workload is admitted and ready."""
    requeue_at: datetime | None = None
    """When it may be tried again."""


class ReclaimablePod(Wire, frozen=True):
    """How many pods of a pod set no longer need their quota."""

    name: LabelName
    """The pod set."""
    count: Annotated[Int32, at_least(0)]
    """How many of its pods."""


class PodSetUpdate(Wire, frozen=True):
    """The additions of an admission check to the pods of a pod set."""

    name: LabelName
    """The pod set."""
    labels: dict[str, str] = {}
    """Labels to add."""
    annotations: dict[str, str] = {}
    """Annotations to add."""
    node_selector: dict[str, str] = {}
    """Node labels to select in addition."""
    tolerations: Tolerations = ()
    """Tolerations to add."""


class AdmissionCheckState(Wire, frozen=True):
    """Where one admission check of the workload stands."""

    name: CheckName
    """The AdmissionCheck."""
    state: CheckStatus
    """`Ready` lets it start; `Retry` gives its quota back; `Rejected` deactivates it."""
    last_transition_time: Annotated[datetime | None, WRITTEN] = None
    """When the state last changed."""
    message: Annotated[str, texts(32_768)] = msgspec.field(default_factory=str)
    """The message of the check's controller."""
    requeue_after_seconds: Annotated[Int32, limits(minimum=0)] | None = None
    """How long to wait before another try, with `Retry`."""
    retry_count: Annotated[Int32, limits(minimum=0)] | None = None
    """How often the check has asked for another try."""
    pod_set_updates: Annotated[tuple[PodSetUpdate, ...], at_most(18)] = ()
    """The additions of the check to the pods."""

    @property
    def failed(self) -> bool:
        """Whether the check does not let the workload keep its quota."""
        return self.state in {"Retry", "Rejected"}


class PodSetRequest(Wire, frozen=True):
    """The requests of a pod set in total when it was last considered."""

    name: LabelName
    """The pod set."""
    resources: dict[str, QuantityText] = {}
    """How much of each resource."""


class EvictionCount(Wire, frozen=True):
    """How often the workload was evicted for one reason and cause."""

    reason: Cause
    """The reason of the eviction."""
    underlying_cause: Cause
    """The cause of that reason, if any."""
    count: Annotated[Int32, at_least(0)]
    """How often."""


class SchedulingStats(Wire, frozen=True):
    """The history of the workload."""

    evictions: Annotated[
        tuple[EvictionCount, ...], keyed("reason", "underlyingCause", limit=256)
    ] = ()
    """Evictions so far, by reason and cause."""


class UnhealthyNode(Wire, frozen=True):
    """A failed node that runs pods of the workload."""

    name: Annotated[str, texts(63)]
    """The node."""


class PreemptionGateState(Wire, frozen=True):
    """Whether a preemption gate is open."""

    name: ShortName
    """The gate."""
    position: Literal["Closed", "Open"]
    """`Open` or `Closed`."""
    last_transition_time: Annotated[datetime | None, WRITTEN] = None
    """When that last changed."""


class WorkloadStatus(Wire, frozen=True):
    """The status of a workload."""

    conditions: Conditions = ()
    """Among them QuotaReserved, Admitted, PodsReady, Evicted, Preempted, Finished."""
    admission: Admission | None = None
    """The quota that it holds; nothing while it waits."""
    requeue_state: RequeueState | None = None
    """When it is tried again after an eviction."""
    reclaimable_pods: Annotated[tuple[ReclaimablePod, ...], keyed("name", limit=18)] = ()
    """Pods that have ended and gave their quota back."""
    admission_checks: Annotated[tuple[AdmissionCheckState, ...], keyed("name", limit=8)] = ()
    """Where each of its admission checks stands."""
    resource_requests: Annotated[tuple[PodSetRequest, ...], keyed("name", limit=18)] = ()
    """The requests of each pod set when it was last considered."""
    accumulated_past_execution_time_seconds: Int32 | None = None
    """How long it was admitted before it was last evicted."""
    scheduling_stats: SchedulingStats | None = None
    """The history of the workload."""
    nominated_cluster_names: Annotated[tuple[ClusterName, ...], at_most(20)] = ()
    """Clusters that it may be sent to."""
    cluster_name: ClusterName | None = None
    """The cluster that it was sent to."""
    unhealthy_nodes: Annotated[tuple[UnhealthyNode, ...], keyed("name", limit=8)] = ()
    """Failed nodes that run pods of it."""
    preemption_gates: Annotated[tuple[PreemptionGateState, ...], keyed("name", limit=8)] = ()
    """Whether each of its preemption gates is open."""


class Workload(Wire, frozen=True):
    """A job's demand."""

    api_version: str = API_VERSION
    kind: str = "Workload"
    metadata: ObjectMeta = ObjectMeta()
    spec: WorkloadSpec = WorkloadSpec()
    status: WorkloadStatus = WorkloadStatus()


def workload_body(workload: Workload, templates: Sequence[Json]) -> dict[str, Json]:
    """Return the body to create `workload`, with the pod templates whole.

    A Workload that was read has only the parts of its templates that the queue needs. Writing one
    takes the templates of the job as they are.

    Args:
        workload: The workload to create; the templates in it are not sent.
        templates: One for each pod set, in order: decoded JSON, or a `msgspec.Raw` of it.

    Raises:
        ValueError: If there are not as many templates as pod sets.
    """
    body: dict[str, Json] = msgspec.json.decode(msgspec.json.encode(workload))
    body |= {"apiVersion": workload.api_version, "kind": workload.kind}
    pod_sets = body.get("spec", {}).get("podSets", ())
    for pod_set, template in zip(pod_sets, templates, strict=True):
        pod_set["template"] = template
    return body
