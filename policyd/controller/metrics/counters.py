"""Counters and gauges of the controller, for Prometheus."""

import platform
import sys
from collections import Counter as Sums
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from prometheus_client import Counter, Gauge, Histogram
from prometheus_client.metrics import MetricWrapperBase

from policyd import __version__
from policyd.alloc.plan import Plan
from policyd.api.configuration.kinds import CustomLabel
from policyd.api.selectors import LabelSelector
from policyd.controller.metrics.custom_labels import custom_names
from policyd.controller.metrics.metric_families import BUILD, COUNTED, Family
from policyd.controller.metrics.series_bounds import OTHER, NamedValues, SeriesBounds
from policyd.exposition import SteppedRegistry
from policyd.optimize.fragmentation import Fragmentation

FAMILIES = {family.name.removeprefix("kueue_"): family for family in COUNTED}

MOST_KNOWN = 20_000
"""Labels whose series is looked up once. Many more may share one series."""

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
        bounds: How many series there are at most; None for the defaults.
    """

    resources: bool = False
    local_queues: bool = True
    selector: LabelSelector | None = None
    cohorts: bool = True
    creation: bool = True
    custom: tuple[CustomLabel, ...] = ()
    bounds: SeriesBounds | None = None


class ControllerMetrics:
    """The controller's metrics, in a registry of their own."""

    def __init__(
        self, custom: tuple[CustomLabel, ...] = (), bounds: SeriesBounds | None = None
    ) -> None:
        self.registry = SteppedRegistry()
        self.role: Role = "standalone"
        """The role of this process: leader, follower or standalone; a label of Kueue's metrics."""
        self.named = NamedValues(bounds)
        """Which queues, cohorts and other values of labels have series of their own."""
        self._custom = {family.name: custom_names(family, custom) for family in COUNTED}
        self._families: dict[str, MetricWrapperBase] = {
            family.name: family.make(self.registry, *self._custom[family.name])
            for family in COUNTED
        }
        self.custom: Callable[[Family, tuple[str, ...]], tuple[str, ...]] = _no_more
        """Looks up the labels that the administrator adds to the metrics of a queue."""
        self._series: dict[tuple[str, tuple[str, ...], Role], MetricWrapperBase | None] = {}
        self._made: dict[str, set[tuple[str, ...]]] = {family.name: set() for family in COUNTED}
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
        if series is not None:
            assert isinstance(series, Counter), "only what happens is counted"
            series.inc()

    def observe(self, name: str, seconds: float, *labels: str) -> None:
        """Note how long something took, by Kueue's name without its prefix."""
        series = self._series_of(name, labels)
        if series is not None:
            assert isinstance(series, Histogram), "only times are observed"
            series.observe(seconds)

    def _series_of(self, name: str, labels: tuple[str, ...]) -> MetricWrapperBase | None:
        key = name, labels, self.role  # looking it up by its labels takes most of the time
        try:
            return self._series[key]
        except KeyError:
            series = self._bounded(FAMILIES[name], labels)
        if len(self._series) >= MOST_KNOWN:
            self._series.clear()
        self._series[key] = series
        return series

    def _bounded(self, family: Family, labels: tuple[str, ...]) -> MetricWrapperBase | None:
        """Return the series that some labels are counted in; None if they are not counted."""
        named = self.named.labels(family, labels, self._custom[family.name])
        if named is None:
            return None
        made = self._made[family.name]
        if named not in made and len(made) >= self.named.bounds.series:
            named = self.named.other(family, named)
        made.add(named)
        return self._families[family.name].labels(*named, self.role)

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
            if series is not None:
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
            family = self._families[f"policyd_{name}_devices"]
            assert isinstance(family, Gauge), "what there is may become less"
            family.labels(flavor, resource).set(number)

    def stranded(self, found: Mapping[tuple[str, str], int]) -> None:
        """Set how many free devices are stranded, by flavor and resource."""
        family = self._families["policyd_stranded_devices"]
        assert isinstance(family, Gauge), "what there is may become less"
        family.clear()
        for labels, number in found.items():
            family.labels(*labels).set(number)

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

        Beyond a number of namespaces, the rest is summed up.
        """
        family = self._families["policyd_usage_outside_quota"]
        assert isinstance(family, Gauge), "what runs may end"
        most = self.named.bounds.local_queues
        named = frozenset(sorted({namespace for namespace, _ in totals})[:most])
        found = Sums[tuple[str, str]]()
        for (namespace, resource), amount in totals.items():
            found[namespace if namespace in named else OTHER, resource] += amount
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

    def expect_failures(self, subjects: Iterable[str]) -> None:
        """Count from 0: the first failure of a subject is a change, which a rate can see."""
        for subject in subjects:
            self._families["policyd_reconcile_failures_total"].labels(subject)

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

    def api_request(self, method: str, code: str) -> None:
        """Count a request to the API server, by its method and the status of the answer."""
        family = self._families["policyd_api_requests_total"]
        assert isinstance(family, Counter), "what was asked was asked"
        family.labels(method, code).inc()

    def spans_dropped(self, reason: str, number: int) -> None:
        """Count spans that no collector got."""
        family = self._families["policyd_dropped_spans_total"]
        assert isinstance(family, Counter), "what is lost stays so"
        family.labels(reason).inc(number)

    def stale_reasons(self, *, missing: int, outdated: int) -> None:
        """Set how many pending workloads lack a reason, or have one that is no longer true."""
        family = self._families["policyd_stale_reasons"]
        assert isinstance(family, Gauge), "they are written in time"
        family.labels("missing").set(missing)
        family.labels("outdated").set(outdated)

    def reasons_checked(self, outcome: Literal["complete", "failed"]) -> None:
        """Count a check of the reasons of all pending workloads."""
        family = self._families["policyd_reason_checks_total"]
        assert isinstance(family, Counter), "what was checked was checked"
        family.labels(outcome).inc()

    def lead(self, *, leading: bool) -> None:
        """Set whether this process leads."""
        self._families["kueue_admission_cycle_preemption_skips"].clear()  # of its last cycle
        self._families["policyd_stale_reasons"].clear()  # of its last check
        self._families["policyd_stranded_devices"].clear()  # the leader counts them
        self._series.clear()
        self._made["kueue_admission_cycle_preemption_skips"].clear()
        self._rivals = frozenset()
        if self.role != "standalone":
            self.role = "leader" if leading else "follower"
        family = self._families["policyd_leading"]
        assert isinstance(family, Gauge), "a leader may lose the Lease"
        family.set(leading)

    def forget(self, **labels: str) -> None:
        """Drop all counts under these labels: the object that they name was deleted."""
        if labels.keys() == {"name", "namespace"}:
            if not self.named.forget_local_queue(labels["namespace"], labels["name"]):
                return  # it had no series of its own
        else:
            for label, value in labels.items():
                self.named.forget(label, value)
        self._series.clear()
        self._rivals = self._rivals.difference(labels.values())
        for family in COUNTED:
            if labels.keys() <= set(family.labels):
                self._families[family.name].remove_by_labels(labels)
                self._forget_made(family, labels)

    def _forget_made(self, family: Family, labels: Mapping[str, str]) -> None:
        at = [(family.labels.index(name), value) for name, value in labels.items()]
        made = self._made[family.name]
        made.difference_update([each for each in made if all(each[i] == v for i, v in at)])


def _no_more(_family: Family, _labels: tuple[str, ...]) -> tuple[str, ...]:
    return ()


def metrics_of(settings: MetricsSettings) -> ControllerMetrics:
    """Return the metrics that some settings ask for, all empty."""
    return ControllerMetrics(settings.custom, settings.bounds)
