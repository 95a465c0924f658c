"""One scheduling cycle: the next workload of every queue, and what to do with each.

1. *Nominate*: for each of them, choose flavors as if it were alone.
2. *Order*: those that borrow least first; then by priority, then by age.
3. *Process* one after the other, each with the usage of those before it. What had room when it was
   nominated may have lost it, and waits for the next cycle. What waits for quota of its own queue
   keeps others from borrowing that quota away in the same cycle.

Usage is changed on the way and taken back at the end: planning leaves the state as it was.
"""

from typing import NamedTuple

from policyd.alloc.assignment import Assignment, Mode
from policyd.alloc.pending import Ticket
from policyd.alloc.plan import Action, Admit, Plan, Requeue, RequeueReason
from policyd.alloc.queue import QueueSpec
from policyd.alloc.quota import QuotaTree
from policyd.alloc.reasons import NO_LONGER_FITS, Refusal
from policyd.alloc.requests import Requests
from policyd.alloc.search import assign_flavors
from policyd.alloc.state import State
from policyd.alloc.workload import Objection

_RETRIED: frozenset[RequeueReason] = frozenset({"FailedAfterNomination"})


class Entry(NamedTuple):
    """A nominated workload."""

    ticket: Ticket
    queue: QueueSpec
    requests: Requests
    assignment: Assignment


def plan_cycle(state: State) -> Plan:
    """Decide what to do with the next workload of every active queue.

    Args:
        state: Left as it was; `state.commit(plan)` carries the plan out in it.
    """
    actions: list[Action] = []
    entries: list[Entry] = []
    tree = state.tree
    for options, ticket in state.heads():
        requests = ticket.requests(options)
        objection = ticket.workload.objection
        if objection is not None:
            actions.append(_set_aside(options.spec, ticket, requests, objection))
            continue
        assignment = assign_flavors(tree, options.spec, ticket.workload, requests)
        entries.append(Entry(ticket, options.spec, requests, assignment))
    entries.sort(key=_order)
    with tree.trial():
        actions.extend(_process(tree, entry) for entry in entries)
    return Plan(actions=tuple(actions), revision=state.revision)


def _order(entry: Entry) -> tuple[int, tuple[int, float, str, str]]:
    return entry.assignment.level, entry.ticket.rank


def _process(tree: QuotaTree, entry: Entry) -> Action:
    assignment = entry.assignment
    if assignment.mode is Mode.NO_FIT:
        return _requeue(entry, "NoFit", _refusal(assignment))
    if assignment.mode is Mode.BLOCKED:
        _reserve(tree, entry)
        return _requeue(entry, "PreemptionNoCandidates", _refusal(assignment))
    if not tree.fits(assignment.charges):
        missing = assignment.shortfall(tree)
        refusal = Refusal("WaitingForQuota", note=NO_LONGER_FITS, explain=lambda: missing)
        return _requeue(entry, "FailedAfterNomination", refusal)
    tree.charge(assignment.charges)
    return Admit(
        workload=entry.ticket.workload,
        admission=assignment.admission(entry.queue.name),
        level=assignment.level,
        charges=assignment.charges,
    )


def _reserve(tree: QuotaTree, entry: Entry) -> None:
    # Whoever may reclaim from anybody gets its quota back anyway; the others would see it go to
    # those that come later in the cycle.
    if entry.queue.preemption.reclaim_within_cohort == "Any":
        return
    kept: dict[int, int] = {}
    for cell, amount in entry.assignment.charges.items():
        most = tree.nominal[cell] - tree.usage[cell]
        if entry.assignment.level:
            limit = tree.borrowing_limit[cell]
            most = amount if limit is None else most + limit
        kept[cell] = min(amount, most)
    tree.charge(kept)


def _refusal(assignment: Assignment) -> Refusal:
    return Refusal(assignment.reason(), explain=assignment.refusals)


def _requeue(entry: Entry, reason: RequeueReason, refusal: Refusal) -> Requeue:
    return Requeue(
        workload=entry.ticket.workload,
        reason=reason,
        refusal=refusal,
        requests=entry.requests.totals,
        parked=not entry.queue.strict and reason not in _RETRIED,
    )


def _set_aside(
    queue: QueueSpec, ticket: Ticket, requests: Requests, objection: Objection
) -> Requeue:
    return Requeue(
        workload=ticket.workload,
        reason="NamespaceMismatch" if objection.misplaced else "Generic",
        refusal=Refusal(objection.reason, note=objection.message),
        requests=requests.totals,
        parked=objection.misplaced or not queue.strict,
    )
