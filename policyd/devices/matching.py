"""Which devices meet the selectors of a class, of a request and of a mapping."""

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Final, NamedTuple

from policyd.api.meta import Json
from policyd.api.quantity import QuantityError, parse_quantity
from policyd.cel import Budget, CelCompileError, CelError, Program, compile_expression
from policyd.cel.cost import exceed
from policyd.cel.environment import Environment
from policyd.cel.environments import base_environment
from policyd.cel.lib.quantity import QUANTITY, CelQuantity
from policyd.cel.lib.semver import parse_semver
from policyd.cel.types import BOOL, DYN, STRING, Type, map_of
from policyd.devices.inventory import OfferedDevice
from policyd.devices.objects import ClaimSelector

COST_LIMIT: Final = 2_000_000
"""Cost that all selectors of one claim may have together, over all devices: 0.2 seconds."""
MOST_CHARACTERS: Final = 16_384
"""Of all selectors of one claim together: compiling that many takes 0.2 seconds."""
MOST_SEEN: Final = 10_000
"""Devices of which it is remembered what selectors see of them: some kilobytes each."""
_LOOK_COST: Final = 15
"""Cost of a look at a device by a selector of a user, beside that of the selector."""
_FIRST_LOOK_COST: Final = 20
"""The same of making what the selector sees."""

_DEVICE: Final = Type("kubernetes.DRADevice")
_FIELDS: Final = {
    "driver": STRING,
    "attributes": map_of(STRING, map_of(STRING, DYN)),
    "capacity": map_of(STRING, map_of(STRING, QUANTITY)),
    "allowMultipleAllocations": BOOL,
}


class DeviceSelectorError(ValueError):
    """A selector failed on a device.

    Attributes:
        origin: Whose selector it is: `deviceSelector`, `DeviceClass selector`, `request selector`.
        device: The name of the device.
    """

    def __init__(self, origin: str, device: str, problem: str) -> None:
        super().__init__(problem)
        self.origin = origin
        self.device = device


class DeviceCondition(NamedTuple):
    """Selectors of one origin, compiled."""

    origin: str
    programs: tuple[Program, ...]


def expressions(selectors: Iterable[ClaimSelector]) -> Iterator[tuple[int, str]]:
    """Yield the expressions of selectors with their places; others say nothing here."""
    for index, each in enumerate(selectors):
        if each.cel is not None:
            yield index, each.cel.expression


@lru_cache(maxsize=256)
def compiled(expression: str) -> Program | str:
    """Return a compiled selector, or why it cannot be compiled."""
    try:
        return compile_expression(expression, _environment(), wants=BOOL)
    except CelCompileError as error:
        return str(error)


@lru_cache(maxsize=1)
def _environment() -> Environment:
    return base_environment().extend(variables={"device": _DEVICE}, structs={_DEVICE.name: _FIELDS})


Seen = dict[int, dict[str, object]]
"""What selectors see of devices, by the id of the device."""


def matching(
    offered: Iterable[OfferedDevice],
    conditions: Sequence[DeviceCondition],
    budget: Budget,
    seen: Seen | None = None,
) -> Iterator[OfferedDevice]:
    """Yield the devices that meet all conditions.

    Args:
        offered: The devices.
        conditions: Selectors.
        budget: Of the selectors.
        seen: What was made of these devices for other selectors; more is added. Each look at a
            device is charged then. None for selectors of administrators alone.

    Raises:
        DeviceSelectorError: If a selector fails, or all together cost too much.
    """
    needed = [each for each in conditions if each.programs]
    for each in offered:
        if _meets(each, needed, budget, seen):
            yield each


def _meets(
    offered: OfferedDevice, conditions: Sequence[DeviceCondition], budget: Budget, seen: Seen | None
) -> bool:
    values: dict[str, object] = {}
    for origin, programs in conditions:
        try:
            values = values or _looked_at(offered, budget, seen)
            for program in programs:
                _charge(_LOOK_COST, budget, seen)
                if program.evaluate(values, budget) is not True:
                    return False
        except CelError as error:
            raise DeviceSelectorError(origin, offered.device.name, error.message) from error
    return True


def _looked_at(offered: OfferedDevice, budget: Budget, seen: Seen | None) -> dict[str, object]:
    """Return the variables of selectors for a device."""
    known = None if seen is None else seen.get(id(offered.device))
    if known is not None:
        return known
    _charge(_FIRST_LOOK_COST, budget, seen)
    made: dict[str, object] = {"device": _value(offered)}
    if seen is not None and len(seen) < MOST_SEEN:
        seen[id(offered.device)] = made
    return made


def _charge(cost: int, budget: Budget, seen: Seen | None) -> None:
    """Charge a look at a device, where users could have it done without end."""
    if seen is not None:
        budget.spent += cost
        if budget.remaining < 0:
            exceed()


class _Domains(dict[str, dict[str, Json]]):
    """Names by domain; a domain that a device does not have has none."""

    def __missing__(self, _domain: str) -> dict[str, Json]:
        return {}


def _value(offered: OfferedDevice) -> dict[str, object]:
    """Return a device as selectors see it."""
    attributes, capacity = _Domains(), _Domains()
    for name, attribute in offered.device.attributes.items():
        domain, short = _qualified(name, offered.driver)
        attributes.setdefault(domain, {})[short] = _attribute(f"{domain}/{short}", attribute)
    for name, amount in offered.device.capacity.items():
        domain, short = _qualified(name, offered.driver)
        try:
            quantity = parse_quantity(amount.value)
        except QuantityError as error:
            raise CelError(f"capacity {domain}/{short}: {error}") from error
        capacity.setdefault(domain, {})[short] = CelQuantity(quantity)
    return {
        "driver": offered.driver,
        "attributes": attributes,
        "capacity": capacity,
        "allowMultipleAllocations": offered.device.allow_multiple_allocations,
    }


def _qualified(name: str, driver: str) -> tuple[str, str]:
    """Return the domain of a name, which is the driver's unless it says another, and the rest."""
    domain, slash, short = name.rpartition("/")
    return (domain if slash else driver), short


def _attribute(name: str, given: Json) -> Json:
    if isinstance(given, dict):
        for kind in ("int", "bool", "string"):
            if given.get(kind) is not None:
                return given[kind]
        if given.get("version") is not None:
            return parse_semver(given["version"])
    raise CelError(f"attribute {name}: unsupported attribute value")
