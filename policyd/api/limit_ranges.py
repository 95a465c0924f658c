"""Limits and defaults of a namespace for its pods: Kubernetes' LimitRanges."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

import msgspec

from policyd.api.kueue.validation import FieldError
from policyd.api.meta import ObjectMeta, Wire
from policyd.api.pod_requests import pod_requests
from policyd.api.pods import Container, PodSpec, Resources
from policyd.api.quantity import parse_quantity
from policyd.api.schema import QuantityText

Quantities = Mapping[str, QuantityText]

ABOVE: Final = "requests must not be above the limitRange max"
BELOW: Final = "requests must not be below the limitRange min"


class LimitRangeItem(Wire, frozen=True):
    """The limits of one type, `Container` or `Pod`, and its defaults."""

    type: str = ""
    max: dict[str, QuantityText] = {}
    min: dict[str, QuantityText] = {}
    default: dict[str, QuantityText] = {}
    default_request: dict[str, QuantityText] = {}
    max_limit_request_ratio: dict[str, QuantityText] = {}


class LimitRangeSpec(Wire, frozen=True):
    """The limits."""

    limits: tuple[LimitRangeItem, ...] = ()


class LimitRange(Wire, frozen=True):
    """A v1 LimitRange."""

    metadata: ObjectMeta = ObjectMeta()
    spec: LimitRangeSpec = LimitRangeSpec()


Summary = Mapping[str, LimitRangeItem]
"""By type, the tightest of all limits; of the defaults, the first."""


def summarize(ranges: Iterable[LimitRange]) -> dict[str, LimitRangeItem]:
    """Return the combined limits of several LimitRanges of one namespace.

    Raises:
        QuantityError: If a quantity cannot be read.
    """
    summary: dict[str, LimitRangeItem] = {}
    for item in (item for each in ranges for item in each.spec.limits):
        known = summary.get(item.type, LimitRangeItem())
        summary[item.type] = LimitRangeItem(
            max=_merge(known.max, item.max, min),
            min=_merge(known.min, item.min, max),
            default={**item.default, **known.default},
            default_request={**item.default_request, **known.default_request},
            max_limit_request_ratio=_merge(
                known.max_limit_request_ratio,
                item.max_limit_request_ratio,
                min,
            ),
        )
    return summary


def _merge(
    known: Quantities, more: Quantities, choose: Callable[..., QuantityText]
) -> dict[str, QuantityText]:
    chosen = {
        name: choose(known[name], quantity, key=parse_quantity) if name in known else quantity
        for name, quantity in more.items()
    }
    return {**known, **chosen}


def with_limits(spec: PodSpec, summary: Summary) -> PodSpec:
    """Return a pod's specification with the defaults of its namespace filled in."""
    containers, pod = summary.get("Container"), summary.get("Pod")
    if containers is not None:
        spec = msgspec.structs.replace(
            spec,
            containers=tuple(_filled(each, containers) for each in spec.containers),
            init_containers=tuple(_filled(each, containers) for each in spec.init_containers),
        )
    if pod is not None and spec.resources is not None:
        spec = msgspec.structs.replace(spec, resources=_with_defaults(spec.resources, pod))
    return spec


def _filled(container: Container, item: LimitRangeItem) -> Container:
    return msgspec.structs.replace(container, resources=_with_defaults(container.resources, item))


def _with_defaults(resources: Resources, item: LimitRangeItem) -> Resources:
    return Resources(
        limits={**item.default, **resources.limits},
        requests={**item.default_request, **resources.requests},
    )


def limit_errors(spec: PodSpec, summary: Summary, path: str) -> Iterator[FieldError]:
    """Yield the requests of a pod beyond the limits of its namespace.

    Args:
        spec: The pod's specification, with defaults.
        summary: The limits.
        path: Where the specification stands.

    Raises:
        QuantityError: If a quantity cannot be read.
    """
    item = summary.get("Container")
    if item is not None:
        for field, containers in (
            ("initContainers", spec.init_containers),
            ("containers", spec.containers),
        ):
            for index, container in enumerate(containers):
                given = container.resources
                where = f"{path}.{field}[{index}]"
                yield from _beyond((given.requests, given.limits), item, where)
    item = summary.get("Pod")
    if item is not None:
        total = {
            name: f"{amount}m" if name == "cpu" else amount
            for name, amount in pod_requests(spec).items()
        }
        yield from _beyond((total,), item, path)


def _beyond(given: tuple[Quantities, ...], item: LimitRangeItem, path: str) -> Iterator[FieldError]:
    pairs = [(name, parse_quantity(text)) for each in given for name, text in each.items()]
    over = {n for n, q in pairs if n in item.max and q > parse_quantity(item.max[n])}
    under = {n for n, q in pairs if n in item.min and q < parse_quantity(item.min[n])}
    for names, message in ((over, ABOVE), (under, BELOW)):
        if names:
            yield FieldError(path, sorted(names), message)
