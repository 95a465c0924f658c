"""Counts of what each policy does: requests that it concerns, refuses, changes or warns of.

Most reviews end alike: the same policies match, and none objects. So the names of a review are
counted as a whole, and taken apart when they are scraped. Names of policies are a label, so their
number is bounded: the first have series of their own, the others share one.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from typing import Final, Literal

from prometheus_client import Counter as MetricCounter
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from policyd.engine.evaluate.policy_set import Phase
from policyd.engine.model.decision import Decision

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

    Args of the constructor:
        metric: What is scraped, with these three labels.
    """

    def __init__(self, metric: MetricCounter) -> None:
        self._metric = metric
        self._named: set[str] = set()
        self._gathered: dict[_Key, Counter[tuple[str, ...]]] = defaultdict(Counter)
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
        gathered, self._gathered, self._size = self._gathered, defaultdict(Counter), 0
        for (phase, result), groups in gathered.items():
            counts: Counter[str] = Counter()
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
