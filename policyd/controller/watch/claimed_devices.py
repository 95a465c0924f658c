"""Devices of claims, counted from the objects of the cluster while a device class is mapped.

The objects are watched only then. A claim is counted when a workload asks for it; workloads without
quota are looked at again once something changes that may decide about them.
"""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple, NoReturn

import msgspec

from policyd.alloc.settings import Gates
from policyd.alloc.topology.nodes import ClaimedOfNode, Nodes
from policyd.alloc.topology.values import CLAIMED, Placement
from policyd.api.configuration.kinds import ResourcesConfiguration
from policyd.api.kueue import Workload
from policyd.api.meta import ObjectMeta
from policyd.controller.watch.mirror import Mirror
from policyd.controller.watch.pod_places import workload_keys
from policyd.devices.objects import (
    DeviceClass,
    ResourceClaim,
    ResourceClaimTemplate,
    ResourceSlice,
)
from policyd.jobs.base import controller_of
from policyd.jobs.lifecycle import has_quota
from policyd.jobs.pods import QueuedPod
from policyd.kube.changes import Change
from policyd.kube.client import Reader
from policyd.kube.pace import Pace
from policyd.kube.resources import (
    DEVICE_CLASSES,
    RESOURCE_CLAIM_TEMPLATES,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
)

if TYPE_CHECKING:
    from policyd.controller.watch.cache import Cache
    from policyd.devices.counting import DeviceCounter
    from policyd.devices.on_nodes import ClaimedUse, DeviceOffer
    from policyd.devices.rations import Rations

SETTLE_SECONDS: Final = 1.0
"""How long changes are gathered before workloads are looked at again: drivers publish many."""

TURN_SECONDS: Final = 1.0
"""How long a turn is in which each namespace may have its share of work done."""

LATEST_SECONDS: Final = 60.0
"""How long at most devices of nodes are as they were."""


@dataclass(slots=True)
class DeviceMirrors:
    """What decides how many devices a claim stands for."""

    classes: Mirror[DeviceClass]
    templates: Mirror[ResourceClaimTemplate]
    claims: Mirror[ResourceClaim]
    slices: Mirror[ResourceSlice]

    def all(self) -> tuple[Mirror[Any], ...]:
        """Return every mirror."""
        return self.classes, self.templates, self.claims, self.slices


def open_device_mirrors(reader: Reader, pace: Pace) -> DeviceMirrors:
    """Return mirrors of the objects about devices."""
    return DeviceMirrors(
        classes=Mirror(reader, DEVICE_CLASSES, into=DeviceClass, pace=pace),
        templates=Mirror(reader, RESOURCE_CLAIM_TEMPLATES, into=ResourceClaimTemplate, pace=pace),
        claims=Mirror(reader, RESOURCE_CLAIMS, into=ResourceClaim, pace=pace, trim=_named),
        slices=Mirror(reader, RESOURCE_SLICES, into=ResourceSlice, pace=pace),
    )


def _named(claim: ResourceClaim) -> ResourceClaim:
    """Return the part to keep of a claim: less metadata, if it was made for a pod."""
    if controller_of(claim.metadata) is None:
        return claim
    metadata = claim.metadata
    kept = ObjectMeta(
        name=metadata.name,
        namespace=metadata.namespace,
        uid=metadata.uid,
        resource_version=metadata.resource_version,
        owner_references=metadata.owner_references,
    )
    return msgspec.structs.replace(claim, metadata=kept)


def counts_devices(resources: ResourcesConfiguration | None, gates: Gates) -> bool:
    """Tell whether devices of claims are counted."""
    mapped = resources is not None and bool(resources.device_class_mappings)
    return mapped and gates.kueue_dra_integration


class DeviceObjects(NamedTuple):
    """The objects by which devices are counted, as of now.

    Attributes:
        classes: All device classes.
        templates: Returns a template by `namespace/name`.
        claims: Returns a claim that pods share, likewise.
        slices: The offers of drivers.
    """

    classes: Iterable[DeviceClass]
    templates: Callable[[str], ResourceClaimTemplate | None]
    claims: Callable[[str], ResourceClaim | None]
    slices: Iterable[ResourceSlice]


