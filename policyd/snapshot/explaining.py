"""Why the workload that is next in its queue, or parked, is pending: found in the state now."""

from collections.abc import Iterable
from typing import NamedTuple

from policyd.alloc.flavors.options import QueueOptions
from policyd.alloc.pending import Ticket
from policyd.alloc.reasons import OverCapacity, Refusal
from policyd.alloc.state import CoreState
from policyd.optimize.opt_ins import NO_OPT_INS, wants
from policyd.snapshot.values import QuotaHolder, QuotaShortfall, SnapshotReason
from policyd.status.excluded_nodes import nodes_missed
from policyd.status.messages import message_of
from policyd.status.naming import Naming
from policyd.status.pending_reasons import refused_now
from policyd.status.remedies import (
    AskLess,
    Remedy,
    Shrink,
    UseFlavor,
    UseProfile,
    Wait,
    WaitForProtection,
    nearest_shortfalls,
    remedy_text,
)
from policyd.status.remedy_search import Ahead, remedies
from policyd.status.shortages import Shortage, shortages

MOST_NAMED = 3
"""How many workloads to wait for are named."""
_OF_USERS = (Wait, WaitForProtection, UseFlavor, Shrink, AskLess, UseProfile)


class PendingExplanation(NamedTuple):
    """Why a workload is pending, before it is known who reads it.

    Attributes:
        refusal: Why it gets no quota.
        shortages: What it waits for, with holders.
        remedies: What would help it, the cheapest first.
        nodes: What to say of nodes that are not counted.
    """

    refusal: Refusal
    shortages: tuple[Shortage, ...]
    remedies: tuple[Remedy, ...]
    nodes: str


def explain(
    state: CoreState,
    ticket: Ticket,
    options: QueueOptions,
    ahead: Ahead | None = (),
) -> PendingExplanation | None:
    """Explain why a workload would get no quota now.

    Args:
        state: Left as it was.
        ticket: The workload; none is ahead of it that must be decided about first.
        options: What its queue has to offer.
        ahead: Workloads of its queue that are tried before; None if they are too many.

    Returns:
        None if it would get quota, perhaps by preemption, and where the state does not say all:
        in a queue that decides by more than Kueue's rules.
    """
    if wants(options.spec) is not NO_OPT_INS:
        return None
    refusal = refused_now(state, ticket, options)
    if refusal is None:
        return None
    workload = ticket.workload
    return PendingExplanation(
        refusal,
        shortages(state, refusal, workload),
        remedies(state, workload, refusal, ahead),
        nodes_missed(state, refusal, workload.cluster_queue),
    )


def reason_for(explanation: PendingExplanation, naming: Naming) -> SnapshotReason:
    """Return an explanation as a reader gets it."""
    refusal, found = explanation.refusal, explanation.remedies
    return SnapshotReason(
        type=refusal.reason,
        message=message_of(refusal, naming) + explanation.nodes,
        lacking=tuple(_lacking(explanation, naming)),
        user=_first((each for each in found if isinstance(each, _OF_USERS)), naming),
        administrator=_first((each for each in found if not isinstance(each, _OF_USERS)), naming),
    )


def _first(found: Iterable[Remedy], naming: Naming) -> str:
    return next((remedy_text(each, naming, limit=MOST_NAMED) for each in found), "")


def _lacking(explanation: PendingExplanation, naming: Naming) -> Iterable[QuotaShortfall]:
    held = {(each.missing.flavor, each.missing.resource): each for each in explanation.shortages}
    for shortfall in nearest_shortfalls(explanation.refusal):
        if isinstance(shortfall, OverCapacity):
            most = shortfall.capacity - shortfall.assumed
            yield QuotaShortfall(
                flavor=shortfall.flavor,
                resource=shortfall.resource,
                requested=shortfall.requested,
                available=most,
                missing=shortfall.requested - most,
                never=True,
            )
            continue
        shortage = held[shortfall.flavor, shortfall.resource]
        yield QuotaShortfall(
            flavor=shortfall.flavor,
            resource=shortfall.resource,
            requested=shortfall.requested,
            available=shortfall.available,
            missing=shortfall.missing,
            holders=tuple(
                QuotaHolder(
                    name=naming.one(each.workload),
                    cluster_queue=each.cluster_queue,
                    amount=each.amount,
                )
                for each in shortage.holders
            ),
            others=shortage.others,
        )
