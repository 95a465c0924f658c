"""The common parts of searches for victims: the claim, the candidates, the trials."""

from collections.abc import Callable, Collection, Mapping
from functools import cmp_to_key
from math import inf
from operator import itemgetter
from typing import NamedTuple, TypeVar

from policyd.alloc.cluster_queue import QueueState
from policyd.alloc.ledger import Holding, Victim
from policyd.alloc.queue import FlavorResource, PreemptionPolicy
from policyd.alloc.quota import NOWHERE, QuotaNode
from policyd.alloc.state import CoreState
from policyd.alloc.workload import QueuedWorkload

T = TypeVar("T")

CandidateRank = tuple[bool, bool, int, float, str]
"""The lowest is preempted first: evicted already; of another queue; least priority; newest; uid."""


class Claim(NamedTuple):
    """The request that others are to be preempted for.

    Attributes:
        workload: The preemptor; its ClusterQueue is in the state, and has a specification.
        charges: How much it needs, by cell of its queue; all pod sets together.
        short: The cells of `charges` of which there is not enough: a victim holds some of these.
        removed: Keys of workloads that are not candidates, since their usage is already released.
        places: Whether the pods could be placed, with the usage the tree has when it is called;
            None if places do not matter.
        policy: Its preemption policy, if not that of its queue.
        ignores_protection: Whether workloads are candidates too that are protected for now.
    """

    workload: QueuedWorkload
    charges: Mapping[int, int]
    short: Collection[int]
    removed: Collection[str] = ()
    places: Callable[[], bool] | None = None
    policy: PreemptionPolicy | None = None
    ignores_protection: bool = False


class PreemptionCandidate(NamedTuple):
    """A workload that might be preempted, and its queue."""

    rank: CandidateRank
    holding: Holding
    node: QuotaNode


class Search:
    """A search for victims for a claim, in the tree as it is, which is changed in trials only.

    Its `node` is the claim's ClusterQueue, `names` the flavors and resources that are short.
    """

    def __init__(self, state: CoreState, claim: Claim) -> None:
        queue = state.queues[claim.workload.cluster_queue]
        assert queue.spec is not None, "only what has a specification claims anything"
        assert queue.node is not None, "what has a specification is in the tree"
        self.claim = claim
        self.state = state
        self.ledger = state.ledger
        self.tree = state.tree
        self.node = queue.node
        self.policy = claim.policy or queue.spec.preemption
        self.charges = {cell: amount for cell, amount in claim.charges.items() if amount}
        self.names: frozenset[FlavorResource] = frozenset(
            map(self.tree.names.__getitem__, claim.short)
        )

    @property
    def reclaims(self) -> bool:
        """Whether workloads of other queues may be victims."""
        return self.node.parent is not None and self.policy.reclaim_within_cohort != "Never"

    def candidates(self, node: QuotaNode) -> list[PreemptionCandidate]:
        """Return the candidates of a queue, its own or another, in order of rank.

        A queue that gives out no quota, such as one on hold, has none. Without protection they are
        the same for all claims of a cycle with the same policy.
        """
        own, queue = node is self.node, self.state.queues[node.name]
        if not queue.active:
            return []
        policy = self.policy.within_cluster_queue if own else self.policy.reclaim_within_cohort
        protects = not self.claim.ignores_protection and self.state.extension.protects(queue)
        removed = self.claim.removed
        if policy not in {"Any", "LowerPriority"} or protects:
            found = self._candidates(queue, node, policy, protects=protects)
        else:
            priority = inf if policy == "Any" else self.claim.workload.priority
            known, key = self.state.candidates, (node, own, self.names, priority)
            if key not in known:
                known[key] = self._candidates(queue, node, policy, protects=False)
            found = known[key]
        return [c for c in found if c.holding.workload.key not in removed] if removed else found

    def _candidates(
        self, queue: QueueState, node: QuotaNode, policy: str, *, protects: bool
    ) -> list[PreemptionCandidate]:
        own, preemptor, found = node is self.node, self.claim.workload, []
        extension = self.state.extension
        cells = frozenset([node.cells[names] for names in self.names if names in node.cells])
        for holding in queue.holdings.values() if policy != "Never" else ():
            if cells.isdisjoint(holding.charges):
                continue
            protected = protects and not holding.stopping
            if protected and extension.protected_until(holding, preemptor) > self.state.now:
                continue
            if policy == "Any" or may_preempt(policy, preemptor, holding.workload):
                found.append(PreemptionCandidate(candidate_rank(holding, own=own), holding, node))
        return sorted(found, key=itemgetter(0))

    def within_nominal(self, node: QuotaNode) -> bool:
        """Tell whether a node is within its nominal quota of the resources that the claim lacks."""
        usage, subtree, cells = self.tree.usage, self.tree.subtree, node.cells
        for names in self.names:
            cell = cells.get(names, NOWHERE)
            if cell >= 0 and usage[cell] > subtree[cell]:
                return False
        return True

    def fits(self, *, borrowing: bool = True) -> bool:
        """Tell whether the claim fits now."""
        return self.tree.fits(self.charges, borrowing=borrowing) and self.placed()

    def placed(self) -> bool:
        """Tell whether the pods of the claim could be placed now."""
        return self.claim.places is None or self.claim.places()

    def fill_back(
        self, victims: list[Victim], fits: Callable[[], bool], *, charged: bool = False
    ) -> None:
        """Spare every victim without which the claim `fits` too, those chosen last first.

        The very last was needed, as is one that holds more of the claim's pool than is left over.
        `charged` tells whether the claim is counted as used.
        """
        left = self._left_over(charged=charged)
        for index in reversed(range(len(victims) - 1)):
            holding = victims[index].holding
            if self._exceeds(holding, left):
                continue
            self.ledger.restore(holding)
            if fits():
                victims[index] = victims[-1]
                victims.pop()
                left = self._left_over(charged=charged)
            else:
                self.ledger.release(holding)

    def _left_over(self, *, charged: bool) -> dict[int, int]:
        """Return the rest that the claim leaves, by the pool or cell that it takes from."""
        available, pools = self.tree.available, self.tree.pool
        return {
            cell if pools[cell] < 0 else pools[cell]: available(cell) - (0 if charged else amount)
            for cell, amount in self.charges.items()
        }

    def _exceeds(self, holding: Holding, left: dict[int, int]) -> bool:
        pools = self.tree.pool
        for cell, amount in holding.charges.items():
            pool = pools[cell]
            if amount > left.get(cell if pool < 0 else pool, amount):
                return True
        return False


