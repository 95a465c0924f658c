"""Keeps a reason on each pending workload, and keeps the reasons true.

A cycle tries one workload of a queue and parks all with the same requests, or lets them wait behind
the head. So most get no reason from a cycle; and a reason grows old when others get quota, which
wakes no workload. Every second, the reason that each pending workload should have is compared with
the one it has. It is worked out once for workloads that share it, and again only if quota, usage or
nodes changed. The writes have a budget: see ADR 25.
"""

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from heapq import nsmallest
from operator import attrgetter
from typing import Literal, NoReturn

from policyd.alloc.cluster_queue import QueueState
from policyd.alloc.flavors.options import QueueOptions
from policyd.alloc.pending import Ticket
from policyd.alloc.quota import QuotaNode
from policyd.alloc.reasons import Refusal
from policyd.api.kueue import Workload
from policyd.api.kueue.names import QUOTA_RESERVED
from policyd.api.meta import find_condition
from policyd.controller.metrics.counters import ControllerMetrics
from policyd.controller.reasons.job_reasons import JobReasons
from policyd.controller.reasons.shortage import naming_for
from policyd.controller.reasons.workload_reasons import AGAIN_SECONDS, PendingReason, PendingReasons
from policyd.controller.watch.cache import Cache
from policyd.controller.watch.keys import ReconcileKey, workload_key
from policyd.kube.pace import Pace
from policyd.kube.unforeseen import log_unforeseen
from policyd.status.pending_reasons import FirstInLine, behind_text, refused_now, turns
from policyd.workload.obstacles import BY_SCHEDULER
from policyd.workload.transitions import queued_since

SWEEP_SECONDS = 1.0
"""Between two looks at all that is pending."""
LONGEST_REST_SECONDS, LONGER_REST_SECONDS, SHARE = 3.0, 10.0, 30
"""After a long sweep: the longest rest with few pending and with more, and the rest as a multiple
of the sweep's duration. On a busy machine, a sweep of few takes long, too."""
SOON_SECONDS, LATE_SECONDS = 3.0, 5.0
"""Time that a workload is pending before its reason is written: most are admitted by then. The
latter if its tree changes, so that it may be decided on before."""
FEW = 1_000
"""Up to so many pending, each has its reason within ten seconds."""
FAST, SLOW = 150, 10
"""First reasons that are handed out in a sweep: with few pending, and with more."""
CORRECTIONS, FEWER_CORRECTIONS = 20, 5
"""Reasons that are handed out in a sweep because something else is true by now: likewise."""
LOOKS = 50
"""Reasons that are worked out anew in a sweep, beside those of workloads without one."""
FRESH_SECONDS = 5.0
"""A reason is not computed again before, if only to see whether it is still true. That of one that
was next is: it may have been passed over meanwhile, and has no reason yet."""


@dataclass(slots=True)
class KnownReason:
    """The reason that was worked out for a workload.

    Attributes:
        stamp: Of the state that it is true for.
        at: When, in seconds.
        refusal: Why it is pending; None if it is next.
        own: Its message; None for none.
        behind: The message for those behind it, by namespace.
    """

    stamp: object
    at: float
    refusal: Refusal | None
    own: PendingReason | None
    behind: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Pending:
    """A pending workload in its queue, and the one ahead of it; None if it was tried itself.

    Attributes:
        line: The first of its queue.
    """

    workload: Workload
    ticket: Ticket
    ahead: Ticket | None
    queue: QueueState
    options: QueueOptions
    line: FirstInLine
    since: float = 0.0

    @property
    def leader(self) -> Ticket:
        """The workload whose refusal is the reason."""
        return self.ahead or self.ticket


@dataclass(slots=True)
class PendingSweep:
    """The result of a look at all pending workloads.

    Attributes:
        count: How much is pending.
        missing: Workloads without a reason, and since when they have been pending.
        wrong: Workloads whose reason is no longer true, and when it was written.
        leaders: One of the workloads that share a reason, by the workload whose refusal it is.
    """

    count: int = 0
    missing: list[Pending] = field(default_factory=list)
    wrong: list[Pending] = field(default_factory=list)
    leaders: dict[str, Pending] = field(default_factory=dict)


