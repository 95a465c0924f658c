"""Flavors by how full they are: what is used in part is filled before what is empty."""

from collections.abc import Mapping

from policyd.alloc.flavors.assignment import FlavorOption
from policyd.alloc.flavors.search import FlavorSearch
from policyd.alloc.queue import QueueSpec
from policyd.alloc.quota import QuotaTree
from policyd.alloc.settings import QueueingSettings


class PackingSearch(FlavorSearch):
    """A search that tries the flavor first that would be fullest, by the weights of resources."""

    __slots__ = ("_weights",)
    in_order = False

    def __init__(
        self,
        tree: QuotaTree,
        queue: QueueSpec,
        settings: QueueingSettings,
        weights: Mapping[str, float],
    ) -> None:
        super().__init__(tree, queue, settings)
        self._weights = weights

    def arranged(self, options: tuple[FlavorOption, ...]) -> tuple[FlavorOption, ...]:
        """Return flavors with the fullest first."""
        tree, weights = self.tree, self._weights

        def room(option: FlavorOption) -> float:
            parts = zip(option.resources, option.charges.items(), strict=True)
            return sum(
                weights.get(name, 0.0) * (tree.available(cell) - n) / (tree.potential[cell] or 1)
                for name, (cell, n) in parts
            )

        return tuple(sorted(options, key=room))
