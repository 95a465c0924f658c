"""The administrator's choice of kinds of jobs that queue, and of namespaces."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from policyd.api.makers import GroupKind, Makers
from policyd.api.selectors import LabelSelector

__all__ = ["EVERYTHING", "GATED", "POD", "GroupKind", "Integrations"]

DEVICES_GATE = "KueueDRAIntegration"
"""The gate with which devices of claims are counted, where device classes are mapped."""

POD: GroupKind = ("", "Pod")

GATED: Final[Mapping[GroupKind, str]] = {
    ("sparkoperator.k8s.io", "SparkApplication"): "SparkApplicationIntegration"
}
"""Kinds that a feature gate can turn off, by kind."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Integrations:
    """Which kinds of jobs queue, and where.

    Attributes:
        kinds: Those that are on; None for all known ones.
        external: Those that others queue: objects that belong to them are left alone.
        manages_all: Whether jobs that name no queue are held, too.
        namespaces: Labels of the namespaces whose jobs queue; None for all.
        off: Feature gates that are set to off.
        on: Feature gates that are set to on.
        plain_pods: Whether pods without an owner queue; if not, only those of Deployments do, and
            of other kinds whose pods are gated.
        counts_devices: Whether devices of ResourceClaims are counted in quota.
        gpu_fractions: Whether parts of GPUs that pods request by annotation are counted in quota.
        makers: The makers of objects that belong to jobs, so that these need no queue themselves.
    """

    kinds: frozenset[GroupKind] | None = None
    external: frozenset[GroupKind] = frozenset()
    manages_all: bool = False
    namespaces: LabelSelector | None = None
    off: frozenset[str] = frozenset()
    on: frozenset[str] = frozenset()
    plain_pods: bool = True
    counts_devices: bool = False
    gpu_fractions: bool = False
    makers: Makers = field(default_factory=Makers)

    def has(self, group: str, kind: str) -> bool:
        """Tell whether a kind is on."""
        if GATED.get((group, kind)) in self.off:
            return False
        return self.kinds is None or (group, kind) in self.kinds

    @property
    def requires_queue(self) -> bool:
        """Whether pending objects have to stay in their queue, if jobs queue.

        It must where jobs queue without a label, and where namespaces were selected.
        """
        return self.manages_all or self.namespaces is not None

    def covers(self, labels: Mapping[str, str]) -> bool:
        """Tell whether the jobs of a namespace with these labels queue."""
        return self.namespaces is None or self.namespaces.matches(labels)


EVERYTHING = Integrations()
"""All kinds that are known, everywhere, if they name a queue."""
