"""Preemption by priority and nominal quota.

Victims are workloads of the same queue, and of other queues that use more than they have. In a
subtree whose quota holds the claim, it has an *advantage* over workloads outside, and may take from
all of them. Elsewhere the claim would itself have to borrow, and `borrowWithinCohort` says which
workloads it may preempt then.
"""

from collections.abc import Iterable, Iterator, Mapping
from operator import itemgetter
from typing import NamedTuple

from policyd.alloc.ledger import Victim
from policyd.alloc.plan import PreemptionReason
from policyd.alloc.preemption.search import PreemptionCandidate, Search, ordered
from policyd.alloc.quota import QuotaNode, QuotaTree


class _Kind(NamedTuple):
    """Of candidates: those of lower order go first; some are spared if the claim borrows.

    Nothing is taken below a node of the path, from their queue up, that is within its quota.
    """

    order: int
    reason: PreemptionReason
    spared: bool = False
    path: tuple[QuotaNode, ...] = ()


_OWN = _Kind(2, "InClusterQueue")

_Option = tuple[PreemptionCandidate, _Kind]


class _Level(NamedTuple):
    """A cohort above the claim's queue, the child below it, and the claim's advantage there."""

    cohort: QuotaNode
    child: QuotaNode
    advantage: bool

    def options(self, search: Search) -> Iterator[_Option]:
        """Yield the candidates of this level with their kind."""
        for path in _borrowers(search, self.cohort, self.child):
            if self.advantage or search.policy.borrow_within_cohort == "Never":
                order, spared = (0, False) if self.advantage else (1, True)
                kind = _Kind(order, "InCohortReclamation", spared, path)
                yield from [(candidate, kind) for candidate in search.candidates(path[0])]
            else:
                yield from [
                    (each, _kind(search, each, path)) for each in search.candidates(path[0])
                ]


def classical_victims(search: Search) -> list[Victim]:
    """Choose victims so that the claim fits; none if it cannot."""
    levels = [level for level in _levels(search) if any(True for _ in level.options(search))]
    for borrowing in _attempts(search, levels):
        with search.ledger.trial():
            victims = [] if borrowing or search.claim.places else _own_first(search, levels)
        if not victims:
            with search.ledger.trial():
                options = _options(search, levels, borrowing=borrowing)
                victims = _attempt(search, options, borrowing=borrowing)
        if victims:
            return victims
    return []


def _attempts(search: Search, levels: list[_Level]) -> tuple[bool, ...]:
    """Return whether the claim may borrow, in the order of trial."""
    if not levels:
        return (True,)
    if search.policy.borrow_within_cohort != "Never":
        return True, False
    tree = search.tree
    if not all(tree.usage[cell] < tree.nominal[cell] for cell in search.claim.short):
        return (True,)
    return (True, False) if any(level.advantage for level in levels) else (False, True)


def _own_first(search: Search, levels: list[_Level]) -> list[Victim]:
    """Choose as an attempt without borrowing does, only faster; none if that has to decide.

    The claim gets back its own quota from its own queue only, whose workloads come last. Until then
    an attempt takes all others, to spare most of them again. Which of its own it needs does not
    depend on the others; which of the others, only on these.
    """
    usage, subtree, ledger = search.tree.usage, search.tree.subtree, search.ledger

    def needs_more() -> bool:
        return any(usage[cell] + amount > subtree[cell] for cell, amount in search.charges.items())

    own: list[Victim] = []
    spared: list[Victim] = []
    candidates = search.candidates(search.node) if needs_more() else []
    waiting = iter(ordered(search, candidates, lambda each: each))
    for _, holding, _ in waiting:
        ledger.release(holding)
        own.append(Victim(holding, _OWN.reason))
        if not needs_more():
            break
    else:
        return []
    # Not filled back as in an attempt: that would count on the others, which are not gone here.
    for index in reversed(range(len(own) - 1)):
        ledger.restore(own[index].holding)
        if needs_more():
            ledger.release(own[index].holding)
        else:
            spared.append(own.pop(index))
    if search.fits(borrowing=False):
        return own
    rest = [victim.holding for victim in spared] + [each.holding for each in waiting]
    if any(holding.stopping for holding in rest):
        return []  # these come before others
    others = _options(search, levels, borrowing=False, own=False)
    victims = _attempt(search, others, borrowing=False)
    return [*victims, *own] if victims else []


def _options(
    search: Search, levels: Iterable[_Level], *, borrowing: bool, own: bool = True
) -> list[_Option]:
    """Return the candidates in the order of choice, without those spared if the claim borrows."""
    never = borrowing and search.policy.borrow_within_cohort == "Never"
    options = [
        option
        for level in levels
        if level.advantage or not never
        for option in level.options(search)
        if not (borrowing and option[1].spared)
    ]
    if own:
        options += [(candidate, _OWN) for candidate in search.candidates(search.node)]
    options = ordered(search, options, itemgetter(0))
    if len({kind.order for _, kind in options}) > 1:
        options.sort(key=lambda option: (option[0].rank[0], option[1].order))
    return options


def _attempt(search: Search, options: Iterable[_Option], *, borrowing: bool) -> list[Victim]:
    victims: list[Victim] = []
    for (_, holding, _), kind in options:
        if kind.path and any(map(search.within_nominal, kind.path)):
            continue
        search.ledger.release(holding)
        victims.append(Victim(holding, kind.reason))
        if search.fits(borrowing=borrowing):
            search.fill_back(victims, lambda: search.fits(borrowing=borrowing))
            return victims
    return []


def _levels(search: Search) -> Iterator[_Level]:
    tree = search.tree
    advantage, rest = _fill(tree, search.charges)
    node = search.node
    while search.reclaims and node.parent is not None:
        yield _Level(node.parent, node, advantage)
        fits, rest = _fill(tree, {tree.parent[cell]: amount for cell, amount in rest.items()})
        advantage = advantage or fits
        node = node.parent


def _fill(tree: QuotaTree, charges: Mapping[int, int]) -> tuple[bool, dict[int, int]]:
    """Tell whether a node has quota for all of `charges`; return the rest for its parent too."""
    usage, subtree, guaranteed = tree.usage, tree.subtree, tree.guaranteed
    fits = all(usage[cell] + amount <= subtree[cell] for cell, amount in charges.items())
    rest = {
        cell: max(0, amount - max(0, guaranteed[cell] - usage[cell]))
        for cell, amount in charges.items()
    }
    return fits, rest


def _borrowers(
    search: Search, top: QuotaNode, without: QuotaNode
) -> Iterator[tuple[QuotaNode, ...]]:
    """Yield the queues below `top` that use more than they have, with the cohorts between."""
    for child in top.children.values():
        if child is without or search.within_nominal(child):
            continue
        if child.queue:
            yield (child,)
        else:
            for path in _borrowers(search, child, without):
                yield (*path, child)


def _kind(search: Search, candidate: PreemptionCandidate, path: tuple[QuotaNode, ...]) -> _Kind:
    policy, priority = search.policy, candidate.holding.workload.priority
    threshold = policy.max_priority_threshold
    if priority >= search.claim.workload.priority or (
        threshold is not None and priority > threshold
    ):
        return _Kind(1, "InCohortReclamation", spared=True, path=path)
    return _Kind(1, "InCohortReclaimWhileBorrowing", path=path)
