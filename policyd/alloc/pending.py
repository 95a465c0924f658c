"""The workloads that wait in one ClusterQueue, and which of them is next.

A workload is either *active*, in the order in which it will be tried, or *parked*: tried without
success, or backing off, until something changes that could help it.

Next is who has the highest priority, then who waits longest; but before that, where the queue
orders LocalQueues by what they used, who is of the one that used least; and then who preempted
others to have its turn, so that nobody takes what it made free.

What did not fit will not fit for another that asks for just the same: until something changes, the
others are parked too, when they are looked at.
"""

from collections.abc import Iterator, Mapping

import msgspec

from policyd.alloc.assignment import Progress
from policyd.alloc.line import Line, Rank
from policyd.alloc.options import Demand, QueueOptions
from policyd.alloc.options import demand_of as asked_by
from policyd.alloc.plan import Requeue, RequeueReason
from policyd.alloc.requests import Requests
from policyd.alloc.workload import ConditionReason, Workload

_MOST_DEMANDS = 1_000
_SLACK = 64
"""How many ranks beyond twice the tickets a line may hold before it is made anew."""
_RETRIED: frozenset[RequeueReason] = frozenset(
    {"FailedAfterNomination", "PendingPreemption", "PreemptionFailed"}
)
_SHARED: frozenset[RequeueReason] = frozenset({"NoFit", "PreemptionNoCandidates"})
"""Failures that anybody would meet who asks for the same."""


class Ticket:
    """A workload's place in its queue, and what it asks of the queue.

    Attributes:
        workload: Who waits.
        rank: The lowest is next.
        parked: Whether it waits aside.
        progress: Where the search for its flavors is to go on; None from the start.
        preemptor: Whether it is the latest of its queue for which others were preempted.
    """

    __slots__ = (
        "_asks",
        "_demand",
        "_options",
        "_requests",
        "parked",
        "preemptor",
        "progress",
        "rank",
        "workload",
    )

    def __init__(self, workload: Workload, asks: Demand | None = None) -> None:
        self._asks = asks
        self.workload = workload
        self.rank: Rank = (-workload.priority, workload.queued_at, workload.uid, workload.key)
        self.parked = workload.backing_off
        self.progress: Progress | None = None
        self.preemptor = False
        self._demand: int | None = None
        self._options: QueueOptions | None = None
        self._requests: Requests | None = None

    @property
    def demand(self) -> int:
        """The same for whoever asks for the same, worked out once."""
        if self._demand is None:
            self._demand = demand_of(self.workload)
        return self._demand

    def requests(self, options: QueueOptions) -> Requests:
        """Return what the workload asks of the queue, worked out once for the same options."""
        if self._requests is None or self._options is not options:
            self._options = options
            self._requests = options.requests(self.workload, demand=self._asks)
        return self._requests


def demand_of(workload: Workload) -> int:
    """Return a hash of all that decides whether a workload fits, its place in the queue apart."""
    pod_sets = [
        tuple(
            frozenset(value.items()) if isinstance(value, dict) else value
            for value in msgspec.structs.astuple(pod_set)
        )
        for pod_set in workload.pod_sets
    ]
    return hash((workload.priority, workload.allowed_flavors, *pod_sets))


def waits_aside(reason: RequeueReason, progress: Progress | None, *, strict: bool) -> bool:
    """Tell whether a workload is parked after an attempt that failed.

    Args:
        reason: How it failed.
        progress: Where the search for flavors is to go on, if it is.
        strict: Whether the queue lets nobody pass its head.
    """
    if reason == "NamespaceMismatch":
        return True
    return not strict and reason not in _RETRIED and progress is None


