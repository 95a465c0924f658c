"""Remedies that help a pending workload: each is tried, and named only if it helps.

Others give back their quota, the job changes, the rules of its queue change, or there is more
quota: in that order they cost more, so the first is the cheapest.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import inf

import msgspec

from policyd.alloc.amount import UNLIMITED, total_of
from policyd.alloc.fair_sharing import above
from policyd.alloc.flavors.assignment import Requests
from policyd.alloc.flavors.options import QueueOptions
from policyd.alloc.flavors.search import FlavorSearch
from policyd.alloc.ledger import Victim
from policyd.alloc.nominate import beyond_replaced
from policyd.alloc.preemption.search import Claim
from policyd.alloc.preemption.targets import find_targets
from policyd.alloc.queue import PreemptionPolicy
from policyd.alloc.quota import QuotaNode
from policyd.alloc.reasons import MissingQuota, Mode, OverCapacity, Refusal, Unsuitable
from policyd.alloc.state import CoreState
from policyd.alloc.workload import QueuedPodSet, QueuedWorkload
from policyd.status.profiles import fitting_profiles
from policyd.status.remedies import (
    AllowPreemption,
    AskLess,
    Cover,
    Raise,
    RaiseAll,
    RaiseLimit,
    RaiseQuota,
    Remedy,
    Shortfall,
    Shrink,
    UseFlavor,
    Wait,
    WaitForProtection,
    nearest_shortfalls,
)
from policyd.status.shortages import Holder, helping
from policyd.status.trials import (
    admissible,
    asking,
    could_fit,
    counting,
    untolerated_taints,
    would_fit,
)

Ahead = Sequence[tuple[QueuedWorkload, int]]
"""Workloads that are tried before another, of each request one, with how many there are of it."""

_MEBI, _FINE = 1 << 20, 10
_CURABLE = frozenset({"Untolerated", "AffinityMismatch", "NotAllowed"})
_POLICIES: tuple[tuple[str, str], ...] = (
    ("within_cluster_queue", "LowerPriority"),
    ("reclaim_within_cohort", "LowerPriority"),
    ("reclaim_within_cohort", "Any"),
)
"""Preemption policies to try, those that hurt least first."""


def remedies(
    state: CoreState,
    workload: QueuedWorkload,
    refusal: Refusal,
    ahead: Ahead | None = (),
) -> tuple[Remedy, ...]:
    """Return the remedies that help, the cheapest first; none if none does.

    Args:
        state: The state, unchanged afterwards.
        workload: The pending workload.
        refusal: Its refusal.
        ahead: Workloads of its queue that are tried before, and take quota that becomes free, each
            with the number of those that are like it; None if they are too many to count.
    """
    return tuple(_remedies(state, workload, refusal, ahead))


def cheapest(
    state: CoreState, workload: QueuedWorkload, refusal: Refusal, ahead: Ahead | None = ()
) -> Remedy | None:
    """Return the cheapest of `remedies`; those that cost more are not tried."""
    return next(_remedies(state, workload, refusal, ahead), None)


def _remedies(
    state: CoreState,
    workload: QueuedWorkload,
    refusal: Refusal,
    ahead: Ahead | None = (),
) -> Iterator[Remedy]:
    state.settle()
    queue = state.queues.get(workload.cluster_queue)
    if queue is None or queue.options is None or refusal.pending:
        return
    needs = [(_needs_of(queue.options, each), count) for each, count in ahead or ()]
    shortfalls = nearest_shortfalls(refusal)
    trial = _Trial(state, workload, queue.options, shortfalls, needs, crowded=ahead is None)
    yield from trial.remedies(refusal)


@dataclass(slots=True)
class _Trial:
    """The trials for one workload.

    Attributes:
        state: The state.
        workload: The workload.
        options: The options of its queue.
        shortfalls: The missing amounts of the nearest flavors.
        ahead: What workloads would take that are tried before, by cell, of any one flavor, and how
            many are alike.
        crowded: Whether too many are tried before to count them.
    """

    state: CoreState
    workload: QueuedWorkload
    options: QueueOptions
    shortfalls: list[Shortfall]
    ahead: list[tuple[dict[int, int], int]]
    crowded: bool

    def remedies(self, refusal: Refusal) -> Iterator[Remedy]:
        """Yield the remedies that help, the cheapest first."""
        if self.shortfalls and not self.crowded:
            yield from self._protections()
            yield from self._waits()
        yield from self._flavors(refusal)
        yield from fitting_profiles(self.state, self.options, self.workload)
        yield from self._smaller(refusal)
        if self.shortfalls and not self.crowded:
            yield from self._preemptions()
            more = self._raises()
            if more:
                yield more[0] if len(more) == 1 else RaiseAll(changes=more)
        for resource in dict.fromkeys(name for _, name in _uncovered(refusal)):
            yield Cover(cluster_queue=self.workload.cluster_queue, resource=resource)

    @property
    def _node(self) -> QuotaNode:
        return self.options.node

    def _cell(self, shortfall: Shortfall) -> int:
        return self._node.cells[shortfall.flavor, shortfall.resource]

    def _needs(self) -> dict[int, int]:
        return {self._cell(shortfall): _needed(shortfall) for shortfall in self.shortfalls}

    def _waits(self) -> Iterator[Wait]:
        for shortfall in self.shortfalls:
            if isinstance(shortfall, OverCapacity):
                return
            holders, ahead = self._holders(shortfall)
            if holders:
                yield Wait(
                    flavor=shortfall.flavor,
                    resource=shortfall.resource,
                    missing=shortfall.missing + ahead,
                    holders=holders,
                    ahead=ahead,
                )

    def _taken_before(self, cell: int, free: int) -> int:
        """Return how much of a free amount those take at most that are tried before."""
        needs = ((each.get(cell, 0), count) for each, count in self.ahead)
        return sum(each * count for each, count in needs if each <= free)

    def _with_those_before(self, cell: int, needed: int) -> int:
        """Return how much must be free of a cell so that an amount is left for this workload."""
        total, before = needed, -1
        while total != before:
            before, total = total, needed + self._taken_before(cell, total)
        return total

    def _contested(self) -> bool:
        """Tell whether a workload that is tried before would take what this one waits for."""
        return any(self._with_those_before(cell, n) > n for cell, n in self._needs().items())

    def _holders(self, shortfall: MissingQuota) -> tuple[tuple[Holder, ...], int]:
        """Return the fewest that hold enough, and how much of it those take that are tried before.

        None if the end of none would help.
        """
        state, cell, found = self.state, self._cell(shortfall), list[Holder]()
        free = state.tree.available(cell)
        taken = self._taken_before(cell, free)
        with state.tree.trial():
            for holder in helping(
                state, self._node, (shortfall.flavor, shortfall.resource), self.workload.replaces
            ):
                if free - taken >= shortfall.requested:
                    break
                held = state.queues[holder.cluster_queue].holdings[holder.workload]
                state.tree.release(held.charges)
                before, free = free, state.tree.available(cell)
                if free > before:
                    found.append(holder)
                    taken = self._taken_before(cell, free)
        enough = free - taken >= shortfall.requested
        return (tuple(found), taken) if enough else ((), 0)

    def _victims(self, *, ignores_protection: bool = False) -> tuple[Victim, ...]:
        needs = self._needs()
        return find_targets(
            self.state,
            Claim(
                self.workload,
                needs,
                tuple(needs),
                (self.workload.replaces,),
                ignores_protection=ignores_protection,
            ),
        )

    def _protections(self) -> Iterator[WaitForProtection]:
        if self._victims() or self._contested():
            return
        until = self.state.extension.protected_until
        ends = {
            victim.workload.key: end
            for victim in self._victims(ignores_protection=True)
            if self.state.now < (end := until(victim.holding, self.workload)) < inf
        }
        if ends:
            yield WaitForProtection(workloads=tuple(sorted(ends)), until=max(ends.values()))

    def _flavors(self, refusal: Refusal) -> Iterator[UseFlavor]:
        obstacles = {
            each.name: each
            for pod_set in refusal.pod_sets
            for each in pod_set.obstacles
            if isinstance(each, Unsuitable) and each.kind in _CURABLE
        }
        for name, obstacle in obstacles.items():
            flavor = self.state.flavors[name]
            if self._fits(admissible(self.workload, flavor)):
                taints = untolerated_taints(self.workload, flavor)
                yield UseFlavor(flavor=name, obstacle=obstacle, taints=taints)

    def _smaller(self, refusal: Refusal) -> Iterator[Shrink | AskLess]:
        """Yield with how much less of one pod set all would fit: now, or else once others end."""
        for pod_set, resource in _uncovered(refusal):
            if self._could(asking(self.workload, pod_set, resource, 0)):
                yield AskLess(pod_set=pod_set, resource=resource, most=0)
        if not self.shortfalls:
            return
        refused = {pod_set.name for pod_set in refusal.pod_sets}
        pod_sets = [each for each in self.workload.pod_sets if each.name in refused]
        over = any(isinstance(shortfall, OverCapacity) for shortfall in self.shortfalls)
        for later in (False, True) if over else (False,):
            found = next(self._reduced(pod_sets, later=later), None)
            if found is not None:
                yield found
                return

    def _reduced(self, pod_sets: list[QueuedPodSet], *, later: bool) -> Iterator[Shrink | AskLess]:
        fits = self._could if later else self._fits
        for each in pod_sets:

            def with_count(count: int, name: str = each.name) -> bool:
                return fits(counting(self.workload, name, count))

            left = _most(each.count - 1, with_count)
            if left:
                fewer = each.count - left
                yield Shrink(pod_set=each.name, fewer=fewer, left=left, later=later)
        for each in pod_sets:
            for resource in dict.fromkeys(shortfall.resource for shortfall in self.shortfalls):

                def with_amount(most: int, name: str = each.name, of: str = resource) -> bool:
                    return fits(asking(self.workload, name, of, most))

                most = _most(each.requests.get(resource, 0) - 1, with_amount)
                if most:
                    yield AskLess(
                        pod_set=each.name,
                        resource=resource,
                        most=most,
                        pods=each.count,
                        later=later,
                    )

    def _fits(self, workload: QueuedWorkload) -> bool:
        return would_fit(self.state, self.options, workload)

    def _could(self, workload: QueuedWorkload) -> bool:
        return could_fit(self.state, self.options, workload)

    def _preemptions(self) -> Iterator[AllowPreemption]:
        if self._victims() or self._contested():
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
        """Return the victims by another policy of its queue; none if they are not enough."""
        state, workload = self.state, self.workload
        spec = msgspec.structs.replace(self.options.spec, preemption=policy)
        search = FlavorSearch(state.tree, spec, state.settings)
        found = search.assign(self._requests(), lambda _, __: (Mode.PREEMPT, 0))
        if not found.preempts:
            return ()
        removed = (workload.replaces,)
        claim = Claim(workload, found.charges, found.short, removed, policy=policy)
        return find_targets(state, claim)

    def _requests(self) -> Requests:
        asked = self.options.requests(self.workload)
        return beyond_replaced(self.state, self.options, self.workload, asked)

    def _raises(self) -> tuple[Raise, ...]:
        """Return the raises that all requests need, in the nearest flavors."""
        nearest, charges = {shortfall.flavor for shortfall in self.shortfalls}, dict[int, int]()
        for group in self._requests().groups:
            for offers in group.searches:
                usable = [offer for offer in offers if not offer.obstacles]
                if not usable or group.uncovered:
                    return ()
                offer = next((each for each in usable if each.name in nearest), usable[0])
                charges = total_of(charges, offer.charges)
        found = ((cell, n, self._with_those_before(cell, n)) for cell, n in charges.items())
        available = self.state.tree.available
        return tuple(self._more(cell, n, n - own) for cell, own, n in found if n > available(cell))

    def _more(self, wanted: int, needed: int, ahead: int) -> Raise:
        """Return whose borrowing limit is in the way, or else how much nominal quota is missing."""
        tree, queue = self.state.tree, self.workload.cluster_queue
        flavor, resource = names = tree.names[wanted]
        by = needed - tree.available(wanted)
        for node in (self._node, *above(self._node)):
            cell = node.cells.get(names)
            if cell is not None and self._unbound(cell, wanted, needed):
                return RaiseLimit(
                    owner=node.name, flavor=flavor, resource=resource, by=by, ahead=ahead
                )
        return RaiseQuota(cluster_queue=queue, flavor=flavor, resource=resource, by=by, ahead=ahead)

    def _unbound(self, cell: int, wanted: int, needed: int) -> bool:
        """Tell whether enough would be there if one borrowing limit were not."""
        tree = self.state.tree
        if tree.borrowing_limit[cell] is None:
            return False
        ceiling, tree.ceiling[cell] = tree.ceiling[cell], UNLIMITED
        try:
            return tree.available(wanted) >= needed
        finally:
            tree.ceiling[cell] = ceiling


def _needs_of(options: QueueOptions, workload: QueuedWorkload) -> dict[int, int]:
    """Return what a workload would take, by cell, for each flavor as if it took that one alone."""
    found: dict[int, int] = {}
    for group in options.requests(workload).groups:
        for offers in () if group.uncovered else group.searches:
            for offer in offers:
                if not offer.obstacles:
                    found = total_of(found, offer.charges)
    return found


def _uncovered(refusal: Refusal) -> list[tuple[str, str]]:
    """Return the pod sets and the resources for which their queue has no quota at all."""
    return [
        (pod_set.name, each.name)
        for pod_set in refusal.pod_sets
        for each in pod_set.obstacles
        if isinstance(each, Unsuitable) and each.kind == "NotCovered"
    ]


def _most(most: int, fits: Callable[[int], bool]) -> int:
    """Return the largest number up to `most` that fits; 0 if none does. Fewer fit where more do."""
    low, high = 0, max(0, most)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(middle) else (low, middle - 1)
    return low - low % _MEBI if low > _FINE * _MEBI else low  # as people write bytes


def _needed(shortfall: Shortfall) -> int:
    return shortfall.requested + (shortfall.assumed if isinstance(shortfall, OverCapacity) else 0)
