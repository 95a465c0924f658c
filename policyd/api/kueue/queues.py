"""Where quota lives and where users submit: ClusterQueue, Cohort, LocalQueue."""

from datetime import datetime
from typing import Annotated, Literal

import msgspec

from policyd.api.kueue.names import API_VERSION
from policyd.api.meta import Condition, ObjectMeta, Wire
from policyd.api.schema import (
    ATOMIC,
    DEFAULTED,
    REQUIRED,
    WRITTEN,
    CheckName,
    Int32,
    Int64,
    QuantityText,
    SubdomainName,
    at_least,
    at_most,
    keyed,
    limits,
    no_amounts,
    no_items,
    unordered,
)
from policyd.api.selectors import LabelSelector

QueueingStrategy = Literal["BestEffortFIFO", "StrictFIFO"]
StopPolicy = Literal["None", "Hold", "HoldAndDrain"]
FungibilityPolicy = Literal["MayStopSearch", "TryNextFlavor"]
FungibilityPreference = Literal["BorrowingOverPreemption", "PreemptionOverBorrowing"]
AdmissionMode = Literal["UsageBasedAdmissionFairSharing", "NoAdmissionFairSharing"]

Conditions = Annotated[tuple[Condition, ...], keyed("type", limit=16)]

SOME = limits(minItems=1)
"""Bounds a list that may not be empty."""


class ResourceQuota(Wire, frozen=True):
    """How much of one resource a queue has in one flavor, may borrow and will lend."""

    name: str
    """The resource, such as `cpu` or `nvidia.com/gpu`."""
    nominal_quota: QuantityText
    """How much there is without lending and borrowing."""
    borrowing_limit: QuantityText | None = None
    """How much more may be borrowed from the cohort; no limit if left out."""
    lending_limit: QuantityText | None = None
    """How much of it others may borrow; all of it if left out."""


class FlavorQuotas(Wire, frozen=True):
    """The quotas of one flavor, one for each covered resource and in their order."""

    name: SubdomainName
    """The ResourceFlavor."""
    resources: Annotated[tuple[ResourceQuota, ...], keyed("name", limit=64), SOME, REQUIRED] = ()
    """A quota for each covered resource, in their order."""


class ResourceGroup(Wire, frozen=True):
    """Resources that come from one flavor together, and the flavors to try in order."""

    covered_resources: Annotated[tuple[str, ...], at_most(64), SOME, REQUIRED] = ()
    """The resources that this group gives quota for; a resource is in one group only."""
    flavors: Annotated[tuple[FlavorQuotas, ...], keyed("name", limit=64), SOME, REQUIRED] = ()
    """The flavors that have them, in the order in which they are tried."""


ResourceGroups = Annotated[tuple[ResourceGroup, ...], at_most(16)]


class FlavorFungibility(Wire, frozen=True):
    """Whether to try the next flavor before borrowing or preempting in this one."""

    when_can_borrow: FungibilityPolicy = "MayStopSearch"
    """Whether a flavor that fits by borrowing is taken, or the next one is tried."""
    when_can_preempt: FungibilityPolicy = "TryNextFlavor"
    """Whether a flavor that fits by preemption is taken, or the next one is tried."""
    preference: FungibilityPreference | None = None
    """The preference if no flavor fits without borrowing or preempting."""


class BorrowWithinCohort(Wire, frozen=True):
    """Whether a workload that borrows may preempt in other queues."""

    policy: Literal["Never", "LowerPriority"] = "Never"
    """Whether one that borrows may preempt workloads of lower priority in other queues."""
    max_priority_threshold: Int32 | None = None
    """The highest priority that may be preempted so; no bound if left out."""


class ClusterQueuePreemption(Wire, frozen=True):
    """The workloads that the queue's workloads may preempt."""

    reclaim_within_cohort: Literal["Never", "LowerPriority", "Any"] = "Never"
    """Whose workloads, in queues that borrow, are preempted to get the queue's own quota back."""
    borrow_within_cohort: Annotated[BorrowWithinCohort, DEFAULTED] = BorrowWithinCohort()
    """Whether a workload that has to borrow may preempt in other queues."""
    within_cluster_queue: Literal["Never", "LowerPriority", "LowerOrNewerEqualPriority"] = "Never"
    """Whose workloads in the queue itself are preempted."""


class AdmissionCheckRule(Wire, frozen=True):
    """A check that workloads of the queue must pass, for some flavors or for all."""

    name: CheckName
    """The AdmissionCheck."""
    on_flavors: Annotated[tuple[SubdomainName, ...], unordered(limit=64)] = ()
    """The flavors that it is for; every flavor if left out."""


