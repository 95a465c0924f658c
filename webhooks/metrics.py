"""The metrics of the webhooks. Labels come from closed sets, and one from names of policies."""

from collections import Counter as Tally
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Final, Literal

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from policyd.engine.evaluate.policy_set import Phase
from policyd.engine.model.decision import Decision

Outcome = Literal["allowed", "denied", "unjudged", "refused", "failed"]
"""Denied is the verdict; unjudged is a review that was answered without one; refused is a body that
is not a review; failed is our own error."""

BUCKETS = (0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 0.5, 2.5)
"""Seconds. A review takes a fraction of a millisecond; one above 10 ms needs an explanation."""


PolicyResult = Literal["matched", "changed", "refused", "warned", "error"]

OTHER: Final = "_other_"
"""The label of the policies beyond the bound."""
MOST_POLICIES: Final = 300
"""Policies that have series of their own."""
_MOST_GATHERED: Final = 500
"""Different groups of names that are counted before they are taken apart."""

_Key = tuple[Phase, PolicyResult]


class PolicyResults(Collector):
    """Counts reviews by policy, phase and result.

    Most reviews end alike: the same policies match, and none objects. So the names of a review are
    counted as a whole, and taken apart when they are scraped. Names of policies are a label, so
    their number is bounded: the first have series of their own, the others share one.

    Args of the constructor:
        metric: What is scraped, with these three labels.
    """

    def __init__(self, metric: Counter) -> None:
        self._metric = metric
        self._named: set[str] = set()
        self._gathered: dict[_Key, Tally[tuple[str, ...]]] = defaultdict(Tally)
        self._size = 0

    def take(self, phase: Phase, decision: Decision) -> None:
        """Count a decision once for each policy and each of its results."""
        if decision.matched:
            self._gather((phase, "matched"), decision.matched)
        if decision.changed:
            self._gather((phase, "changed"), decision.changed)
        if decision.failures:
            self._gather((phase, "error"), _once(each.policy for each in decision.failures))
        if decision.objections:
            verdicts = [each for each in decision.objections if not each.failed]
            for action, result in _RESULTS:
                objecting = _once(each.policy for each in verdicts if action in each.actions)
                if objecting:
                    self._gather((phase, result), objecting)

    def describe(self) -> list[Metric]:
        """Return nothing: which policies there are is not known before they are scraped."""
        return []

    def collect(self) -> Iterable[Metric]:
        """Return the counter, up to date."""
        self._take_apart()
        return self._metric.collect()

    def _gather(self, key: _Key, policies: tuple[str, ...]) -> None:
        gathered = self._gathered[key]
        if policies not in gathered:
            if self._size >= _MOST_GATHERED:
                self._take_apart()
                gathered = self._gathered[key]
            self._size += 1
        gathered[policies] += 1

    def _take_apart(self) -> None:
        gathered, self._gathered, self._size = self._gathered, defaultdict(Tally), 0
        for (phase, result), groups in gathered.items():
            counts: Tally[str] = Tally()
            for policies, count in groups.items():
                for policy in policies:
                    counts[policy] += count
            for policy, count in counts.items():
                self._metric.labels(self._label(policy), phase, result).inc(count)

    def _label(self, policy: str) -> str:
        if policy not in self._named and len(self._named) >= MOST_POLICIES:
            return OTHER
        self._named.add(policy)
        return policy


_RESULTS: Final[tuple[tuple[str, PolicyResult], ...]] = (("Deny", "refused"), ("Warn", "warned"))


def _once(names: Iterator[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(names))


class WebhookMetrics:
    """The figures of one admission server."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.registry = registry
        self.reviews = Counter(
            "policyd_reviews_total", "Reviews answered.", ["path", "outcome"], registry=registry
        )
        self.seconds = Histogram(
            "policyd_review_duration_seconds",
            "Time from a review's last byte to its answer.",
            ["path"],
            registry=registry,
            buckets=BUCKETS,
        )
        self.late_reviews = Counter(
            "policyd_late_reviews_total",
            "Answers that took most of the caller's timeout.",
            ["path"],
            registry=registry,
        )
        self.unjudged_reviews = Counter(
            "policyd_unjudged_reviews_total",
            "Reviews without a decision: too large, too late, too many, or an internal error.",
            ["path", "outcome"],
            registry=registry,
        )
        self.connections = Counter(
            "policyd_closed_connections_total",
            "Connections closed before an answer, by reason.",
            ["reason"],
            registry=registry,
        )
        self.recalled_decisions = Counter(
            "policyd_recalled_decisions_total",
            "Cached decisions on new pods, made before on identical pods.",
            ["phase"],
            registry=registry,
        )
        self.policy_failures = Counter(
            "policyd_policy_failures_total",
            "Failed evaluations of policies, by the effect of the failurePolicy.",
            ["outcome"],
            registry=registry,
        )
        self.policy_results = Counter(
            "policyd_policy_results_total",
            "Reviews by policy: matched, changed, refused, warned of, or not evaluated (error).",
            ["policy", "phase", "result"],
            registry=None,
        )
        self.results = PolicyResults(self.policy_results)
        registry.register(self.results)
        self.shadow_reviews = Counter(
            "policyd_shadow_reviews_total",
            "Reviews evaluated by shadow policies, by difference.",
            ["phase", "outcome"],
            registry=registry,
        )
        self.policies = Gauge("policyd_policies", "Policies in force.", registry=registry)
        self.policy_mistakes = Gauge(
            "policyd_policy_mistakes",
            "Errors that keep policies from being loaded in their current form.",
            registry=registry,
        )
        self.policy_loads = Counter(
            "policyd_policy_loads_total", "Reloads of policies.", registry=registry
        )
        self.missing_configurations = Gauge(
            "policyd_missing_configurations",
            "Missing webhook configurations that policyd may not create: no review is sent.",
            registry=registry,
        )
        self.certificate_expiry = Gauge(
            "policyd_certificate_expiry_timestamp_seconds",
            "When the certificate in use expires, in seconds since the epoch.",
            registry=registry,
        )
        self.certificate_loads = Counter(
            "policyd_certificate_loads_total", "Certificates put to use.", registry=registry
        )
        self.api_requests = Counter(
            "policyd_api_requests_total",
            "Requests to the API server, by the status of the answer, or unreachable.",
            ["method", "code"],
            registry=registry,
        )
        self.dropped_spans = Counter(
            "policyd_dropped_spans_total",
            "Spans of traces that no collector got: too many waited, or it did not take them.",
            ["reason"],
            registry=registry,
        )

    def spans_dropped(self, reason: str, number: int) -> None:
        """Count spans that no collector got."""
        self.dropped_spans.labels(reason).inc(number)

    def api_request(self, method: str, code: str) -> None:
        """Count a request to the API server, by its method and the status of the answer."""
        self.api_requests.labels(method, code).inc()

    def review_not_evaluated(self, path: str, outcome: str) -> None:
        """Count a review that was answered without being judged."""
        self.unjudged_reviews.labels(path, outcome).inc()

    def connection_closed(self, reason: str) -> None:
        """Count a connection that was closed before its caller was answered."""
        self.connections.labels(reason).inc()
