"""Nominated workloads, whose turn it is, and what is kept for who must wait."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from policyd.alloc.assignment import Assignment
from policyd.alloc.cluster_queue import Victim
from policyd.alloc.fair_sharing import Contender, Tournament
from policyd.alloc.options import QueueOptions
from policyd.alloc.pending import Ticket
from policyd.alloc.quota import QuotaTree
from policyd.alloc.reasons import Mode
from policyd.alloc.requests import Requests
from policyd.alloc.settings import Gates
from policyd.alloc.state import State


@dataclass(slots=True, eq=False)
class Entry:
    """A nominated workload.

    Attributes:
        ticket: Its place in its queue.
        options: What its queue has to offer.
        requests: What it asks.
        assignment: What it would get.
        targets: Whom it would preempt.
    """

    ticket: Ticket
    options: QueueOptions
    requests: Requests
    assignment: Assignment
    targets: tuple[Victim, ...] = ()

    @property
    def queue(self) -> str:
        """The name of its queue."""
        return self.ticket.workload.cluster_queue


def turns(entries: Iterable[Entry], state: State) -> Iterator[Entry]:
    """Yield entries as they have their turn: those first that hold quota already."""
    nominated = list(entries)
    yield from [each for each in nominated if each.assignment.held is not None]
    rest, gates = [e for e in nominated if e.assignment.held is None], state.settings.gates
    if state.settings.fair_sharing is None:
        yield from in_turn(rest, gates)
    else:
        yield from in_tournament(rest, state.tree, gates)


def in_turn(entries: Iterable[Entry], gates: Gates) -> list[Entry]:
    """Return entries in the order in which they have their turn without fair sharing."""
    by_priority = gates.priority_sorting_within_cohort
    preemptors_first = gates.prioritize_preemptor_workloads

    def turn(entry: Entry) -> tuple[bool, int, tuple[object, ...]]:
        ticket = entry.ticket
        later = preemptors_first and not ticket.preemptor
        return later, entry.assignment.level, ticket.rank if by_priority else ticket.rank[1:]

    return sorted(entries, key=turn)


def in_tournament(entries: Iterable[Entry], tree: QuotaTree, gates: Gates) -> Tournament[Entry]:
    """Return entries as they have their turn with fair sharing, while usage changes."""
    return Tournament(tree, ((_contender(entry), entry) for entry in entries), gates=gates)


def _contender(entry: Entry) -> Contender:
    workload = entry.ticket.workload
    return Contender(
        entry.options.node,
        entry.assignment.charges,
        workload.priority,
        workload.queued_at,
        entry.ticket.preemptor,
    )


def reserved_charges(tree: QuotaTree, assignment: Assignment) -> dict[int, int]:
    """Return what of an assignment is kept free for who has to wait for it.

    Without borrowing that is its own queue's unused quota; else what it may borrow. What fits is
    kept whole.
    """
    if assignment.mode is Mode.FIT:
        return assignment.charges
    kept: dict[int, int] = {}
    for cell, amount in assignment.charges.items():
        most = tree.nominal[cell] - tree.usage[cell]
        if assignment.level:
            limit = tree.borrowing_limit[cell]
            most = amount if limit is None else most + limit
        kept[cell] = max(0, min(amount, most))
    return kept
