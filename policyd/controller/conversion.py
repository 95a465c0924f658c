"""Objects of the API as the allocator sees them: quantities become integers, here and nowhere else.

And back again, for what the allocator decided.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from policyd.alloc.amount import format_amount, quota_amount
from policyd.alloc.flavor import FlavorSpec, LabelRequirement, Taint, Term, Toleration
from policyd.alloc.queue import (
    CohortSpec,
    FlavorQuotas,
    Fungibility,
    PreemptionPolicy,
    QueueSpec,
    Quota,
    ResourceGroup,
)
from policyd.alloc.settings import Gates
from policyd.alloc.workload import (
    Admission,
    Objection,
    PodSet,
    PodSetAssignment,
    Workload,
)
from policyd.api import kueue
from policyd.api.kueue.names import ACTIVE, ADMITTED, EVICTED, QUOTA_RESERVED, REQUEUED
from policyd.api.meta import condition_true, find_condition
from policyd.api.pod_requests import amount
from policyd.api.pods import PodSpec
from policyd.api.pods import Toleration as ApiToleration
from policyd.api.quantity import QuantityError, parse_quantity
from policyd.api.schema import QuantityText
from policyd.controller.priorities import effective_priority
from policyd.jobs.requests import InvalidRequestsError, check_limits, requests_of

_LATER: Final = frozenset({("True", "PodsReadyTimeout"), ("True", "AdmissionCheck")})
"""Evictions after which a workload queues behind those that came meanwhile."""

NAMESPACE_MISMATCH: Final = "Workload namespace doesn't match ClusterQueue selector"
FAILED_CHECKS: Final = "The workload has failed admission checks"


def flavor_spec(flavor: kueue.ResourceFlavor) -> FlavorSpec:
    """Convert a ResourceFlavor."""
    spec = flavor.spec
    return FlavorSpec(
        name=flavor.metadata.name,
        labels=spec.node_labels,
        taints=tuple(Taint(key=t.key, value=t.value, effect=t.effect) for t in spec.node_taints),
        tolerations=_tolerations(spec.tolerations),
    )


def cohort_spec(cohort: kueue.Cohort) -> CohortSpec:
    """Convert a Cohort."""
    return CohortSpec(
        name=cohort.metadata.name,
        parent=cohort.spec.parent_name,
        groups=_groups(cohort.spec.resource_groups),
        weight=_weight(cohort.spec.fair_sharing),
    )


def queue_spec(queue: kueue.ClusterQueue, checks: Mapping[str, kueue.AdmissionCheck]) -> QueueSpec:
    """Convert a ClusterQueue.

    Args:
        queue: The ClusterQueue.
        checks: All AdmissionChecks, by name.
    """
    spec, named = queue.spec, check_names(queue)
    return QueueSpec(
        name=queue.metadata.name,
        cohort=spec.cohort_name,
        strict=spec.queueing_strategy == "StrictFIFO",
        groups=_groups(spec.resource_groups),
        fungibility=_fungibility(spec.flavor_fungibility),
        preemption=_preemption(spec.preemption),
        weight=_weight(spec.fair_sharing),
        stopped=spec.stop_policy != "None" or queue.metadata.deletion_timestamp is not None,
        missing_checks=tuple(name for name in named if name not in checks),
        inactive_checks=tuple(
            name
            for name in named
            if name in checks and not condition_true(checks[name].status.conditions, ACTIVE)
        ),
    )


def check_names(queue: kueue.ClusterQueue) -> tuple[str, ...]:
    """Return the names of the admission checks of a ClusterQueue, in its order."""
    strategy = queue.spec.admission_checks_strategy
    return () if strategy is None else tuple(rule.name for rule in strategy.admission_checks)


def _fungibility(policy: kueue.FlavorFungibility) -> Fungibility:
    return Fungibility(
        when_can_borrow=policy.when_can_borrow,
        when_can_preempt=policy.when_can_preempt,
        preference=policy.preference or "BorrowingOverPreemption",
    )


def _preemption(policy: kueue.ClusterQueuePreemption) -> PreemptionPolicy:
    return PreemptionPolicy(
        within_cluster_queue=policy.within_cluster_queue,
        reclaim_within_cohort=policy.reclaim_within_cohort,
        borrow_within_cohort=policy.borrow_within_cohort.policy,
        max_priority_threshold=policy.borrow_within_cohort.max_priority_threshold,
    )


def _weight(sharing: kueue.FairSharing | None) -> float:
    return 1.0 if sharing is None else parse_quantity(str(sharing.weight)).nano / 1e9


def _groups(groups: Iterable[kueue.ResourceGroup]) -> tuple[ResourceGroup, ...]:
    return tuple(
        ResourceGroup(
            resources=group.covered_resources,
            flavors=tuple(
                FlavorQuotas(
                    name=flavor.name,
                    quotas={each.name: _quota(each) for each in flavor.resources},
                )
                for flavor in group.flavors
            ),
        )
        for group in groups
    )


def _quota(quota: kueue.ResourceQuota) -> Quota:
    def limit(quantity: QuantityText | None) -> int | None:
        return None if quantity is None else _quota_amount(quota.name, quantity)

    return Quota(
        nominal=_quota_amount(quota.name, quota.nominal_quota),
        borrowing_limit=limit(quota.borrowing_limit),
        lending_limit=limit(quota.lending_limit),
    )


def _quota_amount(resource: str, quantity: QuantityText) -> int:
    return quota_amount(resource, amount(resource, str(quantity)))


def workload_value(
    workload: kueue.Workload,
    *,
    cluster_queue: str,
    objection: Objection | None = None,
    gates: Gates,
    now: float,
) -> Workload:
    """Convert a workload that holds quota, or waits for it.

    Args:
        workload: The workload.
        cluster_queue: Where it queues; what it holds quota of may be another one.
        objection: Why it cannot be considered, apart from what the workload itself says.
        gates: Feature gates.
        now: Seconds since the epoch, for its back-off.
    """
    metadata = workload.metadata
    admission = _admission(workload)
    pod_sets: tuple[PodSet, ...] = ()
    invalid: Objection | None = None
    if admission is None:
        pod_sets, invalid = _pod_sets(workload)
    return Workload(
        key=metadata.key,
        uid=metadata.uid,
        cluster_queue=cluster_queue if admission is None else admission.cluster_queue,
        local_queue=f"{metadata.namespace}/{workload.spec.queue_name}",
        priority=effective_priority(workload, gates),
        queued_at=queued_at(workload),
        pod_sets=pod_sets,
        backing_off=admission is None and backs_off(workload, now),
        objection=objection or _failed_checks(workload) or invalid,
        admission=admission,
        admitted=condition_true(workload.status.conditions, ADMITTED),
        reserved_at=None if admission is None else _reserved_at(workload),
        evicted=condition_true(workload.status.conditions, EVICTED),
    )


def queued_at(workload: kueue.Workload) -> float:
    """Return since when a workload has its place in the queue: an eviction keeps it, mostly."""
    evicted = find_condition(workload.status.conditions, EVICTED)
    if evicted is not None and (evicted.status, evicted.reason) in _LATER:
        since = evicted.last_transition_time
        if since is not None:
            return since.timestamp()
    created = workload.metadata.creation_timestamp
    return created.timestamp() if created else 0.0


def _reserved_at(workload: kueue.Workload) -> float | None:
    reserved = find_condition(workload.status.conditions, QUOTA_RESERVED)
    since = None if reserved is None else reserved.last_transition_time
    return None if since is None else since.timestamp()


def backs_off(workload: kueue.Workload, now: float) -> bool:
    """Tell whether a workload must not be tried yet."""
    requeued = find_condition(workload.status.conditions, REQUEUED)
    if requeued is not None and requeued.status == "False":
        return True
    state = workload.status.requeue_state
    return state is not None and state.requeue_at is not None and state.requeue_at.timestamp() > now


def _failed_checks(workload: kueue.Workload) -> Objection | None:
    if any(check.state in {"Retry", "Rejected"} for check in workload.status.admission_checks):
        return Objection(reason="PendingEvaluation", message=FAILED_CHECKS)
    return None


def _pod_sets(workload: kueue.Workload) -> tuple[tuple[PodSet, ...], Objection | None]:
    given_back = {each.name: each.count for each in workload.status.reclaimable_pods}
    pod_sets = []
    objection = None
    for index, pod_set in enumerate(workload.spec.pod_sets):
        requests: dict[str, int] = {}
        try:
            check_limits(pod_set.template.spec, pod_set=index)
            requests = requests_of(pod_set.template.spec)
        except InvalidRequestsError as error:
            objection = objection or Objection(reason="Misconfigured", message=str(error))
        count = max(0, pod_set.count - given_back.get(pod_set.name, 0))
        pod_sets.append(_pod_set(pod_set, count, requests))
    return tuple(pod_sets), objection


def _pod_set(pod_set: kueue.PodSet, count: int, requests: Mapping[str, int]) -> PodSet:
    spec = pod_set.template.spec
    return PodSet(
        name=pod_set.name,
        count=count,
        requests=requests,
        tolerations=_tolerations(spec.tolerations),
        node_selector=spec.node_selector,
        affinity=_terms(spec),
    )


def _tolerations(tolerations: Iterable[ApiToleration]) -> tuple[Toleration, ...]:
    return tuple(
        Toleration(key=t.key, operator=t.operator, value=t.value, effect=t.effect)
        for t in tolerations
    )


def _terms(spec: PodSpec) -> tuple[Term, ...]:
    node = spec.affinity.node_affinity if spec.affinity else None
    required = node.required_during_scheduling_ignored_during_execution if node else None
    if required is None:
        return ()
    return tuple(
        tuple(
            LabelRequirement(key=r.key, operator=r.operator, values=r.values)
            for r in term.match_expressions
        )
        for term in required.node_selector_terms
    )


def _admission(workload: kueue.Workload) -> Admission | None:
    admission = workload.status.admission
    if admission is None or not condition_true(workload.status.conditions, QUOTA_RESERVED):
        return None
    given_back = {each.name: each.count for each in workload.status.reclaimable_pods}
    counts = {pod_set.name: pod_set.count for pod_set in workload.spec.pod_sets}
    return Admission(
        cluster_queue=admission.cluster_queue,
        pod_sets=tuple(
            _assignment(each, counts.get(each.name, 0) - given_back.get(each.name, 0))
            for each in admission.pod_set_assignments
        ),
    )


def _assignment(assignment: kueue.PodSetAssignment, left: int) -> PodSetAssignment:
    """Convert an assignment; quota is held only for the pods that are left of it."""
    count = assignment.count or 0
    usage = {}
    for resource, quantity in assignment.resource_usage.items():
        try:
            total = amount(resource, str(quantity))
        except QuantityError:
            total = 0
        usage[resource] = total // count * max(0, left) if 0 <= left < count else total
    return PodSetAssignment(
        name=assignment.name, count=count, flavors=assignment.flavors, usage=usage
    )


def admission_object(admission: Admission) -> kueue.Admission:
    """Convert what the allocator gave to what a workload's status says."""
    return kueue.Admission(
        cluster_queue=admission.cluster_queue,
        pod_set_assignments=tuple(
            kueue.PodSetAssignment(
                name=each.name,
                flavors=dict(each.flavors),
                resource_usage={
                    resource: format_amount(resource, each.usage[resource])
                    for resource in each.flavors
                    if resource in each.usage
                },
                count=each.count,
            )
            for each in admission.pod_sets
        ),
    )
