"""GPUs as nodes report them: whole ones, parts of them (MIG), and shared ones.

A *replica* is not a GPU: where GPUs are shared by time-slicing or MPS, a node reports each of them
several times, and a pod that asks for one shares it with others. GPU feature discovery says so in
labels. Shared ones have a resource of their own (`nvidia.com/gpu.shared`) only where they are
renamed; else they are called `nvidia.com/gpu` like whole ones, and so are parts of a GPU where all
of a node are of the same profile (MIG strategy `single`).
"""

from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import NamedTuple

from policyd.alloc.topology.values import HOST_PORT, TopologyNode
from policyd.optimize.mig import MIG, profile_of

GPU = "nvidia.com/gpu"
SLICES = "policyd.io/gpu-slices"
"""A resource by which quota of whole GPUs, parts and replicas can be counted together."""

THOUSANDTHS = "policyd.io/gpu-thousandths"
"""Parts of shared GPUs, as quota counts them."""
_SHARED = ".shared"
_WHOLE = Fraction(1)


class Devices(NamedTuple):
    """Devices of one kind on one node, or on several that have the same.

    Attributes:
        resource: The resource that pods request.
        product: The model of the GPU; "" if the node has no label.
        sharing: How one is shared: `time-slicing`, `mps`, or "" if it is not.
        share: The part of a GPU that one is.
        reported: The number that the nodes report.
        nodes: How many nodes.
    """

    resource: str
    product: str
    sharing: str
    share: Fraction
    reported: int
    nodes: int = 1

    @property
    def gpus(self) -> Fraction:
        """How many whole GPUs they are together."""
        return self.share * self.reported


def devices_of(node: TopologyNode) -> tuple[Devices, ...]:
    """Return the devices of a node, by resource."""
    return tuple(
        _devices(node, resource)
        for resource, count in sorted(node.allocatable.items())
        if count > 0 and is_nvidia(resource)
    )


def inventory(nodes: Iterable[TopologyNode]) -> tuple[Devices, ...]:
    """Return the devices of nodes, those that are alike together."""
    found: dict[tuple[str, str, str, Fraction], Devices] = {}
    for each in (each for node in nodes for each in devices_of(node)):
        kind = each[:4]
        before = found.get(kind)
        more = (0, 0) if before is None else (before.reported, before.nodes)
        found[kind] = each._replace(reported=each.reported + more[0], nodes=each.nodes + more[1])
    return tuple(found[kind] for kind in sorted(found))


def is_nvidia(resource: str) -> bool:
    """Tell whether a resource stands for NVIDIA's GPUs, parts of them, or replicas."""
    return resource in {GPU, GPU + _SHARED} or resource.startswith(MIG)


def whole_gpus_only(node: TopologyNode) -> bool:
    """Tell whether a pod that asks a node for a GPU gets a whole one to itself."""
    return _devices(node, GPU).share == 1


def shared_gpus(node: TopologyNode) -> str:
    """Return the obstacle on a node for pods that need whole GPUs; "" if there is none."""
    return "" if whole_gpus_only(node) else "sharedGPUs"


def device_of(requests: Mapping[str, int]) -> str:
    """Return the device that a pod asks for, a GPU if it asks for several; "" if for none."""
    asked = (n for n, amount in requests.items() if amount and "/" in n and HOST_PORT not in n)
    return min(asked, key=lambda name: ("gpu" not in name and MIG not in name, name), default="")


def counts_as_gpus(resource: str) -> bool:
    """Tell whether an amount of a resource counts as GPUs, or as parts of them."""
    return resource == THOUSANDTHS or is_nvidia(resource)


def gpus_asked(requests: Mapping[str, int]) -> Fraction:
    """Return how many GPUs a pod asks for, parts of one counted as fractions.

    A replica counts as one: how many share a GPU is not known before the pod has its node.
    """
    shared = Fraction(requests.get(THOUSANDTHS, 0), 1_000)
    return sum((_part(name) * n for name, n in requests.items() if is_nvidia(name)), shared)


def _part(resource: str, product: str = "") -> Fraction:
    profile = profile_of(resource.removesuffix(_SHARED), product)
    return _WHOLE if profile is None else profile.share


def _devices(node: TopologyNode, resource: str) -> Devices:
    own = resource.removesuffix(_SHARED)
    product = node.labels.get(f"{GPU}.product", "")
    model, _, single = product.removesuffix("-SHARED").partition("-MIG-")
    sharing = node.labels.get(f"{own}.sharing-strategy", "none")
    replicas = _number(node.labels.get(f"{own}.replicas", ""))
    if sharing == "none":
        is_shared = replicas > 1 or product.endswith("-SHARED") or resource.endswith(_SHARED)
        sharing = "time-slicing" if is_shared else ""
    part = _part(f"{MIG}{single}" if single and own == GPU else own, model)
    share = part / (max(2, replicas) if sharing else 1)
    return Devices(resource, model, sharing, share, node.allocatable.get(resource, 0))


def _number(text: str) -> int:
    return int(text) if text.isdecimal() else 1
