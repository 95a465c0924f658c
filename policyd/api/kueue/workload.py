"""The unit of queueing: a job's demand, and what became of it."""

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
    size: Annotated[Int32, at_least(1)]


class TopologyRequest(Wire, frozen=True):
    """How close together the pods of a pod set must or should be."""

    required: Level = ""
    preferred: Level = ""
    unconstrained: bool = False
    pod_index_label: LevelKey = ""
    sub_group_index_label: LevelKey = ""
    sub_group_count: Annotated[Int32, limits(minimum=0)] | None = None
    pod_set_group_name: ClusterName = ""
    pod_set_slice_required_topology: Level = ""
    pod_set_slice_size: Annotated[Int32, at_least(1)] | None = None
    podset_slice_required_topology_constraints: Annotated[
        tuple[SliceConstraint, ...], at_most(3)
    ] = ()


class PodSet(Wire, frozen=True):
    """Identical pods with a count. The template is trimmed on reading, stored whole."""

    name: LabelName = DEFAULT_POD_SET
    template: Annotated[PodTemplate, PRESERVED, WRITTEN] = PodTemplate()
    count: Annotated[Int32, at_least(0)] = 1
    min_count: Annotated[Int32, at_least(1)] | None = None
    topology_request: TopologyRequest | None = None


class PriorityClassReference(Wire, frozen=True):
    """Where a workload's priority comes from."""

    group: Literal["kueue.x-k8s.io", "scheduling.k8s.io"]
    kind: Literal["WorkloadPriorityClass", "PriorityClass"]
    name: Annotated[SubdomainName, limits(minLength=1)]


class PreemptionGate(Wire, frozen=True):
    """Something that must open before the workload may preempt."""

    name: ShortName


class WorkloadSpec(Wire, frozen=True):
    """What a job demands, and of which queue."""

    pod_sets: Annotated[tuple[PodSet, ...], keyed("name", limit=18), SOME, REQUIRED] = ()
    queue_name: SubdomainName = ""
    priority_class_ref: PriorityClassReference | None = None
    priority: Int32 | None = None
    active: bool = True
    maximum_execution_time_seconds: Annotated[Int32, at_least(1)] | None = None
    preemption_gates: Annotated[tuple[PreemptionGate, ...], keyed("name", limit=8)] = ()


class IndividualValues(Wire, frozen=True):
    """Label values that differ by domain: a root each, between a common prefix and suffix."""

    roots: Annotated[tuple[LevelValue, ...], at_most(100_000), SOME]
    prefix: LevelValue = ""
    suffix: LevelValue = ""


class LevelValues(Wire, frozen=True):
    """Node label values of one level: one for all domains, or one each."""

    universal: LevelValue | None = None
    individual: IndividualValues | None = None


class PodCounts(Wire, frozen=True):
    """Pods of each domain: one number for all, or one each."""

    universal: Annotated[Int32, limits(minimum=1)] | None = None
    individual: Annotated[
        tuple[Annotated[Int32, limits(minimum=1)], ...], at_most(100_000), SOME
    ] = ()


class TopologySlice(Wire, frozen=True):
    """Some of the domains of a topology assignment, and how many pods go to each."""

    domain_count: Annotated[Int32, at_least(1)]
    values_per_level: Annotated[tuple[LevelValues, ...], at_most(16), SOME, REQUIRED] = (
        msgspec.field(default_factory=no_items)
    )
    pod_counts: PodCounts = msgspec.field(default_factory=PodCounts)


class TopologyAssignment(Wire, frozen=True):
    """Where in the topology the pods of a pod set go."""

    levels: Annotated[tuple[LevelKey, ...], at_most(16), SOME, REQUIRED] = msgspec.field(
        default_factory=no_items
    )
    slices: Annotated[tuple[TopologySlice, ...], at_most(1_000)] = msgspec.field(
        default_factory=no_items
    )


class PodSetAssignment(Wire, frozen=True):
    """What one pod set got: a flavor for each resource, and the quota it holds."""

    name: Annotated[LabelName, msgspec.Meta(extra_json_schema={"default": DEFAULT_POD_SET})] = (
        msgspec.field(default_factory=default_pod_set)
    )
    flavors: dict[str, SubdomainName] = {}
    resource_usage: dict[str, QuantityText] = {}
    count: Annotated[Int32, at_least(0)] | None = None
    topology_assignment: TopologyAssignment | None = None
    delayed_topology_request: Literal["Pending", "Ready"] | None = None