def device_counter(
    objects: DeviceObjects,
    resources: ResourcesConfiguration,
    gates: Gates,
    rations: "Rations | None" = None,
) -> "DeviceCounter":
    """Return what counts the devices of claims.

    Args:
        objects: The objects that decide.
        resources: The mappings of device classes to resources.
        gates: Which claims are counted.
        rations: The work that each namespace may cause; None for any.
    """
    # The evaluation of selectors takes long to import, and most clusters count no devices.
    from policyd.devices.claims import ChargeRules, DeviceGates  # noqa: PLC0415 - see above
    from policyd.devices.counting import DeviceCounter  # noqa: PLC0415
    from policyd.devices.inventory import Inventory  # noqa: PLC0415
    from policyd.devices.mappings import DeviceMappings  # noqa: PLC0415

    by_name = {each.metadata.name: each for each in objects.classes}
    backing: dict[str, list[DeviceClass]] = {}
    for each in by_name.values():
        if each.spec.extended_resource_name:
            backing.setdefault(each.spec.extended_resource_name, []).append(each)
    return DeviceCounter(
        rules=ChargeRules(
            DeviceMappings.of(resources.device_class_mappings),
            DeviceGates(
                extended_resources=gates.kueue_dra_integration_extended_resource,
                partitionable=gates.kueue_dra_integration_partitionable_devices,
                consumable=gates.kueue_dra_integration_consumable_capacity,
            ),
        ),
        classes=by_name.get,
        templates=objects.templates,
        claims=objects.claims,
        backing=lambda name: backing.get(name, ()),
        inventory=Inventory(objects.slices),
        rations=rations,
    )


class _Changes(NamedTuple):
    """How often something changed of the devices that there are, and of claims."""

    devices: int = 0
    claims: int = 0


class ClaimedDevices:
    """Counts devices with what the mirrors have, and looks at workloads again when that changes."""

    def __init__(
        self, mirrors: DeviceMirrors, resources: ResourcesConfiguration, gates: Gates
    ) -> None:
        self._mirrors, self._resources, self._gates = mirrors, resources, gates
        self._counter: DeviceCounter | None = None
        self._changes = _Changes()
        self._published: tuple[int, DeviceOffer] | None = None
        self._use: tuple[_Changes, ClaimedUse] | None = None
        self._changed_claims: set[str] = set()
        self._changed_devices = self._changed_classes = False
        self._wake = asyncio.Event()
        self._limits = False
        # The evaluation of selectors takes long to import: see above.
        from policyd.devices.rations import Rations  # noqa: PLC0415

        self._in_debt = asyncio.Event()
        self.rations = Rations(self._in_debt.set)
        self._later: defaultdict[str, dict[str, None]] = defaultdict(dict)
        mirrors.classes.listen(self._class_changed)
        mirrors.slices.listen(self._devices_changed)
        for mirror in (mirrors.templates, mirrors.claims):
            mirror.listen(self._claim_changed)

    @property
    def counter(self) -> "DeviceCounter":
        """What counts, with the devices as of now."""
        if self._counter is None:
            mirrors = self._mirrors
            objects = DeviceObjects(
                mirrors.classes, mirrors.templates.get, self._shared_claim, mirrors.slices
            )
            self._counter = device_counter(objects, self._resources, self._gates, self.rations)
        return self._counter

    async def begin(self, cache: "Cache") -> None:
        """Limit placements from now on: nodes and pods are known, and all that is counted by."""
        self._limits = True
        for workload in cache.mirrors.workloads:
            if has_quota(workload):  # which may have come before the templates of its claims
                cache.put(workload)
        await self.limit_places(cache)
        self._wake.set()

    async def limit_places(self, cache: "Cache") -> bool:
        """Limit placements to the devices of nodes; tell whether some may be less limited now."""
        nodes = cache.state.ledger.nodes
        use = await self.on_nodes()
        await asyncio.to_thread(lambda: (use.totals, use.by_pods))  # as there are many
        return limit_placements(nodes, use, cache.mirrors.placed.get, nodes.held)

    async def on_nodes(self) -> "ClaimedUse":
        """Return the devices of nodes, and which claims have them, as of a moment ago."""
        # The evaluation of selectors takes long to import: see above.
        from policyd.devices.mappings import DeviceMappings  # noqa: PLC0415
        from policyd.devices.on_nodes import device_offer  # noqa: PLC0415

        mirrors, now = self._mirrors, self._changes
        published, use = self._published, self._use
        if published is None or published[0] != now.devices:
            mappings = DeviceMappings.of(self._resources.device_class_mappings)
            slices, classes = tuple(mirrors.slices), tuple(mirrors.classes)
            found = await asyncio.to_thread(device_offer, slices, classes, mappings)
            self._published = published = now.devices, found
        if use is None or use[0] != now:
            claims = tuple(mirrors.claims)
            self._use = use = now, await asyncio.to_thread(published[1].use, claims)
        return use[1]

    def _shared_claim(self, key: str) -> ResourceClaim | None:
        """Return a claim that pods may share: those that say they were made for one are trimmed."""
        found = self._mirrors.claims.get(key)
        return None if found is None or controller_of(found.metadata) else found

    def _devices_changed(self, _change: Change[Any]) -> None:
        self._counter = None
        self._changes = self._changes._replace(devices=self._changes.devices + 1)
        self._changed_devices = True
        self._wake.set()

    def _class_changed(self, change: Change[Any]) -> None:
        """Note that extended resources, too, may be backed by other devices."""
        self._changed_classes = True
        self._devices_changed(change)

    def _claim_changed(self, change: Change[Any]) -> None:
        self._changes = self._changes._replace(claims=self._changes.claims + 1)
        if controller_of(change.object.metadata) is None:
            self._changed_claims.add(change.object.metadata.key)
        self._wake.set()

    async def follow(self, cache: "Cache", pace: Pace) -> NoReturn:
        """Look again at workloads without quota when what they claim may be counted anew.

        The same goes for those that wait for devices of nodes.
        """
        rest = SETTLE_SECONDS
        while True:
            # What placed workloads are charged changes too.
            await pace.wait(self._wake, LATEST_SECONDS if self._limits else None)
            await pace.sleep(rest)
            self._wake.clear()
            began = pace.clock.monotonic()
            if self._limits and await self.limit_places(cache):
                cache.state.wake_placed()
                cache.hooks.schedule()
            rest = max(SETTLE_SECONDS, pace.rest_after(began, most=LATEST_SECONDS))
            names, any_claim = frozenset(self._changed_claims), self._changed_devices
            everything = self._changed_classes
            self._changed_claims.clear()
            self._changed_devices = self._changed_classes = False
            if not (names or any_claim or everything):
                continue
            for workload in cache.mirrors.workloads.in_turns():
                if workload is None:
                    await pace.sleep(0)
                    continue
                claims = _claims_of(workload)
                if everything or (any_claim and claims) or names & claims:
                    cache.look_again(workload)
                if names & claims and has_quota(workload):
                    cache.look_at_held(workload)

    def count_later(self, workload: Workload) -> None:
        """Note that what a workload claims is counted once its namespace has its next turn."""
        self._later[workload.metadata.namespace][workload.metadata.key] = None

    async def take_turns(self, cache: "Cache", pace: Pace) -> NoReturn:
        """Let namespaces go on in turns that had more counted than their share."""
        while True:
            await pace.wait(self._in_debt, None)
            self._in_debt.clear()
            while self.rations.busy:
                await pace.sleep(TURN_SECONDS)
                for namespace in self.rations.next_turn():
                    await self._count_waiting(namespace, cache, pace)

    async def _count_waiting(self, namespace: str, cache: "Cache", pace: Pace) -> None:
        waiting = self._later.pop(namespace, {})
        while waiting and self.rations.allows(namespace):
            key = next(iter(waiting))
            del waiting[key]
            workload = cache.mirrors.workloads.get(key)
            if workload is not None:
                cache.count_again(workload)
            await pace.sleep(0)
        if waiting:
            self._later[namespace] = waiting | self._later.get(namespace, {})


