"""The requests of a pod set's pods, checked: computed before a pod exists."""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from math import ceil
from typing import TYPE_CHECKING

import msgspec

from policyd.api.configuration.kinds import ResourcesConfiguration as ResourceConfiguration
from policyd.api.configuration.kinds import ResourceTransformation
from policyd.api.gpus import (
    SHARED_GPU,
    SHARING,
    THOUSANDTHS,
    SharedGpus,
    asks_for_part,
    largest_charge,
    part_errors,
    part_of,
    requested_part,
)
from policyd.api.kueue import Workload
from policyd.api.kueue.validation import FieldError
from policyd.api.limit_ranges import Summary, limit_errors, with_limits
from policyd.api.meta import cut
from policyd.api.pod_requests import pod_requests
from policyd.api.pods import Container, PodSpec, PodTemplate, Resources
from policyd.api.quantity import QuantityError, parse_quantity
from policyd.api.schema import QuantityText

if TYPE_CHECKING:
    from policyd.devices.counting import DeviceCounter
    from policyd.devices.objects import ResourceClaim

LARGEST = 2**63 - 1
UNCOUNTED = "uncounted resourceclaims"
"""Stands for claims of a pod that no quota could count, so that nothing was admitted with them."""

_NANO = 10**9
_MILLI = 1_000


class InvalidRequestsError(ValueError):
    """A pod's requests cannot be used; the text is for the workload's condition."""


class UncountedDevicesError(InvalidRequestsError):
    """Devices that a pod gets by claims, or a part of a GPU, cannot be counted."""


@dataclass(frozen=True, slots=True)
class RequestRules:
    """Rules about a pod's requests by others than its author."""

    limits: Summary = field(default_factory=dict)
    """LimitRanges of its namespace."""
    overheads: Mapping[str, Mapping[str, QuantityText]] = field(default_factory=dict)
    """Overhead of a pod beyond its containers, by the name of its RuntimeClass."""
    resources: ResourceConfiguration = field(default_factory=ResourceConfiguration)
    """Resources that the administrator does not count, or counts as others."""
    devices: "DeviceCounter | None" = None
    """What counts devices of claims, and extended resources that device classes back; None if no
    device class is mapped to a resource."""
    namespace: str = ""
    """The namespace, in which templates of claims are looked up."""
    shared_gpus: Mapping[str, SharedGpus] | None = None
    """The flavors that share GPUs, by name; None where parts of GPUs are not counted."""


NO_RULES = RequestRules()


def prepared(spec: PodSpec, rules: RequestRules) -> PodSpec:
    """Return a pod's specification as the pod will have it: with overhead, limits and requests."""
    overhead = rules.overheads.get(spec.runtime_class_name)
    if overhead and not spec.overhead:
        spec = msgspec.structs.replace(spec, overhead=dict(overhead))
    if rules.limits:
        spec = with_limits(spec, rules.limits)
    return msgspec.structs.replace(
        spec,
        containers=tuple(_requesting(each) for each in spec.containers),
        init_containers=tuple(_requesting(each) for each in spec.init_containers),
        resources=None if spec.resources is None else _limits_requested(spec.resources),
    )


def _requesting(container: Container) -> Container:
    resources = _limits_requested(container.resources)
    return msgspec.structs.replace(container, resources=resources)


def _limits_requested(resources: Resources) -> Resources:
    requests = {**resources.limits, **resources.requests}
    return msgspec.structs.replace(resources, requests=requests)


def as_counted(pod: PodTemplate, rules: RequestRules, name: str = "") -> PodSpec:
    """Return the specification of a pod from which its requests are counted.

    Args:
        pod: The pod, or its template.
        rules: Rules about its requests.
        name: Of its pod set, for errors.

    Raises:
        UncountedDevicesError: If no flavor has its part of a GPU, or that is not valid.
    """
    spec = prepared(pod.spec, rules)
    return with_part(msgspec.structs.replace(pod, spec=spec), rules, name)


