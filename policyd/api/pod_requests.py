"""What one pod needs, as Kubernetes computes it from its containers.

Containers run together and add up. Init containers run one after the other before them, so that the
largest counts; those that always restart (sidecars) go on running beside all that come later. What
is stated for the pod as a whole replaces the sum, of what may be stated so: devices are not among
it. Overhead comes on top. What is negative counts as nothing, so that it takes nothing from others.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from policyd.api.pods import Container, PodSpec, Resources
from policyd.api.quantity import parse_quantity
from policyd.api.schema import QuantityText

_FOR_PODS: Final = frozenset({"cpu", "memory"})

Amounts = dict[str, int]
"""Resource name to amount: milli-CPU, or base units (bytes, devices), rounded up."""


def pod_requests(spec: PodSpec) -> Amounts:
    """Return what a pod of `spec` requests. A limit without a request counts as the request.

    Raises:
        QuantityError: If a quantity cannot be read.
    """
    running = _sum(stated(c.resources) for c in spec.containers)
    starting: Amounts = {}
    sidecars: Amounts = {}
    for container in spec.init_containers:
        needed = _sum((sidecars, stated(container.resources)))
        starting = _most(starting, needed)
        if _is_sidecar(container):
            sidecars = needed
    total = _most(_sum((running, sidecars)), starting)
    if spec.resources is not None:
        for resource, number in _read(_merged(spec.resources)).items():
            if is_stated_for_pods(resource):
                total[resource] = number if number >= 0 else total.get(resource, 0)
    return _sum((total, amounts(spec.overhead)))


def stated(resources: Resources) -> Amounts:
    """Return what a container requests; its limit, where it requests nothing of a resource."""
    return amounts(_merged(resources))


def is_stated_for_pods(resource: str) -> bool:
    """Tell whether a resource may be stated for a pod as a whole, and not by its containers."""
    return resource in _FOR_PODS or resource.startswith("hugepages-")


def amounts(quantities: Mapping[str, QuantityText]) -> Amounts:
    """Turn quantities into amounts in canonical units, at least 0."""
    return {resource: max(0, number) for resource, number in _read(quantities).items()}


def amount(resource: str, quantity: QuantityText) -> int:
    """Turn one quantity into an amount: cpu in thousandths, everything else in whole units."""
    parsed = parse_quantity(quantity)
    return parsed.milli() if resource == "cpu" else parsed.value()


def _merged(resources: Resources) -> Mapping[str, QuantityText]:
    return {**resources.limits, **resources.requests}


def _read(quantities: Mapping[str, QuantityText]) -> Amounts:
    return {resource: amount(resource, quantity) for resource, quantity in quantities.items()}


def _is_sidecar(container: Container) -> bool:
    return container.restart_policy == "Always"


def _sum(parts: Iterable[Mapping[str, int]]) -> Amounts:
    total: Amounts = {}
    for part in parts:
        for resource, number in part.items():
            total[resource] = total.get(resource, 0) + number
    return total


def _most(a: Amounts, b: Amounts) -> Amounts:
    return {resource: max(a.get(resource, 0), b.get(resource, 0)) for resource in {**a, **b}}
