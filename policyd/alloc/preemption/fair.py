"""Preemption by shares: from queues that borrow most, while the preemptor's share stays fairer.

Candidates are the claim's own queue and all queues of the tree that borrow. At each step the queue
with the highest share is asked for its next candidate; in a hierarchy the search goes down from the
top, to the child with the highest share each time. Two queues are compared where they part: by the
shares of the children of the lowest cohort above both. The *strategies* say which shares, before
and after, justify the preemption. All shares count the claim as used.
"""

from collections import deque
from collections.abc import Iterator
from functools import partial

from policyd.alloc.fair_sharing import CohortHeap, Key, above, share_of
from policyd.alloc.ledger import Victim
from policyd.alloc.plan import PreemptionReason
from policyd.alloc.preemption.search import PreemptionCandidate, Search, ordered
from policyd.alloc.quota import QuotaNode, descendants
from policyd.alloc.settings import Strategy

Waiting = dict[QuotaNode, deque[PreemptionCandidate]]
"""Candidates by queue, in the order in which they are asked for."""


def fair_victims(search: Search, strategies: tuple[Strategy, ...]) -> list[Victim]:
    """Choose victims so that the claim fits; none if it cannot."""
    queues = [search.node]
    if search.reclaims:
        others = (node for node in descendants(search.node.root) if node.queue)
        queues += [n for n in others if n is not search.node and not search.within_nominal(n)]
    waiting = {
        node: deque(ordered(search, found, lambda each: each))
        for node in queues
        if (found := search.candidates(node))
    }
    if not waiting:
        return []
    with search.ledger.trial():
        search.tree.charge(search.charges)
        fair = FairSearch(search)
        if (
            fair.first(waiting, strategies[0])
            or (fair.share_fell() and fair.first(fair.take_passed_over(), strategies[0]))
            or (len(strategies) > 1 and fair.second(fair.passed_over))
        ):
            search.fill_back(fair.victims, fair.fits, charged=True)
            return fair.victims
    return []


class FairSearch:
    """One search, with the claim charged to the tree: victims, and candidates passed over."""

    def __init__(self, search: Search) -> None:
        self.search = search
        self.victims: list[Victim] = []
        self.passed_over: Waiting = {}
        self._below: dict[QuotaNode, QuotaNode] = {}
        node = search.node
        for cohort in above(node):
            self._below[cohort], node = node, cohort

    def fits(self) -> bool:
        """Tell whether the claim, counted as used, is not more than there is."""
        available = self.search.tree.available
        for cell in self.search.charges:
            if available(cell) < 0:
                return False
        return self.search.placed()

    def turns(self, waiting: Waiting) -> Iterator[QuotaNode]:
        """Yield at each step the queue with the highest share, going down from the top.

        Queues without candidates, and nodes that no longer borrow, are left for good.
        """
        heap, root = CohortHeap(waiting, partial(self._key, waiting)), self.search.node.root
        while (node := heap.best(root)) is not None and waiting.get(node):
            yield node
            heap.changed(node)

    def _key(self, waiting: Waiting, child: QuotaNode, best: QuotaNode) -> Key | None:
        if not waiting[best]:
            return None
        share = share_of(self.search.tree, child)
        if not (share.borrowed or child is self.search.node or child in self._below):
            return None
        weightless, value = share.rank
        return not weightless, -value, waiting[best][0].rank if child.queue else ()

    def first(self, waiting: Waiting, strategy: Strategy) -> bool:
        """Choose by the first strategy until the claim fits."""
        search, own = self.search, self.search.node
        gates = search.state.settings.gates
        entitled = gates.fair_sharing_preempt_within_nominal and search.within_nominal(own)
        for node in self.turns(waiting):
            if node is own:
                done = self._take(waiting[node].popleft(), "InClusterQueue")
            elif entitled:
                done = self._take(waiting[node].popleft(), "InCohortReclamation")
            else:
                done = self._contest(node, waiting[node], strategy)
            if done:
                return True
        return False

    def share_fell(self) -> bool:
        """Tell whether candidates are tried again because the claim's queue borrows less by now.

        Victims of its own queue lower its share, also for candidates that came before them.
        """
        again = self.search.state.settings.gates.fair_sharing_reevaluate_preemption_candidates
        return again and any(victim.reason == "InClusterQueue" for victim in self.victims)

    def take_passed_over(self) -> Waiting:
        """Return the candidates that were passed over, which are no longer."""
        found, self.passed_over = self.passed_over, {}
        return found

    def second(self, waiting: Waiting) -> bool:
        """Choose one of each queue, by the shares as they are, until the claim fits."""
        for node in self.turns(waiting):
            candidate = waiting[node].popleft()
            justified = self._starts_justified(*self._sides(node))
            if justified and self._take(candidate, "InCohortFairSharing"):
                return True
            waiting[node].clear()
        return False

    def _contest(
        self, node: QuotaNode, waiting: deque[PreemptionCandidate], strategy: Strategy
    ) -> bool:
        """Take the first candidate of a queue that the strategy justifies; pass over the others."""
        tree, (ours, theirs) = self.search.tree, self._sides(node)
        our_share, their_share = share_of(tree, ours), share_of(tree, theirs)
        weightless = our_share.rank[0], their_share.rank[0]
        if weightless == (True, False):
            self._pass_over(node, waiting)
        while waiting:
            if strategy == "LessThanInitialShare":
                justified = our_share.rank < their_share.rank
            else:
                self.search.ledger.release(waiting[0].holding)
                justified = our_share.rank <= share_of(tree, theirs).rank
                self.search.ledger.restore(waiting[0].holding)
            if justified:
                return self._take(waiting.popleft(), "InCohortFairSharing")
            self.passed_over.setdefault(node, deque()).append(waiting.popleft())
        return False

    def _starts_justified(self, ours: QuotaNode, theirs: QuotaNode) -> bool:
        tree = self.search.tree
        return share_of(tree, ours).rank < share_of(tree, theirs).rank

    def _pass_over(self, node: QuotaNode, waiting: deque[PreemptionCandidate]) -> None:
        self.passed_over.setdefault(node, deque()).extend(waiting)
        waiting.clear()

    def _take(self, candidate: PreemptionCandidate, reason: PreemptionReason) -> bool:
        self.search.ledger.release(candidate.holding)
        self.victims.append(Victim(candidate.holding, reason))
        return self.fits()

    def _sides(self, node: QuotaNode) -> tuple[QuotaNode, QuotaNode]:
        """Return the children of the lowest common cohort above the claim's queue and `node`."""
        while node.parent is not None and node.parent not in self._below:
            node = node.parent
        assert node.parent is not None, "candidates are of the claim's own tree"
        return self._below[node.parent], node
