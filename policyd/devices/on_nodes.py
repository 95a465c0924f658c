"""The devices of nodes that pods get by claims: how many there are, and which claims have them.

Devices are counted by the resources that pods request of them: what the Configuration maps their
class to, or else the extended resource of the class. A device that several classes select counts
for the resource of each. It is a part of a resource while a claim has it, or could get it: a GPU of
which a partition is in use is no whole one.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Final, NamedTuple

from policyd.api.quantity import QuantityError, parse_quantity
from policyd.cel import Budget, Program
from policyd.devices.amounts import Amounts, add
from policyd.devices.extended import BY_CLASS, resource_of
from policyd.devices.inventory import Inventory, OfferedDevice, pools_of
from policyd.devices.mappings import DeviceMappings
from policyd.devices.matching import (
    COST_LIMIT,
    DeviceCondition,
    DeviceSelectorError,
    compiled,
    expressions,
    matching,
)
from policyd.devices.objects import DeviceClass, PublishedDevice, ResourceClaim, ResourceSlice

Identity = tuple[str, str, str]
"""Driver, pool and name of a device."""
_Counter = tuple[str, str, str, str]
"""Driver, pool, set of counters, and counter."""

_PRODUCT: Final = "productName"
"""The attribute by which NVIDIA's driver names the model."""
_EXCLUDING: Final = frozenset({"NoSchedule", "NoExecute"})


class DevicesOfNode(NamedTuple):
    """Devices of a node by resource: those that claims have or could get, and the latter alone."""

    total: Amounts
    free: Amounts


class HeldDevices(NamedTuple):
    """The devices that a claim has on a node.

    Attributes:
        claim: `namespace/name`.
        pods: The pods that may use it, as `namespace/name`.
        node: The name of the node.
        amounts: How many, by resource.
    """

    claim: str
    pods: tuple[str, ...]
    node: str
    amounts: Amounts


class DeviceKind(NamedTuple):
    """Devices that are alike, on one node or several.

    Attributes:
        resource: By which pods get them.
        driver: Whose they are.
        product: Their model, as the driver names it; "" if it does not.
        divided: Whether they are parts of something, or give room to parts of themselves.
        number: How many claims could get if there were no others.
        nodes: How many nodes.
    """

    resource: str
    driver: str
    product: str
    divided: bool
    number: int = 0
    nodes: int = 0


class _Device(NamedTuple):
    """A device of a node.

    Attributes:
        resources: By which it is counted.
        needs: What it takes of counters that devices share; None if that cannot be read.
        part: The largest part that this is of a counter.
        tainted: Whether only claims that tolerate it get it.
        shared: Whether several claims may have it.
        product: Its model.
    """

    identity: Identity
    node: str
    resources: tuple[str, ...]
    needs: Mapping[_Counter, int] | None
    part: float
    tainted: bool
    shared: bool
    product: str


@dataclass(frozen=True, slots=True)
class DeviceOffer:
    """The devices that drivers offer on nodes.

    Attributes:
        devices: By identity.
        on_node: The same, by node: those that take least of shared counters first.
        counters: What there is of counters that devices share.
        backed: The extended resources by which pods get such devices.
        unbounded: The resources of which nodes have no number: those of devices that several
            claims, or several nodes, can use.
        left_out: Which devices are not counted, and why.
    """

    devices: Mapping[Identity, _Device]
    on_node: Mapping[str, Sequence[_Device]]
    counters: Mapping[_Counter, int]
    backed: frozenset[str]
    unbounded: frozenset[str] = frozenset()
    left_out: tuple[str, ...] = ()

    def use(self, claims: Iterable[ResourceClaim]) -> "ClaimedUse":
        """Return which of the devices claims have."""
        return ClaimedUse(self, claims)

    def kinds(self) -> list[DeviceKind]:
        """Return the devices without those that claims have to tolerate, in order."""
        found: dict[DeviceKind, DeviceKind] = {}
        for devices in self.on_node.values():
            alike: defaultdict[DeviceKind, list[_Device]] = defaultdict(list)
            for each in (device for device in devices if not device.tainted):
                for resource in each.resources:
                    driver, divided = each.identity[0], bool(each.needs)
                    alike[DeviceKind(resource, driver, each.product, divided)].append(each)
            for kind, those in alike.items():
                known = found.get(kind, kind)
                number = known.number + _count(those, self.counters)
                found[kind] = kind._replace(number=number, nodes=known.nodes + 1)
        return sorted(found.values())


