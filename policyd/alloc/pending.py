"""The workloads that wait in one ClusterQueue, and which of them is next.

A workload is either *active*, in the order in which it will be tried, or *parked*: tried without
success, or backing off, until something changes that could help it.

Next is who has the highest priority, then the longest pending; but before that, where the queue
orders LocalQueues by what they used, who is of the one that used least; and then who preempted
others to have its turn, so that nobody takes what it made free.

What did not fit will not fit for another that asks for just the same: until something changes, all
of them are parked, without a look at each.
"""

from bisect import insort
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from heapq import heappop, heappush, heapreplace
from operator import attrgetter
from typing import Generic, Protocol, TypeVar

from policyd.alloc.flavors.assignment import Progress, Requests
from policyd.alloc.flavors.options import QueueOptions, RequestsKey, demand_of
from policyd.alloc.plan import Requeue, RequeueReason
from policyd.alloc.workload import ConditionReason, QueuedWorkload

Rank = tuple[int, float, str, str]
"""Priority, highest first; age; uid; key."""

_FEW = 4
_SHARE = 64
_UNUSED = 64
_rank = attrgetter("rank")


class Member(Protocol):
    """What waits in a line of those who ask for the same, unless it is `gone` or set `aside`."""

    rank: Rank
    gone: bool
    aside: bool

    @property
    def demand(self) -> object:
        """Equal for all that are to be in one line."""


R = TypeVar("R")
M = TypeVar("M", bound=Member)


class PendingIndex(Generic[R]):
    """Members that have a `rank`, of which the one of the lowest is first.

    They are kept sorted, so that taking the first compares nothing, however many there are. Those
    that come are put in when somebody asks for the first: a few one by one, a crowd by sorting.
    """

    __slots__ = ("_fresh", "_sorted", "_start", "demand", "listed")

    def __init__(self, demand: object = None) -> None:
        self.demand = demand
        self.listed: Rank | None = None
        self._fresh: list[R] = []
        self._sorted: list[R] = []
        self._start = 0

    def push(self, member: R) -> None:
        """Add a member."""
        self._fresh.append(member)

    def first(self) -> R | None:
        """Return the member of the lowest rank; None if there is none."""
        if self._fresh:
            self._settle()
        return self._sorted[self._start] if self._start < len(self._sorted) else None

    def drop_first(self) -> None:
        """Take the member out that `first` returned."""
        self._start += 1
        if self._start > _UNUSED and 2 * self._start > len(self._sorted):
            del self._sorted[: self._start]
            self._start = 0

    def _settle(self) -> None:
        fresh, known = self._fresh, self._sorted
        if len(fresh) <= _FEW + len(known) // _SHARE:
            for member in fresh:
                insort(known, member, lo=self._start, key=_rank)
        else:
            self._sorted = sorted(known[self._start :] + fresh, key=_rank)
            self._start = 0
        self._fresh = []