class PendingQueue:
    """Workloads of one ClusterQueue that wait for quota.

    INVARIANT: every ticket is either in `_parked` or has its rank in the line of its group. There
    may be more in a line: ranks of tickets that left, changed or were parked are skipped when they
    come up. A group is a LocalQueue where usage orders these, else there is one.
    """

    __slots__ = (
        "_demands",
        "_hopeless",
        "_latest",
        "_lines",
        "_parked",
        "_preemptor",
        "_tickets",
        "_usage",
    )

    def __init__(self) -> None:
        self._tickets: dict[str, Ticket] = {}
        self._parked: dict[str, Ticket] = {}
        self._demands: dict[object, Demand] = {}
        self._lines: dict[str, Line] = {}
        self._usage: Mapping[str, float] | None = None
        self._hopeless: dict[int, ConditionReason] = {}
        self._preemptor = ""
        self._latest: Ticket | None = None

    def __len__(self) -> int:
        return len(self._tickets)

    def __iter__(self) -> Iterator[Ticket]:
        """Iterate over all that wait, in no particular order."""
        self._park_hopeless()
        return iter(self._tickets.values())

    @property
    def parked(self) -> int:
        """How many wait aside."""
        self._park_hopeless()
        return len(self._parked)

    def order_by(self, usage: Mapping[str, float] | None) -> None:
        """Let LocalQueues that used least go first; None to go by priority and age alone.

        Args:
            usage: By LocalQueue, none for one that used nothing. Looked at when somebody is next.
        """
        if (usage is None) != (self._usage is None):
            self._usage = usage
            self._lines = {}
            for ticket in self._tickets.values():
                if not ticket.parked:
                    self._push(ticket)
        self._usage = usage

    def put(self, workload: Workload) -> None:
        """Add a workload, or take notice of its change. What is parked stays so if unchanged."""
        old = self._tickets.get(workload.key)
        if old is not None and old.workload == workload:
            return
        ticket = Ticket(workload, self._intern(workload))
        ticket.progress = None if old is None else old.progress
        self._parked.pop(workload.key, None)
        self._tickets[workload.key] = ticket
        if ticket.parked:
            self._parked[workload.key] = ticket
        else:
            self._push(ticket)

    def _intern(self, workload: Workload) -> Demand:
        # Hashing what a workload asks each time it is next costs more than deciding about it.
        if len(self._demands) >= _MOST_DEMANDS:
            self._demands.clear()
        return self._demands.setdefault(asked_by(workload), Demand())

    def remove(self, key: str) -> Ticket | None:
        """Take a workload out; None if it is not here."""
        ticket = self._tickets.pop(key, None)
        if ticket is not None and ticket.parked:
            del self._parked[key]
        if key == self._preemptor:
            self._preemptor = ""
        return ticket

    def head(self) -> Ticket | None:
        """Return the next workload to try, which stays where it is; None if there is none."""
        if self._usage is None and not self._preemptor:
            line = self._lines.get("")
            return self._top(line) if line else None
        found = [ticket for line in self._lines.values() if (ticket := self._top(line)) is not None]
        preemptor = self._tickets.get(self._preemptor)
        if preemptor is not None and not preemptor.parked:
            found.append(preemptor)
        return min(found, key=self._turn, default=None)

    def requeue(self, action: Requeue, *, strict: bool, equivalents: bool) -> None:
        """Let a workload wait after an attempt.

        Args:
            action: How the attempt failed, and whether the workload waits aside.
            strict: Whether the queue lets nobody pass its head: then nobody needs to be put there.
            equivalents: Whether those that ask for the same wait aside too.
        """
        ticket = self._tickets[action.workload.key]
        ticket.progress = action.progress
        if action.reason == "PendingPreemption":
            if self._latest is not None:
                self._latest.preemptor = False
            ticket.preemptor, self._latest = True, ticket
            self._preemptor = "" if strict else action.workload.key
        if action.parked or ticket.workload.backing_off:
            self._park(ticket)
            if equivalents and action.reason in _SHARED:
                self._hopeless[ticket.demand] = action.refusal.reason

    def wake(self) -> None:
        """Make every parked workload active again, but those that back off or are misplaced."""
        self._hopeless.clear()
        for key, ticket in list(self._parked.items()):
            objection = ticket.workload.objection
            if ticket.workload.backing_off or (objection is not None and objection.misplaced):
                continue
            del self._parked[key]
            ticket.parked = False
            self._push(ticket)

    def shared_refusal(self, key: str) -> ConditionReason | None:
        """Return why a parked workload, or one that asks for the same, does not fit.

        None if it is not parked, or for a reason of its own.
        """
        ticket = self._parked.get(key)
        return None if ticket is None else self._hopeless.get(ticket.demand)

    def _turn(self, ticket: Ticket) -> tuple[float, bool, Rank]:
        usage = 0.0 if self._usage is None else self._usage.get(ticket.workload.local_queue, 0.0)
        return usage, ticket.workload.key != self._preemptor, ticket.rank

    def _top(self, line: Line) -> Ticket | None:
        while (rank := line.first()) is not None:
            ticket = self._tickets.get(rank[-1])
            if ticket is not None and not ticket.parked and ticket.rank is rank:
                if not self._hopeless or ticket.demand not in self._hopeless:
                    return ticket
                self._park(ticket)
            line.drop_first()
        return None

    def _park_hopeless(self) -> None:
        if self._hopeless:
            for ticket in self._tickets.values():
                if not ticket.parked and ticket.demand in self._hopeless:
                    self._park(ticket)

    def _park(self, ticket: Ticket) -> None:
        ticket.parked = True
        self._parked[ticket.workload.key] = ticket

    def _push(self, ticket: Ticket) -> None:
        group = "" if self._usage is None else ticket.workload.local_queue
        line = self._lines.setdefault(group, Line())
        line.push(ticket.rank)
        if len(line) > 2 * len(self._tickets) + _SLACK:
            line.keep({id(rank): rank for rank in line if self._waits(rank)}.values())

    def _waits(self, rank: Rank) -> bool:
        ticket = self._tickets.get(rank[-1])
        return ticket is not None and not ticket.parked and ticket.rank is rank
