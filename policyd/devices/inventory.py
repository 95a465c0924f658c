"""The devices that drivers offer, from ResourceSlices: the newest generation of each pool."""

from array import array
from collections import OrderedDict, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from policyd.devices.objects import PublishedDevice, ResourceSlice

MOST_LOOKS: Final = 4_000_000
"""Looks of selectors at devices whose outcomes are remembered, of four bytes each."""


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
    """A device.

    Attributes:
        driver: Whose it is.
        pool: The pool that it is in.
        node: The node that it is on; "" if nodes share it.
        device: What was published of it.
        number: Its place among all devices, from 0.
        complete: Whether all slices of its pool are there.
    """

    driver: str
    pool: str
    node: str
    device: PublishedDevice
    number: int
    complete: bool


class SeenDevices:
    """What selectors see of the devices of an inventory, and which they select: none looks twice.

    Attributes:
        values: What selectors see of devices, by number.
        work: What was done for it so far, in units of the cost of selectors.
    """

    def __init__(self, devices: int) -> None:
        self.values: dict[int, dict[str, object]] = {}
        self.work = 0
        self._devices = devices
        self._looks: OrderedDict[str, array[int]] = OrderedDict()

    def looks(self, selector: str) -> "array[int]":
        """Return what looks of a selector cost, by the number of the device; others may be added.

        The cost is below 0 if the selector does not select the device, and 0 if it was not asked.
        """
        known = self._looks.pop(selector, None)
        if known is None:
            known = array("i", bytes(4 * self._devices))
            if len(self._looks) * self._devices > MOST_LOOKS:
                self._looks.popitem(last=False)
        self._looks[selector] = known
        return known


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
        seen: What selectors see of them.
    """

    def __init__(self, slices: Iterable[ResourceSlice] = ()) -> None:
        self._slices: Mapping[str, list[ResourceSlice]] = defaultdict(list)
        for each in slices:
            self._slices[each.spec.driver].append(each)
        self._devices: dict[str, list[OfferedDevice]] = {}
        number = 0
        for driver in self._slices:
            numbered = [*self._offered(driver, number)]
            self._devices[driver] = numbered
            number += len(numbered)
        self.seen = SeenDevices(number)

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
            for each in self._devices.get(driver, ()):
                if each.complete or not complete:
                    yield each

    def _offered(self, driver: str, number: int) -> Iterator[OfferedDevice]:
        for name, pool in pools_of(self._slices.get(driver, ()), driver).items():
            for each in pool.slices:
                for device in each.spec.devices:
                    node = device.node_name or each.spec.node_name
                    yield OfferedDevice(driver, name, node, device, number, pool.complete)
                    number += 1