class Crowd(Generic[M]):
    """Members in lines, one for each demand: a line is passed over and taken back as a whole.

    INVARIANT: a line that was not passed over is in the heap by the rank by which it is `listed`,
    of its first or of one that was first before. There may be older entries of it in the heap.
    """

    __slots__ = ("_heap", "_lines", "_listings", "_size")

    def __init__(self) -> None:
        self._lines: dict[object, PendingIndex[M]] = {}
        self._heap: list[tuple[Rank, int, PendingIndex[M]]] = []
        self._listings = 0
        self._size = 0

    def __len__(self) -> int:
        """Count members, with those that left and have not come up since."""
        return self._size

    def push(self, member: M) -> None:
        """Add a member."""
        demand = member.demand
        line = self._lines.get(demand)
        if line is None:
            line = self._lines[demand] = PendingIndex(demand)
        line.push(member)
        self._size += 1
        if line.listed is None:
            self._list(line)
        elif member.rank < line.listed:
            self._enter(line, member.rank)

    def first(self, *, without: Collection[object]) -> M | None:
        """Return the member of the lowest rank, `without` some demands; None if there is none."""
        heap = self._heap
        while heap:
            rank, number, line = heap[0]
            if line.listed is rank and not (without and line.demand in without):
                first = self._first_of(line)
                if first is not None and first.rank is rank:
                    return first
                if first is not None:
                    line.listed = first.rank
                    heapreplace(heap, (first.rank, number, line))
                    continue
            heappop(heap)
            if line.listed is rank:
                line.listed = None
        return None

    def take_back(self, demand: object) -> None:
        """Have a line looked at again that was passed over."""
        line = self._lines.get(demand)
        if line is not None and line.listed is None:
            self._list(line)

    def _first_of(self, line: PendingIndex[M]) -> M | None:
        while (member := line.first()) is not None:
            if not (member.gone or member.aside):
                return member
            line.drop_first()
            self._size -= 1
        self._lines.pop(line.demand, None)
        return None

    def _list(self, line: PendingIndex[M]) -> None:
        first = self._first_of(line)
        if first is not None:
            self._enter(line, first.rank)

    def _enter(self, line: PendingIndex[M], rank: Rank) -> None:
        self._listings += 1
        line.listed = rank
        heappush(self._heap, (rank, self._listings, line))


_MOST_DEMANDS = 1_000
_SLACK = 64
"""How many places beyond twice the tickets a line may have before it is made anew."""
_RETRIED: frozenset[RequeueReason] = frozenset(
    {"FailedAfterNomination", "PendingPreemption", "PreemptionFailed"}
)
_SHARED: frozenset[RequeueReason] = frozenset({"NoFit", "PreemptionNoCandidates"})
"""Failures that anybody would meet who asks for the same."""


@dataclass(slots=True, eq=False)
class Ticket:
    """A workload's place in its queue, and what it asks of the queue.

    Attributes:
        plain: Whether it could be considered like any other: nobody objects, it replaces none, and
            asks for no place.
        rank: The lowest is next.
        gone: Whether it is in the queue no more.
        aside: Whether it is parked for a reason of its own.
        progress: Where the search for its flavors is to go on; None from the start.
        preemptor: Whether it is the latest of its queue for which others were preempted.
    """

    workload: QueuedWorkload
    _asks: RequestsKey
    plain: bool = field(init=False)
    rank: Rank = field(init=False)
    gone: bool = False
    aside: bool = field(init=False)
    progress: Progress | None = None
    preemptor: bool = False

    def __post_init__(self) -> None:
        workload = self.workload
        asks = any(pod_set.placed for pod_set in workload.pod_sets)
        self.plain = not (workload.objection or workload.replaces or asks)
        self.rank = -workload.priority, workload.queued_at, workload.uid, workload.key
        self.aside = workload.backing_off

    @property
    def demand(self) -> tuple[int, RequestsKey]:
        """What decides whether it fits: the same for who asks the same with the same priority."""
        return self.workload.priority, self._asks

    @property
    def wakes(self) -> bool:
        """Whether it is tried again once something changes, if it is parked."""
        objection = self.workload.objection
        misplaced = objection is not None and objection.misplaced
        return not (self.workload.backing_off or misplaced)

    def requests(self, options: QueueOptions) -> Requests:
        """Return what the workload asks of the queue, worked out once for the same options."""
        return options.requests(self.workload, demand=self._asks)


def waits_aside(reason: RequeueReason, progress: Progress | None, *, strict: bool) -> bool:
    """Tell whether a workload is parked after an attempt that failed.

    It is not where its search for flavors is to go on, or, `strict`, nobody passes the head.
    """
    if reason == "NamespaceMismatch":
        return True
    goes_on = progress is not None and progress.goes_on
    return not (strict or goes_on or reason in _RETRIED)


