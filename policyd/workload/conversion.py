"""Objects of the API as the allocator sees them: quantities become integers, here and nowhere else.

And back again, for the allocator's decisions.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from msgspec.structs import replace

from policyd.alloc.amount import quota_amount
from policyd.alloc.queue import (
    ClashReason,
    CohortQuotas,
    FlavorAmounts,
    FlavorGroup,
    FlavorSpec,
    Fungibility,
    PreemptionPolicy,
    QueueSpec,
    Quota,
)
from policyd.alloc.topology.values import TopologyPlacement
from policyd.alloc.workload import ReservedQuota
from policyd.api import kueue
from policyd.api.gpus import SharedGpus, shared_gpus
from policyd.api.kueue.names import ACTIVE, MULTI_KUEUE, PROVISIONING
from policyd.api.kueue.topology_assignment import DomainPods, encode_topology
from policyd.api.meta import condition_true
from policyd.api.pod_requests import amount
from policyd.api.pods import Toleration as ApiToleration
from policyd.api.quantity import QuantityError, parse_quantity
from policyd.api.schema import QuantityText
from policyd.node_rules import NodeTaint, TaintToleration
from policyd.status.quantities import format_amount
from policyd.workload.opt_ins import opt_ins_of

_LATER: Final = frozenset({("True", "PodsReadyTimeout"), ("True", "AdmissionCheck")})
"""Evictions after which a workload queues behind those that came meanwhile."""

MOST_WEIGHT: Final = 2.0**63


def flavor_spec(flavor: kueue.ResourceFlavor, topology: kueue.Topology | None = None) -> FlavorSpec:
    """Convert a ResourceFlavor; `topology` is the one that it names, if there is such a one."""
    spec = flavor.spec
    return FlavorSpec(
        name=flavor.metadata.name,
        labels=spec.node_labels,
        taints=tuple(
            NodeTaint(key=t.key, value=t.value, effect=t.effect) for t in spec.node_taints
        ),
        tolerations=tolerations(spec.tolerations),
        topology=spec.topology_name,
        levels=() if topology is None else tuple(each.node_label for each in topology.spec.levels),
    )


def sharing_flavors(flavors: Iterable[kueue.ResourceFlavor]) -> dict[str, SharedGpus]:
    """Return the ResourceFlavors that share GPUs, and how they do, by name."""
    found = ((each.metadata.name, shared_gpus(each.metadata.annotations)) for each in flavors)
    return {name: shared for name, shared in found if shared is not None}


def cohort_spec(cohort: kueue.Cohort) -> CohortQuotas:
    """Convert a Cohort."""
    return CohortQuotas(
        name=cohort.metadata.name,
        parent=cohort.spec.parent_name,
        groups=_groups(cohort.spec.resource_groups),
        weight=weight_of(cohort.spec.fair_sharing),
    )


def queue_spec(queue: kueue.ClusterQueue, checks: Mapping[str, kueue.AdmissionCheck]) -> QueueSpec:
    """Convert a ClusterQueue.

    Args:
        queue: The ClusterQueue.
        checks: All AdmissionChecks, by name.
    """
    spec, named = queue.spec, check_names(queue)
    policy = spec.concurrent_admission_policy
    bounds = None if policy is None else policy.migration.constraints
    return QueueSpec(
        name=queue.metadata.name,
        cohort=spec.cohort_name,
        strict=spec.queueing_strategy == "StrictFIFO",
        groups=_groups(spec.resource_groups),
        fungibility=_fungibility(spec.flavor_fungibility),
        preemption=_preemption(spec.preemption),
        weight=weight_of(spec.fair_sharing),
        by_usage=spec.admission_scope is not None
        and spec.admission_scope.admission_mode == "UsageBasedAdmissionFairSharing",
        stopped=spec.stop_policy != "None" or queue.metadata.deletion_timestamp is not None,
        terminating=queue.metadata.deletion_timestamp is not None,
        missing_checks=tuple(name for name in named if name not in checks),
        inactive_checks=tuple(
            name
            for name in named
            if name in checks and not condition_true(checks[name].status.conditions, ACTIVE)
        ),
        clashes=tuple(_clashes(queue, checks)),
        elsewhere=any(_carries_out(checks, rule.name, MULTI_KUEUE) for rule in _rules(queue)),
        delayed=tuple(_delayed(queue, checks)),
        migrates=policy is None or policy.migration.mode != "RetainFirstAdmission",
        last_acceptable="" if bounds is None else bounds.last_acceptable_flavor_name,
        opt_ins=opt_ins_of(queue.metadata.annotations),
    )


def _rules(queue: kueue.ClusterQueue) -> tuple[kueue.AdmissionCheckRule, ...]:
    strategy = queue.spec.admission_checks_strategy
    return () if strategy is None else strategy.admission_checks


def _carries_out(checks: Mapping[str, kueue.AdmissionCheck], name: str, controller: str) -> bool:
    return name in checks and checks[name].spec.controller_name == controller


def _delayed(
    queue: kueue.ClusterQueue, checks: Mapping[str, kueue.AdmissionCheck]
) -> Iterator[str]:
    """Yield the flavors of a queue whose nodes are made for a workload that has quota."""
    for group in queue.spec.resource_groups:
        for flavor in group.flavors:
            if any(
                _carries_out(checks, rule.name, PROVISIONING)
                and (not rule.on_flavors or flavor.name in rule.on_flavors)
                for rule in _rules(queue)
            ):
                yield flavor.name


def _clashes(
    queue: kueue.ClusterQueue, checks: Mapping[str, kueue.AdmissionCheck]
) -> Iterator[tuple[ClashReason, str]]:
    """Yield why checks of a queue cannot be used together, in Kueue's words.

    Another cluster runs the whole job, in any flavor that it has here, and brings its own nodes.
    """
    rules = _rules(queue)
    by = {
        rule.name: checks[rule.name].spec.controller_name for rule in rules if rule.name in checks
    }
    remote = sorted(name for name, controller in by.items() if controller == MULTI_KUEUE)
    provisioned = sorted(name for name, controller in by.items() if controller == PROVISIONING)
    per_flavor = sorted(rule.name for rule in rules if rule.name in remote and rule.on_flavors)
    if len(remote) > 1:
        yield (
            "MultipleMultiKueueAdmissionChecks",
            "Cannot use multiple MultiKueue AdmissionChecks on the same ClusterQueue, found: "
            + ",".join(remote),
        )
    if per_flavor:
        yield (
            "MultiKueueAdmissionCheckAppliedPerFlavor",
            f"Cannot specify MultiKueue AdmissionCheck per flavor, found: {','.join(per_flavor)}",
        )
    if remote and provisioned:
        yield (
            "MultiKueueWithProvisioningRequest",
            "Cannot use both MultiKueue and ProvisioningRequest AdmissionChecks together, found: "
            f"{','.join(remote)}, {','.join(provisioned)}",
        )


def check_names(queue: kueue.ClusterQueue) -> tuple[str, ...]:
    """Return the names of the admission checks of a ClusterQueue, in its order."""
    return tuple(rule.name for rule in _rules(queue))


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


def weight_of(sharing: kueue.FairSharing | None) -> float:
    """Return how much a queue or cohort weighs against its siblings; 1 if it does not say.

    More than the API server can count is as much as that.
    """
    if sharing is None:
        return 1.0
    try:
        return min(float(parse_quantity(str(sharing.weight))), MOST_WEIGHT)
    except QuantityError:
        return 1.0


def _groups(groups: Iterable[kueue.ResourceGroup]) -> tuple[FlavorGroup, ...]:
    return tuple(
        FlavorGroup(
            resources=group.covered_resources,
            flavors=tuple(
                FlavorAmounts(
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


def tolerations(given: Iterable[ApiToleration]) -> tuple[TaintToleration, ...]:
    """Convert tolerations."""
    return tuple(
        TaintToleration(key=t.key, operator=t.operator or "Equal", value=t.value, effect=t.effect)
        for t in given
    )


def admission_object(admission: ReservedQuota, *, by_prefix: bool = True) -> kueue.Admission:
    """Convert the allocator's assignment to the admission in a workload's status.

    Args:
        admission: The reserved quota.
        by_prefix: Whether nodes may be stored by the prefixes of their names.
    """
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
                topology_assignment=_topology(each.placement, by_prefix=by_prefix),
                delayed_topology_request=each.delay or None,
            )
            for each in admission.pod_sets
        ),
    )


def _topology(
    placement: TopologyPlacement | None, *, by_prefix: bool
) -> kueue.TopologyAssignment | None:
    if placement is None:
        return None
    domains = [DomainPods(*each) for each in placement.domains]
    return encode_topology(placement.levels, domains, by_prefix=by_prefix)


def placed_again(before: kueue.Admission, admission: kueue.Admission) -> kueue.Admission:
    """Return an admission in which pods have the places of another one."""
    found = {each.name: each for each in admission.pod_set_assignments}
    return replace(
        before,
        pod_set_assignments=tuple(
            replace(
                each,
                topology_assignment=found[each.name].topology_assignment,
                delayed_topology_request=found[each.name].delayed_topology_request,
            )
            if each.name in found
            else each
            for each in before.pod_set_assignments
        ),
    )