def device_offer(
    slices: Iterable[ResourceSlice],
    classes: Iterable[DeviceClass],
    mappings: DeviceMappings | None = None,
) -> DeviceOffer:
    """Return the devices that drivers offer on nodes.

    Args:
        slices: All ResourceSlices; of each pool, the newest generation counts.
        classes: All DeviceClasses.
        mappings: Those of the Configuration, as far as they are known.
    """
    inventory = Inventory(slices)
    classes = sorted(classes, key=lambda each: each.metadata.name)
    left_out: list[str] = []
    offered = [*inventory.devices()]
    shared = sorted({each.driver for each in offered if not each.node})
    left_out += (f"devices of {driver} that are not of one node" for driver in shared)
    mappings = mappings or DeviceMappings()
    of_nodes = _resources([each for each in offered if not each.node], classes, mappings, [])
    offered = [each for each in offered if each.node]
    resources = _resources(offered, classes, mappings, left_out)
    counters = dict(_counters(inventory))
    devices = [
        _device(each, tuple(sorted(resources[_identity(each)])), counters)
        for each in offered
        if _identity(each) in resources
    ]
    on_node: defaultdict[str, list[_Device]] = defaultdict(list)
    for device in sorted(devices, key=lambda one: one.part):
        on_node[device.node].append(device)
    named = (BY_CLASS + each.metadata.name for each in classes)
    extended = (each.spec.extended_resource_name for each in classes)
    return DeviceOffer(
        devices={each.identity: each for each in devices},
        on_node=on_node,
        counters=counters,
        backed=frozenset({*named, *filter(None, extended)}),
        unbounded=frozenset().union(
            *of_nodes.values(), *(d.resources for d in devices if d.shared)
        ),
        left_out=tuple(left_out),
    )


class ClaimedUse:
    """Which of the offered devices claims have.

    Attributes:
        held: The devices of each claim; a device that several claims share is the first one's.
    """

    def __init__(self, offer: DeviceOffer, claims: Iterable[ResourceClaim]) -> None:
        self._offer = offer
        self._taken: set[Identity] = set()
        self._left = dict(offer.counters)
        self.held = tuple(held for claim in claims for held in self._take(claim))

    def _take(self, claim: ResourceClaim) -> Iterator[HeldDevices]:
        allocation, metadata = claim.status.allocation, claim.metadata
        found: defaultdict[str, Amounts] = defaultdict(dict)
        for each in () if allocation is None else allocation.devices.results:
            device = self._offer.devices.get((each.driver, each.pool, each.device))
            if each.admin_access or device is None or device.identity in self._taken:
                continue
            self._taken.add(device.identity)
            for counter, amount in (device.needs or {}).items():
                self._left[counter] = self._left.get(counter, 0) - amount
            amounts = found[device.node]
            for resource in device.resources:
                amounts[resource] = amounts.get(resource, 0) + 1
        users = (each for each in claim.status.reserved_for if each.resource == "pods")
        pods = tuple(f"{metadata.namespace}/{each.name}" for each in users)
        for node, amounts in found.items():
            yield HeldDevices(metadata.key, pods, node, amounts)

    @cached_property
    def totals(self) -> Mapping[str, Amounts]:
        """The devices of each node, in use or not."""
        return {node: self.of_node(node).total for node in self._offer.on_node}

    @cached_property
    def by_pods(self) -> Mapping[tuple[str, tuple[str, ...]], Amounts]:
        """What pods have on each node together, by all their claims."""
        found: defaultdict[tuple[str, tuple[str, ...]], Amounts] = defaultdict(dict)
        for each in self.held:
            add(found[each.node, each.pods], each.amounts)
        return found

    @property
    def bounded(self) -> Set[str]:
        """The resources of which each node has a number: not more than it are in use at a time."""
        return {name for total in self.totals.values() for name in total} - self._offer.unbounded

    def rooms(self, charged: Callable[[str, str], int]) -> dict[str, DevicesOfNode]:
        """Return the devices of each node, with what is left of them for pods that are charged.

        Args:
            charged: Returns the amount of a resource that a pod is charged before it has claims.
        """
        found = {node: DevicesOfNode(total, total) for node, total in self.totals.items()}
        for (node, pods), amounts in self.by_pods.items():
            for name, amount in amounts.items():
                beyond = amount - (charged(pods[0], name) if len(pods) == 1 else 0)
                if beyond > 0:
                    total, left = found[node]
                    found[node] = DevicesOfNode(total, {**left, name: left[name] - beyond})
        return found

    def of_node(self, node: str) -> DevicesOfNode:
        """Return the devices of a node; the free ones of each resource as if no other got more."""
        total: Amounts = {}
        could: defaultdict[str, list[_Device]] = defaultdict(list)
        for each in self._offer.on_node.get(node, ()):
            for resource in each.resources:
                total.setdefault(resource, 0)
                if each.identity in self._taken:
                    total[resource] += 1
                elif not each.tainted:
                    could[resource].append(each)
        free = {resource: _count(could[resource], self._left) for resource in total}
        return DevicesOfNode({name: n + free[name] for name, n in total.items()}, free)


