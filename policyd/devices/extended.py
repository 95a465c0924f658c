"""Extended resources that device classes back: which there are, and which class is taken."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from policyd.api.kueue.validation import FieldError
from policyd.api.pods import Container, PodSpec
from policyd.api.quantity import Quantity, QuantityError, parse_quantity
from policyd.api.schema import QuantityText
from policyd.devices.amounts import DeviceCountError
from policyd.devices.mappings import DeviceMappings
from policyd.devices.objects import DeviceClass

BY_CLASS: Final = "deviceclass.resource.kubernetes.io/"
"""Beginning of the extended resource that every DeviceClass has by its name."""

_NATIVE: Final = "kubernetes.io/"
_QUOTA: Final = "requests."


def selected_class(classes: Sequence[DeviceClass]) -> DeviceClass:
    """Return the class that the scheduler takes for an extended resource that several have.

    That is the newest; of those that are equally old, the one whose name is first.
    """
    newest = max(_created(each) for each in classes)
    return min(
        (each for each in classes if _created(each) == newest), key=lambda c: c.metadata.name
    )


def _created(found: DeviceClass) -> float:
    created = found.metadata.creation_timestamp
    return created.timestamp() if created else 0.0


def resource_of(found: DeviceClass, mappings: DeviceMappings) -> str:
    """Return the resource that devices of a class are counted as, one by one.

    That is not the one they are charged to, if their counters or capacity are charged.
    """
    name = found.metadata.name
    mapped = mappings.resources.get(name, "")
    if "/" in mapped and name not in mappings.counters and name not in mappings.capacities:
        return mapped
    return found.spec.extended_resource_name or BY_CLASS + name


def is_extended_resource(name: str) -> bool:
    """Tell whether a resource is one that nodes or device classes add to Kubernetes' own."""
    domain, _, rest = name.partition("/")
    return bool(domain and rest) and _NATIVE not in name and not domain.startswith(_QUOTA)


def asks_for_devices(spec: PodSpec, backed: Callable[[str], bool]) -> bool:
    """Tell whether a pod gets devices by claims, or extended resources `backed` by them."""
    return bool(spec.resource_claims) or any(
        backed(name) and each.amount.nano != 0
        for name, containers in extended_requests(spec, "").items()
        for each in containers
    )


class Requested(NamedTuple):
    """An extended resource that a container requests."""

    path: str
    amount: Quantity
    starting: bool
    stays: bool


def extended_requests(spec: PodSpec, path: str) -> dict[str, list[Requested]]:
    """Return the extended resources that containers request, init containers first.

    Raises:
        DeviceCountError: If an amount is no quantity.
    """
    found: dict[str, list[Requested]] = {}
    lists = (("initContainers", spec.init_containers), ("containers", spec.containers))
    for place, containers in lists:
        for index, container in enumerate(containers):
            for name, text in _requests(container).items():
                if not (is_extended_resource(name) or name.startswith(BY_CLASS)):
                    continue
                try:
                    amount = parse_quantity(text)
                except QuantityError as error:
                    where = f"{path}.{place}[{index}].resources.requests.{name}"
                    raise DeviceCountError([FieldError(where, text, str(error))]) from error
                if amount.nano > 0:
                    starting, stays = place != "containers", container.restart_policy == "Always"
                    requested = Requested(f"{path}.{place}[{index}]", amount, starting, stays)
                    found.setdefault(name, []).append(requested)
    return found


def _requests(container: Container) -> Mapping[str, QuantityText]:
    return {**container.resources.limits, **container.resources.requests}


def fractions(name: str, containers: Iterable[Requested]) -> list[FieldError]:
    """Return the errors of containers that request a part of a device."""
    return [
        FieldError(
            f"{each.path}.resources.requests.{name}",
            str(each.amount),
            "extended resource quantity must be an integer",
        )
        for each in containers
        if each.amount.as_int64() is None
    ]
