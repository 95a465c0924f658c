"""What a queue can offer pod sets: for each group of resources, its flavors and their cells."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from policyd.alloc.reasons import Obstacle
from policyd.alloc.workload import PodSetAssignment


@dataclass(slots=True, eq=False)
class Offer:
    """What one flavor would have to give, of one group of resources.

    Attributes:
        name: The flavor.
        resources: Which resources it would give.
        charges: How much of each, by cell, in the same order.
        obstacles: Why it is unsuitable, whatever is free; none if it is not.
        barred: Whether it is not even to be tried, for that.
    """

    name: str
    resources: tuple[str, ...]
    charges: dict[int, int]
    obstacles: tuple[Obstacle, ...] = ()
    barred: bool = False


@dataclass(slots=True, eq=False)
class PodSetRequests:
    """What a pod set asks of a queue.

    Attributes:
        name: The pod set.
        count: How many pods it has.
        totals: What they need together, by resource.
        follows: Flavors it takes of those that its group gets, though it needs nothing of them: its
            pods are placed beside the others.
    """

    name: str
    count: int
    totals: Mapping[str, int]
    follows: frozenset[str] = frozenset()
    _assignments: dict[tuple[Offer, ...], PodSetAssignment] = field(default_factory=dict)

    def assignment(self, offers: tuple[Offer, ...]) -> PodSetAssignment:
        """Return what the pod set gets with one offer of each group; the same value each time."""
        found = self._assignments.get(offers)
        if found is None:
            taken = {
                r: offer.name
                for offer in offers
                for r in offer.resources
                if r in self.totals or offer.name in self.follows
            }
            found = self._assignments[offers] = PodSetAssignment(
                name=self.name,
                count=self.count,
                flavors=taken,
                usage={r: self.totals[r] for r in taken if r in self.totals},
            )
        return found


@dataclass(slots=True, eq=False)
class GroupRequests:
    """What pod sets that must have the same flavors ask of a queue; most often it is one.

    Attributes:
        pod_sets: What each asks.
        searches: Offers to all of them together, by group of resources, in the order of the search.
        uncovered: A resource the queue has nothing of, met after `searches`; "" for none.
    """

    pod_sets: tuple[PodSetRequests, ...]
    searches: tuple[tuple[Offer, ...], ...]
    uncovered: str