class Admission(Wire, frozen=True):
    """The ClusterQueue whose quota is reserved, and what each pod set got."""

    cluster_queue: SubdomainName
    pod_set_assignments: Annotated[tuple[PodSetAssignment, ...], keyed("name", limit=18)] = ()


class RequeueState(Wire, frozen=True):
    """How often a workload was requeued, and when it may be tried again."""

    count: Annotated[Int32, at_least(0)] | None = None
    requeue_at: datetime | None = None


class ReclaimablePod(Wire, frozen=True):
    """How many pods of a pod set no longer need their quota."""

    name: LabelName
    count: Annotated[Int32, at_least(0)]


class PodSetUpdate(Wire, frozen=True):
    """What an admission check wants added to the pods of a pod set."""

    name: LabelName
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    node_selector: dict[str, str] = {}
    tolerations: Tolerations = ()


class AdmissionCheckState(Wire, frozen=True):
    """Where one admission check of the workload stands."""

    name: CheckName
    state: CheckStatus
    last_transition_time: Annotated[datetime | None, WRITTEN] = None
    message: Annotated[str, texts(32_768)] = msgspec.field(default_factory=str)
    requeue_after_seconds: Annotated[Int32, limits(minimum=0)] | None = None
    retry_count: Annotated[Int32, limits(minimum=0)] | None = None
    pod_set_updates: Annotated[tuple[PodSetUpdate, ...], at_most(18)] = ()


class PodSetRequest(Wire, frozen=True):
    """What a pod set requested in total when it was last considered."""

    name: LabelName
    resources: dict[str, QuantityText] = {}


class EvictionCount(Wire, frozen=True):
    """How often the workload was evicted for one reason and cause."""

    reason: Cause
    underlying_cause: Cause
    count: Annotated[Int32, at_least(0)]


class SchedulingStats(Wire, frozen=True):
    """What happened to the workload so far."""

    evictions: Annotated[
        tuple[EvictionCount, ...], keyed("reason", "underlyingCause", limit=256)
    ] = ()


class UnhealthyNode(Wire, frozen=True):
    """A failed node that runs pods of the workload."""

    name: Annotated[str, texts(63)]


class PreemptionGateState(Wire, frozen=True):
    """Whether a preemption gate is open."""

    name: ShortName
    position: Literal["Closed", "Open"]
    last_transition_time: Annotated[datetime | None, WRITTEN] = None


class WorkloadStatus(Wire, frozen=True):
    """What became of a workload."""

    conditions: Conditions = ()
    admission: Admission | None = None
    requeue_state: RequeueState | None = None
    reclaimable_pods: Annotated[tuple[ReclaimablePod, ...], keyed("name", limit=18)] = ()
    admission_checks: Annotated[tuple[AdmissionCheckState, ...], keyed("name", limit=8)] = ()
    resource_requests: Annotated[tuple[PodSetRequest, ...], keyed("name", limit=18)] = ()
    accumulated_past_execution_time_seconds: Int32 | None = None
    scheduling_stats: SchedulingStats | None = None
    nominated_cluster_names: Annotated[tuple[ClusterName, ...], at_most(20)] = ()
    cluster_name: ClusterName | None = None
    unhealthy_nodes: Annotated[tuple[UnhealthyNode, ...], keyed("name", limit=8)] = ()
    preemption_gates: Annotated[tuple[PreemptionGateState, ...], keyed("name", limit=8)] = ()


class Workload(Wire, frozen=True):
    """A job's demand."""

    api_version: str = API_VERSION
    kind: str = "Workload"
    metadata: ObjectMeta = ObjectMeta()
    spec: WorkloadSpec = WorkloadSpec()
    status: WorkloadStatus = WorkloadStatus()


def workload_body(workload: Workload, templates: Sequence[Json]) -> dict[str, Json]:
    """Return what to send to create `workload`, with the pod templates whole.

    Reading a Workload keeps of its templates only what the queue needs. Writing one takes the
    templates of the job as they are.

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
