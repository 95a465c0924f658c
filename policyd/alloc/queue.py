"""The specifications of flavors, ClusterQueues and Cohorts."""

from collections.abc import Iterable, Mapping
from typing import Literal

from policyd.alloc.value import Value
from policyd.node_rules import NodeTaint, TaintToleration, Term, untolerated

FlavorResource = tuple[str, str]
"""A flavor and one of its resources: the unit that quota is given for."""

FungibilityPolicy = Literal["MayStopSearch", "TryNextFlavor"]

ClashReason = Literal[
    "MultipleMultiKueueAdmissionChecks",
    "MultiKueueAdmissionCheckAppliedPerFlavor",
    "MultiKueueWithProvisioningRequest",
]


class Quota(Value, frozen=True):
    """How much a queue or cohort has, may borrow and will lend; None is no limit."""

    nominal: int
    borrowing_limit: int | None = None
    lending_limit: int | None = None


class FlavorAmounts(Value, frozen=True):
    """The quotas of one flavor, by resource."""

    name: str
    quotas: dict[str, Quota]


class FlavorGroup(Value, frozen=True):
    """Resources that a pod set takes from one flavor together; the flavors in order of trial."""

    resources: tuple[str, ...]
    flavors: tuple[FlavorAmounts, ...]


class Fungibility(Value, frozen=True):
    """When to look at further flavors, and what to prefer if none simply fits."""

    when_can_borrow: FungibilityPolicy = "MayStopSearch"
    when_can_preempt: FungibilityPolicy = "TryNextFlavor"
    preference: Literal["BorrowingOverPreemption", "PreemptionOverBorrowing"] = (
        "BorrowingOverPreemption"
    )


class PreemptionPolicy(Value, frozen=True):
    """Which workloads those of a queue may preempt."""

    within_cluster_queue: Literal["Never", "LowerPriority", "LowerOrNewerEqualPriority"] = "Never"
    reclaim_within_cohort: Literal["Never", "LowerPriority", "Any"] = "Never"
    borrow_within_cohort: Literal["Never", "LowerPriority"] = "Never"
    max_priority_threshold: int | None = None


class QueueExtras(Value, frozen=True):
    """Settings of a queue beyond Kueue's rules: none, unless an extension defines them."""


NO_EXTRAS = QueueExtras()


class QueueSpec(Value, frozen=True):
    """A ClusterQueue.

    Attributes:
        cohort: Name of the cohort it shares with; "" to stand alone.
        strict: Whether the first workload holds up those behind it (StrictFIFO).
        groups: The quota; a resource is in one group, a flavor in one group.
        fungibility: When to try the next flavor.
        preemption: Which workloads to preempt.
        weight: Its part of what is lent, against its siblings; 0 for the leftovers.
        by_usage: Whether the recent usage of LocalQueues orders their workloads.
        stopped: Whether it gives out no quota for now.
        terminating: Whether that is because it is being deleted.
        missing_checks: Names of admission checks that do not exist.
        inactive_checks: Names of admission checks that no controller carries out.
        clashes: Why its admission checks cannot be used together: a reason and a sentence each.
        elsewhere: Whether its jobs run in other clusters, which place their pods.
        delayed: Flavors whose nodes are made once there is quota: pods are placed after that.
        migrates: Whether a variant with a better flavor takes the place of an admitted one.
        last_acceptable: The last flavor to which variants migrate; "" for any.
        opt_ins: Settings beyond Kueue's rules, for the state's extension.
    """

    name: str
    cohort: str = ""
    strict: bool = False
    groups: tuple[FlavorGroup, ...] = ()
    fungibility: Fungibility = Fungibility()
    preemption: PreemptionPolicy = PreemptionPolicy()
    weight: float = 1.0
    by_usage: bool = False
    stopped: bool = False
    terminating: bool = False
    missing_checks: tuple[str, ...] = ()
    inactive_checks: tuple[str, ...] = ()
    clashes: tuple[tuple[ClashReason, str], ...] = ()
    elsewhere: bool = False
    delayed: tuple[str, ...] = ()
    migrates: bool = True
    last_acceptable: str = ""
    opt_ins: QueueExtras = NO_EXTRAS

    @property
    def flavors(self) -> tuple[str, ...]:
        """Names of the flavors it has quota for, in order."""
        return tuple(flavor.name for group in self.groups for flavor in group.flavors)


class CohortQuotas(Value, frozen=True):
    """A Cohort: below `parent`, if that is not "", with quota of its own for those below it."""

    name: str
    parent: str = ""
    groups: tuple[FlavorGroup, ...] = ()
    weight: float = 1.0


def quotas_of(groups: tuple[FlavorGroup, ...]) -> dict[FlavorResource, Quota]:
    """Return the quotas of all groups by flavor and resource."""
    return {
        (flavor.name, resource): quota
        for group in groups
        for flavor in group.flavors
        for resource, quota in flavor.quotas.items()
    }


class FlavorSpec(Value, frozen=True):
    """A kind of node, with labels and taints.

    Attributes:
        tolerations: Tolerations that pods with this flavor get.
        topology: The topology by which its pods are placed; "" for none.
        levels: That topology's, the widest first; none if there is no such topology.
    """

    name: str
    labels: Mapping[str, str] = {}
    taints: tuple[NodeTaint, ...] = ()
    tolerations: tuple[TaintToleration, ...] = ()
    topology: str = ""
    levels: tuple[str, ...] = ()


def untolerated_taint(
    flavor: FlavorSpec, tolerations: Iterable[TaintToleration]
) -> NodeTaint | None:
    """Return the first taint of `flavor` that would keep out a pod with `tolerations`."""
    return untolerated(flavor.taints, (*tolerations, *flavor.tolerations))


def matches_affinity(
    flavor: FlavorSpec, node_selector: Mapping[str, str], terms: tuple[Term, ...]
) -> bool:
    """Tell whether pods may run on nodes with the labels of `flavor`.

    Only conditions on labels that a flavor names are looked at; a term without any could match, and
    with it all of them.
    """
    labels = flavor.labels
    if any(labels.get(key, value) != value for key, value in node_selector.items()):
        return False
    known = [tuple(need for need in term if need.key in labels) for term in terms]
    return (
        not all(known) or any(all(n.matches(labels) for n in term) for term in known) or not known
    )
