"""What helps a workload that waits: each remedy is tried, and named only if it does.

Others give back what they hold, the job changes, the rules of its queue change, or there is more
quota: in that order they cost more, so the first is the cheapest.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import msgspec

from policyd.alloc.amount import UNLIMITED
from policyd.alloc.cluster_queue import Victim
from policyd.alloc.hierarchy import Node, descendants
from policyd.alloc.ladder import above
from policyd.alloc.options import QueueOptions
from policyd.alloc.preemption.search import Claim, Search
from policyd.alloc.preemption.targets import find_targets
from policyd.alloc.queue import PreemptionPolicy
from policyd.alloc.reasons import MissingQuota, Mode, OverCapacity, Refusal, Unsuitable
from policyd.alloc.search import FlavorSearch
from policyd.alloc.state import State
from policyd.alloc.workload import Workload
from policyd.status.profiles import fitting_profiles
from policyd.status.remedies import (
    AllowPreemption,
    Cover,
    Lack,
    RaiseLimit,
    RaiseQuota,
    Remedy,
    Shrink,
    UseFlavor,
    Wait,
    WaitForProtection,
    nearest_lacks,
)
from policyd.status.shortages import Holder

_CURABLE = frozenset({"Untolerated", "AffinityMismatch", "NotAllowed"})
_POLICIES: tuple[tuple[str, str], ...] = (
    ("within_cluster_queue", "LowerPriority"),
    ("reclaim_within_cohort", "LowerPriority"),
    ("reclaim_within_cohort", "Any"),
)
"""Preemption policies to try, those that hurt least first."""


def remedies(state: State, workload: Workload, refusal: Refusal) -> tuple[Remedy, ...]:
    """Return what would help, the cheapest first; none if nothing that is tried does.

    Args:
        state: Left as it was.
        workload: Who waits.
        refusal: Why.
    """
    return tuple(_remedies(state, workload, refusal))


def cheapest(state: State, workload: Workload, refusal: Refusal) -> Remedy | None:
    """Return the cheapest of `remedies`; what costs more is not tried."""
    return next(_remedies(state, workload, refusal), None)


def _remedies(state: State, workload: Workload, refusal: Refusal) -> Iterator[Remedy]:
    state.settle()
    queue = state.queues.get(workload.cluster_queue)
    if queue is None or queue.options is None or refusal.pending:
        return
    trial = _Trial(state, workload, queue.options, nearest_lacks(refusal))
    yield from trial.remedies(refusal)


@dataclass(slots=True)
class _Trial:
    """What is tried for one workload.

    Attributes:
        state: Where.
        workload: For whom.
        options: What its queue has to offer.
        lacks: What is missing of the nearest flavors.
    """

    state: State
    workload: Workload
    options: QueueOptions
    lacks: list[Lack]

    def remedies(self, refusal: Refusal) -> Iterator[Remedy]:
        """Yield what helps, the cheapest first."""
        if self.lacks:
            yield from self._protections()
            yield from self._waits()
        yield from self._flavors(refusal)
        if self.lacks:
            yield from self._shrunk(refusal)
        yield from fitting_profiles(self.state, self.options, self.workload)
        if self.lacks:
            yield from self._preemptions()
            for lack in self.lacks:
                yield self._more(lack)
        for each in (each for pod_set in refusal.pod_sets for each in pod_set.obstacles):
            if isinstance(each, Unsuitable) and each.kind == "NotCovered":
                yield Cover(cluster_queue=self.workload.cluster_queue, resource=each.name)

    @property
    def _node(self) -> Node:
        return self.options.node

    def _cell(self, lack: Lack) -> int:
        return self._node.cells[lack.flavor, lack.resource]

    def _needs(self) -> dict[int, int]:
        return {self._cell(lack): _needed(lack) for lack in self.lacks}

    def _waits(self) -> Iterator[Wait]:
        for lack in self.lacks:
            if isinstance(lack, OverCapacity):
                return
            holders = self._holders(lack)
            if holders:
                yield Wait(
                    flavor=lack.flavor,
                    resource=lack.resource,
                    missing=lack.missing,
                    holders=holders,
                )

    def _holders(self, lack: MissingQuota) -> tuple[Holder, ...]:
        """Return the fewest that hold enough; none if nobody's end would help."""
        state, names, cell = self.state, (lack.flavor, lack.resource), self._cell(lack)
        found = [
            (holding.admission.usage().get(names, 0), key, node.name, holding)
            for node in descendants(self._node.root)
            if node.queue and node.name in state.queues
            for key, holding in state.queues[node.name].holdings.items()
        ]
        helping: list[Holder] = []
        with state.tree.trial():
            for amount, key, name, holding in sorted(found, key=lambda each: (-each[0], each[1])):
                before = state.tree.available(cell)
                if before >= lack.requested:
                    break
                state.tree.release(holding.charges)
                if state.tree.available(cell) > before:
                    helping.append(Holder(workload=key, cluster_queue=name, amount=amount))
            enough = state.tree.available(cell) >= lack.requested
        return tuple(helping) if enough else ()

    def _victims(self, *, heedless: bool = False) -> tuple[Victim, ...]:
        needs = self._needs()
        claim = Claim(self.workload, needs, tuple(needs), heedless=heedless)
        return find_targets(self.state, claim)

    def _protections(self) -> Iterator[WaitForProtection]:
        if self._victims():
            return
        search = Search(self.state, Claim(self.workload, {}, ()))
        now, ends = self.state.now, {}
        for victim in self._victims(heedless=True):
            name = victim.holding.admission.cluster_queue
            spec, own = self.state.queues[name].spec, name == self.workload.cluster_queue
            if spec is not None:
                end = search.protected_until(spec.protection, victim.holding, own=own)
                ends[victim.workload.key] = end
        ends = {key: end for key, end in ends.items() if end > now}
        if ends:
            yield WaitForProtection(workloads=tuple(sorted(ends)), until=max(ends.values()))

    def _flavors(self, refusal: Refusal) -> Iterator[UseFlavor]:
        requests = self.options.requests(self.workload)
        charges = {
            offer.name: offer.charges
            for group in requests.groups
            for offers in group.searches
            for offer in offers
        }
        told = {
            each.name: each
            for pod_set in refusal.pod_sets
            for each in pod_set.obstacles
            if isinstance(each, Unsuitable) and each.kind in _CURABLE
        }
        for name, obstacle in told.items():
            if name in charges and self.state.tree.fits(charges[name]):
                yield UseFlavor(flavor=name, obstacle=obstacle)

    def _shrunk(self, refusal: Refusal) -> Iterator[Shrink]:
        """Yield with how many fewer pods of one set all would fit."""
        refused = {pod_set.name for pod_set in refusal.pod_sets}
        for place, pod_set in enumerate(self.workload.pod_sets):
            counts = [each.count for each in self.workload.pod_sets]
            low, high = 0, pod_set.count
            while pod_set.name in refused and low < high:
                counts[place] = (low + high + 1) // 2
                requests = self.options.requests(self.workload, counts)
                fits = self.options.search.assign(requests).mode is Mode.FIT
                low, high = (counts[place], high) if fits else (low, counts[place] - 1)
            if low:
                yield Shrink(pod_set=pod_set.name, fewer=pod_set.count - low, left=low)
                return

    def _preemptions(self) -> Iterator[AllowPreemption]:
        if self._victims():
            return
        given = self.options.spec.preemption
        for field, policy in _POLICIES:
            changed = msgspec.structs.replace(given, **{field: policy})
            victims = () if changed == given else self._victims_by(changed)
            if victims:
                own = field == "within_cluster_queue"
                yield AllowPreemption(
                    cluster_queue=self.workload.cluster_queue,
                    field="withinClusterQueue" if own else "reclaimWithinCohort",
                    policy=policy,
                    victims=tuple(victim.workload.key for victim in victims),
                    priority=max(victim.workload.priority for victim in victims),
                )
                return

    def _victims_by(self, policy: PreemptionPolicy) -> tuple[Victim, ...]:
        """Return whom it would preempt by another policy of its queue; none if not enough."""
        state, workload = self.state, self.workload
        spec = msgspec.structs.replace(self.options.spec, preemption=policy)
        search = FlavorSearch(state.tree, spec, state.settings)
        found = search.assign(self.options.requests(workload), lambda _, __: (Mode.PREEMPT, 0))
        if not found.preempts:
            return ()
        return find_targets(state, Claim(workload, found.charges, found.short, policy=policy))

    def _more(self, lack: Lack) -> RaiseLimit | RaiseQuota:
        """Return whose borrowing limit is in the way, or else how much nominal quota is missing."""
        names, queue = (lack.flavor, lack.resource), self.workload.cluster_queue
        by = _needed(lack) - self.state.tree.available(self._cell(lack))
        for node in (self._node, *above(self._node)):
            cell = node.cells.get(names)
            if cell is not None and self._unbound(cell, lack):
                return RaiseLimit(owner=node.name, flavor=names[0], resource=names[1], by=by)
        return RaiseQuota(cluster_queue=queue, flavor=names[0], resource=names[1], by=by)

    def _unbound(self, cell: int, lack: Lack) -> bool:
        """Tell whether enough would be there if one borrowing limit were not."""
        tree = self.state.tree
        if tree.borrowing_limit[cell] is None:
            return False
        ceiling, tree.ceiling[cell] = tree.ceiling[cell], UNLIMITED
        try:
            return tree.available(self._cell(lack)) >= _needed(lack)
        finally:
            tree.ceiling[cell] = ceiling


def _needed(lack: Lack) -> int:
    return lack.requested + (lack.assumed if isinstance(lack, OverCapacity) else 0)
