"""The unit of queueing: a job's demand, and what became of it."""

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Literal

import msgspec

from policyd.api.kueue.names import API_VERSION, DEFAULT_POD_SET
from policyd.api.kueue.queues import Conditions
from policyd.api.meta import Json, ObjectMeta, Wire
from policyd.api.pods import PodTemplate, Toleration
from policyd.api.schema import PRESERVED, QuantityText, at_least, at_most, keyed

CheckStatus = Literal["Pending", "Ready", "Retry", "Rejected"]


class SliceConstraint(Wire, frozen=True):
    """Pods of one slice stay within one domain of `topology`."""

    topology: str
    size: Annotated[int, at_least(1)]


class TopologyRequest(Wire, frozen=True):
    """How close together the pods of a pod set must or should be."""

    required: str = ""
    preferred: str = ""
    unconstrained: bool = False
    pod_index_label: str = ""
    sub_group_index_label: str = ""
    sub_group_count: int | None = None
    pod_set_group_name: str = ""
    pod_set_slice_required_topology: str = ""
    pod_set_slice_size: Annotated[int, at_least(1)] | None = None
    podset_slice_required_topology_constraints: Annotated[
        tuple[SliceConstraint, ...], at_most(3)
    ] = ()


class PodSet(Wire, frozen=True):
    """Identical pods with a count. The template is trimmed on reading, stored whole."""

    name: str = DEFAULT_POD_SET
    template: Annotated[PodTemplate, PRESERVED] = PodTemplate()
    count: Annotated[int, at_least(0)] = 1
    min_count: Annotated[int, at_least(1)] | None = None
    topology_request: TopologyRequest | None = None


class PriorityClassReference(Wire, frozen=True):
    """Where a workload's priority comes from."""

    group: Literal["kueue.x-k8s.io", "scheduling.k8s.io"]
    kind: Literal["WorkloadPriorityClass", "PriorityClass"]
    name: str


class PreemptionGate(Wire, frozen=True):
    """Something that must open before the workload may preempt."""

    name: str


class WorkloadSpec(Wire, frozen=True):
    """What a job demands, and of which queue."""

    pod_sets: Annotated[tuple[PodSet, ...], keyed("name", limit=18)] = ()
    queue_name: str = ""
    priority_class_ref: PriorityClassReference | None = None
    priority: int | None = None
    active: bool = True
    maximum_execution_time_seconds: Annotated[int, at_least(1)] | None = None
    preemption_gates: Annotated[tuple[PreemptionGate, ...], keyed("name", limit=8)] = ()


class IndividualValues(Wire, frozen=True):
    """Label values that differ by domain: a root each, between a common prefix and suffix."""

    roots: Annotated[tuple[str, ...], at_most(100_000)]
    prefix: str = ""
    suffix: str = ""


class LevelValues(Wire, frozen=True):
    """Node label values of one level: one for all domains, or one each."""

    universal: str | None = None
    individual: IndividualValues | None = None


class PodCounts(Wire, frozen=True):
    """Pods of each domain: one number for all, or one each."""

    universal: int | None = None
    individual: Annotated[tuple[int, ...], at_most(100_000)] = ()


class TopologySlice(Wire, frozen=True):
    """Some of the domains of a topology assignment, and how many pods go to each."""

    domain_count: Annotated[int, at_least(1)]
    values_per_level: Annotated[tuple[LevelValues, ...], at_most(16)] = ()
    pod_counts: PodCounts = PodCounts()


class TopologyAssignment(Wire, frozen=True):
    """Where in the topology the pods of a pod set go."""

    levels: Annotated[tuple[str, ...], at_most(16)] = ()
    slices: Annotated[tuple[TopologySlice, ...], at_most(1_000)] = ()


class PodSetAssignment(Wire, frozen=True):
    """What one pod set got: a flavor for each resource, and the quota it holds."""

    name: str = DEFAULT_POD_SET
    flavors: dict[str, str] = {}
    resource_usage: dict[str, QuantityText] = {}
    count: Annotated[int, at_least(0)] | None = None
    topology_assignment: TopologyAssignment | None = None
    delayed_topology_request: Literal["Pending", "Ready"] | None = None


class Admission(Wire, frozen=True):
    """The ClusterQueue whose quota is reserved, and what each pod set got."""

    cluster_queue: str
    pod_set_assignments: Annotated[tuple[PodSetAssignment, ...], keyed("name", limit=18)] = ()


class RequeueState(Wire, frozen=True):
    """How often a workload was requeued, and when it may be tried again."""

    count: Annotated[int, at_least(0)] | None = None
    requeue_at: datetime | None = None


class ReclaimablePod(Wire, frozen=True):
    """How many pods of a pod set no longer need their quota."""

    name: str
    count: Annotated[int, at_least(0)]


class PodSetUpdate(Wire, frozen=True):
    """What an admission check wants added to the pods of a pod set."""

    name: str
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    node_selector: dict[str, str] = {}
    tolerations: Annotated[tuple[Toleration, ...], at_most(8)] = ()


class AdmissionCheckState(Wire, frozen=True):
    """Where one admission check of the workload stands."""

    name: str
    state: CheckStatus
    last_transition_time: datetime | None = None
    message: str = ""
    requeue_after_seconds: int | None = None
    retry_count: int | None = None
    pod_set_updates: Annotated[tuple[PodSetUpdate, ...], at_most(18)] = ()


class PodSetRequest(Wire, frozen=True):
    """What a pod set requested in total when it was last considered."""

    name: str
    resources: dict[str, QuantityText] = {}


class EvictionCount(Wire, frozen=True):
    """How often the workload was evicted for one reason and cause."""

    reason: str
    underlying_cause: str
    count: Annotated[int, at_least(0)]


class SchedulingStats(Wire, frozen=True):
    """What happened to the workload so far."""

    evictions: Annotated[
        tuple[EvictionCount, ...], keyed("reason", "underlyingCause", limit=256)
    ] = ()


class UnhealthyNode(Wire, frozen=True):
    """A failed node that runs pods of the workload."""

    name: str


class PreemptionGateState(Wire, frozen=True):
    """Whether a preemption gate is open."""

    name: str
    position: Literal["Closed", "Open"]
    last_transition_time: datetime | None = None


class WorkloadStatus(Wire, frozen=True):
    """What became of a workload."""

    conditions: Conditions = ()
    admission: Admission | None = None
    requeue_state: RequeueState | None = None
    reclaimable_pods: Annotated[tuple[ReclaimablePod, ...], keyed("name", limit=18)] = ()
    admission_checks: Annotated[tuple[AdmissionCheckState, ...], keyed("name", limit=8)] = ()
    resource_requests: Annotated[tuple[PodSetRequest, ...], keyed("name", limit=18)] = ()
    accumulated_past_execution_time_seconds: int | None = None
    scheduling_stats: SchedulingStats | None = None
    nominated_cluster_names: Annotated[tuple[str, ...], at_most(20)] = ()
    cluster_name: str | None = None
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
