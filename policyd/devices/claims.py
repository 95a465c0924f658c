"""What one claim is charged: its requests, checked and counted one by one."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from msgspec.structs import replace

from policyd.api.kueue.validation import FieldError
from policyd.api.quantity import QuantityError
from policyd.cel import Budget
from policyd.devices.amounts import Amounts, DeviceCountError, add, unit_of
from policyd.devices.charges import (
    CapacityError,
    NoCapacityError,
    capacity_charge,
    counter_charge,
    saturated,
)
from policyd.devices.extended import resource_of
from policyd.devices.inventory import Inventory, OfferedDevice
from policyd.devices.mappings import ChargedSource, DeviceMappings
from policyd.devices.matching import (
    CHARACTER_WORK,
    COST_LIMIT,
    MOST_CHARACTERS,
    DeviceCondition,
    DeviceSelectorError,
    compiled,
    expressions,
    matching,
)
from policyd.devices.objects import (
    ClaimSelector,
    ClaimSpec,
    DeviceClass,
    RequestedDevices,
    SelectorExpression,
)

WORST_CASE: Final = "policyd.io/count-worst-case"
"""Annotation of a DeviceClass: with `true`, requests whose number of devices only the scheduler
knows (`All`, `firstAvailable`) are counted at their most. Kueue refuses them."""


@dataclass(frozen=True, slots=True)
class DeviceGates:
    """The feature gates about devices, beside the one for all of it."""

    extended_resources: bool = True
    partitionable: bool = True
    consumable: bool = False


@dataclass(frozen=True, slots=True)
class ChargeRules:
    """The mappings of the Configuration, as far as the gates let them count."""

    mappings: DeviceMappings = field(default_factory=DeviceMappings)
    gates: DeviceGates = DeviceGates()

    def counters(self, name: str) -> Sequence[ChargedSource]:
        """Return the counters that devices of a class are charged by."""
        return self.mappings.counters.get(name, ()) if self.gates.partitionable else ()

    def capacities(self, name: str) -> Sequence[ChargedSource]:
        """Return the capacities that devices of a class are charged by."""
        return self.mappings.capacities.get(name, ()) if self.gates.consumable else ()


class _Request(NamedTuple):
    """A request of a claim.

    Attributes:
        path: Where it is.
        exact: Whether it is for the devices of its only option, rather than the first available.
        options: The devices that it is for, with where they are requested.
    """

    path: str
    exact: bool
    options: tuple[tuple[str, RequestedDevices], ...]


class ClaimCount:
    """Counts the devices of one claim, within one budget for all its selectors."""

    def __init__(
        self,
        rules: ChargeRules,
        classes: Callable[[str], DeviceClass | None],
        inventory: Inventory,
    ) -> None:
        self._rules, self._classes, self._inventory = rules, classes, inventory
        self._budget = Budget(COST_LIMIT)
        self._most: dict[str, int] = {}
        self._characters = 0
        self._before = inventory.seen.work

    @property
    def work(self) -> int:
        """What was done so far, in units of the cost of selectors."""
        return self._inventory.seen.work - self._before + self._characters * CHARACTER_WORK

    def is_free(self, spec: ClaimSpec) -> bool:
        """Tell whether a claim is counted without a look at devices."""
        return not any(
            asked.selectors
            or asked.allocation_mode == "All"
            or self._rules.counters(asked.device_class_name)
            or self._rules.capacities(asked.device_class_name)
            for request in _requests(spec)
            for _, asked in request.options
        )

    def total(self, spec: ClaimSpec) -> Amounts:
        """Return the charge of a claim.

        Raises:
            DeviceCountError: If devices cannot be counted; the fields are those of the claim.
        """
        requests = [*_requests(spec)]
        self._check_length(requests)
        for each in requests:
            self._check_form(each)
        self._check_devices(requests)
        total: Amounts = {}
        for each in requests:
            add(total, self._charge(each))
        return total

    def of_node(self, spec: ClaimSpec) -> Amounts:
        """Return the devices that a claim whose charge is known takes of its node, by resource.

        Of alternatives, those that all of them take.
        """
        total: Amounts = {}
        for request in _requests(spec):
            options = [self._devices(path, each) for path, each in request.options]
            least = set[str]().union(*options)
            add(total, {name: min(each.get(name, 0) for each in options) for name in least})
        return total

    def _devices(self, path: str, asked: RequestedDevices) -> Amounts:
        found = None if asked.admin_access else self._classes(asked.device_class_name)
        if found is None:
            return {}
        count = self._most.get(path, 1) if asked.allocation_mode == "All" else asked.count
        return {resource_of(found, self._rules.mappings): saturated(count)}

    def _check_length(self, requests: Iterable[_Request]) -> None:
        asked = (asked for each in requests for _, asked in each.options)
        found = sum(len(text) for each in asked for _, text in expressions(each.selectors))
        if found > MOST_CHARACTERS:
            message = f"all selectors together have at most {MOST_CHARACTERS:,} characters"
            raise DeviceCountError([FieldError("devices.requests", found, message)])
        self._characters = found

    def _check_form(self, request: _Request) -> None:
        """Check that a request is of a form that can be counted."""
        if not request.exact and not (
            request.options and all(self._counts_worst_case(each) for _, each in request.options)
        ):
            message = "FirstAvailable device selection is not supported"
            raise DeviceCountError([FieldError(request.path, None, message)])
        if not request.options:
            message = "Exactly must be set if FirstAvailable is nil"
            raise DeviceCountError([FieldError(request.path, None, message)])
        for path, asked in request.options:
            self._check_selectors(path, asked)
            if request.exact and not asked.admin_access:
                self._check_mode(path, asked)

    def _check_mode(self, path: str, asked: RequestedDevices) -> None:
        mode = asked.allocation_mode
        if mode == "ExactCount" or (mode == "All" and self._counts_worst_case(asked)):
            return
        message = f"unsupported allocation mode: {mode}"
        if mode == "All":
            message = "AllocationMode 'All' is not supported"
        raise DeviceCountError([FieldError(f"{path}.allocationMode", mode, message)])

    def _counts_worst_case(self, asked: RequestedDevices) -> bool:
        found = self._classes(asked.device_class_name)
        return found is not None and found.metadata.annotations.get(WORST_CASE) == "true"

    def _check_selectors(self, path: str, asked: RequestedDevices) -> None:
        where = f"{path}.selectors"
        try:
            _condition("request selector", asked.selectors, where)
        except DeviceCountError as error:
            raise DeviceCountError([FieldError(where, None, str(error))]) from error

    def _check_devices(self, requests: Iterable[_Request]) -> None:
        """Check that there are enough devices for the selectors of all requests together."""
        taken: set[tuple[str, str, str]] = set()
        errors: list[FieldError] = []
        options = (
            (each.path, *option) for each in requests if each.exact for option in each.options
        )
        for path, where, asked in options:
            if asked.admin_access or asked.allocation_mode == "All":
                continue
            if not any(each.cel is not None for each in asked.selectors):
                continue
            try:
                found = self._take(path, asked, taken)
            except DeviceCountError as error:
                errors += error.errors
                continue
            if found < asked.count:
                message = (
                    "insufficient matching devices for CEL selector in DeviceClass"
                    f" {asked.device_class_name}: {found} device(s) match in the cluster but"
                    f" {asked.count} requested"
                )
                errors.append(FieldError(f"{where}.selectors", None, message, "Internal"))
        if errors:
            raise DeviceCountError(errors)

    def _take(self, path: str, asked: RequestedDevices, taken: set[tuple[str, str, str]]) -> int:
        """Take devices for a request that no other of the claim has; return how many there are."""
        name = asked.device_class_name
        mappings = self._rules.mappings
        sources = (*mappings.counters.get(name, ()), *mappings.capacities.get(name, ()))
        drivers = dict.fromkeys(each.driver for each in sources)
        free = (each for each in self._inventory.devices(*drivers) if _identity(each) not in taken)
        found = 0
        conditions = self._conditions(path, asked)
        for each in self._matching(
            path, free, conditions, failed=f"CEL evaluation failed for DeviceClass {name}"
        ):
            if found >= asked.count:
                break
            found += 1
            if not each.device.allow_multiple_allocations:
                taken.add(_identity(each))
        return found

    def _charge(self, request: _Request) -> Amounts:
        """Return the charge of a request; of alternatives, the most of each resource."""
        if request.exact:
            ((where, asked),) = request.options
            return self._charge_of(where, request.path, asked)
        most: Amounts = {}
        failed: list[FieldError] = []
        for where, each in request.options:
            try:
                self._check_mode(where, each)
                charge = self._charge_of(where, where, each)
            except DeviceCountError as error:
                if any(e.problem != "Internal" for e in error.errors):
                    raise
                failed += error.errors  # there are none of these devices
                continue
            for resource, amount in charge.items():
                most[resource] = max(amount, most.get(resource, 0))
        if failed and not most:
            raise DeviceCountError(failed)
        return most

    def _charge_of(self, path: str, request_path: str, asked: RequestedDevices) -> Amounts:
        name = asked.device_class_name
        if asked.admin_access or not name:
            return {}
        resource = self._rules.mappings.resources.get(name)
        if resource is None:
            raise DeviceCountError([FieldError("", name, "", "NotFound")])
        if asked.allocation_mode == "All":
            asked = replace(asked, count=self._all(path, asked))
        for sources, charge in (
            (self._rules.counters(name), self._by_counter),
            (self._rules.capacities(name), self._by_capacity),
        ):
            if sources:
                total: Amounts = {}
                for source in sources:
                    amount = charge(request_path, asked, source)
                    add(total, {source.resource: amount * unit_of(source.resource)})
                return total
        return {resource: saturated(asked.count * unit_of(resource))}

    def _all(self, path: str, asked: RequestedDevices) -> int:
        """Return how many devices a request for all gets at most: those that one node can use."""
        conditions = self._conditions(path, asked)
        shared, on_node = 0, dict[str, int]()
        for each in self._matching(path, self._inventory.devices(), conditions):
            if each.node:
                on_node[each.node] = on_node.get(each.node, 0) + 1
            else:
                shared += 1
        found = shared + max(on_node.values(), default=0)
        if not found:
            message = f"no device of DeviceClass {asked.device_class_name} matches in the cluster"
            raise DeviceCountError([FieldError(path, None, message, "Internal")])
        self._most[path] = max(on_node.values(), default=0)
        return found

    def _by_counter(self, path: str, asked: RequestedDevices, source: ChargedSource) -> int:
        matched = self._of_source(path, asked, source, "counter")
        try:
            charge = counter_charge((m.device for m in matched), source.name, asked.count)
        except QuantityError as error:
            raise DeviceCountError([FieldError(path, None, str(error), "Internal")]) from error
        if charge is None:
            message = f'matched devices have no consumesCounters entry for counter "{source.name}"'
            raise DeviceCountError([FieldError(path, None, message, "Internal")])
        return charge

    def _by_capacity(self, path: str, asked: RequestedDevices, source: ChargedSource) -> int:
        matched = self._of_source(path, asked, source, "capacity")
        wanted = None if asked.capacity is None else asked.capacity.requests.get(source.name)
        try:
            return capacity_charge(
                [each.device for each in matched], source.name, asked.count, wanted
            )
        except NoCapacityError as error:
            raise DeviceCountError([FieldError(path, None, str(error), "Internal")]) from error
        except (CapacityError, QuantityError) as error:
            raise DeviceCountError([FieldError(path, None, str(error))]) from error

    def _of_source(
        self, path: str, asked: RequestedDevices, source: ChargedSource, kind: str
    ) -> list[OfferedDevice]:
        """Return the devices that a request may get of a source's driver, if they are enough."""
        given = (ClaimSelector(cel=SelectorExpression(source.selector)),) if source.selector else ()
        own = _condition("deviceSelector", given, path, "deviceSelector CEL compilation failed")
        conditions = (own, *self._conditions(path, asked))
        offered = self._inventory.devices(source.driver, complete=True)
        matched = list(self._matching(path, offered, conditions))
        if len(matched) < asked.count:
            message = (
                f"insufficient matching devices for {kind} driver: {len(matched)} device(s) match"
                f" but {asked.count} requested"
            )
            raise DeviceCountError([FieldError(path, None, message, "Internal")])
        return matched

    def _conditions(
        self, path: str, asked: RequestedDevices
    ) -> tuple[DeviceCondition, DeviceCondition]:
        """Return the selectors of a request's class, and its own."""
        name = asked.device_class_name
        of_class: tuple[ClaimSelector, ...] = ()
        if name:
            found = self._classes(name)
            if found is None:
                message = (
                    f"failed to get DeviceClass {name}: deviceclasses.resource.k8s.io"
                    f' "{name}" not found'
                )
                raise DeviceCountError([FieldError(path, None, message, "Internal")])
            of_class = found.spec.selectors
        words = f"DeviceClass {name} has invalid CEL selector"
        return (
            _condition("DeviceClass selector", of_class, path, words),
            _condition("request selector", asked.selectors, f"{path}.selectors"),
        )

    def _matching(
        self,
        path: str,
        offered: Iterable[OfferedDevice],
        conditions: Sequence[DeviceCondition],
        *,
        failed: str = "",
    ) -> Iterator[OfferedDevice]:
        """Yield the devices that meet conditions.

        Args:
            path: Of the request.
            offered: The devices.
            conditions: Selectors.
            failed: What an error of a selector begins with, if it is the request's fault.
        """
        try:
            yield from matching(offered, conditions, self._budget, self._inventory.seen)
        except DeviceSelectorError as error:
            if failed:
                where = f"{path}.exactly.selectors"
                raise DeviceCountError([FieldError(where, None, f"{failed}: {error}")]) from error
            message = f"CEL evaluation error in {error.origin} for device {error.device}: {error}"
            raise DeviceCountError([FieldError(path, None, message, "Internal")]) from error


