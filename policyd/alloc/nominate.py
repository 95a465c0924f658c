"""What a workload would get if it were alone: flavors, and victims if there is no room.

If not all of its pods fit, and it can run with fewer, the most pods that do are searched for.
"""

from bisect import bisect_left
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, TypeVar

from policyd.alloc.assignment import Assignment, Progress
from policyd.alloc.cluster_queue import Holding, Victim
from policyd.alloc.entry import Entry
from policyd.alloc.options import QueueOptions, replacing
from policyd.alloc.pending import Ticket
from policyd.alloc.preemption import Claim, find_targets, possible
from policyd.alloc.reach import Reach
from policyd.alloc.reasons import Mode
from policyd.alloc.requests import Requests
from policyd.alloc.search import EVERYWHERE, Oracle, Scan
from policyd.alloc.state import State
from policyd.alloc.topology.placing import Placer
from policyd.alloc.workload import Workload

T = TypeVar("T")


class Choice(NamedTuple):
    """What a workload would get.

    Attributes:
        requests: What it asks.
        assignment: Flavors for it.
        targets: Whom it would preempt; none if it fits, or if nobody can be preempted.
    """

    requests: Requests
    assignment: Assignment
    targets: tuple[Victim, ...] = ()


@dataclass(slots=True, eq=False)
class Chooser:
    """Chooses for one workload, with the usage the state's tree has when it is asked.

    Attributes:
        workload: Who asks.
        options: What its queue has to offer.
    """

    _state: State
    options: QueueOptions
    workload: Workload
    _requests: Requests
    _preempts: bool

    def choose(self, scan: Scan = EVERYWHERE, removed: Collection[str] = ()) -> Choice:
        """Choose flavors and victims.

        Args:
            scan: Which flavors to try.
            removed: Keys of workloads whose usage is gone already.
        """
        replaced = self.workload.replaces
        removed = (*removed, replaced) if replaced else removed
        full = self._choose(self._requests, scan, removed)
        if full.assignment.mode is Mode.FIT or full.targets:
            return full
        pod_sets = self.workload.pod_sets
        if not self._state.settings.gates.partial_admission or all(
            p.minimum is None or p.minimum >= p.count for p in pod_sets
        ):
            return full

        def attempt(counts: Sequence[int]) -> Choice | None:
            requests = self.options.requests(self.workload, counts)
            choice = self._choose(requests, scan, removed)
            return choice if choice.assignment.mode is Mode.FIT or choice.targets else None

        wanted = [pod_set.count for pod_set in pod_sets]
        least = [p.count if p.minimum is None else p.minimum for p in pod_sets]
        return most_pods(wanted, least, attempt) or full

    def _choose(self, requests: Requests, scan: Scan, removed: Collection[str]) -> Choice:
        requests = self._beyond_replaced(requests)
        oracle: Oracle | None = None
        if self._preempts:
            oracle = partial(possible, self._state, self.workload, removed=removed)
        assignment = self.options.search.assign(requests, oracle, scan)
        if self.options.topologies or any(p.placed for p in self.workload.pod_sets):
            return self._place(requests, assignment, removed)
        if not self._preempts or not assignment.preempts:
            return Choice(requests, assignment)
        claim = Claim(self.workload, assignment.charges, assignment.short, removed)
        return Choice(requests, assignment, find_targets(self._state, claim))

    def _place(
        self, requests: Requests, assignment: Assignment, removed: Collection[str] = ()
    ) -> Choice:
        placer = Placer(self._state, self.options, self.workload, assignment)
        assignment = placer.placed()
        if not self._preempts or not assignment.preempts or self.workload.failed_node:
            return Choice(requests, assignment)
        claim = Claim(
            self.workload, assignment.charges, assignment.short, removed, places=placer.fits
        )
        targets = find_targets(self._state, claim)
        if targets:
            assignment = placer.after(assignment, targets)
        return Choice(requests, assignment, targets)

    def place_again(self, holding: Holding, removed: Collection[str] = ()) -> Choice:
        """Choose places, and victims that have them, for a workload that has its quota.

        `removed` as in `choose`.
        """
        return self._place(self._requests, Assignment(held=holding.admission), removed)

    def _beyond_replaced(self, requests: Requests) -> Requests:
        if not self.workload.replaces:
            return requests
        holding = self._state.holding(self.workload.replaces)
        if holding is None or holding.admission.cluster_queue != self.options.spec.name:
            return requests
        return replacing(requests, holding.admission)


