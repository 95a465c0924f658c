"""Settings of a queue beyond Kueue's rules: none, unless its administrator sets them."""

from collections.abc import Mapping
from typing import Literal

from policyd.alloc.queue import QueueExtras, QueueSpec
from policyd.alloc.value import Value

Order = Literal["Priority", "DominantShare", "Proportion", "ShortestFirst"]
"""The order in a queue: the highest priority; the LocalQueue that has least; or, of the highest
priority, the shortest declared run time."""


class Protection(Value, frozen=True):
    """How long the workloads of a queue keep the quota they got; in seconds, 0 for not at all.

    Against workloads of the same queue, of others (`reclaim`), and earlier preemptors.
    """

    preemption: float = 0.0
    reclaim: float = 0.0
    repetition: float = 0.0


UNPROTECTED = Protection()


class OptIns(QueueExtras, frozen=True):
    """The settings of a queue.

    Attributes:
        order: The order of its workloads.
        packs: How much resources count where flavors are chosen by how full they are; none to
            choose by the queue's order.
        stale_seconds: How long a gang may run with fewer pods than it needs; None for ever.
        moves: How many workloads may be moved to other flavors or places at a time, so that one
            more fits.
        claims: Whether the quota of victims is held for their preemptor until it starts.
        reserve_seconds: How long the first may wait until its requests are reserved; None for ever.
        whole_gpus: Whether gangs that request GPUs stay off nodes where a requested one is shared.
        protection: How long its workloads are protected from preemption.
        avoids_fragments: Whether, of places that are as good, those go first whose free devices
            are in pieces already.
    """

    order: Order = "Priority"
    packs: Mapping[str, float] = {}
    stale_seconds: float | None = None
    moves: int = 0
    claims: bool = False
    reserve_seconds: float | None = None
    whole_gpus: bool = False
    avoids_fragments: bool = False
    protection: Protection = UNPROTECTED


NO_OPT_INS = OptIns()


def wants(queue: QueueSpec | None) -> OptIns:
    """Return the settings of a queue; none if there is no queue."""
    found = None if queue is None else queue.opt_ins
    return found if isinstance(found, OptIns) else NO_OPT_INS
