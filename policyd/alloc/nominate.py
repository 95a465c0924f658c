"""Nomination: flavors for a workload as if it were alone, and targets if there is no room.

If not all of its pods fit, and it can run with fewer, the most pods that do are searched for.
"""

from bisect import bisect_left
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from operator import ge
from typing import TypeVar

from policyd.alloc.cluster_queue import NominatedWorkload
from policyd.alloc.flavors.assignment import Assignment, Progress, Requests
from policyd.alloc.flavors.options import QueueOptions, replacing
from policyd.alloc.flavors.search import EVERYWHERE, FlavorScan
from policyd.alloc.pending import Ticket
from policyd.alloc.preemption.targets import PreemptionOracle, TargetFeasibility
from policyd.alloc.state import CoreState
from policyd.alloc.topology.placing import Placer
from policyd.alloc.workload import QueuedWorkload

T = TypeVar("T")


@dataclass(slots=True, eq=False)
class Chooser:
    """Chooses for one workload, with the usage the state's tree has when it is asked."""

    state: CoreState
    ticket: Ticket
    options: QueueOptions
    preempts: bool

    def choose(
        self, scan: FlavorScan = EVERYWHERE, removed: Collection[str] = ()
    ) -> NominatedWorkload:
        """Choose flavors and targets; places and targets for a workload that has its quota.

        Args:
            scan: Which flavors to try.
            removed: Keys of workloads whose usage is gone already.
        """
        workload, requests = self.ticket.workload, self.ticket.requests(self.options)
        # A workload with quota comes up only to be placed: looking for all costs too much.
        holding = self.state.holding(workload.key) if self.state.again else None
        if holding is not None:
            oracle = PreemptionOracle(self.state, workload, removed)
            return self._complete(requests, Assignment(held=holding.admission), oracle)
        removed = {*removed, workload.replaces} if workload.replaces else removed
        full = self._choose(requests, scan, removed)
        if full.served or not self.state.settings.gates.partial_admission:
            return full
        wanted = [pod_set.count for pod_set in workload.pod_sets]
        least = [p.count if p.minimum is None else p.minimum for p in workload.pod_sets]
        if all(map(ge, least, wanted)):
            return full

        def attempt(counts: Sequence[int]) -> NominatedWorkload | None:
            entry = self._choose(self.options.requests(workload, counts), scan, removed)
            return entry if entry.served else None

        return most_pods(wanted, least, attempt) or full

    def _choose(
        self, requests: Requests, scan: FlavorScan, removed: Collection[str]
    ) -> NominatedWorkload:
        workload = self.ticket.workload
        requests = beyond_replaced(self.state, self.options, workload, requests)
        oracle = PreemptionOracle(self.state, workload, removed)
        possible = oracle.possible if self.preempts else None
        assignment = self.options.search.assign(requests, possible, scan)
        return self._complete(requests, assignment, oracle)

    def _complete(
        self, requests: Requests, assignment: Assignment, oracle: PreemptionOracle
    ) -> NominatedWorkload:
        """Add places to flavors, where any are requested, and targets."""
        workload, placer = self.ticket.workload, None
        if self.options.topologies or any(p.placed for p in workload.pod_sets):
            placer = Placer(self.state, self.options, workload, assignment)
            assignment = placer.placed()
        entry = NominatedWorkload(self.ticket, self.options, requests, assignment)
        if self.preempts and assignment.preempts and not workload.failed_node:
            entry.targets = oracle.targets(assignment, None if placer is None else placer.fits)
            if placer is not None and entry.targets:
                entry.assignment = placer.after(assignment, entry.targets)
        return entry


def beyond_replaced(
    state: CoreState, options: QueueOptions, workload: QueuedWorkload, requests: Requests
) -> Requests:
    """Return what a workload asks for that the one that it replaces, if any, does not hold."""
    replaced = state.holding(workload.replaces) if workload.replaces else None
    if replaced is None or replaced.admission.cluster_queue != options.spec.name:
        return requests
    return replacing(requests, replaced.admission)


class Nominator:
    """Chooses for the next workload of each queue, one by one, before anything is decided."""

    def __init__(self, state: CoreState) -> None:
        self._state = state
        self._fits = state.tree.fits
        self._reach = TargetFeasibility(state)
        self._pins = state.extension.pins()

    def entry(self, ticket: Ticket, options: QueueOptions) -> NominatedWorkload:
        """Choose for a workload as if it were alone."""
        requests = ticket.requests(options)
        key = ticket.workload.key
        plain = ticket.plain and ticket.progress is None and key not in self._pins
        if plain and not options.topologies and key not in self._state.again:
            known = requests.known
            if known is not None and requests.version == options.node.root.version:
                if not self._preempts(options, ticket):
                    return NominatedWorkload(ticket, options, requests, known)
            elif (first := requests.plain) and self._fits(first.charges, borrowing=False):
                return NominatedWorkload(ticket, options, requests, first)
        return self._search(ticket, options, requests)

    def progress(self, entry: NominatedWorkload) -> Progress | None:
        """Note how far the search for a workload came in this cycle, if the next is to know."""
        last = entry.ticket.progress
        if last is None and not entry.assignment.unfinished:
            return None
        return self._came(entry).after(last)

    def _came(self, entry: NominatedWorkload) -> Progress:
        node = entry.options.node
        return Progress(
            tried=entry.assignment.tried,
            request_key=(entry.ticket.workload.priority, entry.requests.request_key),
            generation=node.generation,
            cycle=self._state.cycle + 1,
            version=node.root.version,
        )

    def _search(
        self, ticket: Ticket, options: QueueOptions, requests: Requests
    ) -> NominatedWorkload:
        preempts = self._preempts(options, ticket)
        scan = self._resume(ticket, options, requests)
        entry = Chooser(self._state, ticket, options, preempts).choose(scan)
        # A result that depends only on the tree and the requests holds for the next one too.
        known = scan is EVERYWHERE and not preempts and entry.requests is requests
        if known and not options.topologies and entry.assignment.held is None:
            requests.known, requests.version = entry.assignment, options.node.root.version
        return entry

    def _preempts(self, options: QueueOptions, ticket: Ticket) -> bool:
        may = options.preempts and ticket.workload.key not in self._pins
        return may and self._reach.possible(options, ticket.workload)

    def _resume(self, ticket: Ticket, options: QueueOptions, requests: Requests) -> FlavorScan:
        progress, pins = ticket.progress, self._pins.get(ticket.workload.key)
        if pins is not None:
            return FlavorScan(pins=pins)
        if progress is None:
            return EVERYWHERE
        now = self._came(NominatedWorkload(ticket, options, requests, Assignment()))
        preserves = self._state.settings.gates.flavor_fungibility_preserve_scan_progress
        valid = still_valid(progress, now, preserves=preserves)
        return FlavorScan(progress) if valid else EVERYWHERE


def still_valid(progress: Progress, now: Progress, *, preserves: bool) -> bool:
    """Tell whether a search may go on `now` where an earlier one stopped.

    With `preserves`, progress is kept in the next cycle, even if other things changed.
    """
    if preserves:
        if progress.request_key != now.request_key:
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
