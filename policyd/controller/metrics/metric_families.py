"""Which metrics the controller has: Kueue's, by Kueue's names, and policyd's own.

Labels are from closed sets and names of queues, cohorts, flavors and resources, so that no series
is made for each pod or workload.
"""

from itertools import chain
from typing import Final, Literal, NamedTuple

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

FamilyKind = Literal["counter", "gauge", "histogram"]
Source = Literal["ClusterQueue", "LocalQueue", "Cohort", "Workload"]
"""Kinds of objects that labels may be taken from."""
ROLE: Final = "replica_role"
BUILD: Final = "kueue_build_info"

_CLUSTER = ("cluster_queue",)
_LOCAL = ("name", "namespace")
_CLASS = ("priority_class",)
_CAUSE = ("reason", "underlying_cause")
_SHORT = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""The default bounds of Prometheus' client for Go."""


class Family(NamedTuple):
    """Metrics of one name.

    Attributes:
        name: With `_total`, for counters.
        kind: The kind of metric.
        text: The help text.
        labels: Their names; the role of the process is one more of Kueue's.
        buckets: How many a histogram has: 1 and 2.5 seconds, and each twice the one before.
        bounds: Those of a histogram that has others.
        by_workload: Whether it may have labels of the workloads that it counts.
        adds_up: Whether the values of several queues have a sum; if not, those of queues beyond
            the bounds are left out.
    """

    name: str
    kind: FamilyKind
    text: str
    labels: tuple[str, ...] = ()
    buckets: int = 14
    bounds: tuple[float, ...] = ()
    by_workload: bool = False
    adds_up: bool = True

    @property
    def sources(self) -> tuple[Source, ...]:
        """Which objects it may have labels of."""
        found: list[Source] = []
        if not self._with_role:
            return ()
        if "cluster_queue" in self.labels and "namespace" not in self.labels:
            found.append("ClusterQueue")
        elif "namespace" in self.labels:
            found.append("LocalQueue")
        elif "cohort" in self.labels:
            found.append("Cohort")
        if self.by_workload or "priority_class" in self.labels:
            found.append("Workload")
        return tuple(found)

    def label_names(self, *custom: str) -> tuple[str, ...]:
        """Return the names of all labels, given those that the administrator adds."""
        return (*self.labels, *custom, ROLE) if self._with_role else self.labels

    @property
    def _with_role(self) -> bool:
        return not self.name.startswith("policyd_") and self.name != BUILD

    def make(self, registry: CollectorRegistry, *custom: str) -> Counter | Gauge | Histogram:
        """Return the family, empty, in a registry, with labels that the administrator adds."""
        about = self.name, self.text, self.label_names(*custom)
        match self.kind:
            case "counter":
                return Counter(*about, registry=registry)
            case "gauge":
                return Gauge(*about, registry=registry)
            case "histogram":
                doubled = (1.0, *(2.5 * 2**power for power in range(self.buckets - 1)))
                return Histogram(*about, registry=registry, buckets=self.bounds or doubled)


def _of_workloads(
    name: str, kind: FamilyKind, text: str, *more: str, buckets: tuple[int, int] = (14, 14)
) -> tuple[Family, Family]:
    """Return the family by ClusterQueue, and that by LocalQueue, of events of workloads."""
    (whole, local), labels = buckets, (*more, *_CLASS)
    by_local, own = f"{text}, by LocalQueue", (*_LOCAL, *labels)
    return (
        Family(f"kueue_{name}", kind, text, (*_CLUSTER, *labels), whole),
        Family(f"kueue_local_queue_{name}", kind, by_local, own, local),
    )


