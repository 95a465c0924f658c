"""The queue snapshot as it is sent: API version `visibility.policyd.io/v1alpha1`.

Amounts are in canonical units (milli-CPU, bytes, whole devices), times in seconds since the epoch.
Rows of workloads are arrays, and what many of them share is in tables of their ClusterQueue, so
that 100,000 of them have room.
"""

from collections.abc import Mapping
from typing import Final, Literal

from policyd.alloc.value import Value
from policyd.api.meta import Json
from policyd.snapshot.rules import QueueRules
from policyd.status.naming import OtherTeams

GROUP: Final = "visibility.policyd.io"
VERSION: Final = "v1alpha1"
API_VERSION: Final = f"{GROUP}/{VERSION}"
KIND: Final = "QueueSnapshot"
PLURAL: Final = "queuesnapshots"
CLUSTER_PLURAL: Final = "clusterqueuesnapshots"
"""What readers of one namespace and of the whole cluster get: different rights."""
ADMISSION_PLURAL: Final = "admissionsnapshots"
"""What the webhooks get: rows of the first in line only, counts of all, and the rules."""
NAME: Final = "current"
"""The name of the only object of both."""
FORMAT: Final = 1
"""Grows when a reader that does not know of a change would say something wrong."""

NONE: Final = -1
"""In the place of an index of something that is not there, or not shown."""


class PendingRow(Value, frozen=True, array_like=True):
    """A pending workload; its place in the ClusterQueue is its index.

    Attributes:
        key: `namespace/name` of the Workload; `namespace/` or "" if it is not named to the reader.
        job: `Kind/name` of its job; "" if it stands for itself, or is not named.
        priority: By which it has its place.
        since: Since when it is pending.
        requests: Index of what it requests in total.
        local_queue: Index of its LocalQueue.
        ahead: Place of the workload that must get quota, or be refused, first.
        reason: Index of its reason; that of a workload behind another is with the one `ahead`.
        origin: Index of its owner and the source of its priority.
        start: Index of its forecast; there is none before the first, which takes some seconds.
    """

    key: str
    job: str
    priority: int
    since: int
    requests: int
    local_queue: int = NONE
    ahead: int = NONE
    reason: int = NONE
    origin: int = NONE
    start: int = NONE


class PendingLine(Value, frozen=True, array_like=True):
    """The pending workloads of a LocalQueue that have the same priority.

    Attributes:
        priority: Theirs.
        local_queue: Index of their LocalQueue.
        count: How many they are.
        trying: How many of them have not been refused since something changed.
        since: Since when the oldest is pending.
        requests: What they request together, by resource.
    """

    priority: int
    local_queue: int
    count: int
    trying: int
    since: int
    requests: Mapping[str, int]


class StartRow(Value, frozen=True, array_like=True):
    """When workloads are forecast to start, in seconds since the epoch; 0 where that is unknown.

    Attributes:
        median: As many start before as after.
        low: One in twenty starts before.
        high: One in twenty starts after.
        how: `exact`, `coarse`, or why it is unknown.
    """

    median: int
    low: int
    high: int
    how: str


class NewWorkloadStart(Value, frozen=True, array_like=True):
    """When a workload would start that were submitted now.

    Attributes:
        priority: Its priority.
        ahead: How many workloads of its queue that wait are of no lower priority.
        requests: What it requests in total.
        start: Its forecast, as for those that wait.
    """

    priority: int
    ahead: int
    requests: Mapping[str, int]
    start: StartRow


class HoldingRow(Value, frozen=True, array_like=True):
    """A workload that holds quota.

    Attributes:
        key: As of a pending one, like `job`, `priority` and `local_queue`.
        since: Since when it holds quota; 0 if that is not known.
        usage: Index of what it holds.
        admitted: Whether it may run.
        stopping: Whether it is being stopped.
    """

    key: str
    job: str
    priority: int
    since: int
    usage: int
    local_queue: int = NONE
    admitted: bool = True
    stopping: bool = False


class HeldAmount(Value, frozen=True, array_like=True):
    """An amount of a flavor's resource."""

    flavor: str
    resource: str
    amount: int


class QuotaHolder(Value, frozen=True, rename="camel"):
    """A workload, by the name that the reader may know, whose end would leave quota."""

    name: str
    cluster_queue: str
    amount: int


