"""Nominated workloads, whose turn it is, and what is kept for who must wait."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from policyd.alloc.cluster_queue import Victim
from policyd.alloc.fair_sharing import BorrowedShare, CohortHeap, Key, share_of
from policyd.alloc.flavors.assignment import Assignment, Requests
from policyd.alloc.flavors.options import QueueOptions
from policyd.alloc.hierarchy import QuotaNode
from policyd.alloc.pending import Ticket
from policyd.alloc.queue import FlavorResource
from policyd.alloc.quota import QuotaTree
from policyd.alloc.reasons import Mode
from policyd.alloc.settings import Gates, QueueingSettings


@dataclass(slots=True, eq=False)
class NominatedWorkload:
    """A nominated workload: what it asks, what it would get, and whom it would preempt for that."""

    ticket: Ticket
    options: QueueOptions
    requests: Requests
    assignment: Assignment
    targets: tuple[Victim, ...] = ()

    @property
    def queue(self) -> str:
        """The name of its queue."""
        return self.ticket.workload.cluster_queue

    @property
    def served(self) -> bool:
        """Whether it fits, or will once its targets are gone."""
        return self.assignment.mode is Mode.FIT or bool(self.targets)


def turns(
    entries: Iterable[NominatedWorkload], tree: QuotaTree, settings: QueueingSettings
) -> Iterator[NominatedWorkload]:
    """Yield entries as they have their turn."""
    if settings.fair_sharing is None:
        yield from in_turn(entries, settings.gates)
    else:
        yield from tournament(entries, tree, settings.gates)


def in_turn(entries: Iterable[NominatedWorkload], gates: Gates) -> list[NominatedWorkload]:
    """Return entries in the order in which they have their turn without fair sharing.

    Those are first that hold quota already, and are only to be placed.
    """
    by_priority = gates.priority_sorting_within_cohort
    preemptors_first = gates.prioritize_preemptor_workloads

    def turn(entry: NominatedWorkload) -> tuple[bool, bool, int, tuple[object, ...]]:
        ticket, chosen = entry.ticket, entry.assignment
        later = preemptors_first and not ticket.preemptor
        rank = ticket.rank if by_priority else ticket.rank[1:]
        return chosen.held is None, later, chosen.level, rank

    return sorted(entries, key=turn)


def tournament(
    entries: Iterable[NominatedWorkload], tree: QuotaTree, gates: Gates
) -> Iterator[NominatedWorkload]:
    """Yield entries, at each turn the one whose share of the cohorts would be lowest.

    In every cohort the best of each child meet, and are compared by the children's shares as they
    would be then; the best goes on to the cohort above. Between trees, and between equals, names
    decide. Usage may change between two turns as the winner's turn makes it: in its queue and
    above. Of several entries of a ClusterQueue the last takes part.
    """
    left = {entry.options.node: entry for entry in entries}

    def match(child: QuotaNode, best: QuotaNode) -> Key | None:
        """Say how the best below `child` stands in the cohort above."""
        if best not in left:
            return None
        charges = left[best].assignment.charges
        with tree.trial():
            tree.charge(charges)
            share = share_of(tree, child)
        wanted = [tree.names[cell] for cell, amount in charges.items() if amount]
        return standing(left[best].ticket, share, wanted, gates)

    for root in sorted({node.root for node in left}, key=lambda node: (node.queue, node.name)):
        heap = CohortHeap([node for node in left if node.root is root], match)
        while (winner := heap.best(root)) is not None and winner in left:
            yield left.pop(winner)
            heap.changed(winner)


def standing(
    ticket: Ticket, share: BorrowedShare, wanted: Iterable[FlavorResource], gates: Gates
) -> Key:
    """Rank a workload in a cohort; the lowest wins.

    The share is that of the cohort's child that it is below, with what is `wanted` used.
    """
    borrows = any(names in share.borrowed for names in wanted)
    return (
        gates.prioritize_preemptor_workloads and not ticket.preemptor,
        gates.fair_sharing_prioritize_non_borrowing and borrows,
        share.rank,
        -ticket.workload.priority if gates.priority_sorting_within_cohort else 0,
        ticket.workload.queued_at,
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
