"""Bounds of the number of series: which values of labels are named, and which share one series.

Users of a namespace choose the names of LocalQueues, the resources that pods request, and, in what
they write themselves, the names of priority classes. Each name is a series in the process and in
Prometheus. So labels have a number of values, and the rest has the value `_other_`, which is the
name of no object. Those that came first keep their series until their object is deleted: a series
that changed its meaning would break rates.
"""

from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import Final

from policyd.controller.metrics.metric_families import Family

OTHER: Final = "_other_"
"""The value of a label beyond the bounds."""

_CLOSED: Final = frozenset({"status", "active", "result", "is_group", "job_kind", "replica_role"})
"""Labels whose values are the controller's own words."""
_QUEUES: Final = frozenset({"cluster_queue", "preempting_cluster_queue"})
_COHORTS: Final = frozenset({"cohort", "parent_cohort", "root_cohort"})
_OF_QUOTA: Final = frozenset({"flavor", "resource"})


@dataclass(frozen=True, slots=True, kw_only=True)
class SeriesBounds:
    """How many values of labels have series of their own.

    Attributes:
        local_queues: LocalQueues in all; also namespaces with usage outside of quota.
        of_namespace: LocalQueues of one namespace, so that it cannot take the series of all.
        cluster_queues: ClusterQueues, and as many Cohorts.
        values: Values of every other label.
        series: Series of one metric that counts, a histogram's as one.
    """

    local_queues: int = 500
    of_namespace: int = 20
    cluster_queues: int = 500
    values: int = 100
    series: int = 1_000


class NamedValues:
    """The values of labels that have series of their own."""

    def __init__(self, bounds: SeriesBounds | None = None) -> None:
        self.bounds = bounds or SeriesBounds()
        self._local_queues: set[tuple[str, str]] = set()
        self._of_namespace = Counter[str]()
        self._values: dict[str, set[str]] = defaultdict(set)

    def labels(
        self, family: Family, labels: tuple[str, ...], custom: tuple[str, ...] = ()
    ) -> tuple[str, ...] | None:
        """Return the labels of the series that a value belongs to; None if it has no series.

        Amounts of different resources have no sum, and neither have shares and the places of
        queues in the tree: those beyond the bounds are left out.

        Args:
            family: The metric.
            labels: The values of its own labels, then those of custom labels.
            custom: The names of the latter.
        """
        names = (*family.labels, *custom)
        found = list(labels)
        local = "namespace" in family.labels and "name" in family.labels
        if local:
            own, space = names.index("name"), names.index("namespace")
            if not self._local_queue(labels[space], labels[own]):
                found[own] = found[space] = OTHER
        for at, name in enumerate(names):
            done = local and name in {"name", "namespace"}
            if not done and name not in _CLOSED and not self._named(name, labels[at]):
                if name in _OF_QUOTA:
                    return None
                found[at] = OTHER
        return None if not family.adds_up and OTHER in found else tuple(found)

    def name(self, label: str, values: set[str]) -> None:
        """Name values of a label that administrators have chosen, however many others came."""
        self._values[_shared(label)] |= values

    def forget_local_queue(self, namespace: str, name: str) -> bool:
        """Give the place of a deleted LocalQueue to another; tell whether it had one."""
        found = (namespace, name) in self._local_queues
        if found:
            self._local_queues.remove((namespace, name))
            self._of_namespace -= Counter((namespace,))
        return found

    def forget(self, label: str, value: str) -> None:
        """Give the place of a deleted ClusterQueue or Cohort to another."""
        self._values[_shared(label)].discard(value)

    def other(self, family: Family, labels: tuple[str, ...]) -> tuple[str, ...]:
        """Return the labels of the series for all that a full family has no room for."""
        more = len(labels) - len(family.labels)
        names = (*family.labels, *("",) * more)
        return tuple(
            value if name in _CLOSED else OTHER for name, value in zip(names, labels, strict=True)
        )

    def _local_queue(self, namespace: str, name: str) -> bool:
        key = namespace, name
        if key in self._local_queues:
            return True
        bounds = self.bounds
        full = len(self._local_queues) >= bounds.local_queues
        if full or self._of_namespace[namespace] >= bounds.of_namespace:
            return False
        self._local_queues.add(key)
        self._of_namespace[namespace] += 1
        return True

    def _named(self, label: str, value: str) -> bool:
        values = self._values[_shared(label)]
        if not value or value in values:
            return True
        trees = label in _QUEUES or label in _COHORTS
        if len(values) >= (self.bounds.cluster_queues if trees else self.bounds.values):
            return False
        values.add(value)
        return True


def _shared(label: str) -> str:
    """Return the name under which values of a label are kept: labels for the same objects share."""
    if label in _QUEUES:
        return "cluster_queue"
    return "cohort" if label in _COHORTS else label
