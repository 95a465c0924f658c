"""Quota of GPUs, parts of them and replicas together: all counted in slices.

A quota is a whole number, and a seventh of a GPU is none. So a GPU is as many slices as all parts
that there are divide: seven where MIG cuts it in sevenths, twenty-eight where others are shared by
four. What a pod asks for counts as its slices (`resources.transformations` of the Configuration).
"""

from collections.abc import Iterable, Mapping
from fractions import Fraction
from math import lcm

from policyd.alloc.value import Value
from policyd.optimize.devices import GPU, Devices
from policyd.optimize.mig import MIG, profiles_of


class GpuSlices(Value, frozen=True):
    """How resources are counted.

    Attributes:
        gpu: How many slices a GPU is.
        resources: How many one of each resource is.
        unclear: Resources that are not the same on all nodes: what part of a GPU one is on each.
            One counts as the biggest.
    """

    gpu: int
    resources: Mapping[str, int]
    unclear: Mapping[str, tuple[Fraction, ...]]


def gpu_slices(devices: Iterable[Devices]) -> GpuSlices:
    """Work out how to count the devices of a cluster.

    Where a product is cut up, all its profiles are counted, also those of which there are none now.
    """
    shares: dict[str, set[Fraction]] = {}
    for each in devices:
        shares.setdefault(each.resource, set()).add(each.share)
        if each.resource.startswith(MIG):
            for profile in profiles_of(each.product):
                shares.setdefault(profile.resource, set()).add(profile.share)
    shares.setdefault(GPU, {Fraction(1)})
    gpu = lcm(*(share.denominator for found in shares.values() for share in found))
    return GpuSlices(
        gpu=gpu,
        resources={name: int(max(found) * gpu) for name, found in sorted(shares.items())},
        unclear={n: tuple(sorted(found)) for n, found in sorted(shares.items()) if len(found) > 1},
    )