class QuotaShortfall(Value, frozen=True, rename="camel"):
    """Quota of which a workload has too little.

    Attributes:
        requested: What it needs.
        available: What is free for it; at most all that its queue can ever get, if `never`.
        missing: What would have to become free.
        never: Whether it requests more than its queue can ever get.
        holders: Workloads whose end would help, the largest first.
        others: How many more there are.
    """

    flavor: str
    resource: str
    requested: int
    available: int
    missing: int
    never: bool = False
    holders: tuple[QuotaHolder, ...] = ()
    others: int = 0


class SnapshotReason(Value, frozen=True, rename="camel"):
    """Why a workload is pending.

    Attributes:
        type: Word for programs: the reason of its condition.
        message: A sentence for people; "" if it would name what the reader may not know.
        lacking: Quota of which it has too little.
        user: What its user can do to start it sooner, proven by planning; "" if nothing is known.
        administrator: What an administrator can do, likewise.
    """

    type: str
    message: str = ""
    lacking: tuple[QuotaShortfall, ...] = ()
    user: str = ""
    administrator: str = ""


class QuotaUse(Value, frozen=True, rename="camel"):
    """The quota of a ClusterQueue or Cohort for one flavor and resource.

    Attributes:
        nominal: Its own.
        used: Held by workloads with quota; of a Cohort, by all below it.
        borrowed: How much of `used` is beyond its own.
        lent: How much of its own it could not use now, because others use it.
        available: What it could still use, borrowing included; may be negative.
        borrowing_limit: Most that it may borrow; None for no limit.
        lending_limit: Most that it lends; None for no limit.
    """

    flavor: str
    resource: str
    nominal: int
    used: int
    borrowed: int = 0
    lent: int = 0
    available: int = 0
    borrowing_limit: int | None = None
    lending_limit: int | None = None


class FairShare(Value, frozen=True, rename="camel"):
    """The share of a ClusterQueue or Cohort in what its Cohort lends.

    Attributes:
        share: In thousandths, by weight; None for a borrower of weight 0, above all others.
        weight: The divisor of the borrowed part.
        dominant: The resource of which it borrows most; "" if it borrows nothing.
    """

    share: float | None
    weight: float = 1.0
    dominant: str = ""


class BudgetState(Value, frozen=True, rename="camel"):
    """How far a budget of GPU-hours is used up.

    Attributes:
        queue: The ClusterQueue, or the LocalQueue as `namespace/name`.
        month: Which month, such as `2026-11`.
        time_zone: Of which time zone.
        hours: The budget, in GPU-hours.
        used: What was used of it, so far.
        unknown: What may have been used besides, at most.
        renews_at: When the next month begins.
        used_up: Whether it is.
        held: Whether new workloads get no quota for it.
    """

    queue: str
    month: str
    time_zone: str
    hours: float
    used: float
    unknown: float
    renews_at: float
    used_up: bool = False
    held: bool = False


class CohortUse(Value, frozen=True, rename="camel"):
    """A Cohort, and the one above it; "" for none."""

    name: str
    parent: str = ""
    quotas: tuple[QuotaUse, ...] = ()
    fair_share: FairShare | None = None


class LocalQueueName(Value, frozen=True, array_like=True):
    """A LocalQueue of a ClusterQueue; "" twice if it is not named to the reader."""

    namespace: str
    name: str


class PastUsage(Value, frozen=True, rename="camel"):
    """What a LocalQueue used, where past usage orders LocalQueues.

    Attributes:
        usage: By which it has its place, the lowest first; None for weight 0: always last.
        weight: The divisor of the usage.
        consumed: Units (cores, bytes, devices) by resource, decayed until `updated_at`.
        penalty: What is counted of workloads that have quota and are not admitted yet.
        updated_at: Until when usage is counted.
    """

    usage: float | None = 0.0
    weight: float = 1.0
    consumed: Mapping[str, float] = {}
    penalty: Mapping[str, float] = {}
    updated_at: float = 0.0


class UsageOrder(Value, frozen=True, rename="camel"):
    """How usage decays: its half-life (0: at once), and the weights of resources, else 1."""

    half_life_seconds: float
    weights: Mapping[str, float] = {}


class Origin(Value, frozen=True, array_like=True):
    """Where a workload and its priority are from.

    Attributes:
        owner: The person that a label names; "" if none does.
        priority_class: `Kind/name` of the class; "" for none.
        boost: The part of its priority that is no class's.
    """

    owner: str = ""
    priority_class: str = ""
    boost: int = 0


class PodShape(Value, frozen=True, array_like=True):
    """Pods that are alike: how many, the requests of one, and the node labels it selects."""

    count: int
    requests: Mapping[str, int]
    node_selector: Mapping[str, str] = {}


