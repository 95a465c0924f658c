"""What all parts that send jobs to other clusters work with."""

from dataclasses import dataclass

from policyd.controller.metrics.counters import ControllerMetrics
from policyd.controller.watch.cache import Cache
from policyd.controller.writes import Writes
from policyd.multikueue.settings import MultiKueueSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class ManagerContext:
    """The manager's own cluster, and its settings.

    Attributes:
        cache: Its objects.
        writes: Writes to it.
        settings: How jobs are sent.
        metrics: What is counted.
        namespace: Where the Secrets with kubeconfigs are.
    """

    cache: Cache
    writes: Writes
    settings: MultiKueueSettings
    metrics: ControllerMetrics
    namespace: str
