"""What time alone decides: gangs that run short for too long, and when to look again."""

from collections.abc import Iterator

from policyd.alloc.plan import Evict
from policyd.alloc.state import State


def stale_gangs(state: State) -> list[Evict]:
    """Return those to stop that have run with fewer pods than they need for longer than allowed."""
    return [each for due, each in _short_gangs(state) if due <= state.now]


def next_due(state: State) -> float | None:
    """Return when another cycle may decide otherwise, though nothing changes; None if it will not.

    In seconds since the epoch, later than the state's `now`.
    """
    moments = [due for due, _ in _short_gangs(state)]
    for queue in state.opted.values():
        after = None if queue.spec is None else queue.spec.opt_ins.reserve_seconds
        ticket = None if after is None else queue.pending.first()
        if ticket is not None and after is not None:
            moments.append(ticket.workload.queued_at + after)
    return min((moment for moment in moments if moment > state.now), default=None)


def _short_gangs(state: State) -> Iterator[tuple[float, Evict]]:
    for queue in state.opted.values():
        grace = None if queue.spec is None else queue.spec.opt_ins.stale_seconds
        for holding in queue.holdings.values() if grace is not None else ():
            who, since = holding.workload, holding.workload.short_since
            if since is not None and grace is not None and not holding.stopping:
                yield since + grace, Evict(workload=who, reason="StaleGang", since=since)
