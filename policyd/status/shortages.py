"""The holders of quota that a workload waits for."""

from policyd.alloc.queue import FlavorResource
from policyd.alloc.quota import QuotaNode, descendants
from policyd.alloc.reasons import MissingQuota, Refusal
from policyd.alloc.state import CoreState
from policyd.alloc.value import Value
from policyd.alloc.workload import QueuedWorkload


class Holder(Value, frozen=True):
    """A workload that holds quota, and how much."""

    workload: str
    cluster_queue: str
    amount: int


class Shortage(Value, frozen=True):
    """The quota that a workload waits for, and its holders, the biggest first.

    Attributes:
        missing: The missing quota.
        holders: The biggest holders of those whose end would help.
        others: How many hold some besides whose end would help.
    """

    missing: MissingQuota
    holders: tuple[Holder, ...]
    others: int = 0


def and_others(count: int) -> str:
    """Say that there are more than those named; empty if there are none."""
    return f" and {count} more" if count else ""


def shortages(
    state: CoreState, refusal: Refusal, workload: QueuedWorkload, *, limit: int = 3
) -> tuple[Shortage, ...]:
    """Return the quota that a refused workload waits for, with its holders.

    Args:
        state: The state to look at.
        refusal: Why the workload waits.
        workload: The workload; one of its cohort may be a holder, the one that it replaces is not.
        limit: How many holders to name for each flavor and resource at most.
    """
    wanted = {(each.flavor, each.resource): each for each in refusal.missing}
    return tuple(_shortage(state, missing, workload, limit) for missing in wanted.values())


def _shortage(
    state: CoreState, missing: MissingQuota, workload: QueuedWorkload, limit: int
) -> Shortage:
    state.settle()
    queue = state.queues.get(workload.cluster_queue)
    node = None if queue is None else queue.node
    names = missing.flavor, missing.resource
    found = [] if node is None else helping(state, node, names, workload.replaces)
    return Shortage(missing=missing, holders=tuple(found[:limit]), others=len(found[limit:]))


def helping(
    state: CoreState, node: QuotaNode, names: FlavorResource, replaces: str
) -> list[Holder]:
    """Return holders whose end would leave more of a flavor's resource to a queue, biggest first.

    The one that is to be replaced, if any, is not waited for. Quota that a queue does not lend, or
    that this one may not borrow, does not count.
    """
    tree, cell = state.tree, node.cells.get(names)
    if cell is None:
        return []
    found: list[Holder] = []
    with tree.trial():
        before = tree.available(cell)
        for other in descendants(node.root):
            if not other.queue or names not in other.cells:
                continue
            helps: dict[int, bool] = {}
            for key, holding in state.queues[other.name].holdings.items():
                amount = holding.admission.usage().get(names, 0)
                if amount not in helps:
                    charges = {other.cells[names]: amount}
                    tree.release(charges)
                    helps[amount] = tree.available(cell) > before
                    tree.charge(charges)
                if helps[amount] and key != replaces:
                    found.append(Holder(workload=key, cluster_queue=other.name, amount=amount))
    return sorted(found, key=lambda holder: (-holder.amount, holder.workload))