class ClusterQueueUse(Value, frozen=True, rename="camel"):
    """A ClusterQueue: its quota, and the workloads in it.

    Attributes:
        name: Unique in the cluster.
        cohort: The Cohort above it; "" for none.
        strict: Whether the first workload holds up those behind it (StrictFIFO).
        active: Whether it gives out quota.
        reason: Word for that, as of its condition.
        message: Sentence for that.
        quotas: By flavor and resource.
        budgets: Its own, and those of its LocalQueues that are named to the reader.
        fair_share: Its share, where cohorts share fairly.
        preemptor: Place of the workload that goes first, as others were preempted for it.
        backing_off: Places of workloads that are not tried yet after an eviction.
        local_queues: Table of its LocalQueues that have workloads.
        past: What each of these used, where past usage orders them.
        origins: Table of owners and sources of priorities.
        requests: Table of what pending workloads request.
        shapes: The pods of the first of `requests`.
        reasons: Table of reasons.
        usages: Table of what workloads hold.
        unlisted: How many more are pending than are listed; only the webhooks get fewer.
        lines: All pending workloads, counted; in a snapshot for the webhooks.
        starts: Table of forecasts.
        new_starts: When new workloads would start; in a snapshot for the webhooks.
        pending: Workloads without quota, in order.
        holding: Workloads with quota, by key.
    """

    name: str
    cohort: str = ""
    strict: bool = False
    active: bool = True
    reason: str = ""
    message: str = ""
    quotas: tuple[QuotaUse, ...] = ()
    budgets: tuple[BudgetState, ...] = ()
    fair_share: FairShare | None = None
    preemptor: int = NONE
    backing_off: tuple[int, ...] = ()
    local_queues: tuple[LocalQueueName, ...] = ()
    past: tuple[PastUsage, ...] = ()
    origins: tuple[Origin, ...] = ()
    requests: tuple[Mapping[str, int], ...] = ()
    shapes: tuple[tuple[PodShape, ...], ...] = ()
    reasons: tuple[SnapshotReason, ...] = ()
    usages: tuple[tuple[HeldAmount, ...], ...] = ()
    unlisted: int = 0
    lines: tuple[PendingLine, ...] = ()
    starts: tuple[StartRow, ...] = ()
    new_starts: tuple[NewWorkloadStart, ...] = ()
    pending: tuple[PendingRow, ...] = ()
    holding: tuple[HoldingRow, ...] = ()


class NodeUse(Value, frozen=True, rename="camel"):
    """A node, as far as a topology has the controller know of it.

    Attributes:
        flavors: The flavors with a topology that the node is in.
        usable: Whether it is ready and takes new pods.
        allocatable: Its devices, and those that pods get by claims where the controller counts
            these.
        free: Those that nothing holds; may be negative.
    """

    name: str
    flavors: tuple[str, ...]
    usable: bool
    allocatable: Mapping[str, int]
    free: Mapping[str, int]


class QueueSnapshot(Value, frozen=True, rename="camel"):
    """The queues at one moment, for one reader.

    Attributes:
        format: How this is to be read.
        generation: Grows with every change that the controller notices; of one process.
        resource_version: Up to which version of Workloads the controller knew all; "" if unknown.
        taken_at: The moment.
        version: Identifies it: another one of the same version says the same; "" if unknown.
        rules: By which a new job would be judged; for the webhooks.
        other_teams: Whether jobs of other namespaces are named.
        configuration: The fields of Kueue's Configuration by which queues decide, as its file has
            them; for a reader of a namespace, those that say which jobs queue. None if they are
            unknown.
        usage_order: How past usage orders LocalQueues; None if it does not.
        local_queues: Those that are named to the reader, of the ClusterQueues that it may see; the
            first 10,000.
        cohorts: Those that the reader may see, by name.
        nodes: All nodes, for a reader of the whole cluster.
        cluster_queues: Those that the reader may see, by name.
    """

    format: int
    taken_at: float
    api_version: str = API_VERSION
    kind: Literal["QueueSnapshot"] = KIND
    generation: int = 0
    resource_version: str = ""
    version: str = ""
    rules: QueueRules | None = None
    other_teams: OtherTeams = "names"
    configuration: Mapping[str, Json] | None = None
    usage_order: UsageOrder | None = None
    local_queues: tuple[LocalQueueName, ...] = ()
    cohorts: tuple[CohortUse, ...] = ()
    nodes: tuple[NodeUse, ...] = ()
    cluster_queues: tuple[ClusterQueueUse, ...] = ()
