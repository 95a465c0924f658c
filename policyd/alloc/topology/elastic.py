"""What an elastic workload keeps of its places when its number of pods changes."""

from typing import NamedTuple

from msgspec.structs import replace

from policyd.alloc.topology.assignments import truncated
from policyd.alloc.topology.values import PlacementRequest, TopologyPlacement


class KeptPlaces(NamedTuple):
    """Places that stay.

    Attributes:
        assignments: By pod set, where its pods stay.
        more: The pods that need a place in addition; None if none do.
    """

    assignments: dict[str, TopologyPlacement]
    more: PlacementRequest | None = None


def kept_places(workers: PlacementRequest, leader: PlacementRequest | None) -> KeptPlaces | None:
    """Return what pod sets keep of what they held; None if they are to be placed from scratch.

    Pods stay where they are: of fewer, the first ones do; for more, places are added. Slices are
    kept whole, so that this is for whole slices only.
    """
    held = workers.held
    if held is None:
        return None
    size = workers.slices[0].size if workers.slices else 1
    if size < 1 or held.count % size or workers.count % size:
        return None
    kept = {}
    if leader is not None and leader.held is not None:
        kept[leader.pod_set] = leader.held
    if workers.count > held.count:
        more = replace(workers, count=workers.count - held.count, held=None)
        return KeptPlaces({workers.pod_set: held, **kept}, more)
    if leader is not None and leader.held is None:
        return None
    return KeptPlaces({workers.pod_set: truncated(held, workers.count), **kept})
