"""Places for several workloads at once, so that each has its own.

One after the other is quick, but the first may take the only place of the next. So other orders are
tried, and on small clusters then every way to spread pods over the lowest domains, as far as the
search's budget goes. A result is a proof; no result is one if the search was complete.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, permutations, repeat

from policyd.alloc.settings import Gates
from policyd.alloc.topology.assignments import assignment_of
from policyd.alloc.topology.feasibility import Feasibility, PlacementCircumstances
from policyd.alloc.topology.goal import Goal, goal_of
from policyd.alloc.topology.nodes import Nodes
from policyd.alloc.topology.placement import fits, place
from policyd.alloc.topology.tree import Column, TopologyTree, is_port
from policyd.alloc.topology.values import Placement, PlacementRequest, TopologyPlacement, Unusable

MOST_ORDERS = 24
"""How many orders are tried: all of four workloads."""

MOST_LEAVES = 64
"""On how many lowest domains every way to spread pods is tried at most."""

Asked = Mapping[str, Mapping[str, Sequence[PlacementRequest]]]
"""The requests of workloads, by key and flavor."""

Places = dict[str, dict[str, Placement]]
"""Where they go, by key and pod set."""

_Item = tuple[str, str, PlacementRequest]


@dataclass(slots=True)
class SearchBudget:
    """The remaining trials before a search gives up.

    Attributes:
        steps: How many ways to spread a pod set.
        sets: How many sets of workloads to move: more than all pairs of thirty.
        exhausted: Whether it gave up, so that places may exist that it did not find.
    """

    steps: int
    sets: int = 500
    exhausted: bool = False

    def step(self) -> bool:
        """Take a step; tell whether there was one left."""
        self.steps -= 1
        self.exhausted = self.exhausted or self.steps < 0
        return not self.exhausted


def place_jointly(
    nodes: Nodes, asked: Asked, *, gates: Gates, budget: SearchBudget
) -> Places | None:
    """Find places for all of some workloads at once; nothing is charged.

    Args:
        nodes: The nodes; the workloads hold nothing of them.
        asked: Their requests. The first ones have the best places.
        gates: The feature gates of Kueue.
        budget: How much is tried; used up on the way.

    Returns:
        None if there are no such places, or, if the budget is exhausted, none were found.
    """
    if _hopeless(nodes, asked, gates):
        return None
    orders = islice(permutations(asked), MOST_ORDERS)
    found = (_one_by_one(nodes, {key: asked[key] for key in order}, gates) for order in orders)
    places = next((each for each in found if each is not None), None)
    return _everywhere(nodes, asked, gates, budget) if places is None else places


def _hopeless(nodes: Nodes, asked: Asked, gates: Gates) -> bool:
    """Tell whether one would have no place even alone, or there is too little for all."""
    if not all(fits(nodes, requests, gates=gates) for requests in asked.values()):
        return True
    needed: Counter[tuple[str, str]] = Counter()
    for flavor, request in (each for requests in asked.values() for each in _each(requests)):
        for resource, amount in request.requests.items():
            needed[flavor, resource] += amount * request.count
    return any(
        amount and sum(map(max, repeat(0), _left(nodes, *names))) < amount
        for names, amount in needed.items()
        if nodes.trees[names[0]].limits(names[1]) and not is_port(names[1])
    )


def _left(nodes: Nodes, flavor: str, resource: str) -> Column:
    return nodes.trees[flavor].free.columns.get(resource, [])


def _one_by_one(nodes: Nodes, asked: Asked, gates: Gates) -> Places | None:
    places: Places = {}
    with nodes.trial():
        for key, requests in asked.items():
            outcomes = place(nodes, requests, gates=gates)
            places[key] = {}
            for flavor, request in _each(requests):
                outcome = outcomes.get(request.pod_set)
                if not isinstance(outcome, TopologyPlacement):
                    return None
                places[key][request.pod_set] = _placement(flavor, request, outcome)
            nodes.hold(key, tuple(places[key].values()))
    return places


def _everywhere(nodes: Nodes, asked: Asked, gates: Gates, budget: SearchBudget) -> Places | None:
    """Try every way to spread pods; give up at once where that is too much."""
    items = [(key, *each) for key, requests in asked.items() for each in _each(requests)]
    trees = (nodes.trees.get(flavor) for _, flavor, _ in items)
    small = all(tree is None or len(tree.leaves) <= MOST_LEAVES for tree in trees)
    if not small or any(request.group for _, _, request in items):
        budget.exhausted = True
        return None
    places: Places = {key: {} for key in asked}
    with nodes.trial():
        return places if _spread(nodes, items, places, gates, budget) else None


def _spread(
    nodes: Nodes, items: Sequence[_Item], places: Places, gates: Gates, budget: SearchBudget
) -> bool:
    """Find places for all that are left; tell whether there are any, and leave them in `places`."""
    if not items:
        return True
    (key, flavor, request), *rest = items
    for assignment in _ways(nodes, flavor, request, gates):
        if not budget.step():
            return False
        if assignment is not None:
            places[key][request.pod_set] = _placement(flavor, request, assignment)
            nodes.hold(key, tuple(places[key].values()))
            if _spread(nodes, rest, places, gates, budget):
                return True
            del places[key][request.pod_set]
            nodes.hold(key, tuple(places[key].values()))
    return False


def _ways(
    nodes: Nodes, flavor: str, request: PlacementRequest, gates: Gates
) -> Iterator[TopologyPlacement | None]:
    """Yield every way to spread a pod set; None for one that breaks up slices."""
    cache = nodes.counts.get(flavor)
    goal = None if cache is None else goal_of(cache.tree, request, leaders=0, gates=gates)
    if cache is None or goal is None or isinstance(goal, Unusable):
        return
    room = Feasibility(cache, goal, request, None, PlacementCircumstances()).room
    tree = cache.tree
    pods = {leaf: room.pods[leaf] for leaf in tree.at[-1]}
    for leaves in _areas(tree, goal):
        roomy = [leaf for leaf in leaves if pods[leaf]]
        for counts in _distributions([pods[leaf] for leaf in roomy], request.count):
            spread = {leaf: n for leaf, n in zip(roomy, counts, strict=True) if n}
            yield assignment_of(tree, spread) if _whole_slices(tree, goal, spread) else None


def _areas(tree: TopologyTree, goal: Goal) -> Iterator[list[int]]:
    """Yield the leaves of each domain in one of which all pods have to be."""
    areas: dict[int, list[int]] = {}
    for leaf in tree.at[-1]:
        area = tree.ancestor(leaf, goal.level) if goal.mode == "Required" else 0
        areas.setdefault(area, []).append(leaf)
    yield from areas.values()


def _whole_slices(tree: TopologyTree, goal: Goal, spread: Mapping[int, int]) -> bool:
    for level, size in ((goal.slice_level, goal.slice_size), *goal.inner.items()):
        pods: Counter[int] = Counter()
        for leaf, count in spread.items():
            pods[tree.ancestor(leaf, level)] += count
        if any(count % size for count in pods.values()):
            return False
    return True


def _distributions(rooms: Sequence[int], count: int) -> Iterator[tuple[int, ...]]:
    """Yield every way to put so many pods into rooms, as many as possible into the first."""
    if not rooms:
        if not count:
            yield ()
        return
    first, *rest = rooms
    for here in range(min(first, count), max(0, count - sum(rest)) - 1, -1):
        for elsewhere in _distributions(rest, count - here):
            yield here, *elsewhere


def _each(
    requests: Mapping[str, Sequence[PlacementRequest]],
) -> Iterator[tuple[str, PlacementRequest]]:
    return ((flavor, request) for flavor, wanted in requests.items() for request in wanted)


def _placement(flavor: str, request: PlacementRequest, assigned: TopologyPlacement) -> Placement:
    return Placement(flavor=flavor, assignment=assigned, requests=request.requests)