def _count(devices: Iterable[_Device], counters: Mapping[_Counter, int]) -> int:
    """Return how many devices claims could get, one after the other, of what is left."""
    left: dict[_Counter, int] = {}
    count = 0
    for each in devices:
        if each.needs is None:
            continue
        after = {
            counter: left.get(counter, counters.get(counter, 0)) - amount
            for counter, amount in each.needs.items()
        }
        if min(after.values(), default=0) >= 0:
            left.update(after)
            count += 1
    return count


def _identity(offered: OfferedDevice) -> Identity:
    return offered.driver, offered.pool, offered.device.name


def _resources(
    offered: Sequence[OfferedDevice],
    classes: Iterable[DeviceClass],
    mappings: DeviceMappings,
    left_out: list[str],
) -> dict[Identity, set[str]]:
    """Return the resources of each device; a class whose selectors fail has no devices."""
    found: defaultdict[Identity, set[str]] = defaultdict(set)
    for each in classes:
        name = each.metadata.name
        programs = [compiled(text) for _, text in expressions(each.spec.selectors)]
        wrong = [program for program in programs if isinstance(program, str)]
        usable = tuple(program for program in programs if isinstance(program, Program))
        condition = DeviceCondition(f"DeviceClass {name}", usable)
        try:
            selected = [] if wrong else [*matching(offered, [condition], Budget(COST_LIMIT))]
        except DeviceSelectorError as error:
            selected, wrong = [], [f"its selector fails on device {error.device}: {error}"]
        left_out += (f"devices of DeviceClass {name}: {problem}" for problem in wrong[:1])
        for device in selected:
            found[_identity(device)].add(resource_of(each, mappings))
    return found


def _counters(inventory: Inventory) -> Iterator[tuple[_Counter, int]]:
    for driver in sorted({each.spec.driver for each in inventory.slices()}):
        for pool, published in pools_of(inventory.slices(driver), driver).items():
            for counters in (s for each in published.slices for s in each.spec.shared_counters):
                for name, counter in counters.counters.items():
                    with suppress(QuantityError):
                        amount = parse_quantity(counter.value).value()
                        yield (driver, pool, counters.name, name), amount


def _device(
    offered: OfferedDevice, resources: tuple[str, ...], counters: Mapping[_Counter, int]
) -> _Device:
    device = offered.device
    try:
        needs: dict[_Counter, int] | None = dict(_needs(offered, device))
    except QuantityError:
        needs = None
    parts = [n / max(1, counters.get(name, 0)) for name, n in (needs or {}).items()]
    return _Device(
        identity=_identity(offered),
        node=offered.node,
        resources=resources,
        needs=needs,
        part=max(parts, default=0.0),
        tainted=any(each.effect in _EXCLUDING for each in device.taints),
        shared=device.allow_multiple_allocations,
        product=_product(offered),
    )


def _product(offered: OfferedDevice) -> str:
    for name in (_PRODUCT, f"{offered.driver}/{_PRODUCT}"):
        given = offered.device.attributes.get(name)
        if isinstance(given, dict) and isinstance(given.get("string"), str):
            return str(given["string"])
    return ""


def _needs(offered: OfferedDevice, device: PublishedDevice) -> Iterator[tuple[_Counter, int]]:
    for consumed in device.consumes_counters:
        for name, counter in consumed.counters.items():
            key = offered.driver, offered.pool, consumed.counter_set, name
            amount = parse_quantity(counter.value)
            if amount.sign() < 0:  # it would make room for others
                raise QuantityError(f"a device takes {counter.value} of the counter `{name}`")
            yield key, amount.value()
