"""Plans of moves, as `policyd simulate --defragment` shows them."""

from collections.abc import Iterator
from typing import Any

from policyd.alloc.state import CoreState
from policyd.alloc.workload import QueuedWorkload
from policyd.cli.formats.json_values import as_json
from policyd.cli.formats.maps import Maps
from policyd.cli.formats.progress import progress
from policyd.cli.formats.report import count
from policyd.optimize.moves import Moves
from policyd.simulate.defragmentation import (
    Defragmentation,
    PlannedMove,
    Where,
    carried_out,
    described,
    plan_moves,
)
from policyd.status.naming import Names, Naming

_HOUR = 3600


def plan_lines(state: CoreState, most: int, names: Names, maps: Maps | None) -> Iterator[str]:
    """Yield a plan for each workload that waits, with the map of what would be if there are maps.

    Args:
        state: Left as it was.
        most: How many moves a plan has at most.
        names: What workloads are called.
        maps: To draw with; None not to.
    """
    for workload, moves in _plans(state, most):
        if moves is None:
            yield f"{names.of(workload.key)}: no plan of at most {count(most, 'move')} starts it"
            continue
        yield from _told(described(state, moves), names.to(workload.key))
        with carried_out(state, moves):
            yield from maps.changed() if maps is not None else ()


def plans_json(state: CoreState, most: int, names: Names) -> list[dict[str, Any]]:
    """Return the plan for each workload that waits; without moves if none would let it in."""
    return [
        {"workload": names.of(workload.key), "moves": None}
        if moves is None
        else {
            **as_json(plan := described(state, moves), names.to(workload.key)),
            "cost": plan.cost,
        }
        for workload, moves in _plans(state, most)
    ]


def _plans(state: CoreState, most: int) -> Iterator[tuple[QueuedWorkload, Moves | None]]:
    waiting = (
        ticket.workload for name in sorted(state.queues) for ticket in state.queues[name].pending
    )
    found = sorted(waiting, key=lambda each: (-each.priority, each.queued_at, each.key))
    for workload in progress(found, "planning", len(found)):
        yield workload, plan_moves(state, workload, most=most)


def _told(plan: Defragmentation, naming: Naming) -> Iterator[str]:
    name = naming.one(plan.workload)
    doubt = "" if plan.fewest else "; fewer may suffice"
    costs = f"{plan.cost / _HOUR:.1f} device-hours of work lost"
    yield f"{name}: {count(len(plan.moves), 'move')} would start it, {costs}{doubt}"
    for move in plan.moves:
        where = f"{_written(move.source)} -> {_written(move.target)}"
        yield f"  move {naming.one(move.workload)}: {where}{_lost(move)}"
    yield f"  start {name}: {_written(plan.target)}"


def _lost(move: PlannedMove) -> str:
    minutes = round(move.lost_seconds / 60)
    return f" ({count(move.pods, 'pod')}, {minutes}m lost: {move.cost / _HOUR:.1f} device-hours)"


def _written(where: Where) -> str:
    return ", ".join(f"{name} {pods}" for name, pods in where.items())
