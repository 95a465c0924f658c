"""Objects of resource.k8s.io/v1, as far as they decide about quota and places."""

from policyd.api.meta import Json, ObjectMeta, Wire
from policyd.api.schema import QuantityText


class SelectorExpression(Wire, frozen=True):
    """An expression about one device."""

    expression: str = ""


class ClaimSelector(Wire, frozen=True):
    """A condition that a device must meet."""

    cel: SelectorExpression | None = None


class DeviceClassSpec(Wire, frozen=True):
    """The devices of a class, and the extended resource that stands for it."""

    selectors: tuple[ClaimSelector, ...] = ()
    extended_resource_name: str = ""


class DeviceClass(Wire, frozen=True):
    """A resource.k8s.io/v1 DeviceClass."""

    metadata: ObjectMeta = ObjectMeta()
    spec: DeviceClassSpec = DeviceClassSpec()


class CapacityRequests(Wire, frozen=True):
    """The amounts of a device's capacity that a request takes."""

    requests: dict[str, QuantityText] = {}


class RequestedDevices(Wire, frozen=True):
    """Devices of one class: a request of its own, or one alternative of several."""

    name: str = ""
    device_class_name: str = ""
    selectors: tuple[ClaimSelector, ...] = ()
    allocation_mode: str = ""
    count: int = 0
    admin_access: bool = False
    capacity: CapacityRequests | None = None


class DeviceRequest(Wire, frozen=True):
    """One request of a claim: exact, or the first of its alternatives that is there."""

    name: str = ""
    exactly: RequestedDevices | None = None
    first_available: tuple[RequestedDevices, ...] | None = None


class ClaimDevices(Wire, frozen=True):
    """The devices that a claim requests."""

    requests: tuple[DeviceRequest, ...] = ()


class ClaimSpec(Wire, frozen=True):
    """The specification of a ResourceClaim."""

    devices: ClaimDevices = ClaimDevices()


class AllocatedDevice(Wire, frozen=True):
    """A device that a claim has; with `admin_access`, others may have it too."""

    driver: str = ""
    pool: str = ""
    device: str = ""
    admin_access: bool = False


class AllocatedDevices(Wire, frozen=True):
    """The devices that a claim has."""

    results: tuple[AllocatedDevice, ...] = ()


class ClaimAllocation(Wire, frozen=True):
    """What the scheduler chose for a claim."""

    devices: AllocatedDevices = AllocatedDevices()


class ClaimUser(Wire, frozen=True):
    """An object that may use the devices of a claim, such as a pod."""

    resource: str = ""
    name: str = ""


class ClaimStatus(Wire, frozen=True):
    """What a claim has, and who may use it."""

    allocation: ClaimAllocation | None = None
    reserved_for: tuple[ClaimUser, ...] = ()


class ResourceClaim(Wire, frozen=True):
    """A resource.k8s.io/v1 ResourceClaim."""

    metadata: ObjectMeta = ObjectMeta()
    spec: ClaimSpec = ClaimSpec()
    status: ClaimStatus = ClaimStatus()


class ClaimTemplateSpec(Wire, frozen=True):
    """The claim that is made for each pod."""

    spec: ClaimSpec = ClaimSpec()


class ResourceClaimTemplate(Wire, frozen=True):
    """A resource.k8s.io/v1 ResourceClaimTemplate."""

    metadata: ObjectMeta = ObjectMeta()
    spec: ClaimTemplateSpec = ClaimTemplateSpec()


class CapacityRange(Wire, frozen=True):
    """The amounts that may be taken of a capacity: from `min` in steps to `max`."""

    min: QuantityText | None = None
    max: QuantityText | None = None
    step: QuantityText | None = None


class CapacityPolicy(Wire, frozen=True):
    """Which amounts may be taken of a capacity, and how much a request takes that names none."""

    default: QuantityText | None = None
    valid_values: tuple[QuantityText, ...] = ()
    valid_range: CapacityRange | None = None


class DeviceCapacity(Wire, frozen=True):
    """One capacity of a device, such as its memory."""

    value: QuantityText = "0"
    request_policy: CapacityPolicy | None = None


class Counter(Wire, frozen=True):
    """An amount of a counter that devices share."""

    value: QuantityText = "0"


class CounterConsumption(Wire, frozen=True):
    """The amounts that a device takes of one set of counters."""

    counter_set: str = ""
    counters: dict[str, Counter] = {}


class CounterSet(Wire, frozen=True):
    """Counters that devices of a pool share."""

    name: str = ""
    counters: dict[str, Counter] = {}


class DeviceTaint(Wire, frozen=True):
    """Why claims that do not tolerate it get no such device."""

    effect: str = ""


class PublishedDevice(Wire, frozen=True):
    """One device that a driver offers."""

    name: str = ""
    attributes: dict[str, Json] = {}
    capacity: dict[str, DeviceCapacity] = {}
    consumes_counters: tuple[CounterConsumption, ...] = ()
    node_name: str = ""
    allow_multiple_allocations: bool = False
    taints: tuple[DeviceTaint, ...] = ()


class Pool(Wire, frozen=True):
    """The pool that a slice is a part of: newer generations replace older ones."""

    name: str = ""
    generation: int = 0
    resource_slice_count: int = 0


class ResourceSliceSpec(Wire, frozen=True):
    """A part of the devices of a driver's pool."""

    driver: str = ""
    pool: Pool = Pool()
    node_name: str = ""
    devices: tuple[PublishedDevice, ...] = ()
    shared_counters: tuple[CounterSet, ...] = ()


class ResourceSlice(Wire, frozen=True):
    """A resource.k8s.io/v1 ResourceSlice."""

    metadata: ObjectMeta = ObjectMeta()
    spec: ResourceSliceSpec = ResourceSliceSpec()
