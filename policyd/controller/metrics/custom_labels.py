"""Labels that metrics take from queues, cohorts and workloads, as the administrator says."""

from collections.abc import Iterator
from typing import Final

from policyd.api.configuration.kinds import CustomLabel
from policyd.api.kueue import Workload
from policyd.api.meta import ObjectMeta
from policyd.controller.metrics.metric_families import Family, Source
from policyd.controller.watch.mirrors import Mirrors

UNTRACKED: Final = "kueue.x-k8s.io/_UNTRACKED_VALUE_"
"""The label of values beyond the most that are reported."""


class CustomLabels:
    """Looks up the values of such labels, in the order in which families have them."""

    def __init__(self, mirrors: Mirrors, labels: tuple[CustomLabel, ...]) -> None:
        self._mirrors = mirrors
        self._labels = labels

    def of(
        self, family: Family, labels: tuple[str, ...], workload: Workload | None = None
    ) -> tuple[str, ...]:
        """Return the values for one series of a family.

        Args:
            family: The family.
            labels: Its own labels' values, which name the queue or cohort.
            workload: The workload that is counted.
        """
        if not self._labels:
            return ()
        named = dict(zip(family.labels, labels, strict=False))
        return tuple(
            _value(label, self._metadata(source, named, workload))
            for source, label in custom_of(family, self._labels)
        )

    def _metadata(
        self, source: Source, named: dict[str, str], workload: Workload | None
    ) -> ObjectMeta | None:
        mirrors = self._mirrors
        match source:
            case "Workload":
                return None if workload is None else workload.metadata
            case "ClusterQueue":
                queue = mirrors.cluster_queues.get(named["cluster_queue"])
                return None if queue is None else queue.metadata
            case "LocalQueue":
                local_queue = mirrors.local_queues.get(f"{named['namespace']}/{named['name']}")
                return None if local_queue is None else local_queue.metadata
            case "Cohort":
                cohort = mirrors.cohorts.get(named["cohort"])
                return None if cohort is None else cohort.metadata


def custom_of(
    family: Family, labels: tuple[CustomLabel, ...]
) -> Iterator[tuple[Source, CustomLabel]]:
    """Yield those labels that a family has, with the kind of object they are taken from."""
    for source in family.sources:
        for label in labels:
            if (label.source_kind or "ClusterQueue") == source:
                yield source, label


def custom_names(family: Family, labels: tuple[CustomLabel, ...]) -> tuple[str, ...]:
    """Return the names of those labels that a family has."""
    return tuple(f"custom_{label.name}" for _, label in custom_of(family, labels))


def _value(label: CustomLabel, metadata: ObjectMeta | None) -> str:
    if metadata is None:
        return ""
    if label.source_annotation_key:
        found = metadata.annotations.get(label.source_annotation_key, "")
    else:
        found = metadata.labels.get(label.source_label_key or label.name, "")
    tracked = not found or not label.tracked_values or found in label.tracked_values
    return found if tracked else UNTRACKED
