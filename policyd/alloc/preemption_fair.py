"""Preemption by shares: from whom borrows the most, while the preemptor's share stays fairer.

Candidates are the claim's own queue and all queues of the tree that borrow. At each step the queue
with the highest share is asked for its next candidate; in a hierarchy the search goes down from the
top, to the child with the highest share each time. Two queues are compared where they part: by the
shares of the children of the lowest cohort above both. The *strategies* say which shares, before
and after, justify the preemption. All shares count the claim as used.
"""

from collections import deque
from collections.abc import Iterable

from policyd.alloc.cluster_queue import Victim
from policyd.alloc.fair_sharing import Share, Shares, share_of
from policyd.alloc.hierarchy import Node, descendants
from policyd.alloc.ladder import Key, Ladder, above
from policyd.alloc.plan import PreemptionReason
from policyd.alloc.preemption_search import Candidate, Search, ordered
from policyd.alloc.settings import Strategy

_Waiting = dict[Node, deque[Candidate]]


def fair_victims(search: Search, strategies: tuple[Strategy, ...]) -> list[Victim]:
    """Choose victims so that the claim fits; none if it cannot."""
    candidates = ordered(search, _candidates(search))
    if not candidates:
        return []
    with search.state.ground.trial():
        search.tree.charge(search.charges)
        fair = FairSearch(search)
        if fair.first(candidates, strategies[0]) or (
            len(strategies) > 1 and fair.second(fair.passed_over)
        ):
            search.fill_back(fair.victims, fair.fits, charged=True)
            return fair.victims
    return []


def _candidates(search: Search) -> Iterable[Candidate]:
    yield from search.candidates(search.node)
    for node in descendants(search.node.root) if search.reclaims else ():
        if node.queue and node is not search.node and not search.within_nominal(node):
            yield from search.candidates(node)


class FairSearch:
    """One search; the claim is charged to the tree.

    Attributes:
        victims: Who was chosen, in order.
        passed_over: Who was not, by the first strategy.
    """

    def __init__(self, search: Search) -> None:
        self.search = search
        self.shares = Shares(search.tree)
        self.victims: list[Victim] = []
        self.passed_over: list[Candidate] = []
        self._below: dict[Node, Node] = {}
        node = search.node
        for cohort in above(node):
            self._below[cohort], node = node, cohort

    def fits(self) -> bool:
        """Tell whether the claim, counted as used, is not more than there is."""
        available = self.search.tree.available
        for cell in self.search.charges:
            if available(cell) < 0:
                return False
        return self.search.claim.places()

    def first(self, candidates: Iterable[Candidate], strategy: Strategy) -> bool:
        """Choose by the first strategy until the claim fits."""
        search, own = self.search, self.search.node
        gates = search.state.settings.gates
        entitled = gates.fair_sharing_preempt_within_nominal and search.within_nominal(own)
        waiting = by_queue(candidates)
        order = Order(self, waiting)
        while (node := order.next()) is not None:
            if node is own or entitled:
                reason: PreemptionReason = (
                    "InClusterQueue" if node is own else "InCohortReclamation"
                )
                if self._take(waiting[node].popleft(), reason):
                    return True
            elif self._contest(node, waiting[node], strategy):
                return True
        return False

    def second(self, candidates: Iterable[Candidate]) -> bool:
        """Choose one of each queue, by the shares as they are, until the claim fits."""
        waiting = by_queue(candidates)
        order = Order(self, waiting)
        while (node := order.next()) is not None:
            candidate = waiting[node].popleft()
            justified = self._starts_justified(*self._sides(node))
            if justified and self._take(candidate, "InCohortFairSharing"):
                return True
            waiting[node].clear()
        return False

    def _contest(self, node: Node, waiting: deque[Candidate], strategy: Strategy) -> bool:
        """Take the first candidate of a queue that the strategy justifies; pass over the others."""
        ours, theirs = self._sides(node)
        our_share, their_share = self.shares.of(ours), self.shares.of(theirs)
        if our_share.weightless and not their_share.weightless:
            self._pass_over(waiting)
        while waiting:
            candidate = waiting.popleft()
            if self._justified(strategy, our_share, theirs, candidate):
                return self._take(candidate, "InCohortFairSharing")
            self.passed_over.append(candidate)
        return False

    def _justified(
        self, strategy: Strategy, ours: Share, theirs: Node, candidate: Candidate
    ) -> bool:
        if strategy == "LessThanInitialShare":
            return ours.rank < self.shares.of(theirs).rank
        search = self.search
        search.remove(candidate.holding)
        after = share_of(search.tree, theirs)
        search.restore(candidate.holding)
        return ours.rank <= after.rank

    def _starts_justified(self, ours: Node, theirs: Node) -> bool:
        return self.shares.of(ours).rank < self.shares.of(theirs).rank

    def _pass_over(self, waiting: deque[Candidate]) -> None:
        self.passed_over += waiting
        waiting.clear()

    def _take(self, candidate: Candidate, reason: PreemptionReason) -> bool:
        self.search.remove(candidate.holding)
        self.shares.changed(candidate.node)
        self.victims.append(Victim(candidate.holding, reason))
        return self.fits()

    def _sides(self, node: Node) -> tuple[Node, Node]:
        """Return the children of the lowest common cohort above the claim's queue and `node`."""
        while node.parent is not None and node.parent not in self._below:
            node = node.parent
        assert node.parent is not None, "candidates are of the claim's own tree"
        return self._below[node.parent], node

    def holds(self, node: Node) -> bool:
        """Tell whether the claim's queue is `node`, or below it."""
        return node is self.search.node or node in self._below


class Order:
    """Whom to ask next: the queue with the highest share, going down from the top.

    Queues without candidates, and nodes that no longer borrow, are left for good.
    """

    def __init__(self, fair: FairSearch, waiting: _Waiting) -> None:
        self._fair = fair
        self._waiting = waiting
        self._root = fair.search.node.root
        self._last: Node | None = None
        self._ladder = Ladder(waiting, self._key)

    def next(self) -> Node | None:
        """Return the next queue; None if there are no more."""
        if self._last is not None:
            self._ladder.changed(self._last)
        found = self._ladder.best(self._root)
        self._last = found if found is not None and self._waiting.get(found) else None
        return self._last

    def _key(self, child: Node, best: Node) -> Key | None:
        waiting = self._waiting[best]
        if not waiting:
            return None
        share = self._fair.shares.of(child)
        if not (share.borrowed or self._fair.holds(child)):
            return None
        weightless, value = share.rank
        if child.queue:
            return not weightless, -value, True, *waiting[0].rank
        return not weightless, -value, False


def by_queue(candidates: Iterable[Candidate]) -> _Waiting:
    """Let candidates wait in their queues, in the same order."""
    waiting: _Waiting = {}
    for candidate in candidates:
        waiting.setdefault(candidate.node, deque()).append(candidate)
    return waiting
