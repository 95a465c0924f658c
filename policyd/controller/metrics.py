"""What the controller counts, for Prometheus."""

from dataclasses import dataclass
from typing import Literal

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.metrics import MetricWrapperBase

from policyd.alloc.topology.fragmentation import Fragmentation
from policyd.api.configuration.kinds import CustomLabel
from policyd.api.selectors import LabelSelector
from policyd.controller.custom_labels import custom_names
from policyd.controller.metric_families import COUNTED

Role = Literal["standalone", "leader", "follower"]


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricsSettings:
    """Which of Kueue's metrics there are.

    Attributes:
        resources: Whether quota and usage of ClusterQueues are told.
        local_queues: Whether LocalQueues have metrics of their own.
        selector: Labels of those that have; None for all.
        cohorts: Whether Cohorts have.
        custom: Labels that are taken from objects.
    """

    resources: bool = False
    local_queues: bool = True
    selector: LabelSelector | None = None
    cohorts: bool = True
    custom: tuple[CustomLabel, ...] = ()


class Metrics:
    """The controller's metrics, in a registry of their own."""

    def __init__(self, custom: tuple[CustomLabel, ...] = ()) -> None:
        self.registry = CollectorRegistry()
        self.role: Role = "standalone"
        """What this process is among several; a label of all of Kueue's metrics."""
        self._families: dict[str, MetricWrapperBase] = {
            family.name: family.make(self.registry, *custom_names(family, custom))
            for family in COUNTED
        }

        self._series: dict[tuple[str, tuple[str, ...], Role], MetricWrapperBase] = {}

    def count(self, name: str, *labels: str) -> None:
        """Count one more, by Kueue's name without its prefix."""
        series = self._series_of(name, labels)
        assert isinstance(series, Counter), "only what happens is counted"
        series.inc()

    def observe(self, name: str, seconds: float, *labels: str) -> None:
        """Note how long something took, by Kueue's name without its prefix."""
        series = self._series_of(name, labels)
        assert isinstance(series, Histogram), "only times are observed"
        series.observe(seconds)

    def _series_of(self, name: str, labels: tuple[str, ...]) -> MetricWrapperBase:
        key = name, labels, self.role  # looking it up by its labels takes most of the time
        series = self._series.get(key)
        if series is None:
            family = self._families[f"kueue_{name}"]
            series = self._series[key] = family.labels(*labels, self.role)
        return series

    def cycle(self, *, admitted: int) -> None:
        """Count a cycle."""
        self.count("admission_attempts_total", "success" if admitted else "inadmissible")

    def preempted(self, preempting_cluster_queue: str, reason: str) -> None:
        """Count a preemption."""
        self.count("preempted_workloads_total", preempting_cluster_queue, reason)

    def devices(self, flavor: str, resource: str, found: Fragmentation) -> None:
        """Set how many devices are free, and how many of them in pieces."""
        for name, number in (("free", found.free), ("fragmented", found.fragments)):
            family = self._families[f"policyd_{name}_devices_count"]
            assert isinstance(family, Gauge), "what there is may become less"
            family.labels(flavor, resource).set(number)

    def failed(self, subject: str) -> None:
        """Count a reconciliation that failed."""
        family = self._families["policyd_reconcile_failures_total"]
        assert isinstance(family, Counter), "failures only become more"
        family.labels(subject).inc()

    def lead(self, *, leading: bool) -> None:
        """Set whether this process leads."""
        if self.role != "standalone":
            self.role = "leader" if leading else "follower"
        family = self._families["policyd_leading"]
        assert isinstance(family, Gauge), "whoever leads may lose that"
        family.set(leading)

    def forget(self, **labels: str) -> None:
        """Drop all that was counted under these labels: what they name is gone."""
        self._series.clear()
        for family in COUNTED:
            if labels.keys() <= set(family.labels):
                self._families[family.name].remove_by_labels(labels)
