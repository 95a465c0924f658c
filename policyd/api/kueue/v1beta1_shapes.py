"""The types that a conversion between v1beta1 and v1beta2 reads, of either version.

An object is checked against them before it is converted, so that the steps can rely on them. Other
fields are passed on unchanged, of any type.
"""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from policyd.api.meta import Json

Unread = dict[str, Json]
"""An object whose fields no step looks into."""


class Shape(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """Fields by their types; every one may be left out, or null, where it says None."""


class FairSharingShape(Shape, frozen=True):
    """A status with a field that is dropped."""

    fair_sharing: Unread | None = None


class ClusterQueueSpecShape(Shape, frozen=True):
    """The fields that are renamed, or have other values."""

    admission_checks: tuple[str, ...] | None = None
    flavor_fungibility: dict[str, str | None] | None = None


class PriorityClassShape(Shape, frozen=True):
    """Where a priority comes from."""

    group: str = ""
    kind: str = ""
    name: str = ""


class PodSetShape(Shape, frozen=True):
    """A pod set with a field that is dropped."""

    topology_request: Unread | None = None


class WorkloadSpecShape(Shape, frozen=True):
    """The priority, and the pod sets."""

    priority_class_name: str | None = None
    priority_class_source: str | None = None
    priority_class_ref: PriorityClassShape | None = None
    pod_sets: tuple[PodSetShape, ...] | None = None


class DomainShape(Shape, frozen=True):
    """A domain as v1beta1 writes it out."""

    values: tuple[str, ...]
    count: int = 0


class RootsShape(Shape, frozen=True):
    """Values of many domains."""

    roots: tuple[str, ...]
    prefix: str | None = None
    suffix: str | None = None


class LevelShape(Shape, frozen=True):
    """The values of one level."""

    universal: str | None = None
    individual: RootsShape | None = None


class CountsShape(Shape, frozen=True):
    """How many pods each domain has."""

    universal: int | None = None
    individual: tuple[int, ...] | None = None


class SliceShape(Shape, frozen=True):
    """Some domains, as v1beta2 has them."""

    domain_count: int = 0
    values_per_level: tuple[LevelShape, ...] | None = None
    pod_counts: CountsShape | None = None

    def __post_init__(self) -> None:
        """Refuse values or counts that are fewer than there are domains."""
        counts = self.pod_counts or CountsShape()
        given = [] if counts.universal is not None else [len(counts.individual or ())]
        different = [each for each in self.values_per_level or () if each.universal is None]
        given += [len(each.individual.roots) if each.individual else 0 for each in different]
        if given and min(given) < self.domain_count:
            raise ValueError(f"{self.domain_count} domains, and {min(given)} values or counts")


class TopologyShape(Shape, frozen=True):
    """Where pods go, in either version."""

    levels: tuple[str, ...] | None = None
    domains: tuple[DomainShape, ...] | None = None
    slices: tuple[SliceShape, ...] | None = None

    def __post_init__(self) -> None:
        """Refuse domains that have fewer values than there are levels."""
        levels = len(self.levels or ())
        fewest = min((len(each.values) for each in self.domains or ()), default=levels)
        if fewest < levels:
            raise ValueError(f"{levels} levels, and {fewest} values of a domain")


class AssignmentShape(Shape, frozen=True):
    """The assignment of a pod set."""

    topology_assignment: TopologyShape | None = None


class AdmissionShape(Shape, frozen=True):
    """The assignments of pod sets."""

    pod_set_assignments: tuple[AssignmentShape, ...] | None = None


class WorkloadStatusShape(Shape, frozen=True):
    """The status of a workload."""

    admission: AdmissionShape | None = None


class ClusterShape(Shape, frozen=True):
    """How another cluster is reached."""

    kube_config: Unread | None = None
    cluster_profile_ref: Unread | None = None
    cluster_source: Unread | None = None


class Other(Shape, frozen=True):
    """An object whose parts are not looked into."""

    spec: Unread | None = None
    status: Unread | None = None


class ClusterQueueShape(Shape, frozen=True):
    """Of a ClusterQueue."""

    spec: ClusterQueueSpecShape | None = None
    status: FairSharingShape | None = None


class CohortShape(Shape, frozen=True):
    """Of a Cohort."""

    spec: Unread | None = None
    status: FairSharingShape | None = None


class MultiKueueClusterShape(Shape, frozen=True):
    """Of a MultiKueueCluster."""

    spec: ClusterShape | None = None
    status: Unread | None = None


class WorkloadShape(Shape, frozen=True):
    """Of a Workload."""

    spec: WorkloadSpecShape | None = None
    status: WorkloadStatusShape | None = None


SHAPES: Final[Mapping[Any, type[Shape]]] = {
    "ClusterQueue": ClusterQueueShape,
    "Cohort": CohortShape,
    "MultiKueueCluster": MultiKueueClusterShape,
    "Workload": WorkloadShape,
}
"""By kind; all others are an `Other`."""
