"""A topology request, as a goal in numbers of levels."""

from itertools import pairwise

from policyd.alloc.settings import Gates
from policyd.alloc.topology.tree import TopologyTree
from policyd.alloc.topology.values import Mode, PlacementRequest, SliceLayer, Unusable, UnusableKind
from policyd.alloc.value import Value


class Goal(Value, frozen=True):
    """How many pods are to be placed, and how close together.

    Attributes:
        mode: How they keep together.
        level: In domains of which level.
        count: How many pods, in whole slices. Pods beyond get no place, as in Kueue; but if pods of
            the workload have ended, the missing ones of the last slice are included.
        leaders: How many leaders go with them, in the same domain of `level` if it is required.
        slice_level: Each slice is in one domain of this level.
        slice_size: Pods of a slice.
        inner: By level below the slices', in how many pods at once they are distributed there.
        layers: Slices within slices, the outermost first; () if there is one layer at most.
        ascending: Whether domains with least room are filled first (LeastFreeCapacity), not so that
            little is left over (BestFit).
    """

    mode: Mode
    level: int
    count: int
    slice_level: int
    leaders: int = 0
    slice_size: int = 1
    inner: dict[int, int] = {}
    layers: tuple[SliceLayer, ...] = ()
    ascending: bool = False

    @property
    def slices(self) -> int:
        """How many slices are to be placed."""
        return self.count // self.slice_size


def goal_of(
    tree: TopologyTree, request: PlacementRequest, *, leaders: int, gates: Gates
) -> Goal | Unusable:
    """Look up the levels of a request, or return its error."""
    layers = request.slices if gates.tas_multi_layer_topology else request.slices[:1]
    level = level_of(tree, request)
    outer = layers[0] if layers else SliceLayer(level=tree.levels[-1], size=1)
    wrong = _wrong_with(tree, level, outer) or _wrong_below(tree, layers)
    if wrong is None and 0 < request.count < outer.size and not request.short:
        wrong = _unusable("CountBelowSlice", request.count, outer.size)
    if wrong is not None:
        return wrong
    beyond = request.count % outer.size
    return Goal(
        mode=request.mode,
        level=tree.levels.index(level),
        count=request.count - beyond + (outer.size if beyond and request.short else 0),
        leaders=leaders,
        slice_level=tree.levels.index(outer.level),
        slice_size=outer.size,
        inner=_inner_sizes(tree, layers),
        layers=layers if len(layers) > 1 else (),
        ascending=request.mode == "Unconstrained" and gates.tas_profile_mixed,
    )


def level_of(tree: TopologyTree, request: PlacementRequest) -> str:
    """Return the label of the level in whose domains a request wants its pods."""
    return request.level or (tree.levels[0] if request.slices else tree.levels[-1])


def has_levels(levels: tuple[str, ...], request: PlacementRequest, *, gates: Gates) -> bool:
    """Tell whether a topology has all levels that a request names."""
    layers = request.slices if gates.tas_multi_layer_topology else request.slices[:1]
    return all(level in levels for level in (request.level, *(s.level for s in layers)) if level)


def _wrong_with(tree: TopologyTree, level: str, outer: SliceLayer) -> Unusable | None:
    if not outer.size:
        return _unusable("SliceSizeMissing")
    if level not in tree.levels:
        return _unusable("LevelMissing", level)
    if outer.level not in tree.levels:
        return _unusable("SliceLevelMissing", outer.level)
    if outer.size < 1:
        return _unusable("SliceSizeInvalid", outer.size)
    if tree.levels.index(level) > tree.levels.index(outer.level):
        return _unusable("SliceAboveLevel", outer.level, level)
    return None


def _wrong_below(tree: TopologyTree, layers: tuple[SliceLayer, ...]) -> Unusable | None:
    for outer, inner in pairwise(layers):
        if inner.level not in tree.levels:
            return _unusable("LayerLevelMissing", inner.level)
        if tree.levels.index(inner.level) <= tree.levels.index(outer.level):
            return _unusable("LayersNotNested", inner.level, outer.level)
        if inner.size < 1:
            return _unusable("SliceSizeInvalid", inner.size)
        if outer.size % inner.size:
            return _unusable("SizesNotNested", inner.size, outer.size)
    return None


def _inner_sizes(tree: TopologyTree, layers: tuple[SliceLayer, ...]) -> dict[int, int]:
    """Return the sizes of inner layers by level: of their own, and of those up to the last."""
    sizes: dict[int, int] = {}
    for outer, inner in pairwise(layers):
        above, level = tree.levels.index(outer.level), tree.levels.index(inner.level)
        sizes |= dict.fromkeys(range(above + 1, level + 1), inner.size)
    return sizes


def _unusable(kind: UnusableKind, *names: object) -> Unusable:
    return Unusable(kind=kind, names=tuple(map(str, names)))