COUNTED: Final = (
    Family(
        "kueue_admission_attempts_total",
        "counter",
        "Scheduling cycles that considered a workload",
        ("result",),
    ),
    Family(
        "kueue_admission_attempt_duration_seconds",
        "histogram",
        "How long such cycles took",
        ("result",),
        bounds=_SHORT,
    ),
    Family(
        "kueue_admission_cycle_preemption_skips",
        "gauge",
        "Workloads that could have preempted in the latest cycle, had others not come before",
        _CLUSTER,
        adds_up=False,
    ),
    Family(
        "kueue_preemption_target_recomputations_total",
        "counter",
        "Choices of victims anew, as others took them in the same cycle",
        (*_CLUSTER, "result"),
    ),
    *chain(
        _of_workloads("quota_reserved_workloads_total", "counter", "Workloads that got quota"),
        _of_workloads("admitted_workloads_total", "counter", "Workloads admitted"),
        _of_workloads("finished_workloads_total", "counter", "Workloads that finished"),
        _of_workloads("evicted_workloads_total", "counter", "Workloads evicted", *_CAUSE),
        _of_workloads(
            "quota_reserved_wait_time_seconds", "histogram", "From being queued to having quota"
        ),
        _of_workloads(
            "admission_wait_time_seconds",
            "histogram",
            "From being created or requeued to being admitted",
            buckets=(16, 14),
        ),
        _of_workloads(
            "admission_checks_wait_time_seconds", "histogram", "From having quota to being admitted"
        ),
        _of_workloads(
            "ready_wait_time_seconds",
            "histogram",
            "From being created or requeued until all pods are ready",
        ),
        _of_workloads(
            "admitted_until_ready_wait_time_seconds",
            "histogram",
            "From being admitted until all pods are ready",
        ),
        _of_workloads(
            "execution_time_seconds",
            "histogram",
            "How long finished workloads ran",
            buckets=(16, 16),
        ),
    ),
    Family(
        "kueue_evicted_workloads_once_total",
        "counter",
        "Workloads evicted for a reason for the first time",
        (*_CLUSTER, *_CAUSE, *_CLASS),
    ),
    Family(
        "kueue_preempted_workloads_total",
        "counter",
        "Workloads preempted for those of a queue",
        ("preempting_cluster_queue", "reason"),
    ),
    Family(
        "kueue_replaced_workload_slices_total",
        "counter",
        "Slices of jobs that bigger ones replaced",
        _CLUSTER,
    ),
    Family(
        "kueue_workload_eviction_latency_seconds",
        "histogram",
        "From an eviction until the quota is given back",
        (*_CLUSTER, "reason"),
    ),
    Family(
        "kueue_pods_ready_to_evicted_time_seconds",
        "histogram",
        "From all pods being ready to an eviction",
        (*_CLUSTER, *_CAUSE),
    ),
    Family(
        "kueue_cohort_subtree_admitted_workloads_total",
        "counter",
        "Workloads admitted below a cohort",
        ("cohort", *_CLASS),
    ),
    Family(
        "kueue_workload_creation_latency_seconds",
        "histogram",
        "From the creation of a job to that of its workload",
        ("job_kind",),
        bounds=tuple(0.01 * 2**power for power in range(11)),
    ),
    Family(
        "kueue_pod_scheduling_gate_removal_seconds",
        "histogram",
        "From an admission until a gate of a pod is removed",
        ("name", *_CLUSTER, "is_group"),
    ),
    Family(
        "multikueue_workloads_dispatched_total",
        "counter",
        "Copies of Workloads sent to other clusters",
        (*_CLUSTER, "cluster"),
    ),
    Family(
        "multikueue_workloads_admitted_total",
        "counter",
        "Workloads admitted by other clusters",
        (*_CLUSTER, "cluster"),
    ),
    Family(
        BUILD,
        "gauge",
        "1; labels that only Kueue has are empty",
        ("git_version", "git_commit", "build_date", "go_version", "compiler", "platform"),
    ),
    Family(
        "policyd_free_devices",
        "gauge",
        "Devices of a flavor with a topology that are free",
        ("flavor", "resource"),
    ),
    Family(
        "policyd_fragmented_devices",
        "gauge",
        "Free devices on nodes that are partly in use",
        ("flavor", "resource"),
    ),
    Family(
        "policyd_stranded_devices",
        "gauge",
        "Free devices of a flavor whose topology names nodes that no pending pod can use",
        ("flavor", "resource"),
    ),
    Family(
        "policyd_reconcile_failures_total",
        "counter",
        "Reconciliations that failed and are tried again",
        ("subject",),
    ),
    Family(
        "policyd_usage_outside_quota",
        "gauge",
        "Resources of pods outside of quota",
        ("namespace", "resource"),
    ),
    Family(
        "policyd_pods_outside_quota_total",
        "counter",
        "Pods found outside of quota, by reason",
        ("reason",),
    ),
    Family(
        "policyd_closed_connections_total",
        "counter",
        "Connections closed before an answer, by reason",
        ("reason",),
    ),
    Family("policyd_forecasts", "gauge", "Pending workloads by their forecast", ("result",)),
    Family(
        "policyd_forecast_refresh_seconds",
        "gauge",
        "How long the latest forecasts took, without rests",
    ),
    Family("policyd_leading", "gauge", "Whether this process is the leader"),
    Family(
        "policyd_api_requests_total",
        "counter",
        "Requests to the API server, by the status of the answer, or unreachable",
        ("method", "code"),
    ),
    Family(
        "policyd_dropped_spans_total",
        "counter",
        "Spans of traces that no collector got: too many waited, or it did not take them",
        ("reason",),
    ),
    Family(
        "policyd_stale_reasons",
        "gauge",
        "Pending workloads whose reason is missing or outdated, as of the latest check",
        ("problem",),
    ),
    Family(
        "policyd_reason_checks_total",
        "counter",
        "Checks of the reasons of all pending workloads, by how they ended",
        ("outcome",),
    ),
)
"""Metrics that are counted as things happen."""

