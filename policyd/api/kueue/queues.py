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
    nominal_quota: QuantityText
    borrowing_limit: QuantityText | None = None
    lending_limit: QuantityText | None = None


class FlavorQuotas(Wire, frozen=True):
    """The quotas of one flavor, one for each covered resource and in their order."""

    name: SubdomainName
    resources: Annotated[tuple[ResourceQuota, ...], keyed("name", limit=64), SOME, REQUIRED] = ()


class ResourceGroup(Wire, frozen=True):
    """Resources that come from one flavor together, and the flavors to try in order."""

    covered_resources: Annotated[tuple[str, ...], at_most(64), SOME, REQUIRED] = ()
    flavors: Annotated[tuple[FlavorQuotas, ...], keyed("name", limit=64), SOME, REQUIRED] = ()


ResourceGroups = Annotated[tuple[ResourceGroup, ...], at_most(16)]


class FlavorFungibility(Wire, frozen=True):
    """Whether to try the next flavor before borrowing or preempting in this one."""

    when_can_borrow: FungibilityPolicy = "MayStopSearch"
    when_can_preempt: FungibilityPolicy = "TryNextFlavor"
    preference: FungibilityPreference | None = None


class BorrowWithinCohort(Wire, frozen=True):
    """Whether a workload that borrows may preempt in other queues."""

    policy: Literal["Never", "LowerPriority"] = "Never"
    max_priority_threshold: Int32 | None = None


class ClusterQueuePreemption(Wire, frozen=True):
    """Whom the queue's workloads may preempt."""

    reclaim_within_cohort: Literal["Never", "LowerPriority", "Any"] = "Never"
    borrow_within_cohort: Annotated[BorrowWithinCohort, DEFAULTED] = BorrowWithinCohort()
    within_cluster_queue: Literal["Never", "LowerPriority", "LowerOrNewerEqualPriority"] = "Never"


class AdmissionCheckRule(Wire, frozen=True):
    """A check that workloads of the queue must pass, for some flavors or for all."""

    name: CheckName
    on_flavors: Annotated[tuple[SubdomainName, ...], unordered(limit=64)] = ()


class AdmissionChecksStrategy(Wire, frozen=True):
    """The checks of a queue."""

    admission_checks: Annotated[
        tuple[AdmissionCheckRule, ...], keyed("name", limit=64), SOME, REQUIRED
    ] = ()


class FairSharing(Wire, frozen=True):
    """How much a queue or cohort weighs against its siblings."""

    weight: QuantityText = 1


class AdmissionScope(Wire, frozen=True):
    """Whether past usage orders the workloads of a queue."""

    admission_mode: AdmissionMode


class MigrationConstraints(Wire, frozen=True):
    """How far down the list of flavors a variant may still be migrated from."""

    last_acceptable_flavor_name: SubdomainName = ""


class Migration(Wire, frozen=True):
    """Whether an admitted workload moves on to a flavor further up."""

    mode: Annotated[Literal["", "TryPreferredFlavors", "RetainFirstAdmission"], REQUIRED] = ""
    constraints: MigrationConstraints | None = None


class ConcurrentAdmissionPolicy(Wire, frozen=True):
    """Whether variants of a workload try several flavors at once."""

    migration: Annotated[Migration, REQUIRED] = Migration()


class ClusterQueueSpec(Wire, frozen=True):
    """What a ClusterQueue should be; without a namespace selector it takes nobody's workloads."""

    resource_groups: ResourceGroups = ()
    cohort_name: SubdomainName = ""
    queueing_strategy: QueueingStrategy = "BestEffortFIFO"
    namespace_selector: Annotated[LabelSelector, ATOMIC] | None = None
    flavor_fungibility: Annotated[FlavorFungibility, DEFAULTED] = FlavorFungibility()
    preemption: Annotated[ClusterQueuePreemption, DEFAULTED] = ClusterQueuePreemption()
    admission_checks_strategy: AdmissionChecksStrategy | None = None
    stop_policy: StopPolicy = "None"
    fair_sharing: FairSharing | None = None
    admission_scope: AdmissionScope | None = None
    concurrent_admission_policy: ConcurrentAdmissionPolicy | None = None


class ResourceUsage(Wire, frozen=True):
    """How much of a resource is used, and how much of that is borrowed."""

    name: str
    total: QuantityText = 0
    borrowed: QuantityText = 0