class Nominator:
    """Chooses for the next workload of each queue, one by one, before anything is decided."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._cycle = state.cycle + 1
        self._preserves = state.settings.gates.flavor_fungibility_preserve_scan_progress
        self._fits = state.tree.fits
        self._reach = Reach(state)
        self._moving = {k: move for k, move in state.moving.items() if move.until > state.now}

    def entry(self, ticket: Ticket, options: QueueOptions) -> Entry:
        """Choose for a workload as if it were alone."""
        requests = ticket.requests(options)
        # Who has quota comes up only to be placed: to look for everybody costs a tenth of a cycle.
        holding = self._state.holding(ticket.workload.key) if self._state.again else None
        if holding is not None:
            return self._again(ticket, options, requests, holding)
        if options.topologies:
            return self._search(ticket, options, requests)
        if ticket.plain and ticket.progress is None and ticket.workload.key not in self._moving:
            known = requests.known(options.node.root.version)
            if known is not None:
                if not self._preempts(options, ticket):
                    return Entry(ticket, options, requests, known)
            elif (plain := requests.plain) and self._fits(plain.charges, borrowing=False):
                return Entry(ticket, options, requests, plain)
        return self._search(ticket, options, requests)

    def _again(
        self, ticket: Ticket, options: QueueOptions, requests: Requests, holding: Holding
    ) -> Entry:
        preempts = self._preempts(options, ticket)
        chooser = Chooser(self._state, options, ticket.workload, requests, preempts)
        choice = chooser.place_again(holding)
        return Entry(ticket, options, choice.requests, choice.assignment, choice.targets)

    def progress(
        self,
        tried: tuple[tuple[int, ...], ...],
        ticket: Ticket,
        options: QueueOptions,
        requests: Requests,
    ) -> Progress:
        """Note how far a search came in this cycle."""
        demand, generation = (ticket.workload.priority, requests.demand), options.node.generation
        return Progress(tried=tried, demand=demand, generation=generation, cycle=self._cycle)

    def _search(self, ticket: Ticket, options: QueueOptions, requests: Requests) -> Entry:
        preempts = self._preempts(options, ticket)
        scan = self._resume(ticket, options, requests)
        choice = Chooser(self._state, options, ticket.workload, requests, preempts).choose(scan)
        # What depends on nothing but the tree and the requests holds for the next one too.
        known = scan is EVERYWHERE and not preempts and choice.requests is requests
        if known and not options.topologies:
            requests.learn(options.node.root.version, choice.assignment)
        return Entry(ticket, options, choice.requests, choice.assignment, choice.targets)

    def _preempts(self, options: QueueOptions, ticket: Ticket) -> bool:
        if ticket.workload.key in self._moving:
            return False
        return options.preempts and self._reach.anybody(options, ticket.workload)

    def _resume(self, ticket: Ticket, options: QueueOptions, requests: Requests) -> Scan:
        progress, move = ticket.progress, self._moving.get(ticket.workload.key)
        if move is not None:
            return Scan(pins=move.pins)
        if progress is None:
            return EVERYWHERE
        now = self.progress((), ticket, options, requests)
        valid = still_valid(progress, now, preserves=self._preserves)
        return Scan(progress) if valid else EVERYWHERE


def still_valid(progress: Progress, now: Progress, *, preserves: bool) -> bool:
    """Tell whether a search may go on where an earlier one stopped.

    Args:
        progress: The earlier one's.
        now: What is searched for, of what generation, in which cycle; what it tried is ignored.
        preserves: Whether progress is kept in the cycle that follows, whatever changed meanwhile.
    """
    if preserves:
        if progress.demand != now.demand:
            return False
        if now.cycle - progress.cycle <= 1:
            return True
    return now.generation <= progress.generation


def most_pods(
    wanted: Sequence[int], least: Sequence[int], attempt: Callable[[list[int]], T | None]
) -> T | None:
    """Find the most pods for which an attempt succeeds; None if it never does.

    The counts go down evenly from `wanted` to `least`. Fewer pods are supposed to fit where more
    do, so that half of the possibilities are ruled out at a time.

    Args:
        wanted: How many pods of each pod set there should be.
        least: How few there may be.
        attempt: Tries counts; None is a failure.
    """
    spread = sum(wanted) - sum(least)
    found: dict[int, T] = {}

    def succeeds(step: int) -> bool:
        counts = [w - (w - few) * step // spread for w, few in zip(wanted, least, strict=True)]
        result = attempt(counts)
        if result is not None:
            found.clear()
            found[step] = result
        return result is not None

    return found.get(bisect_left(range(spread + 1), x=True, key=succeeds)) if spread else None
