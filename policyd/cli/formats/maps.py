"""Maps of a scenario's topologies, drawn when placements change."""

from collections import Counter
from collections.abc import Iterator

from policyd.alloc.state import CoreState
from policyd.alloc.topology.values import HOSTNAME, Placement, TopologyNode
from policyd.optimize.fragmentation import fragmentation, fragments_of
from policyd.simulate.topology_map import TopologyMap, scarce_resource
from policyd.status.naming import Names


class TopologyMaps:
    """The maps of all topologies of a state; those of flavors with the same levels are one."""

    def __init__(self, state: CoreState, nodes: list[TopologyNode], names: Names) -> None:
        self._state = state
        self._nodes = nodes
        self._resource = resource = scarce_resource(nodes)
        self._maps = {
            flavor.levels: TopologyMap(flavor.levels, nodes, resource=resource, name=names.of)
            for flavor in state.flavors.values()
            if flavor.levels
        }
        self._drawn: dict[str, tuple[Placement, ...]] | None = None

    def changed(self) -> Iterator[str]:
        """Yield the lines of all maps, if placements changed since they were drawn last."""
        held = dict(self._state.ledger.nodes.held)
        if held == self._drawn:
            return
        self._drawn = held
        others = self._state.ledger.nodes.taken
        for levels, each in self._maps.items():
            mine = {key: _of(levels, placements) for key, placements in held.items()}
            yield from each.draw({key: found for key, found in mine.items() if found}, others)
            yield from self._pieces(levels)

    def _pieces(self, levels: tuple[str, ...]) -> Iterator[str]:
        """Yield where free devices are in pieces, if any are."""
        free = fragments = 0
        where: Counter[str] = Counter()
        for tree in self._state.ledger.nodes.trees.values():
            if tree.levels != levels or "/" not in self._resource:
                continue
            found = fragmentation(tree, self._resource)
            free, fragments = free + found.free, fragments + found.fragments
            inside = fragments_of(tree, self._resource)
            racks = tree.at[max(0, len(levels) - 2)]
            where.update({"/".join(tree.values[d]): inside[d] for d in racks if inside[d]})
        if fragments:
            named = ", ".join(f"{name} {count}" for name, count in sorted(where.items()))
            yield f"in pieces: {fragments} of {free} free {self._resource}: {named}"


def _of(levels: tuple[str, ...], placements: tuple[Placement, ...]) -> tuple[Placement, ...]:
    """Return those of the placements that a map of these levels shows."""
    shown = (HOSTNAME,) if levels[-1] == HOSTNAME else levels
    return tuple(each for each in placements if each.assignment.levels == shown)