@dataclass(slots=True, eq=False)
class PendingQueue:
    """Workloads of one ClusterQueue that wait for quota.

    INVARIANT: every ticket is either in `_aside` or in the crowd of its group. There may be more in
    a crowd: tickets that left, changed or were set aside are skipped when they come up. A group is
    a LocalQueue where usage orders these, else there is one.
    """

    _tickets: dict[str, Ticket] = field(default_factory=dict)
    _aside: dict[str, Ticket] = field(default_factory=dict)
    _demands: dict[object, RequestsKey] = field(default_factory=dict)
    _crowds: dict[str, Crowd[Ticket]] = field(default_factory=lambda: {"": Crowd()})
    _usage: Mapping[str, float] | None = None
    _hopeless: dict[tuple[int, RequestsKey], ConditionReason] = field(default_factory=dict)
    _preemptor: str = ""
    _latest: Ticket | None = None

    def __len__(self) -> int:
        return len(self._tickets)

    def __iter__(self) -> Iterator[Ticket]:
        """Iterate over all that wait, in no particular order."""
        return iter(self._tickets.values())

    @property
    def parked(self) -> int:
        """How many are not tried for now."""
        return len(self) - len(self.active)

    @property
    def parks(self) -> bool:
        """Whether there are any that are not tried for now."""
        return bool(self._aside or self._hopeless)

    @property
    def active(self) -> list[Ticket]:
        """Those that are tried in their turn, in no particular order."""
        return [ticket for ticket in self if self._is_active(ticket)]

    def in_order(self) -> list[Ticket]:
        """Return all that wait, parked or not, in the order of their turns."""
        return sorted(self._tickets.values(), key=self._turn)

    def order_by(self, usage: Mapping[str, float] | None) -> None:
        """Let LocalQueues go first whose `usage` is least when somebody is next.

        None is to go by priority and age alone.
        """
        regroup = (usage is None) != (self._usage is None)
        self._usage = usage
        if regroup:
            self._line_up()

    def first(self) -> Ticket | None:
        """Return who is first of all that may be tried, parked or not; None if nobody is."""
        waiting = (
            each for each in self if not (each.workload.backing_off or each.workload.objection)
        )
        return min(waiting, key=attrgetter("rank"), default=None)

    def get(self, key: str) -> QueuedWorkload | None:
        """Return the workload of that key; None if it is not here."""
        ticket = self._tickets.get(key)
        return None if ticket is None else ticket.workload

    def put(self, workload: QueuedWorkload, *, carries: bool = True) -> None:
        """Add a workload, or take notice of its change. What is parked stays so if unchanged.

        With `carries`, the search for its flavors goes on where it stopped before the change.
        """
        old = self._tickets.get(workload.key)
        if old is not None and old.workload == workload:
            return
        ticket = Ticket(workload, self._intern(workload))
        if old is not None:
            ticket.progress, old.gone = old.progress if carries else None, True
            if old.preemptor and ticket.demand == old.demand:
                ticket.preemptor, self._latest = True, ticket
        self._aside.pop(workload.key, None)
        self._tickets[workload.key] = ticket
        if ticket.aside:
            self._aside[workload.key] = ticket
        else:
            self._activate(ticket)

    def _intern(self, workload: QueuedWorkload) -> RequestsKey:
        # Hashing what a workload asks each time it is next costs more than deciding about it.
        content = demand_of(workload)
        known = self._demands.get(content)
        if known is None:
            if len(self._demands) >= _MOST_DEMANDS:
                self._demands.clear()
            known = self._demands[content] = RequestsKey()
        return known

    def remove(self, key: str) -> Ticket | None:
        """Take a workload out; None if it is not here."""
        ticket = self._tickets.pop(key, None)
        if ticket is not None:
            ticket.gone = True
            self._aside.pop(key, None)
        if key == self._preemptor:
            self._preemptor = ""
        return ticket

    def head(self) -> Ticket | None:
        """Return the next workload to try, which stays where it is; None if there is none."""
        if self._usage is None and not self._preemptor:
            return self._crowds[""].first(without=self._hopeless)
        firsts = [crowd.first(without=self._hopeless) for crowd in self._crowds.values()]
        found = [ticket for ticket in firsts if ticket is not None]
        preemptor = self._tickets.get(self._preemptor)
        if preemptor is not None and self._is_active(preemptor):
            found.append(preemptor)
        return min(found, key=self._turn, default=None)

    def requeue(self, action: Requeue, *, strict: bool, equivalents: bool) -> None:
        """Let a workload wait after an attempt, with its `equivalents` if they wait aside too.

        `strict` tells that nobody passes the head of the queue: then nobody needs to be put there.
        """
        ticket = self._tickets[action.workload.key]
        ticket.progress = action.progress
        if action.reason == "PendingPreemption":
            if self._latest is not None:
                self._latest.preemptor = False
            ticket.preemptor, self._latest = True, ticket
            self._preemptor = "" if strict else action.workload.key
        if action.parked or ticket.workload.backing_off:
            if equivalents and action.reason in _SHARED:
                self._hopeless[ticket.demand] = action.refusal.reason
            else:
                ticket.aside, self._aside[ticket.workload.key] = True, ticket

    def wake(self) -> None:
        """Make every parked workload active again, but those that back off or are misplaced."""
        for crowd in self._crowds.values():
            for demand in self._hopeless:
                crowd.take_back(demand)
        self._hopeless.clear()
        for key, ticket in list(self._aside.items()):
            if ticket.wakes:
                del self._aside[key]
                ticket.aside = False
                self._activate(ticket)

    def precedes(self, ticket: Ticket) -> bool:
        """Tell whether somebody parked is more important, and to have its turn once woken."""
        if self._usage is not None or ticket.workload.key == self._preemptor:
            return False
        parked = [each.workload for each in self._aside.values() if each.wakes]
        most = max(
            [each.priority for each in parked] + [p for p, _ in self._hopeless], default=None
        )
        return most is not None and most > ticket.workload.priority

    def shared_refusal(self, key: str) -> ConditionReason | None:
        """Return why a workload, or one that asks for the same, does not fit; None if it may."""
        ticket = self._tickets.get(key)
        return None if ticket is None else self._hopeless.get(ticket.demand)

    def turns(self, *, strict: bool) -> Iterator[tuple[Ticket, Ticket | None]]:
        """Yield all that do not back off, each with who has to get quota first, or be refused.

        That is nobody for who is next, and for who was tried by itself. With `strict`, nobody
        passes the head of the queue; else only who asks for the same as somebody before, or was
        not tried yet, is behind another.
        """
        waiting = [ticket for ticket in self if not ticket.workload.backing_off]
        tried = (ticket for ticket in waiting if not ticket.aside)
        head = min(tried, key=self._turn, default=None) if strict else self.head()
        firsts: dict[object, Ticket] = {}
        for ticket in () if strict else waiting:
            first = firsts.setdefault(ticket.demand, ticket)
            if self._turn(ticket) < self._turn(first):
                firsts[ticket.demand] = ticket
        for ticket in waiting:
            ahead = firsts[ticket.demand] if ticket.demand in self._hopeless else head
            yield ticket, None if ticket.aside or ahead is ticket else ahead

    def _turn(self, ticket: Ticket) -> tuple[float, bool, Rank]:
        usage = 0.0 if self._usage is None else self._usage.get(ticket.workload.local_queue, 0.0)
        return usage, ticket.workload.key != self._preemptor, ticket.rank

    def _is_active(self, ticket: Ticket) -> bool:
        return not (ticket.aside or ticket.demand in self._hopeless)

    def _activate(self, ticket: Ticket) -> None:
        group = "" if self._usage is None else ticket.workload.local_queue
        crowd = self._crowds.setdefault(group, Crowd())
        crowd.push(ticket)
        if len(crowd) > 2 * len(self._tickets) + _SLACK:
            self._line_up()

    def _line_up(self) -> None:
        self._crowds = {"": Crowd()}
        for ticket in self._tickets.values():
            if not ticket.aside:
                self._activate(ticket)
