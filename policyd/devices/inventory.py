"""The devices that drivers offer, from ResourceSlices: the newest generation of each pool."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from policyd.devices.objects import PublishedDevice, ResourceSlice


class PoolSlices(NamedTuple):
    """The slices of the newest generation of a pool.

    Attributes:
        generation: Older slices are left out.
        expected: How many slices make up the pool.
        slices: Those that are there.
    """

    generation: int
    expected: int
    slices: tuple[ResourceSlice, ...]

    @property
    def complete(self) -> bool:
        """Whether all slices of the pool are there."""
        return len(self.slices) == self.expected


class OfferedDevice(NamedTuple):
    """A device, with its driver, its pool, and the node that it is on; "" if nodes share it."""

    driver: str
    pool: str
    node: str
    device: PublishedDevice


def pools_of(slices: Iterable[ResourceSlice], driver: str) -> dict[str, PoolSlices]:
    """Return the pools of a driver, by name."""
    pools: dict[str, PoolSlices] = {}
    for each in slices:
        if each.spec.driver != driver:
            continue
        pool = each.spec.pool
        known = pools.get(pool.name)
        if known is None or pool.generation > known.generation:
            pools[pool.name] = PoolSlices(pool.generation, pool.resource_slice_count, (each,))
        elif pool.generation == known.generation:
            pools[pool.name] = known._replace(slices=(*known.slices, each))
    return pools


class Inventory:
    """All devices, by driver.

    Attributes:
        seen: What selectors see of devices, by the id of the device, once one was evaluated.
    """

    def __init__(self, slices: Iterable[ResourceSlice] = ()) -> None:
        self.seen: dict[int, dict[str, object]] = {}
        self._slices: Mapping[str, list[ResourceSlice]] = defaultdict(list)
        for each in slices:
            self._slices[each.spec.driver].append(each)

    def slices(self, *drivers: str) -> tuple[ResourceSlice, ...]:
        """Return the slices of some drivers; of all, if none is named."""
        names = drivers or tuple(self._slices)
        return tuple(each for name in names for each in self._slices.get(name, ()))

    def devices(self, *drivers: str, complete: bool = False) -> Iterator[OfferedDevice]:
        """Yield the devices of some drivers; of all, if none is named.

        Args:
            drivers: Names of drivers.
            complete: Whether to leave out pools of which slices are missing.
        """
        for driver in drivers or tuple(self._slices):
            for name, pool in pools_of(self._slices.get(driver, ()), driver).items():
                if pool.complete or not complete:
                    for each in pool.slices:
                        for device in each.spec.devices:
                            node = device.node_name or each.spec.node_name
                            yield OfferedDevice(driver, name, node, device)
