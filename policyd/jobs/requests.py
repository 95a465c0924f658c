"""What a pod will request, in canonical units, worked out before there is a pod.

The formula is the API server's: containers and sidecars run together, other init containers one
after the other, overhead comes on top, and what is said for the pod as a whole wins. Limits stand
in for requests that are not given, as they will once the pod is created.
"""

from collections.abc import Iterable, Mapping

from policyd.api.pods import Container, PodSpec, Resources
from policyd.api.quantity import QuantityError, parse_quantity
from policyd.api.schema import QuantityText

CPU = "cpu"
LARGEST = 2**63 - 1


class InvalidRequestsError(ValueError):
    """A pod's requests cannot be used; the text is for the workload's condition."""


def canonical(resource: str, quantity: QuantityText) -> int:
    """Turn a quantity into whole canonical units, rounded up: milli-cores for cpu.

    Raises:
        QuantityError: If it is not a quantity.
    """
    parsed = parse_quantity(quantity)
    return parsed.milli() if resource == CPU else parsed.value()


def pod_requests(spec: PodSpec) -> dict[str, int]:
    """Return what one pod requests, at least 0 of each resource.

    Raises:
        InvalidRequestsError: If something is not a quantity.
    """
    try:
        total = _effective(spec)
    except QuantityError as error:
        raise InvalidRequestsError(f"resources validation failed: {error}") from error
    return {name: max(0, min(amount, LARGEST)) for name, amount in total.items()}


def check_limits(spec: PodSpec, *, pod_set: int) -> None:
    """Check that nothing requests more than its limit.

    Raises:
        InvalidRequestsError: With Kueue's words, naming the container by its place.
    """
    where = f"spec.podSets[{pod_set}].template.spec"
    lists = (("initContainers", spec.init_containers), ("containers", spec.containers))
    for field, containers in lists:
        for index, container in enumerate(containers):
            _check_resources(container.resources, f"{where}.{field}[{index}]")
    if spec.resources is not None:
        _check_resources(spec.resources, where)


def _check_resources(resources: Resources, where: str) -> None:
    try:
        above = sorted(
            name
            for name, asked in resources.requests.items()
            if name in resources.limits
            and parse_quantity(asked) > parse_quantity(resources.limits[name])
        )
    except QuantityError as error:
        raise InvalidRequestsError(f"resources validation failed: {where}: {error}") from error
    if above:
        names = ", ".join(f'"{name}"' for name in above)
        raise InvalidRequestsError(
            f"resources validation failed: {where}: Invalid value: [{names}]: "
            "requests must not exceed its limits"
        )


def _effective(spec: PodSpec) -> dict[str, int]:
    running = _sum(_asked(container.resources) for container in spec.containers)
    sidecars: dict[str, int] = {}
    highest: dict[str, int] = {}
    for container in spec.init_containers:
        asked = _asked(container.resources)
        if _is_sidecar(container):
            sidecars = _sum((sidecars, asked))
            highest = _larger(highest, sidecars)
        else:
            highest = _larger(highest, _sum((sidecars, asked)))
    total = _larger(_sum((running, sidecars)), highest)
    if spec.resources is not None:
        total |= _asked(spec.resources)
    return _sum((total, _amounts(spec.overhead)))


def _is_sidecar(container: Container) -> bool:
    return container.restart_policy == "Always"


def _asked(resources: Resources) -> dict[str, int]:
    return _amounts({**resources.limits, **resources.requests})


def _amounts(quantities: Mapping[str, QuantityText]) -> dict[str, int]:
    return {name: canonical(name, quantity) for name, quantity in quantities.items()}


def _sum(parts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    total: dict[str, int] = {}
    for part in parts:
        for name, amount in part.items():
            total[name] = total.get(name, 0) + amount
    return total


def _larger(left: Mapping[str, int], right: Mapping[str, int]) -> dict[str, int]:
    names = {**left, **right}
    return {name: max(left.get(name, 0), right.get(name, 0)) for name in names}
