"""What a queue can offer a pod set: for each group of resources, its flavors and their cells."""

from collections.abc import Mapping

from policyd.alloc.flavor import FlavorSpec
from policyd.alloc.workload import PodSetAssignment


class Offer:
    """What one flavor would have to give a pod set, of one group of resources.

    Attributes:
        name: The flavor.
        spec: What it is; None if it does not exist.
        resources: Which resources it would give.
        charges: How much of each, by cell, in the same order.
        lacks: A resource it should give but has no quota for; "" for none.
        restricts: Whether it may be unsuitable, whatever is free.
    """

    __slots__ = ("charges", "lacks", "name", "resources", "restricts", "spec")

    def __init__(
        self,
        name: str,
        spec: FlavorSpec | None,
        resources: tuple[str, ...],
        charges: dict[int, int],
        lacks: str,
    ) -> None:
        self.name = name
        self.spec = spec
        self.resources = resources
        self.charges = charges
        self.lacks = lacks
        self.restricts = spec is None or bool(spec.labels or spec.taints or lacks)


class PodSetRequests:
    """What a pod set asks of a queue; the same for all with its name, count and requests.

    Attributes:
        name: The pod set.
        count: How many pods it has.
        totals: What they need together, by resource.
        groups: Offers by group of resources, in the order of the search.
        uncovered: A resource the queue has nothing of, met after `groups`; "" for none.
    """

    __slots__ = ("_assignments", "count", "groups", "name", "totals", "uncovered")

    def __init__(self, name: str, count: int, totals: Mapping[str, int]) -> None:
        self.name = name
        self.count = count
        self.totals = totals
        self.groups: tuple[tuple[Offer, ...], ...] = ()
        self.uncovered = ""
        self._assignments: dict[tuple[Offer, ...], PodSetAssignment] = {}

    def assignment(self, offers: tuple[Offer, ...]) -> PodSetAssignment:
        """Return what the pod set gets with one offer of each group; the same value each time."""
        found = self._assignments.get(offers)
        if found is None:
            taken = [
                (offer.name, resource, amount)
                for offer in offers
                for resource, amount in zip(offer.resources, offer.charges.values(), strict=True)
            ]
            found = self._assignments[offers] = PodSetAssignment(
                name=self.name,
                count=self.count,
                flavors={resource: flavor for flavor, resource, _ in taken},
                usage={resource: amount for _, resource, amount in taken},
            )
        return found
