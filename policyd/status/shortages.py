"""Who holds what a workload waits for."""

import heapq
from collections.abc import Iterator

from policyd.alloc.cluster_queue import ClusterQueue
from policyd.alloc.hierarchy import descendants
from policyd.alloc.reasons import MissingQuota, Refusal
from policyd.alloc.state import State
from policyd.alloc.value import Value
from policyd.status.quantities import format_amount


class Holder(Value, frozen=True):
    """A workload that holds quota, and how much."""

    workload: str
    cluster_queue: str
    amount: int


class Shortage(Value, frozen=True):
    """What a workload waits for, and who holds it, the biggest holders first.

    Attributes:
        missing: What it waits for.
        holders: Who holds most.
        others: How many hold some besides.
    """

    missing: MissingQuota
    holders: tuple[Holder, ...]
    others: int = 0

    @property
    def text(self) -> str:
        """A sentence: how much of what is missing, and who holds it."""
        missing, resource = self.missing, self.missing.resource
        amount = format_amount(resource, missing.missing)
        start = f"{amount} more {resource} of flavor {missing.flavor} needed"
        if not self.holders:
            return f"{start}; nobody holds any"
        held = ", ".join(
            f"{h.workload} ({format_amount(resource, h.amount)}, ClusterQueue {h.cluster_queue})"
            for h in self.holders
        )
        return f"{start}; held by {held}{and_others(self.others)}"


def and_others(count: int) -> str:
    """Say that there are more than those named; empty if there are none."""
    return f" and {count} more" if count else ""


def shortages(
    state: State, refusal: Refusal, queue: str, *, limit: int = 3
) -> tuple[Shortage, ...]:
    """Say who holds what a refused workload of ClusterQueue `queue` waits for.

    Args:
        state: The state to look at.
        refusal: Why the workload waits.
        queue: The workload's ClusterQueue; whoever shares quota with it may be a holder.
        limit: How many holders to name for each flavor and resource at most.
    """
    return tuple(_shortage(state, missing, queue, limit) for missing in refusal.missing)


def _shortage(state: State, missing: MissingQuota, name: str, limit: int) -> Shortage:
    found = [
        Holder(workload=key, cluster_queue=queue.name, amount=amount)
        for queue in _sharing(state, name)
        for key, holding in queue.holdings.items()
        if (amount := holding.admission.usage().get((missing.flavor, missing.resource), 0))
    ]
    most = heapq.nsmallest(limit, found, key=lambda holder: (-holder.amount, holder.workload))
    return Shortage(missing=missing, holders=tuple(most), others=len(found) - len(most))


def _sharing(state: State, name: str) -> Iterator[ClusterQueue]:
    state.settle()
    queue = state.queues.get(name)
    if queue is not None and queue.node is not None:
        for node in descendants(queue.node.root):
            if node.queue:
                yield state.queues[node.name]