def with_part(pod: PodTemplate, rules: RequestRules, name: str = "") -> PodSpec:
    """Return the specification of a pod, with the part of a GPU that it requests as overhead.

    Args:
        pod: The pod, or its template.
        rules: The flavors that share GPUs.
        name: Of its pod set, for errors.

    Raises:
        UncountedDevicesError: If no flavor has such a part, or it is not valid.
    """
    spec, annotations = pod.spec, pod.metadata.annotations
    if rules.shared_gpus is None:
        return spec
    # Nothing that a template states as overhead is believed to be its part.
    overhead = {each: amount for each, amount in spec.overhead.items() if each != THOUSANDTHS}
    if asks_for_part(annotations):
        errors = list(part_errors(annotations, spec))
        if errors:
            raise UncountedDevicesError(f"pod set {name}: {_sentence(errors)}")
        charge = largest_charge(requested_part(annotations), rules.shared_gpus.values())
        if charge is None:
            raise UncountedDevicesError(_no_flavor(annotations, rules.shared_gpus, name))
        overhead[THOUSANDTHS] = str(charge)
    if overhead == spec.overhead:
        return spec
    return msgspec.structs.replace(spec, overhead=overhead)


def part_flavors(pod: PodTemplate, rules: RequestRules) -> dict[str, tuple[str, ...]]:
    """Return the flavors that may give a pod its part of a GPU, by the resource that it is."""
    annotations, flavors = pod.metadata.annotations, rules.shared_gpus
    if flavors is None or not asks_for_part(annotations) or any(part_errors(annotations, pod.spec)):
        return {}
    part = requested_part(annotations)
    found = sorted(name for name, each in flavors.items() if each.charge(part) is not None)
    return {THOUSANDTHS: tuple(found)}


def _no_flavor(annotations: Mapping[str, str], flavors: Mapping[str, SharedGpus], name: str) -> str:
    asked = ", ".join(f"`{each}: {text}`" for each, text in part_of(annotations).items())
    if not flavors:
        return (
            f"pod set {name} requests a part of a GPU ({asked}), and no ResourceFlavor declares"
            f" shared GPUs by the annotation `{SHARING}`; request whole GPUs, such as"
            " `nvidia.com/gpu: 1`"
        )
    most = max(flavors, key=lambda each: (flavors[each].most_memory, each))
    return (
        f"pod set {name} requests a part of a GPU ({asked}), and no ResourceFlavor gives a pod as"
        f" much; `{most}` gives at most {flavors[most].most_memory} MiB"
    )


def requests_of(
    spec: PodSpec,
    rules: RequestRules = NO_RULES,
    *,
    path: str = "spec",
    pod_set: str = "",
) -> dict[str, int]:
    """Return the requests of one pod in canonical units, at least 0 of each resource.

    Args:
        spec: The pod's specification, prepared.
        rules: Resources that are not counted, and those counted as others.
        path: Where the specification is, for errors.
        pod_set: The pod set of the pod, for errors.

    Raises:
        InvalidRequestsError: If something is not a quantity.
        UncountedDevicesError: If devices of claims cannot be counted.
    """
    try:
        total = pod_requests(spec)
        if rules.shared_gpus is not None and THOUSANDTHS in spec.overhead:
            total.pop(SHARED_GPU, None)  # the replica by which it gets its part
        counted = rules.resources
        total = {
            name: amount
            for name, amount in total.items()
            if not name.startswith(counted.exclude_resource_prefixes)
        }
        if counted.transformations:
            total = _transformed(total, counted.transformations)
    except QuantityError as error:
        raise InvalidRequestsError(f"resources validation failed: {error}") from error
    _count_devices(total, spec, rules, path, pod_set)
    return {name: max(0, min(amount, LARGEST)) for name, amount in total.items()}


