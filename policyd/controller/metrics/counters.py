"""Counters and gauges of the controller, for Prometheus."""

import platform
import sys
from collections import Counter as Sums
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.metrics import MetricWrapperBase

from policyd import __version__
from policyd.alloc.plan import Plan
from policyd.api.configuration.kinds import CustomLabel
from policyd.api.selectors import LabelSelector
from policyd.controller.metrics.custom_labels import custom_names
from policyd.controller.metrics.metric_families import BUILD, COUNTED, Family
from policyd.optimize.fragmentation import Fragmentation

MOST_NAMESPACES = 100
"""Namespaces that a metric names; the rest has no name."""

FAMILIES = {family.name.removeprefix("kueue_"): family for family in COUNTED}

Role = Literal["standalone", "leader", "follower"]


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricsSettings:
    """Which of Kueue's metrics there are.

    Attributes:
        resources: Whether quota and usage of ClusterQueues are reported.
        local_queues: Whether LocalQueues have metrics of their own.
        selector: Labels of those that have; None for all.
        cohorts: Whether Cohorts have metrics.
        creation: Whether the time that jobs wait for their Workloads is reported.
        custom: Labels that are taken from objects.
    """

    resources: bool = False
    local_queues: bool = True
    selector: LabelSelector | None = None
    cohorts: bool = True
    creation: bool = True
    custom: tuple[CustomLabel, ...] = ()


class ControllerMetrics:
    """The controller's metrics, in a registry of their own."""

    def __init__(self, custom: tuple[CustomLabel, ...] = ()) -> None:
        self.registry = CollectorRegistry()
        self.role: Role = "standalone"
        """The role of this process: leader, follower or standalone; a label of Kueue's metrics."""
        self._families: dict[str, MetricWrapperBase] = {
            family.name: family.make(self.registry, *custom_names(family, custom))
            for family in COUNTED
        }
        self.custom: Callable[[Family, tuple[str, ...]], tuple[str, ...]] = _no_more
        """Looks up the labels that the administrator adds to the metrics of a queue."""
        self._series: dict[tuple[str, tuple[str, ...], Role], MetricWrapperBase] = {}
        self._rivals: frozenset[str] = frozenset()
        self._outside: frozenset[tuple[str, str]] = frozenset()
        self._build()

    def _build(self) -> None:
        family = self._families[BUILD]
        assert isinstance(family, Gauge), "the metric of running processes is a gauge"
        python = f"{platform.python_implementation()} {platform.python_version()}"
        machine = f"{sys.platform}/{platform.machine()}"
        family.labels(__version__, "", "", "", python, machine).set(1)

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

    def cycle(self, *, admitted: int, seconds: float = 0.0) -> None:
        """Count a cycle, and note how long it took."""
        result = "success" if admitted else "inadmissible"
        self.count("admission_attempts_total", result)
        self.observe("admission_attempt_duration_seconds", seconds, result)

    def rivals(self, plan: Plan) -> None:
        """Set the preemptions that a cycle skipped, and count targets that it computed again."""
        for queue in self._rivals.union(plan.skipped):
            name = "admission_cycle_preemption_skips"
            series = self._series_of(name, self._of_queue(name, queue))
            assert isinstance(series, Gauge), "the next cycle may have fewer"
            series.set(plan.skipped.count(queue))
        self._rivals = frozenset(plan.skipped)
        for queue, result in plan.recomputed:
            name = "preemption_target_recomputations_total"
            self.count(name, *self._of_queue(name, queue, result))

    def _of_queue(self, name: str, *labels: str) -> tuple[str, ...]:
        return (*labels, *self.custom(FAMILIES[name], labels))

    def preempted(self, preempting_cluster_queue: str, reason: str) -> None:
        """Count a preemption."""
        self.count("preempted_workloads_total", preempting_cluster_queue, reason)

    def devices(self, flavor: str, resource: str, found: Fragmentation) -> None:
        """Set how many devices are free, and how many of them in pieces."""
        for name, number in (("free", found.free), ("fragmented", found.fragments)):
            family = self._families[f"policyd_{name}_devices_count"]
            assert isinstance(family, Gauge), "what there is may become less"
            family.labels(flavor, resource).set(number)

    def forecasts(self, results: Mapping[str, int], *, seconds: float) -> None:
        """Set how many forecasts are exact, coarse, or unknown for which reason.

        Args:
            results: The numbers of forecasts.
            seconds: How long they took, without rests.
        """
        family = self._families["policyd_forecasts"]
        took = self._families["policyd_forecast_refresh_seconds"]
        assert isinstance(family, Gauge), "what is forecast starts some day"
        assert isinstance(took, Gauge), "the next may be faster"
        family.clear()
        for result, number in results.items():
            family.labels(result).set(number)
        took.set(seconds)

    def outside_quota(self, totals: Mapping[tuple[str, str], int]) -> None:
        """Set the usage of pods outside of quota, by namespace and resource, in canonical units.

        Beyond a number of namespaces, the rest is summed up without a name.
        """
        family = self._families["policyd_usage_outside_quota"]
        assert isinstance(family, Gauge), "what runs may end"
        named = sorted({namespace for namespace, _ in totals})[:MOST_NAMESPACES]
        found = Sums[tuple[str, str]]()
        for (namespace, resource), amount in totals.items():
            found[namespace if namespace in named else "", resource] += amount
        for gone in self._outside - found.keys():
            family.remove(*gone)
        self._outside = frozenset(found)
        for (namespace, resource), amount in found.items():
            family.labels(namespace, resource).set(amount / 1000 if resource == "cpu" else amount)

    def found_outside(self, reason: str) -> None:
        """Count a pod that was found outside of quota."""
        family = self._families["policyd_pods_outside_quota_total"]
        assert isinstance(family, Counter), "what was found was found"
        family.labels(reason).inc()

    def failed(self, subject: str) -> None:
        """Count a reconciliation that failed."""
        family = self._families["policyd_reconcile_failures_total"]
        assert isinstance(family, Counter), "failures only become more"
        family.labels(subject).inc()

    def connection_closed(self, reason: str) -> None:
        """Count a connection that was closed before its caller was answered."""
        family = self._families["policyd_closed_connections_total"]
        assert isinstance(family, Counter), "what is closed stays so"
        family.labels(reason).inc()

    def lead(self, *, leading: bool) -> None:
        """Set whether this process leads."""
        self._families["kueue_admission_cycle_preemption_skips"].clear()  # of its last cycle
        self._series.clear()
        self._rivals = frozenset()
        if self.role != "standalone":
            self.role = "leader" if leading else "follower"
        family = self._families["policyd_leading"]
        assert isinstance(family, Gauge), "a leader may lose the Lease"
        family.set(leading)

    def forget(self, **labels: str) -> None:
        """Drop all counts under these labels: the object that they name was deleted."""
        self._series.clear()
        self._rivals = self._rivals.difference(labels.values())
        for family in COUNTED:
            if labels.keys() <= set(family.labels):
                self._families[family.name].remove_by_labels(labels)


def _no_more(_family: Family, _labels: tuple[str, ...]) -> tuple[str, ...]:
    return ()
