"""Which devices meet the selectors of a class, of a request and of a mapping."""

from array import array
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
from policyd.devices.inventory import OfferedDevice, SeenDevices
from policyd.devices.objects import ClaimSelector

COST_LIMIT: Final = 2_000_000
"""Cost that all selectors of one claim may have together, over all devices: 0.2 seconds."""
MOST_CHARACTERS: Final = 16_384
"""Of all selectors of one claim together: compiling that many takes 0.2 seconds."""
MOST_SEEN: Final = 20_000
"""Devices of which it is remembered what selectors see of them: a kilobyte or two each."""
_LOOK_COST: Final = 15
"""Cost of a look at a device by a selector of a user, beside that of the selector."""
_MAKING_COST: Final = 100
"""The same of making what the selector sees."""
_KNOWN_WORK: Final = 3
"""Work of looking up whether a selector selects a device."""
CHARACTER_WORK: Final = COST_LIMIT // MOST_CHARACTERS
"""Work of compiling a character of a selector."""

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


def matching(
    offered: Iterable[OfferedDevice],
    conditions: Sequence[DeviceCondition],
    budget: Budget,
    seen: SeenDevices | None = None,
) -> Iterator[OfferedDevice]:
    """Yield the devices that meet all conditions.

    Args:
        offered: The devices.
        conditions: Selectors.
        budget: Of the selectors. What is known already costs as much, so that nothing depends on
            what was asked before.
        seen: What is known of these devices; more is added. Each look at a device is charged then.
            None for selectors of administrators alone.

    Raises:
        DeviceSelectorError: If a selector fails, or all together cost too much.
    """
    asked = [
        _Asked(origin, program, None if seen is None else seen.looks(program.source))
        for origin, programs in conditions
        for program in programs
    ]
    for each in offered:
        values: dict[str, object] = {}
        if all(_meets(each, one, values, budget, seen) for one in asked):
            yield each


class _Asked(NamedTuple):
    """A selector, with what is known of its looks."""

    origin: str
    program: Program
    looks: "array[int] | None"


def _meets(
    offered: OfferedDevice,
    asked: _Asked,
    values: dict[str, object],
    budget: Budget,
    seen: SeenDevices | None,
) -> bool:
    looks, number = asked.looks, offered.number
    try:
        if seen is None or looks is None:
            values.update(values or _value(offered))
            return asked.program.evaluate({"device": values}, budget) is True
        if looks[number]:
            seen.work += _KNOWN_WORK
            _charge(abs(looks[number]), budget)
            return looks[number] > 0
        before = budget.spent
        try:
            _charge(_LOOK_COST + (_MAKING_COST if number >= MOST_SEEN else 0), budget)
            shown = {"device": _seen_of(offered, values, seen)}
            selected = asked.program.evaluate(shown, budget) is True
        finally:
            cost = budget.spent - before
            seen.work += cost
        looks[number] = cost if selected else -cost
    except CelError as error:
        raise DeviceSelectorError(asked.origin, offered.device.name, error.message) from error
    else:
        return selected


def _seen_of(
    offered: OfferedDevice, values: dict[str, object], seen: SeenDevices
) -> dict[str, object]:
    """Return a device as selectors see it; `values` has it if it is not remembered for others."""
    if offered.number >= MOST_SEEN:
        values.update(values or _value(offered))
        return values
    known = seen.values.get(offered.number)
    if known is None:
        seen.work += _MAKING_COST
        known = seen.values[offered.number] = _value(offered)
    return known


def _charge(cost: int, budget: Budget) -> None:
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
    device = offered.device
    names = _qualified(offered.driver, tuple(device.attributes))
    for (domain, short), given in zip(names, device.attributes.values(), strict=True):
        own = attributes.get(domain)
        if own is None:
            own = attributes[domain] = {}
        own[short] = _attribute(domain, short, given)
    names = _qualified(offered.driver, tuple(device.capacity))
    for (domain, short), amount in zip(names, device.capacity.values(), strict=True):
        try:
            quantity = parse_quantity(amount.value)
        except QuantityError as error:
            raise CelError(f"capacity {domain}/{short}: {error}") from error
        capacity.setdefault(domain, {})[short] = CelQuantity(quantity)
    return {
        "driver": offered.driver,
        "attributes": attributes,
        "capacity": capacity,
        "allowMultipleAllocations": device.allow_multiple_allocations,
    }


@lru_cache(maxsize=1_024)
def _qualified(driver: str, names: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    """Return the domains of names, which are the driver's unless they say another, and the rest.

    Devices that are alike have the same names.
    """
    parts = (name.rpartition("/") for name in names)
    return tuple((domain if slash else driver, short) for domain, slash, short in parts)


def _attribute(domain: str, short: str, given: Json) -> Json:
    if isinstance(given, dict):
        for kind in ("int", "bool", "string"):
            if given.get(kind) is not None:
                return given[kind]
        if given.get("version") is not None:
            return parse_semver(given["version"])
    raise CelError(f"attribute {domain}/{short}: unsupported attribute value")