def _count_devices(
    total: dict[str, int], spec: PodSpec, rules: RequestRules, path: str, pod_set: str
) -> None:
    """Add devices to the requests of a pod, in place of the extended resources they back."""
    devices = rules.devices
    if devices is None:
        return
    from policyd.devices.amounts import DeviceCountError  # noqa: PLC0415 - few count devices

    try:
        amounts, replaced, _ = devices.of_extended_resources(spec, path)
        of_claims = devices.of_templates(spec, rules.namespace, path, pod_set)
    except DeviceCountError as error:
        raise UncountedDevicesError(_bounded(error)) from error
    for name in replaced:
        total.pop(name, None)
    for part in (amounts, of_claims):
        for name, amount in part.items():
            total[name] = total.get(name, 0) + amount


def claimed_of_node(spec: PodSpec, rules: RequestRules) -> tuple[Mapping[str, int], frozenset[str]]:
    """Return what a pod takes of its node by claims; nothing if devices cannot be counted.

    Returns:
        Its devices, by the resource that nodes have them as; and the extended resources that stand
        for some of them in the pod, of which nodes have none.
    """
    if rules.devices is None:
        return {}, frozenset()
    # Few count devices.
    from policyd.devices.amounts import CountedLaterError, DeviceCountError  # noqa: PLC0415

    replaced = frozenset[str]()
    try:
        replaced = rules.devices.of_extended_resources(spec, "").replaced
        return rules.devices.of_node(spec, rules.namespace), replaced
    except (CountedLaterError, DeviceCountError):  # the requests say so
        return {}, replaced


def devices_of_claim(claim: "ResourceClaim", rules: RequestRules) -> Mapping[str, int]:
    """Return the devices of a claim that a pod has, by the resource with the quota.

    Devices that no quota counts are `UNCOUNTED`. Those that drivers do not offer any more are none.
    """
    if rules.devices is None:
        return {}
    from policyd.devices.amounts import DeviceCountError  # noqa: PLC0415 - few count devices

    try:
        return rules.devices.of_claim(claim)
    except DeviceCountError as error:
        gone = all(each.problem == "Internal" for each in error.errors)
        return {} if gone else {UNCOUNTED: 1}