class AdmissionChecksStrategy(Wire, frozen=True):
    """The checks of a queue."""

    admission_checks: Annotated[
        tuple[AdmissionCheckRule, ...], keyed("name", limit=64), SOME, REQUIRED
    ] = ()
    """The checks, each with the flavors that it is for."""


class FairSharing(Wire, frozen=True):
    """How much a queue or cohort weighs against its siblings."""

    weight: QuantityText = 1
    """The share is the borrowed amount, divided by this; with 0, others always go first."""


class AdmissionScope(Wire, frozen=True):
    """Whether past usage orders the workloads of a queue."""

    admission_mode: AdmissionMode
    """Whether past usage of LocalQueues counts, or only priority and age."""


class MigrationConstraints(Wire, frozen=True):
    """How far down the list of flavors a variant may still be migrated from."""

    last_acceptable_flavor_name: SubdomainName = ""
    """The last flavor of the list that is good enough to stay on."""


class Migration(Wire, frozen=True):
    """Whether an admitted workload moves on to a flavor further up."""

    mode: Annotated[Literal["", "TryPreferredFlavors", "RetainFirstAdmission"], REQUIRED] = ""
    """Whether one that was admitted goes on to try flavors further up, or stays."""
    constraints: MigrationConstraints | None = None
    """Bounds of the migration."""


class ConcurrentAdmissionPolicy(Wire, frozen=True):
    """Whether variants of a workload try several flavors at once."""

    migration: Annotated[Migration, REQUIRED] = Migration()
    """The behavior after the first flavor has admitted the workload."""


class ClusterQueueSpec(Wire, frozen=True):
    """The desired state of a ClusterQueue; without a namespace selector it takes no workloads."""

    resource_groups: ResourceGroups = ()
    """The quotas, by resources and flavors; without any, nothing is admitted."""
    cohort_name: SubdomainName = ""
    """The Cohort with which quota is shared; none if left out."""
    queueing_strategy: QueueingStrategy = "BestEffortFIFO"
    """Whether a workload that does not fit holds up those behind it (`StrictFIFO`) or not."""
    namespace_selector: Annotated[LabelSelector, ATOMIC] | None = None
    """The namespaces whose workloads are taken: `{}` for all, none if left out."""
    flavor_fungibility: Annotated[FlavorFungibility, DEFAULTED] = FlavorFungibility()
    """Whether to try the next flavor before borrowing or preempting in this one."""
    preemption: Annotated[ClusterQueuePreemption, DEFAULTED] = ClusterQueuePreemption()
    """The workloads that the queue's workloads may preempt."""
    admission_checks_strategy: AdmissionChecksStrategy | None = None
    """The checks that must pass besides quota before workloads start."""
    stop_policy: StopPolicy = "None"
    """`Hold` admits no workloads; `HoldAndDrain` also evicts those that are admitted."""
    fair_sharing: FairSharing | None = None
    """How much the queue weighs in its cohort."""
    admission_scope: AdmissionScope | None = None
    """Whether past usage orders the workloads of the queue."""
    concurrent_admission_policy: ConcurrentAdmissionPolicy | None = None
    """Whether several flavors are tried at once for one workload."""


class ResourceUsage(Wire, frozen=True):
    """How much of a resource is used, and how much of that is borrowed."""

    name: str
    """The resource, such as `nvidia.com/gpu`."""
    total: QuantityText = 0
    """The usage, borrowed amounts included."""
    borrowed: QuantityText = 0
    """How much of that exceeds the queue's own quota."""


class FlavorUsage(Wire, frozen=True):
    """The usage of one flavor."""

    name: SubdomainName
    """The ResourceFlavor."""
    resources: Annotated[tuple[ResourceUsage, ...], keyed("name", limit=64)] = msgspec.field(
        default_factory=no_items
    )
    """How much of each resource."""


FlavorUsages = Annotated[tuple[FlavorUsage, ...], keyed("name", limit=256)]


class FairSharingStatus(Wire, frozen=True):
    """The weighted share, rounded up; the largest int64 for a borrower of weight zero."""

    weighted_share: Int64 = msgspec.field(default_factory=int)
    """How much is borrowed, relative to the cohort and to the weight: the higher, the later its
    turn."""


class ClusterQueueStatus(Wire, frozen=True):
    """The state of a ClusterQueue: conditions, reservations, usage, and pending workloads."""

    conditions: Conditions = ()
    """`Active` says whether workloads can be admitted, and why not."""
    flavors_reservation: FlavorUsages = ()
    """Quota of workloads with a reservation, by flavor."""
    flavors_usage: FlavorUsages = ()
    """Quota of admitted workloads, by flavor."""
    pending_workloads: Int32 = 0
    """Workloads that wait for quota."""
    reserving_workloads: Int32 = 0
    """Workloads that hold quota, admitted or not yet."""
    admitted_workloads: Int32 = 0
    """Workloads that are admitted and not finished."""
    fair_sharing: FairSharingStatus | None = None
    """The queue's share in its cohort, with fair sharing."""


