"""What a pod set's pods will request, checked: worked out before there is a pod."""

from policyd.api.pod_requests import pod_requests
from policyd.api.pods import PodSpec, Resources
from policyd.api.quantity import QuantityError, parse_quantity

LARGEST = 2**63 - 1


class InvalidRequestsError(ValueError):
    """A pod's requests cannot be used; the text is for the workload's condition."""


def requests_of(spec: PodSpec) -> dict[str, int]:
    """Return what one pod requests in canonical units, at least 0 of each resource.

    Raises:
        InvalidRequestsError: If something is not a quantity.
    """
    try:
        total = pod_requests(spec)
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
