"""Workloads and their holdings, in amounts and names."""

from collections.abc import Mapping
from typing import Literal

from policyd.alloc.amount import request_amount, total_of
from policyd.alloc.topology.values import PlacementRequest, TopologyPlacement
from policyd.alloc.value import NO_ENTRIES, Value
from policyd.node_rules import TaintToleration, Term

ConditionReason = Literal[
    "NoMatchingFlavor", "ExceedsMaxQuota", "WaitingForQuota", "TopologyPlacementFailed",
    "WaitingForPreemptedWorkloads", "WaitingForPodsReady", "Misconfigured", "PendingEvaluation",
    "Suspended"
]  # fmt: skip
"""Why a workload has no quota: the reason of its condition `QuotaReserved=False`."""


class QueuedPodSet(Value, frozen=True):
    """Identical pods with a count.

    Attributes:
        name: Unique within the workload.
        count: How many pods are to run, those whose quota was given back already not counted.
        requests: Requests of one pod, in canonical units, at least 0 each.
        tolerations: Taints the pods accept.
        node_selector: Node labels the pods insist on.
        affinity: Terms of which a node must meet one; without terms, any node will do.
        minimum: With how few pods it can run, None for no fewer.
        group: Pod sets of the same group get the same flavors; "" for none.
        limited: The only flavors that may give a resource; all, if it is not here.
        placed: Whether it requests a topology.
        place: Its topology request, also if it is only implied; None if not known.
    """

    name: str
    count: int = 1
    requests: Mapping[str, int] = NO_ENTRIES
    tolerations: tuple[TaintToleration, ...] = ()
    node_selector: Mapping[str, str] = NO_ENTRIES
    affinity: tuple[Term, ...] = ()
    minimum: int | None = None
    group: str = ""
    limited: Mapping[str, tuple[str, ...]] = NO_ENTRIES
    placed: bool = False
    place: PlacementRequest | None = None

    def totals(self) -> dict[str, int]:
        """Return the requests of all pods of the set together."""
        return {name: request_amount(n * self.count) for name, n in self.requests.items()}


Delay = Literal["", "Pending", "Ready"]
"""Whether pods get their place after the quota: not; not yet; they have."""


class PodSetFlavors(Value, frozen=True):
    """The assignment of a pod set: a flavor for each resource, and the usage of all its pods.

    Attributes:
        flavors: By resource.
        usage: Usage of all pods, by resource.
        placement: Their nodes; None if no topology places them, or none has yet.
        pod_requests: Requests of one pod to its node.
        delay: Whether they get their place after the quota.
    """

    name: str
    count: int
    flavors: Mapping[str, str]
    usage: Mapping[str, int]
    placement: TopologyPlacement | None = None
    pod_requests: Mapping[str, int] = NO_ENTRIES
    delay: Delay = ""


class ReservedQuota(Value, frozen=True):
    """Quota a workload holds, and in which ClusterQueue."""

    cluster_queue: str
    pod_sets: tuple[PodSetFlavors, ...]

    def usage(self) -> dict[tuple[str, str], int]:
        """Return the amounts charged to the queue, by flavor and resource.

        A resource without a flavor is not charged.
        """
        used = (
            {(flavor, name): each.usage.get(name, 0) for name, flavor in each.flavors.items()}
            for each in self.pod_sets
        )
        return total_of(*used)

    def totals(self) -> dict[str, int]:
        """Return the usage of all pod sets, by resource, over all flavors."""
        return total_of(*(pod_set.usage for pod_set in self.pod_sets))


class Objection(Value, frozen=True):
    """Why a workload cannot be considered, found outside the allocator.

    One that is `misplaced`, in a queue that does not take such workloads or not of its namespace,
    is inadmissible even where the head of a queue would block those behind it. One that is
    `uncounted` asks for devices that no quota counts.
    """

    reason: ConditionReason
    message: str
    misplaced: bool = False
    uncounted: bool = False


class QueuedWorkload(Value, frozen=True):
    """The requests of a job, and its queue.

    Attributes:
        key: `namespace/name`.
        uid: Breaks ties, so that the order is total.
        cluster_queue: Where it queues.
        local_queue: `namespace/name` of the LocalQueue it was submitted to.
        priority: Higher goes first.
        queued_at: Seconds since the epoch; earlier goes first among equals.
        pod_sets: Its pod sets, at least one.
        backing_off: Whether it must not be tried yet, nor reactivated.
        objection: Why it cannot be considered at all, if so.
        admission: The quota it holds; None while it is pending.
        admitted: Whether it may run, which with admission checks comes after the quota.
        reserved_at: Since when it holds quota, in seconds since the epoch; None if not known.
        evicted: Whether it is being stopped already, though it still holds quota.
        preempted_by: Uid of the workload for which it was preempted last; "" if for none.
        replaces: The workload it replaces, a smaller slice of the same job; "" for none.
        gated: Whether it must not preempt yet.
        allowed_flavors: The only flavors it may get; None for all.
        variant_of: `namespace/uid` of the workload that it is a variant of; "" if of none.
        ready: Whether its pods are.
        given_back: How many pods need their quota no longer; they are not in its pod sets.
        elastic: Whether it may be replaced by a bigger or smaller slice of the same job.
        failed_node: A node it was sent to and that failed, while its pods there need another place.
        short_since: Since when fewer pods run than it needs; None if enough do.
        run_seconds: How long it holds its quota at most; None if that is not known.
        saves_seconds: How often it saves its state; None if that is not known.
    """

    key: str
    uid: str
    cluster_queue: str
    queued_at: float
    pod_sets: tuple[QueuedPodSet, ...]
    local_queue: str = ""
    priority: int = 0
    backing_off: bool = False
    objection: Objection | None = None
    admission: ReservedQuota | None = None
    admitted: bool = False
    reserved_at: float | None = None
    evicted: bool = False
    preempted_by: str = ""
    replaces: str = ""
    gated: bool = False
    allowed_flavors: tuple[str, ...] | None = None
    variant_of: str = ""
    ready: bool = False
    given_back: int = 0
    elastic: bool = False
    failed_node: str = ""
    short_since: float | None = None
    run_seconds: float | None = None
    saves_seconds: float | None = None