def shared_devices(workload: Workload, rules: RequestRules) -> dict[str, dict[str, int]]:
    """Return the devices of claims that pods share, by pod set, as requests of one pod.

    A claim that several pod sets name counts once, for the first of them that has pods. Usage must
    be a multiple of the number of pods, so that each has its share, rounded up.

    Raises:
        UncountedDevicesError: If devices of claims cannot be counted.
    """
    if rules.devices is None:
        return {}
    from policyd.devices.amounts import DeviceCountError  # noqa: PLC0415 - few count devices

    found: dict[str, dict[str, int]] = {}
    seen: set[str] = set()
    for index, pod_set in enumerate(workload.spec.pod_sets):
        spec = pod_set.template.spec
        if not pod_set.count:
            continue
        new = tuple(each for each in spec.resource_claims if each.resource_claim_name not in seen)
        named = {each.resource_claim_name: each for each in new if each.resource_claim_name}
        seen |= named.keys()
        if not named:
            continue
        own = msgspec.structs.replace(spec, resource_claims=tuple(named.values()))
        path = f"spec.podSets[{index}].template.spec"
        try:
            amounts = rules.devices.of_shared_claims(own, rules.namespace, path, pod_set.name)
        except DeviceCountError as error:
            raise UncountedDevicesError(_bounded(error)) from error
        pods = max(1, pod_set.count if pod_set.min_count is None else pod_set.min_count)
        found[pod_set.name] = {name: -(-amount // pods) for name, amount in amounts.items()}
    return found


_LONGEST_ERROR = 4_096
"""Bytes of an error about devices, which may quote selectors."""


def _bounded(error: Exception) -> str:
    return cut(str(error), _LONGEST_ERROR, end="...")


def _transformed(
    total: Mapping[str, int], transformations: Iterable[ResourceTransformation]
) -> dict[str, int]:
    """Count some resources as others; the result is added to direct requests."""
    exact = {name: Fraction(n, _MILLI if name == "cpu" else 1) for name, n in total.items()}
    kept, generated = dict(total), dict[str, Fraction]()
    for each in transformations:
        if each.input not in exact:
            continue
        value = exact[each.input] * exact.get(each.multiply_by, Fraction(1))
        for name, factor in each.outputs.items():
            share = value * Fraction(parse_quantity(factor).nano, _NANO)
            generated[name] = generated.get(name, Fraction(0)) + share
        if each.strategy == "Replace":
            del kept[each.input]
    for name, share in generated.items():
        amount = max(0, ceil(share * (_MILLI if name == "cpu" else 1)))
        kept[name] = kept.get(name, 0) + amount
    return kept


def check_requests(workload: Workload, rules: RequestRules = NO_RULES) -> None:
    """Check that nothing requests more than its limit or its namespace allows.

    Raises:
        InvalidRequestsError: With Kueue's words, naming each container by its place.
    """
    specs = [
        (f"spec.podSets[{index}].template.spec", prepared(pod_set.template.spec, rules))
        for index, pod_set in enumerate(workload.spec.pod_sets)
    ]
    try:
        above = [error for path, spec in specs for error in resource_errors(spec, path)]
        beyond = [error for path, spec in specs for error in limit_errors(spec, rules.limits, path)]
    except QuantityError as error:
        raise InvalidRequestsError(f"resources validation failed: {error}") from error
    if above:
        raise InvalidRequestsError(f"resources validation failed: {_sentence(above)}")
    if beyond:
        message = f"resources didn't satisfy LimitRange constraints: {_sentence(beyond)}"
        raise InvalidRequestsError(message)


def uncounted_claims(workload: Workload) -> str:
    """Return the requests of a workload that no quota counts, and a remedy; empty for none.

    Devices of ResourceClaims are counted where device classes are mapped to resources only.
    """
    asked = [
        f"`{pod_set.name}` ({', '.join(f'`{each.name}`' for each in claims)})"
        for pod_set in workload.spec.pod_sets
        if (claims := pod_set.template.spec.resource_claims)
    ]
    if not asked:
        return ""
    which = "pod set" if len(asked) == 1 else "pod sets"
    return (
        f"{which} {', '.join(asked)} would get devices by `resourceClaims`, which no quota counts;"
        " ask for them by resource in `resources.limits`, such as `nvidia.com/gpu: 1`, or have the"
        " administrator map their device class in `resources.deviceClassMappings`"
    )


def claims_within(asked: PodSpec, given: PodSpec) -> bool:
    """Tell whether a pod gets no other devices by claims than was given leave for.

    The name of a claim that is made from a template is the same for all pods.
    """
    return set(asked.resource_claims) <= set(given.resource_claims)


def resource_errors(spec: PodSpec, path: str) -> Iterator[FieldError]:
    """Yield the requests that exceed their own limit.

    Raises:
        QuantityError: If a quantity cannot be read.
    """
    lists = (("initContainers", spec.init_containers), ("containers", spec.containers))
    for name, containers in lists:
        for index, container in enumerate(containers):
            yield from _above_limit(container.resources, f"{path}.{name}[{index}]")
    if spec.resources is not None:
        yield from _above_limit(spec.resources, f"{path}.resources")


def _above_limit(resources: Resources, path: str) -> Iterator[FieldError]:
    above = sorted(
        name
        for name, asked in resources.requests.items()
        if name in resources.limits
        and parse_quantity(asked) > parse_quantity(resources.limits[name])
    )
    if above:
        yield FieldError(path, above, "requests must not exceed its limits")


def _sentence(errors: list[FieldError]) -> str:
    texts = [f"{e.path}: Invalid value: {json.dumps(e.value)}: {e.message}" for e in errors]
    return texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
