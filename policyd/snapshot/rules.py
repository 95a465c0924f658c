"""What a snapshot for the webhooks says beyond usage: by which rules a new job would be judged.

The webhooks plan with the same core as the controller. These are its inputs, as the controller has
them.
"""

from collections.abc import Mapping

from policyd.alloc.queue import CohortQuotas, FlavorSpec, QueueSpec
from policyd.alloc.settings import QueueingSettings
from policyd.alloc.value import Value
from policyd.api.configuration.kinds import ResourcesConfiguration
from policyd.api.gpus import SharedGpus
from policyd.api.limit_ranges import Summary
from policyd.api.meta import Json
from policyd.api.schema import QuantityText
from policyd.api.selectors import LabelSelector


class LocalQueueRule(Value, frozen=True, array_like=True):
    """A LocalQueue, and whether it takes new workloads."""

    namespace: str
    name: str
    cluster_queue: str
    open: bool = True


class BudgetRule(Value, frozen=True, array_like=True):
    """A budget that is used up, or nearly.

    Attributes:
        queue: The ClusterQueue, or the LocalQueue as `namespace/name`.
        held: Whether new workloads that request GPUs get no quota.
        message: How far it is used up.
    """

    queue: str
    held: bool
    message: str


class ClusterQueueRule(Value, frozen=True, rename="camel"):
    """A ClusterQueue as the core has it.

    Attributes:
        spec: Without settings beyond Kueue's rules.
        beyond: Whether it has such settings, so that a plan here says nothing.
        namespaces: Which namespaces it takes workloads from; None for none.
        checks: Names of its admission checks.
    """

    spec: QueueSpec
    beyond: bool = False
    namespaces: LabelSelector | None = None
    checks: tuple[str, ...] = ()


class QueueRules(Value, frozen=True, rename="camel"):
    """The rules at one moment.

    Attributes:
        settings: The administrator's.
        flavors: All ResourceFlavors.
        cohorts: All Cohorts that exist as objects.
        queues: All ClusterQueues.
        local_queues: All LocalQueues.
        priorities: Values of WorkloadPriorityClasses, by name.
        pod_priorities: Values of PriorityClasses, by name.
        default_priority: Name of the PriorityClass of pods that name none; "" if there is none.
        limits: LimitRanges by namespace, of each type the tightest.
        overheads: Overheads of pods, by RuntimeClass.
        resources: Which requests count.
        shared_gpus: Flavors that share GPUs; None where parts of GPUs are not counted.
        bases: The part of objects that jobs are made from which decides what these request, by
            kind, namespace and name.
        budgets: Those that are used up, or nearly.
    """

    settings: QueueingSettings = QueueingSettings()
    flavors: tuple[FlavorSpec, ...] = ()
    cohorts: tuple[CohortQuotas, ...] = ()
    queues: tuple[ClusterQueueRule, ...] = ()
    local_queues: tuple[LocalQueueRule, ...] = ()
    priorities: Mapping[str, int] = {}
    pod_priorities: Mapping[str, int] = {}
    default_priority: str = ""
    limits: Mapping[str, Summary] = {}
    overheads: Mapping[str, Mapping[str, QuantityText]] = {}
    resources: ResourcesConfiguration = ResourcesConfiguration()
    shared_gpus: Mapping[str, SharedGpus] | None = None
    bases: Mapping[str, Json] = {}
    budgets: tuple[BudgetRule, ...] = ()
