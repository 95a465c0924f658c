"""Why a workload is pending now, those ahead of it, and the message for those behind it."""

from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cached_property
from itertools import takewhile
from typing import Final

from policyd.alloc.flavors.options import QueueOptions
from policyd.alloc.nominate import Nominator
from policyd.alloc.pending import PendingQueue, Ticket
from policyd.alloc.reasons import FIT, OverCapacity, Refusal
from policyd.alloc.state import CoreState
from policyd.alloc.workload import QueuedWorkload
from policyd.status.messages import message_of
from policyd.status.naming import PLAIN, Naming
from policyd.status.pending_order import order_of
from policyd.status.quantities import format_amount
from policyd.status.remedies import Shortfall, nearest_shortfalls
from policyd.status.remedy_search import Ahead

MOST_AHEAD: Final = 1_000
"""Workloads before another one that its written reason takes into account: with more, it has no
remedy that depends on them."""


def refused_now(state: CoreState, ticket: Ticket, options: QueueOptions) -> Refusal | None:
    """Return why a workload would be refused if it were tried now.

    None if it would not, or not because of requests and usage: it fits, others would be preempted
    for it, or it is invalid.
    """
    state.settle()
    if ticket.workload.objection is not None:
        return None
    entry = Nominator(state).entry(ticket, options)
    if entry.assignment.mode is FIT or entry.targets:
        return None
    refusal = entry.assignment.refusal
    refusal.pod_sets  # noqa: B018 - its numbers are those of now, not of when it is read
    return refusal


def find_ahead(
    queue: PendingQueue, ticket: Ticket, *, first: Ticket, head: Ticket | None, strict: bool
) -> Ticket | None:
    """Return the workload that must get quota, or be refused, before another.

    With `strict`, none passes the head of the queue; else a workload is behind another only if it
    asks for the same as that one, which comes before it, or was not tried yet.

    Args:
        queue: The queue of both.
        ticket: The other.
        first: The first that asks for the same.
        head: The next one of the queue; with `strict`, also if it was refused with others.
        strict: Whether the queue is StrictFIFO.

    Returns:
        None for the next one, and for one that backs off or was tried by itself.
    """
    if ticket.aside or ticket.workload.backing_off:
        return None
    shared = not strict and queue.shared_refusal(ticket.workload.key) is not None
    ahead = first if shared else head
    return None if ahead is ticket else ahead


def turns(queue: PendingQueue, *, strict: bool) -> Iterator[tuple[Ticket, Ticket | None]]:
    """Yield all that do not back off, each with the one before it, as `find_ahead` returns it."""
    waiting = [ticket for ticket in queue if not ticket.workload.backing_off]
    tried = (ticket for ticket in waiting if not ticket.aside)
    head = min(tried, key=queue.turn, default=None) if strict else queue.head()
    firsts: dict[object, Ticket] = {}
    for ticket in () if strict else waiting:
        first = firsts.setdefault(ticket.request_key, ticket)
        if queue.turn(ticket) < queue.turn(first):
            firsts[ticket.request_key] = ticket
    for ticket in waiting:
        first = firsts.get(ticket.request_key, ticket)
        yield ticket, find_ahead(queue, ticket, first=first, head=head, strict=strict)


def requests_ahead(tickets: Iterable[Ticket]) -> Ahead:
    """Return one workload of each request of those that are tried before another."""
    found: dict[object, Ticket] = {}
    counts: Counter[object] = Counter()
    for each in tickets:
        if not each.gone and not each.workload.backing_off:
            found.setdefault(each.request_key, each)
            counts[each.request_key] += 1
    return [(found[key].workload, count) for key, count in counts.items()]


class FirstInLine:
    """The first workloads of a queue as of now, in the order of their turns."""

    def __init__(self, queue: PendingQueue) -> None:
        self._tickets = [each.ticket for each in order_of(queue).places("", 0, MOST_AHEAD + 1)]

    @cached_property
    def _before(self) -> dict[Ticket, int]:
        found: dict[Ticket, int] = {}
        before = 0
        for ticket in self._tickets:
            found[ticket] = before
            before = hash((before, hash(ticket.request_key), ticket.workload.backing_off))
        return found

    def before(self, ticket: Ticket) -> int | None:
        """Return what is another if those before a workload are, or request, something else.

        None if they are too many.
        """
        return self._before.get(ticket)

    def ahead(self, ticket: Ticket) -> Ahead | None:
        """Return what those before a workload request; None if they are too many."""
        before = [*takewhile(lambda each: each is not ticket, self._tickets)]
        return None if len(before) == len(self._tickets) else requests_ahead(before)


def ahead_of(state: CoreState, workload: QueuedWorkload) -> Ahead | None:
    """Return what those before a pending workload request; None if they are too many."""
    queue = state.queues.get(workload.cluster_queue)
    ticket = None if queue is None else queue.pending.ticket(workload.key)
    return () if queue is None or ticket is None else FirstInLine(queue.pending).ahead(ticket)


def behind_text(name: str, refusal: Refusal | None, naming: Naming = PLAIN) -> str:
    """Return the message for a workload behind another one, with the reason of that one.

    Args:
        name: The name of the other.
        refusal: The reason of the other; None if it is next.
        naming: How its reason names workloads.
    """
    if refusal is None:
        return f"behind {name}, which is next"
    shortfalls = nearest_shortfalls(refusal)
    if not shortfalls or refusal.pending:
        return f"behind {name}, which is pending: {message_of(refusal, naming)}"
    return f"behind {name}, which needs {needs_text(shortfalls)}"


def needs_text(shortfalls: Iterable[Shortfall]) -> str:
    """Say what quota a workload needs, and how much of it is free."""
    return ", and ".join(map(_needs, shortfalls))


def _needs(shortfall: Shortfall) -> str:
    needed = format_amount(shortfall.resource, shortfall.requested)
    start = f"{needed} {shortfall.resource} of {shortfall.flavor}"
    if isinstance(shortfall, OverCapacity):
        most = format_amount(shortfall.resource, shortfall.capacity - shortfall.assumed)
        return f"{start}; its queue can have {most} at most"
    free = format_amount(shortfall.resource, shortfall.available)
    return f"{start}; {free} {'is' if free == '1' else 'are'} free"