_RESOURCE = ("flavor", "resource")
_OF_COHORT = ("cohort", *_CLUSTER, *_RESOURCE)
_ABOVE = ("parent_cohort", "root_cohort")


def _gauge(
    name: str, text: str, *labels: str, by_workload: bool = False, adds_up: bool = True
) -> Family:
    whole = name if name.startswith("policyd_") else f"kueue_{name}"
    return Family(whole, "gauge", text, labels, by_workload=by_workload, adds_up=adds_up)


MEASURED: Final = (
    _gauge(
        "pending_workloads",
        "Pending workloads",
        *_CLUSTER,
        "status",
        by_workload=True,
    ),
    _gauge(
        "pending_scheduling_hashes", "Distinct requests of pending workloads", *_CLUSTER, "status"
    ),
    _gauge("unadmitted_workloads", "Workloads that may not run, and why", *_CLUSTER, *_CAUSE),
    _gauge("finished_workloads", "Finished workloads that still exist", *_CLUSTER),
    _gauge("reserving_active_workloads", "Workloads with quota", *_CLUSTER),
    _gauge("admitted_active_workloads", "Workloads that may run", *_CLUSTER, by_workload=True),
    _gauge("cluster_queue_status", "1 for the status of a ClusterQueue", *_CLUSTER, "status"),
    _gauge("cluster_queue_info", "1 for the cohorts above it", *_CLUSTER, *_ABOVE, adds_up=False),
    _gauge(
        "cluster_queue_resource_pending",
        "Resources requested by pending workloads",
        *_CLUSTER,
        "resource",
    ),
    _gauge("cluster_queue_resource_reservation", "Quota reserved", *_OF_COHORT),
    _gauge("cluster_queue_resource_usage", "Quota of those that may run", *_OF_COHORT),
    _gauge("cluster_queue_nominal_quota", "Its own quota", *_OF_COHORT),
    _gauge("cluster_queue_borrowing_limit", "The borrowing limit", *_OF_COHORT),
    _gauge("cluster_queue_lending_limit", "The lending limit", *_OF_COHORT),
    _gauge(
        "cluster_queue_weighted_share",
        "Its share, with fair sharing",
        *_CLUSTER,
        "cohort",
        adds_up=False,
    ),
    _gauge(
        "local_queue_pending_workloads",
        "Pending workloads",
        *_LOCAL,
        "status",
        by_workload=True,
    ),
    _gauge(
        "local_queue_unadmitted_workloads",
        "Workloads that may not run, and why",
        *_LOCAL,
        *_CLUSTER,
        *_CAUSE,
    ),
    _gauge("local_queue_finished_workloads", "Finished workloads that still exist", *_LOCAL),
    _gauge("local_queue_reserving_active_workloads", "Workloads with quota", *_LOCAL),
    _gauge(
        "local_queue_admitted_active_workloads",
        "Workloads that may run",
        *_LOCAL,
        by_workload=True,
    ),
    _gauge("local_queue_status", "1 for its condition Active", *_LOCAL, "active"),
    _gauge("local_queue_resource_reservation", "Quota reserved", *_LOCAL, *_RESOURCE),
    _gauge("local_queue_resource_usage", "Quota of those that may run", *_LOCAL, *_RESOURCE),
    _gauge(
        "local_queue_admission_fair_sharing_usage", "Past usage", *_LOCAL, *_CLUSTER, adds_up=False
    ),
    _gauge("cohort_info", "1 for the cohorts above it", "cohort", *_ABOVE, adds_up=False),
    _gauge("cohort_weighted_share", "Its share, with fair sharing", "cohort", adds_up=False),
    _gauge("cohort_subtree_quota", "Quota of it and all below", "cohort", *_RESOURCE),
    _gauge("cohort_subtree_resource_reservations", "Quota reserved below it", "cohort", *_RESOURCE),
    _gauge("cohort_subtree_admitted_active_workloads", "Workloads that may run below", "cohort"),
    _gauge(
        "policyd_available_quota",
        "Quota that it could still get, own and borrowed; below 0 if more is reserved than exists",
        *_CLUSTER,
        *_RESOURCE,
    ),
    _gauge(
        "policyd_longest_pending_seconds",
        "How long the workload that has been pending longest has been",
        *_CLUSTER,
        adds_up=False,
    ),
    _gauge(
        "policyd_stuck_gates",
        "Pods still gated a minute after the admission of their workload, or without a workload",
        "reason",
    ),
)
"""Metrics that are looked up when they are scraped."""