class ClusterQueue(Wire, frozen=True):
    """Quota, and the order in which workloads get it."""

    api_version: str = API_VERSION
    kind: str = "ClusterQueue"
    metadata: ObjectMeta = ObjectMeta()
    spec: ClusterQueueSpec = ClusterQueueSpec()
    status: ClusterQueueStatus = ClusterQueueStatus()


class CohortSpec(Wire, frozen=True):
    """Quota shared by the queues and cohorts below, and the cohort above."""

    parent_name: SubdomainName = ""
    """The cohort above; none for a root."""
    resource_groups: ResourceGroups = ()
    """Quota of the cohort itself, which all below may use."""
    fair_sharing: FairSharing | None = None
    """How much the cohort weighs among its siblings."""


class CohortStatus(Wire, frozen=True):
    """The cohort's share among its siblings."""

    fair_sharing: FairSharingStatus | None = None
    """The cohort's share, with fair sharing."""


class Cohort(Wire, frozen=True):
    """Queues and cohorts that share unused quota."""

    api_version: str = API_VERSION
    kind: str = "Cohort"
    metadata: ObjectMeta = ObjectMeta()
    spec: CohortSpec = CohortSpec()
    status: CohortStatus = CohortStatus()


class LocalQueueSpec(Wire, frozen=True):
    """The ClusterQueue behind a LocalQueue."""

    cluster_queue: SubdomainName = ""
    """The ClusterQueue whose quota is used; it never changes."""
    stop_policy: StopPolicy = "None"
    """`Hold` admits no workloads; `HoldAndDrain` also evicts those that are admitted."""
    fair_sharing: FairSharing | None = None
    """How much the LocalQueue weighs in its ClusterQueue, where past usage counts."""


class LocalQueueResourceUsage(Wire, frozen=True):
    """How much of a resource a LocalQueue's workloads use."""

    name: str
    """The resource, such as `nvidia.com/gpu`."""
    total: QuantityText = 0
    """How much is used."""


class LocalQueueFlavorUsage(Wire, frozen=True):
    """The usage of one flavor by a LocalQueue's workloads."""

    name: SubdomainName
    """The ResourceFlavor."""
    resources: Annotated[tuple[LocalQueueResourceUsage, ...], keyed("name", limit=64)] = (
        msgspec.field(default_factory=no_items)
    )
    """How much of each resource."""


class AdmissionFairSharingStatus(Wire, frozen=True):
    """The consumption of a LocalQueue, older consumption counting less."""

    consumed_resources: dict[str, QuantityText] = msgspec.field(default_factory=no_amounts)
    """By resource: an average over time."""
    last_update: Annotated[datetime | None, WRITTEN] = None
    """When that was computed."""


class LocalQueueFairSharingStatus(Wire, frozen=True):
    """The LocalQueue's share and its past consumption."""

    weighted_share: Int64 = msgspec.field(default_factory=int)
    """Not used for LocalQueues, and 0."""
    admission_fair_sharing_status: AdmissionFairSharingStatus | None = None
    """The consumption, if past usage counts."""


LocalQueueFlavorUsages = Annotated[tuple[LocalQueueFlavorUsage, ...], keyed("name", limit=256)]


class LocalQueueStatus(Wire, frozen=True):
    """The state of a LocalQueue: whether one can submit, and the quota of its workloads."""

    conditions: Conditions = ()
    """`Active` says whether one can submit, and why not."""
    pending_workloads: Annotated[Int32, at_least(0)] = 0
    """Workloads that wait for quota."""
    reserving_workloads: Annotated[Int32, at_least(0)] = 0
    """Workloads that hold quota, admitted or not yet."""
    admitted_workloads: Annotated[Int32, at_least(0)] = 0
    """Workloads that are admitted and not finished."""
    flavors_reservation: LocalQueueFlavorUsages = ()
    """Quota of workloads with a reservation, by flavor."""
    flavors_usage: LocalQueueFlavorUsages = ()
    """Quota of admitted workloads, by flavor."""
    fair_sharing: LocalQueueFairSharingStatus | None = None
    """The LocalQueue's past consumption, where that counts."""


class LocalQueue(Wire, frozen=True):
    """Where the users of one namespace submit."""

    api_version: str = API_VERSION
    kind: str = "LocalQueue"
    metadata: ObjectMeta = ObjectMeta()
    spec: LocalQueueSpec = LocalQueueSpec()
    status: LocalQueueStatus = LocalQueueStatus()
