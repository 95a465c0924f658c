"""What the controller counts, for Prometheus."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from policyd.alloc.topology.fragmentation import Fragmentation

_WAITS = (1, 2.5, 5, 10, 20, 40, 80, 160, 320, 640, 1280, 2560, 5120, 10240)
_LABEL = ("cluster_queue",)


class Metrics:
    """The controller's metrics, in a registry of their own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._cycles = Counter(
            "policyd_cycles_total",
            "Scheduling cycles that considered a workload",
            ("result",),
            registry=self.registry,
        )
        self._admitted = Counter(
            "policyd_admitted_workloads_total",
            "Workloads admitted",
            _LABEL,
            registry=self.registry,
        )
        self._evicted = Counter(
            "policyd_evicted_workloads_total",
            "Workloads evicted",
            (*_LABEL, "reason"),
            registry=self.registry,
        )
        self._preempted = Counter(
            "policyd_preempted_workloads_total",
            "Workloads preempted for those of a queue",
            ("preempting_cluster_queue", "reason"),
            registry=self.registry,
        )
        self._waited = Histogram(
            "policyd_quota_reserved_wait_seconds",
            "From being queued to having quota",
            _LABEL,
            buckets=_WAITS,
            registry=self.registry,
        )
        self._workloads = Gauge(
            "policyd_workloads",
            "Workloads of a queue",
            (*_LABEL, "status"),
            registry=self.registry,
        )
        self._free = Gauge(
            "policyd_free_devices_count",
            "Devices of a flavor with a topology that are free",
            ("flavor", "resource"),
            registry=self.registry,
        )
        self._fragments = Gauge(
            "policyd_fragmented_devices_count",
            "Those of them on nodes that are in use in part",
            ("flavor", "resource"),
            registry=self.registry,
        )
        self._failures = Counter(
            "policyd_reconcile_failures_total",
            "Reconciliations that failed and are tried again",
            ("subject",),
            registry=self.registry,
        )
        self._leading = Gauge(
            "policyd_leading", "Whether this process leads", registry=self.registry
        )

    def cycle(self, *, admitted: int) -> None:
        """Count a cycle."""
        self._cycles.labels("admitted" if admitted else "inadmissible").inc()

    def quota_reserved(self, cluster_queue: str, *, waited: float) -> None:
        """Count a reservation, after so many seconds."""
        self._waited.labels(cluster_queue).observe(waited)

    def admitted(self, cluster_queue: str) -> None:
        """Count an admission."""
        self._admitted.labels(cluster_queue).inc()

    def evicted(self, cluster_queue: str, reason: str) -> None:
        """Count an eviction."""
        self._evicted.labels(cluster_queue, reason).inc()

    def preempted(self, preempting_cluster_queue: str, reason: str) -> None:
        """Count a preemption."""
        self._preempted.labels(preempting_cluster_queue, reason).inc()

    def figures(self, cluster_queue: str, **numbers: int) -> None:
        """Set how many workloads of a queue have each status."""
        for status, number in numbers.items():
            self._workloads.labels(cluster_queue, status).set(number)

    def devices(self, flavor: str, resource: str, found: Fragmentation) -> None:
        """Set how many devices are free, and how many of them in pieces."""
        self._free.labels(flavor, resource).set(found.free)
        self._fragments.labels(flavor, resource).set(found.fragments)

    def failed(self, subject: str) -> None:
        """Count a reconciliation that failed."""
        self._failures.labels(subject).inc()

    def lead(self, *, leading: bool) -> None:
        """Set whether this process leads."""
        self._leading.set(leading)
