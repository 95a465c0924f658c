"""The amounts that counters and capacities of devices are charged: the most that one can take.

The scheduler chooses among all devices that match, so that the largest of them counts. Amounts
are whole units, from 0 to those of an int64.
"""

from collections.abc import Iterable
from typing import Final

from policyd.api.quantity import Quantity, parse_quantity
from policyd.api.schema import QuantityText
from policyd.devices.objects import CapacityPolicy, CapacityRange, DeviceCapacity, PublishedDevice

LARGEST: Final = 2**63 - 1
_NANO: Final = 10**9


class CapacityError(ValueError):
    """No device has the amount of a capacity that is requested; the text says why."""


class NoCapacityError(CapacityError):
    """No device has the capacity at all."""


def saturated(amount: int) -> int:
    """Return an amount within the bounds of an int64, at least 0."""
    return max(0, min(amount, LARGEST))


def counter_charge(devices: Iterable[PublishedDevice], counter: str, count: int) -> int | None:
    """Return the charge for `count` devices by a counter; None if no device uses the counter.

    Raises:
        QuantityError: If a driver published an amount that is none.
    """
    amounts = [
        parse_quantity(consumed.counters[counter].value).value()
        for each in devices
        for consumed in each.consumes_counters
        if counter in consumed.counters
    ]
    return saturated(saturated(max(amounts)) * max(1, count)) if amounts else None


def capacity_charge(
    devices: Iterable[PublishedDevice], name: str, count: int, asked: QuantityText | None
) -> int:
    """Return the charge for `count` devices by a capacity.

    Args:
        devices: Those that match.
        name: Of the capacity.
        count: How many are requested.
        asked: How much of each; None for what a device gives by default.

    Raises:
        CapacityError: If no device can give so much.
        QuantityError: If an amount is none.
    """
    capacities = [each.capacity[name] for each in devices if name in each.capacity]
    if not capacities:
        raise NoCapacityError(f'matched devices have no capacity dimension "{name}"')
    charges = []
    for each in capacities:
        try:
            charges.append(_of_device(each, asked))
        except CapacityError:  # the scheduler does not choose it
            continue
    if not charges:
        raise CapacityError(
            "capacity request cannot be satisfied by any matched device's RequestPolicy for"
            f' dimension "{name}"'
        )
    return saturated(saturated(max(charges).value()) * max(1, count))


def _of_device(capacity: DeviceCapacity, asked: QuantityText | None) -> Quantity:
    policy = capacity.request_policy or CapacityPolicy()
    usual = capacity.value if policy.default is None else policy.default
    base = parse_quantity(usual if asked is None else asked)
    if policy.valid_values:
        return to_valid_value(base, [parse_quantity(each) for each in policy.valid_values])
    return base if policy.valid_range is None else to_valid_range(base, policy.valid_range)


def to_valid_value(base: Quantity, values: Iterable[Quantity]) -> Quantity:
    """Return the smallest valid amount that is enough.

    Raises:
        CapacityError: If there is none.
    """
    enough = [each for each in values if each >= base]
    if not enough:
        raise CapacityError(f"request {base} exceeds all valid values")
    return min(enough)


def to_valid_range(base: Quantity, valid: CapacityRange) -> Quantity:
    """Return the smallest amount of a range that is enough.

    Steps are counted from the range's smallest amount; without one there are none.

    Raises:
        CapacityError: If it exceeds the range.
    """
    amount = _whole(base)
    if valid.min is not None:
        least = _whole(parse_quantity(valid.min))
        amount = max(amount, least)
        step = 0 if valid.step is None else _whole(parse_quantity(valid.step))
        if step > 0:
            amount = min(least - (least - amount) // step * step, LARGEST)
    if valid.max is not None and amount > _whole(parse_quantity(valid.max)):
        most = _whole(parse_quantity(valid.max))
        raise CapacityError(f"rounded value {amount} exceeds max {most}")
    return Quantity(amount * _NANO, base.format)


def _whole(quantity: Quantity) -> int:
    return max(-LARGEST - 1, min(quantity.value(), LARGEST))
