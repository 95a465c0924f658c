"""The requests of one pod, as Kubernetes computes them from its containers.

Containers run together and add up. Init containers run one after the other before them, so that the
largest counts; those that always restart (sidecars) go on running beside all that come later.
Amounts for the pod as a whole replace the sum, of resources that allow this: devices do
not. Overhead comes on top. Negative amounts count as 0, so that they take nothing from others.
"""

from collections.abc import Iterable, Mapping
from itertools import chain
from typing import Final

from policyd.api.pods import PodSpec, Resources
from policyd.api.quantity import parse_quantity
from policyd.api.schema import QuantityText

_FOR_PODS: Final = frozenset({"cpu", "memory"})

Amounts = dict[str, int]
"""Resource name to amount: milli-CPU, or base units (bytes, devices), rounded up."""


def pod_requests(spec: PodSpec) -> Amounts:
    """Return the requests of a pod of `spec`. A limit without a request counts as the request.

    Raises:
        QuantityError: If a quantity cannot be read.
    """
    running = [stated(container.resources) for container in spec.containers]
    total = _sum(running)
    if spec.init_containers:
        starting = [
            (stated(c.resources), c.restart_policy == "Always") for c in spec.init_containers
        ]
        for resource in dict.fromkeys(chain(total, *(each for each, _ in starting))):
            total[resource] = effective(
                (each.get(resource, 0) for each in running),
                ((each.get(resource, 0), stays) for each, stays in starting),
            )
    if spec.resources is not None:
        for resource, number in _read(_merged(spec.resources)).items():
            if is_stated_for_pods(resource):
                total[resource] = number if number >= 0 else total.get(resource, 0)
    return _sum((total, amounts(spec.overhead)))


def effective(running: Iterable[int], starting: Iterable[tuple[int, bool]]) -> int:
    """Return the most that the containers of a pod need of one resource at a time.

    Args:
        running: The need of each container.
        starting: The need of each init container, in their order, and whether it goes on running.
    """
    largest = sidecars = 0
    for needed, stays in starting:
        largest = max(largest, sidecars + needed)
        sidecars += needed if stays else 0
    return max(sum(running) + sidecars, largest)


def stated(resources: Resources) -> Amounts:
    """Return the requests of a container; its limit for a resource without a request."""
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


def _sum(parts: Iterable[Mapping[str, int]]) -> Amounts:
    total: Amounts = {}
    for part in parts:
        for resource, number in part.items():
            total[resource] = total.get(resource, 0) + number
    return total