def may_preempt(policy: str, preemptor: QueuedWorkload, candidate: QueuedWorkload) -> bool:
    """Tell whether a policy of preemption lets one workload preempt another."""
    if policy == "LowerOrNewerEqualPriority" and preemptor.priority == candidate.priority:
        return preemptor.queued_at < candidate.queued_at
    by_priority = policy in {"LowerPriority", "LowerOrNewerEqualPriority"}
    return policy == "Any" or (by_priority and preemptor.priority > candidate.priority)


def candidate_rank(holding: Holding, *, own: bool) -> CandidateRank:
    """Rank a candidate, of the preemptor's own queue or another; first those being stopped."""
    workload = holding.workload
    since = inf if workload.reserved_at is None else workload.reserved_at
    return not holding.stopping, own, workload.priority, -since, workload.uid


def ordered(
    search: Search, found: list[T], candidate: Callable[[T], PreemptionCandidate]
) -> list[T]:
    """Sort candidates, also by the usage history of LocalQueues where their queue wants it."""
    queues, past, used = search.state.queues, search.state.local_usage, {}
    for each in map(candidate, found) if past else ():
        spec, name = queues[each.node.name].spec, each.holding.workload.local_queue
        if spec is not None and spec.by_usage and name in past:
            used[name] = past[name]
    return in_order(found, used, candidate)


def in_order(
    found: list[T], used: Mapping[str, float], candidate: Callable[[T], PreemptionCandidate]
) -> list[T]:
    """Sort items by their `candidate`, those to be preempted first at the front.

    Of the same ClusterQueue those go first whose LocalQueue `used` more, before any priority.
    """
    if not used:
        return sorted(found, key=lambda each: candidate(each).rank)

    def compare(one: T, other: T) -> int:
        a, b = candidate(one), candidate(other)
        if a.node is b.node and a.rank[:2] == b.rank[:2]:
            left = used.get(a.holding.workload.local_queue)
            right = used.get(b.holding.workload.local_queue)
            if left is not None and right is not None and left != right:
                return -1 if left > right else 1
        return -1 if a.rank < b.rank else 1

    return sorted(found, key=cmp_to_key(compare))