class Reasons:
    """Finds out which workloads need another reason."""

    def __init__(
        self,
        cache: Cache,
        written: PendingReasons,
        jobs: JobReasons,
        *,
        pace: Pace,
        hand_out: Callable[[ReconcileKey], None],
    ) -> None:
        self.metrics: ControllerMetrics | None = None
        """Counts the checks, once it is set."""
        self._cache = cache
        self._written = written
        self._jobs = jobs
        self._pace = pace
        self._hand_out = hand_out
        self._known: dict[str, KnownReason] = {}
        self._moved: dict[QuotaNode, tuple[int, float]] = {}
        self._changed = asyncio.Event()
        self._open = True
        self._took = 0.0

    def wake(self) -> None:
        """Note that something changed."""
        self._changed.set()

    async def run(self) -> NoReturn:
        """Sweep pending workloads until cancelled, whenever something changed."""
        while True:
            if not (self._open or self._jobs.waits):
                await self._changed.wait()
            self._changed.clear()
            longest = LONGER_REST_SECONDS if self._written.limited else LONGEST_REST_SECONDS
            await self._pace.sleep(min(max(SWEEP_SECONDS, SHARE * self._took), longest))
            outcome: Literal["complete", "failed"] = "failed"
            with log_unforeseen("reasons_error"):
                await self.sweep()
                outcome = "complete"
            if self.metrics is not None:
                self.metrics.reasons_checked(outcome)

    async def sweep(self) -> None:
        """Check all pending workloads once, and queue the reasons to write."""
        now, began = self._pace.clock.now(), self._pace.clock.monotonic()
        found = self._compared(now)
        self._took = self._pace.clock.monotonic() - began
        if self.metrics is not None:
            self.metrics.stale_reasons(missing=len(found.missing), outdated=len(found.wrong))
        self._written.limited = limited = found.count > FEW
        room = (SLOW if limited else FAST) - len(self._written.due)
        for each in nsmallest(max(0, room), found.missing, key=attrgetter("since")):
            await self._queue_write(each, now)
        corrections = FEWER_CORRECTIONS if limited else CORRECTIONS
        for each in nsmallest(corrections, found.wrong, key=attrgetter("since")):
            await self._queue_write(each, now)
        for each in nsmallest(LOOKS, found.leaders.values(), key=self._swept_at):
            await self._look(each, now)
        self._jobs.flush()

    def _compared(self, now: float) -> PendingSweep:
        """Compare the reasons of all pending workloads with the written ones."""
        found, self._open = PendingSweep(), False
        for each in self._pending():
            found.count += 1
            found.leaders.setdefault(each.leader.workload.key, each)
            written = self._written.written(each.workload)
            self._open = self._open or written is None or self._is_old(each)
            if written is None:
                late = replace(each, since=queued_since(each.workload))
                if late.since + self._grace(each, now) <= now:
                    found.missing.append(late)
            elif self._differs(each, written.reason.message):
                self._open = True
                if written.at + AGAIN_SECONDS <= now:
                    found.wrong.append(replace(each, since=written.at))
        for key in self._known.keys() - found.leaders.keys():
            del self._known[key]
        return found

    def _pending(self) -> Iterator[Pending]:
        """Iterate over all that may be tried in queues that give out quota."""
        state = self._cache.state
        state.settle()
        for queue in list(state.queues.values()):
            options = queue.options
            if options is None or not len(queue.pending) or not queue.active:
                continue
            line = FirstInLine(queue.pending)
            for ticket, ahead in turns(queue.pending, strict=options.spec.strict):
                workload = self._cache.mirrors.workloads.get(ticket.workload.key)
                if workload is not None and ticket.workload.objection is None:
                    yield Pending(workload, ticket, ahead, queue, options, line)

    def _grace(self, pending: Pending, now: float) -> float:
        """Return the seconds for which a workload is left without a reason."""
        root = pending.options.node.root
        version, at = self._moved.get(root, (root.version, 0.0))
        if version != root.version or root not in self._moved:
            at = now if root in self._moved else 0.0
            self._moved[root] = (root.version, at)
        return LATE_SECONDS if now - at < SOON_SECONDS else SOON_SECONDS

    def _stamp(self, pending: Pending) -> object:
        """Return a value that changes when a workload might be refused for another reason."""
        decided = self._written.decided.get(pending.leader.workload.key)
        version = pending.options.node.root.version
        nodes = self._cache.state.revision if pending.options.topologies else 0
        before = pending.line.before(pending.leader)
        return version, nodes, decided, before, pending.leader, pending.options

    def _is_old(self, pending: Pending) -> bool:
        """Tell whether something changed since the reason of a workload was worked out."""
        known = self._known.get(pending.leader.workload.key)
        return known is None or known.stamp != self._stamp(pending)

    def _swept_at(self, pending: Pending) -> float:
        known = self._known.get(pending.leader.workload.key)
        return 0.0 if known is None else known.at

    async def _look(self, pending: Pending, now: float, *, due: bool = False) -> KnownReason | None:
        """Work out the reason of a workload, or of the one ahead of it, if that may have changed.

        One that is `due`, to be written, is as of now, however short ago it was worked out. None if
        it waits no longer.
        """
        ticket, stamp = pending.leader, self._stamp(pending)
        key = ticket.workload.key
        known = self._known.get(key)
        if known is not None:
            fresh = known.refusal is not None and now - known.at < FRESH_SECONDS
            if (fresh and not due) or known.stamp == stamp:
                return known
        if ticket.gone or pending.queue.options is not pending.options:
            return None
        decided = self._written.decided.get(key)
        refusal: Refusal | None = None
        own = None
        with log_unforeseen("reason_error", workload=key):
            if decided is not None:
                refusal = decided.refusal
            else:
                refusal = refused_now(self._cache.state, ticket, pending.options)
            if refusal is not None:
                requests = ticket.requests(pending.options).totals
                ahead = pending.line.ahead(ticket)
                own = self._written.own(ticket.workload, refusal, requests, ahead, decided)
        known = self._known[key] = KnownReason(stamp, now, refusal, own)
        await self._pace.sleep(0)  # others have their turn
        return known

    async def _queue_write(self, pending: Pending, now: float) -> None:
        """Queue a workload's reason to be written."""
        known = await self._look(pending, now, due=True)
        reason = None if known is None else self._reason_of(pending, known)
        if reason is not None and not pending.ticket.gone:
            self._written.due[pending.ticket.workload.key] = reason
            self._hand_out(workload_key(pending.workload))

    def _differs(self, pending: Pending, written: str) -> bool:
        known = self._known.get(pending.leader.workload.key)
        reason = None if known is None else self._reason_of(pending, known)
        return reason is not None and reason.message != written

    def _reason_of(self, pending: Pending, known: KnownReason) -> PendingReason | None:
        """Return the reason for a workload; None if nothing useful is known."""
        shared = pending.queue.pending.shared_refusal(pending.ticket.workload.key)
        if pending.ahead is None:
            own = known.own
            return own and replace(own, reason=shared or own.reason)
        present = find_condition(pending.workload.status.conditions, QUOTA_RESERVED)
        reason: str = shared or "PendingEvaluation"
        if shared is None and present is not None and present.reason in BY_SCHEDULER:
            reason = present.reason
        return PendingReason(reason, self._behind(pending, known))

    def _behind(self, pending: Pending, known: KnownReason) -> str:
        key, ahead = pending.ticket.workload.key, pending.leader.workload.key
        namespace = key.partition("/")[0]
        text = known.behind.get(namespace)
        if text is None:
            naming = naming_for(self._cache, key)
            text = behind_text(naming.one(ahead), known.refusal, naming)
            known.behind[namespace] = text
        return text