def limit_placements(
    nodes: Nodes,
    use: "ClaimedUse",
    find_pod: Callable[[str], QueuedPod | None],
    held: Mapping[str, Sequence[Placement]],
) -> bool:
    """Limit placements to the devices of nodes; tell whether some may be less limited now.

    What placed workloads are charged is theirs before they have claims. All else that claims have
    is taken: by pods that no topology placed, and beyond what their workload is charged.

    Args:
        nodes: The nodes.
        use: Their devices, and which claims have them.
        find_pod: Returns a pod by `namespace/name`; None if it is not known.
        held: Where the pods of each workload with quota are sent, by its key.
    """

    def charged(key: str, resource: str) -> int:
        pod = find_pod(key)
        workloads = () if pod is None else workload_keys(pod)
        places = (each for name in workloads for each in held.get(name, ()))
        return max((each.requests.get(CLAIMED + resource, 0) for each in places), default=0)

    devices = {
        node: ClaimedOfNode(_claimed(found.total), _claimed(found.free))
        for node, found in use.rooms(charged).items()
    }
    return nodes.put_claimed(devices, {CLAIMED + name for name in use.bounded})


def _claimed(devices: Mapping[str, int]) -> dict[str, int]:
    return {CLAIMED + name: amount for name, amount in devices.items()}


def _claims_of(workload: Workload) -> set[str]:
    namespace = workload.metadata.namespace
    return {
        f"{namespace}/{name}"
        for pod_set in workload.spec.pod_sets
        for each in pod_set.template.spec.resource_claims
        for name in (each.resource_claim_name, each.resource_claim_template_name)
        if name
    }