class FlavorUsage(Wire, frozen=True):
    """What is used of one flavor."""

    name: SubdomainName
    resources: Annotated[tuple[ResourceUsage, ...], keyed("name", limit=64)] = msgspec.field(
        default_factory=no_items
    )


FlavorUsages = Annotated[tuple[FlavorUsage, ...], keyed("name", limit=256)]


class FairSharingStatus(Wire, frozen=True):
    """The weighted share, rounded up; the largest int64 for a borrower of weight zero."""

    weighted_share: Int64 = msgspec.field(default_factory=int)


class ClusterQueueStatus(Wire, frozen=True):
    """What a ClusterQueue is: whether it is active, what is reserved, used, and waiting."""

    conditions: Conditions = ()
    flavors_reservation: FlavorUsages = ()
    flavors_usage: FlavorUsages = ()
    pending_workloads: Int32 = 0
    reserving_workloads: Int32 = 0
    admitted_workloads: Int32 = 0
    fair_sharing: FairSharingStatus | None = None


class ClusterQueue(Wire, frozen=True):
    """Quota, and the order in which workloads get it."""

    api_version: str = API_VERSION
    kind: str = "ClusterQueue"
    metadata: ObjectMeta = ObjectMeta()
    spec: ClusterQueueSpec = ClusterQueueSpec()
    status: ClusterQueueStatus = ClusterQueueStatus()


class CohortSpec(Wire, frozen=True):
    """Quota shared by what is below, and the cohort above."""

    parent_name: SubdomainName = ""
    resource_groups: ResourceGroups = ()
    fair_sharing: FairSharing | None = None


class CohortStatus(Wire, frozen=True):
    """The cohort's share among its siblings."""

    fair_sharing: FairSharingStatus | None = None


class Cohort(Wire, frozen=True):
    """Queues and cohorts that share what they do not use."""

    api_version: str = API_VERSION
    kind: str = "Cohort"
    metadata: ObjectMeta = ObjectMeta()
    spec: CohortSpec = CohortSpec()
    status: CohortStatus = CohortStatus()


class LocalQueueSpec(Wire, frozen=True):
    """The ClusterQueue behind a LocalQueue."""

    cluster_queue: SubdomainName = ""
    stop_policy: StopPolicy = "None"
    fair_sharing: FairSharing | None = None


class LocalQueueResourceUsage(Wire, frozen=True):
    """How much of a resource a LocalQueue's workloads use."""

    name: str
    total: QuantityText = 0


class LocalQueueFlavorUsage(Wire, frozen=True):
    """What a LocalQueue's workloads use of one flavor."""

    name: SubdomainName
    resources: Annotated[tuple[LocalQueueResourceUsage, ...], keyed("name", limit=64)] = (
        msgspec.field(default_factory=no_items)
    )


class AdmissionFairSharingStatus(Wire, frozen=True):
    """What a LocalQueue consumed, older consumption counting less."""

    consumed_resources: dict[str, QuantityText] = msgspec.field(default_factory=no_amounts)
    last_update: Annotated[datetime | None, WRITTEN] = None


class LocalQueueFairSharingStatus(Wire, frozen=True):
    """The LocalQueue's share and its past consumption."""

    weighted_share: Int64 = msgspec.field(default_factory=int)
    admission_fair_sharing_status: AdmissionFairSharingStatus | None = None


LocalQueueFlavorUsages = Annotated[tuple[LocalQueueFlavorUsage, ...], keyed("name", limit=256)]


class LocalQueueStatus(Wire, frozen=True):
    """What a LocalQueue is: whether one can submit, and what its workloads hold."""

    conditions: Conditions = ()
    pending_workloads: Annotated[Int32, at_least(0)] = 0
    reserving_workloads: Annotated[Int32, at_least(0)] = 0
    admitted_workloads: Annotated[Int32, at_least(0)] = 0
    flavors_reservation: LocalQueueFlavorUsages = ()
    flavors_usage: LocalQueueFlavorUsages = ()
    fair_sharing: LocalQueueFairSharingStatus | None = None


class LocalQueue(Wire, frozen=True):
    """Where the users of one namespace submit."""

    api_version: str = API_VERSION
    kind: str = "LocalQueue"
    metadata: ObjectMeta = ObjectMeta()
    spec: LocalQueueSpec = LocalQueueSpec()
    status: LocalQueueStatus = LocalQueueStatus()