def _requests(spec: ClaimSpec) -> Iterator[_Request]:
    for index, each in enumerate(spec.devices.requests):
        path = f"devices.requests[{index}]"
        if each.first_available is None:
            exactly = () if each.exactly is None else ((f"{path}.exactly", each.exactly),)
            yield _Request(path, exact=True, options=exactly)
        else:
            alternatives = enumerate(each.first_available)
            options = tuple((f"{path}.firstAvailable[{n}]", asked) for n, asked in alternatives)
            yield _Request(path, exact=False, options=options)


def _condition(
    origin: str,
    selectors: Iterable[ClaimSelector],
    path: str,
    words: str = "CEL compilation failed",
) -> DeviceCondition:
    """Return selectors, compiled.

    Raises:
        DeviceCountError: If one cannot be compiled.
    """
    programs, errors = [], []
    for index, expression in expressions(selectors):
        program = compiled(expression)
        if isinstance(program, str):
            where = f"{path}[{index}].cel.expression"
            errors.append(FieldError(where, expression, f"{words}: {program}"))
        else:
            programs.append(program)
    if errors:
        raise DeviceCountError(errors)
    return DeviceCondition(origin, tuple(programs))


def _identity(offered: OfferedDevice) -> tuple[str, str, str]:
    return offered.driver, offered.pool, offered.device.name
