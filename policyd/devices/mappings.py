"""Which resource the devices of a class are charged to, and by which amount."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from policyd.api.configuration.kinds import DeviceClassMapping, DeviceSource


class ChargedSource(NamedTuple):
    """A counter or a capacity of devices that is charged instead of the devices.

    Attributes:
        resource: The resource with quota.
        driver: The driver whose devices have it.
        name: Of the counter or the capacity.
        selector: The expression that selects the devices; "" for all.
    """

    resource: str
    driver: str
    name: str
    selector: str


@dataclass(frozen=True, slots=True)
class DeviceMappings:
    """The Configuration's mappings, by device class."""

    resources: Mapping[str, str] = field(default_factory=dict)
    counters: Mapping[str, tuple[ChargedSource, ...]] = field(default_factory=dict)
    capacities: Mapping[str, tuple[ChargedSource, ...]] = field(default_factory=dict)

    @classmethod
    def of(cls, given: Iterable[DeviceClassMapping]) -> "DeviceMappings":
        """Return the mappings of a Configuration, which were validated."""
        resources: dict[str, str] = {}
        counters: dict[str, tuple[ChargedSource, ...]] = {}
        capacities: dict[str, tuple[ChargedSource, ...]] = {}
        for mapping in given:
            of_counters = _sources(mapping.name, (each.counter for each in mapping.sources))
            of_capacity = _sources(mapping.name, (each.capacity for each in mapping.sources))
            for name in mapping.device_class_names:
                resources[name] = mapping.name
                if of_counters:
                    counters[name] = (*counters.get(name, ()), *of_counters)
                if of_capacity:
                    capacities[name] = (*capacities.get(name, ()), *of_capacity)
        return cls(resources, counters, capacities)

    @property
    def counted_resources(self) -> tuple[str, ...]:
        """The resources that counters are charged to, by name."""
        found = {each.resource for sources in self.counters.values() for each in sources}
        return tuple(sorted(found))


def _sources(resource: str, given: Iterable[DeviceSource | None]) -> tuple[ChargedSource, ...]:
    return tuple(
        ChargedSource(
            resource=resource,
            driver=each.driver,
            name=each.name,
            selector=each.device_selector.cel.expression if each.device_selector.cel else "",
        )
        for each in given
        if each is not None
    )
