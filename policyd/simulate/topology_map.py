"""A picture of a topology in text: its racks, their nodes, and the workloads whose pods are there.

    block b1
      rack r1    n1 AABB....   n2 CCCC####

A letter is a workload's share of a node, `#` pods that no topology placed, `.` is free.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from itertools import groupby
from string import ascii_lowercase, ascii_uppercase

from policyd.alloc.topology.values import HOSTNAME, Placement, TopologyNode
from policyd.optimize.devices import gpus_asked

WIDTH = 96
"""Columns of the picture at most, where nodes are not wider."""
MOST_CELLS = 16
"""Cells of the biggest node at most: a cell is one device, or as many units as that takes."""

_LETTERS = ascii_uppercase + ascii_lowercase
_OTHERS, _FREE, _BEYOND = "#", ".", "?"


def scarce_resource(nodes: Iterable[TopologyNode]) -> str:
    """Return the resource that nodes are drawn by: the devices of most of them, or else cpu."""
    counts: dict[str, int] = {}
    for node in nodes:
        for name, amount in node.allocatable.items():
            if "/" in name and amount:
                counts[name] = counts.get(name, 0) + 1
    return min(counts, key=lambda name: (-counts[name], name), default="cpu")


class TopologyMap:
    """Draws one topology again and again; a workload keeps its letter."""

    def __init__(
        self,
        levels: Sequence[str],
        nodes: Iterable[TopologyNode],
        *,
        resource: str,
        name: Callable[[str], str] = str,
    ) -> None:
        """Take in where the nodes are; those without a place in the topology are left out.

        Args:
            levels: Those of the topology.
            nodes: All nodes.
            resource: The resource that is drawn.
            name: Returns the displayed name of a workload, by its key.
        """
        self._name = name
        placed = (node for node in nodes if all(level in node.labels for level in levels))
        self._nodes = sorted(placed, key=lambda node: [node.labels[level] for level in levels])
        self._levels = tuple(levels)
        self._resource = resource
        self._letters: dict[str, str] = {}
        most = max((node.allocatable.get(resource, 0) for node in self._nodes), default=0)
        self._unit = max(1, -(-most // MOST_CELLS))

    def draw(
        self,
        held: Mapping[str, Sequence[Placement]],
        others: Mapping[str, Mapping[str, int]] | None = None,
    ) -> Iterator[str]:
        """Yield the lines of a picture.

        Args:
            held: The places of the pods of workloads.
            others: Usage of pods that no topology placed, by node.
        """
        shares = self._shares(held)
        above = self._levels[:-2]
        for path, racks in groupby(self._nodes, key=lambda node: self._path(node, above)):
            for depth, (level, name) in enumerate(zip(above, path, strict=True)):
                yield f"{'  ' * depth}{_short(level)} {name}"
            yield from self._racks(list(racks), shares, others or {}, depth=len(above))
        yield from self._legend(held)

    def _racks(
        self,
        nodes: Sequence[TopologyNode],
        shares: Mapping[tuple[str, ...], str],
        others: Mapping[str, Mapping[str, int]],
        *,
        depth: int,
    ) -> Iterator[str]:
        rack = self._levels[-2:-1]
        for path, members in groupby(nodes, key=lambda node: self._path(node, rack)):
            named = [f"{_short(level)} {name}" for level, name in zip(rack, path, strict=True)]
            head = f"{'  ' * depth}{''.join(named)}".ljust(12) + "  "
            line = head
            for _, same in groupby(members, key=self._domain):
                box = self._box(list(same), shares, others)
                if len(line) + len(box) > WIDTH and line.strip() and line != head:
                    yield line.rstrip()
                    line = " " * len(head)
                line += f"{box}   "
            yield line.rstrip()

    def _box(
        self,
        nodes: Sequence[TopologyNode],
        shares: Mapping[tuple[str, ...], str],
        others: Mapping[str, Mapping[str, int]],
    ) -> str:
        size = sum(self._cells(node.allocatable.get(self._resource, 0)) for node in nodes)
        taken = sum(self._cells(others.get(node.name, {}).get(self._resource, 0)) for node in nodes)
        cells = shares.get(self._domain(nodes[0]), "") + _OTHERS * taken
        return f"{nodes[0].labels[self._levels[-1]]} {cells.ljust(size, _FREE)}"

    def _shares(self, held: Mapping[str, Sequence[Placement]]) -> dict[tuple[str, ...], str]:
        """Return the drawing of workloads in each lowest domain."""
        shares: dict[tuple[str, ...], str] = {}
        for key, placements in held.items():
            for placement in placements:
                each = placement.requests.get(self._resource, 0)
                for domain, count in placement.assignment.domains:
                    cells = self._cells(each * count)
                    shares[domain] = shares.get(domain, "") + self._letter(key) * cells
        return shares

    def _legend(self, held: Mapping[str, Sequence[Placement]]) -> Iterator[str]:
        for key, placements in held.items():
            pods = sum(placement.assignment.count for placement in placements)
            gpus = sum(gpus_asked(each.requests) * each.assignment.count for each in placements)
            parts = f", {gpus} GPU" if isinstance(gpus, Fraction) and gpus.denominator > 1 else ""
            name = f"{self._letter(key)} {self._name(key)}"
            yield f"{name}: {pods} pod{'s' if pods != 1 else ''}{parts}"

    def _letter(self, key: str) -> str:
        if key not in self._letters:
            number = len(self._letters)
            self._letters[key] = _LETTERS[number] if number < len(_LETTERS) else _BEYOND
        return self._letters[key]

    def _cells(self, amount: int) -> int:
        return -(-amount // self._unit)

    def _domain(self, node: TopologyNode) -> tuple[str, ...]:
        levels = (HOSTNAME,) if self._levels[-1] == HOSTNAME else self._levels
        return self._path(node, levels)

    def _path(self, node: TopologyNode, levels: Sequence[str]) -> tuple[str, ...]:
        return tuple(node.labels[level] for level in levels)


def _short(level: str) -> str:
    """Return the last word of a label: `rack` of `cloud.provider.com/topology-rack`."""
    return level.rpartition("/")[2].rpartition("-")[2]
