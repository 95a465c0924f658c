"""Plans of the fewest moves that let pending workloads start, and what these cost.

A plan is a proposal, worked out with all running workloads that are not more important, protected
ones included. It is carried out by the administrator, or by the controller if the ClusterQueue
allows it (`policyd.io/consolidate`).
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from policyd.alloc.ledger import Holding
from policyd.alloc.plan import Move
from policyd.alloc.quota import QuotaNode, descendants
from policyd.alloc.state import CoreState
from policyd.alloc.value import Value
from policyd.alloc.workload import QueuedWorkload, ReservedQuota
from policyd.optimize.moves import (
    Moves,
    Preemptor,
    cost_of,
    fewest_moves,
    lost_seconds,
    may_move,
)

Where = Mapping[str, int]
"""How many pods are where: by domain, or by flavor where no topology places them."""


class PlannedMove(Value, frozen=True, rename="camel"):
    """One workload that would be stopped, and start again elsewhere.

    Attributes:
        workload: Its key.
        pods: How many pods it has.
        source: Where they are.
        target: Where they would be.
        lost_seconds: How much of its run it loses.
        cost: That, times its devices, or times its pods if it has none.
    """

    workload: str
    pods: int
    source: Where
    target: Where
    lost_seconds: float
    cost: float


class Defragmentation(Value, frozen=True, rename="camel"):
    """A plan.

    Attributes:
        workload: The key of the workload that would start.
        target: Where its pods would be.
        moves: The workloads to move, in the order in which they are to be stopped.
        fewest: Whether it is certain that fewer would not do.
    """

    workload: str
    target: Where
    moves: tuple[PlannedMove, ...]
    fewest: bool

    @property
    def cost(self) -> float:
        """The cost of all moves."""
        return sum(move.cost for move in self.moves)


def plan_moves(state: CoreState, workload: QueuedWorkload, *, most: int) -> Moves | None:
    """Find the fewest moves that let a pending workload start; None if none do.

    Args:
        state: Left as it was.
        workload: The pending workload.
        most: How many may be moved at most.
    """
    state.settle()
    queue = state.queues.get(workload.cluster_queue)
    if queue is None or queue.options is None or not queue.options.open:
        return None
    movable = list(_movable(state, queue.options.node, workload))
    return fewest_moves(Preemptor(state, workload, queue.options), movable, most=most)


def described(state: CoreState, moves: Moves) -> Defragmentation:
    """Describe moves: the workloads, from where to where, and the cost."""
    own, *others = moves.moves
    victims = zip(moves.victims, others, strict=True)
    return Defragmentation(
        workload=own.key,
        target=_where(own.admission),
        moves=tuple(_described(victim.holding, move, state.now) for victim, move in victims),
        fewest=moves.fewest,
    )


@contextmanager
def carried_out(state: CoreState, moves: Moves) -> Iterator[None]:
    """Place all workloads, in the block, where moves say."""
    with state.ledger.trial():
        for victim in moves.victims:
            state.ledger.release(victim.holding)
        for move in moves.moves:
            state.ledger.nodes.hold(move.key, state.ledger.placements(move.admission))
        yield


def _described(holding: Holding, move: Move, now: float) -> PlannedMove:
    return PlannedMove(
        workload=move.key,
        pods=sum(each.count for each in holding.admission.pod_sets),
        source=_where(holding.admission),
        target=_where(move.admission),
        lost_seconds=lost_seconds(holding.workload, now),
        cost=cost_of(holding, now),
    )


def _movable(state: CoreState, node: QuotaNode, workload: QueuedWorkload) -> Iterator[Holding]:
    if node.cyclic:
        return
    for each in descendants(node.root):
        queue = state.queues.get(each.name) if each.queue else None
        if queue is not None and queue.options is not None:
            yield from (held for held in queue.holdings.values() if may_move(held, workload))


def _where(admission: ReservedQuota) -> dict[str, int]:
    pods: dict[str, int] = {}
    for each in admission.pod_sets:
        flavors = "+".join(sorted(set(each.flavors.values())))
        domains = (((flavors,), each.count),) if each.placement is None else each.placement.domains
        for values, count in domains:
            name = "/".join(values)
            pods[name] = pods.get(name, 0) + count
    return pods
