"""Preemption by priority and nominal quota.

Victims are workloads of the same queue, and of other queues that use more than they have. Who gets
back what is its own goes first: in a subtree where the claim is within the quota of all below, it
has an *advantage* over those outside, and takes from them whatever they do. Elsewhere the claim
would itself have to borrow, and `borrowWithinCohort` says from whom it may take then.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from policyd.alloc.cluster_queue import Victim
from policyd.alloc.hierarchy import Node
from policyd.alloc.plan import PreemptionReason
from policyd.alloc.preemption_search import Candidate, Search, ordered
from policyd.alloc.quota import QuotaTree


class _Kind(NamedTuple):
    """What is to be known of candidates: those of lower order go first, or are spared in borrowing.

    If a node of the path, from their queue up, is within its quota, nothing is taken from below it.
    It is empty for the claim's own queue.
    """

    order: int
    reason: PreemptionReason
    spared: bool = False
    path: tuple[Node, ...] = ()


_OWN = _Kind(2, "InClusterQueue")

_Option = tuple[Candidate, _Kind]


def classical_victims(search: Search) -> list[Victim]:
    """Choose victims so that the claim fits; none if it cannot."""
    others = list(_others(search)) if search.reclaims else []
    kinds = {id(candidate.holding): kind for candidate, kind in others}
    candidates = [*(candidate for candidate, _ in others), *search.candidates(search.node)]
    options = [(each, kinds.get(id(each.holding), _OWN)) for each in ordered(search, candidates)]
    options.sort(key=lambda option: (option[0].rank[0], option[1].order))
    for borrowing in _attempts(search, [kind for _, kind in others]):
        with search.ground.trial():
            victims = _attempt(search, options, borrowing=borrowing)
        if victims:
            return victims
    return []


def _attempts(search: Search, others: list[_Kind]) -> tuple[bool, ...]:
    """Return whether the claim may borrow, in the order of trial."""
    if not others:
        return (True,)
    if search.policy.borrow_within_cohort != "Never":
        return True, False
    tree = search.tree
    if not all(tree.usage[cell] < tree.nominal[cell] for cell in search.claim.short):
        return (True,)
    advantaged = any(kind.order == 0 for kind in others)
    return (True, False) if advantaged else (False, True)


def _attempt(search: Search, options: Iterable[_Option], *, borrowing: bool) -> list[Victim]:
    victims: list[Victim] = []
    for (_, holding, _), kind in options:
        if borrowing and kind.spared:
            continue
        if kind.path and any(map(search.within_nominal, kind.path)):
            continue
        search.ground.release(holding)
        victims.append(Victim(holding, kind.reason))
        if search.fits(borrowing=borrowing):
            search.fill_back(victims, lambda: search.fits(borrowing=borrowing))
            return victims
    return []


def _others(search: Search) -> Iterator[_Option]:
    tree = search.tree
    advantage, rest = _fill(tree, search.charges)
    node = search.node
    while node.parent is not None:
        cohort = node.parent
        for path in _borrowers(search, cohort, node):
            for candidate in search.candidates(path[0]):
                yield candidate, _kind(search, candidate, path, advantage=advantage)
        fits, rest = _fill(tree, {tree.parent[cell]: amount for cell, amount in rest.items()})
        advantage = advantage or fits
        node = cohort


def _fill(tree: QuotaTree, charges: Mapping[int, int]) -> tuple[bool, dict[int, int]]:
    """Tell whether a node has the quota for all of `charges`, and what it passes on upwards."""
    usage, subtree, guaranteed = tree.usage, tree.subtree, tree.guaranteed
    fits = all(usage[cell] + amount <= subtree[cell] for cell, amount in charges.items())
    rest = {
        cell: max(0, amount - max(0, guaranteed[cell] - usage[cell]))
        for cell, amount in charges.items()
    }
    return fits, rest


def _borrowers(search: Search, top: Node, without: Node) -> Iterator[tuple[Node, ...]]:
    """Yield the queues below `top` that use more than they have, with the cohorts between."""
    for child in top.children.values():
        if child is without or search.within_nominal(child):
            continue
        if child.queue:
            yield (child,)
        else:
            for path in _borrowers(search, child, without):
                yield (*path, child)


def _kind(
    search: Search, candidate: Candidate, path: tuple[Node, ...], *, advantage: bool
) -> _Kind:
    if advantage:
        return _Kind(0, "InCohortReclamation", path=path)
    policy, priority = search.policy, candidate.holding.workload.priority
    threshold = policy.max_priority_threshold
    if (
        policy.borrow_within_cohort == "Never"
        or priority >= search.claim.workload.priority
        or (threshold is not None and priority > threshold)
    ):
        return _Kind(1, "InCohortReclamation", spared=True, path=path)
    return _Kind(1, "InCohortReclaimWhileBorrowing", path=path)
