"""Compute the requests of a pod, as the scheduler counts them.

Containers add up; sidecars (init containers that keep running) add up with them; other init
containers run one after the other, so the largest counts. Overhead comes on top. Amounts for
the pod as a whole override those of its containers, of cpu, memory and huge pages; there are
no devices for pods as a whole. Negative amounts count as 0.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Literal

from policyd.api.gpus import PARTS, counts_as_gpu
from policyd.api.meta import Json
from policyd.api.pod_requests import effective, is_stated_for_pods
from policyd.api.quantity import Format, Quantity, QuantityError, parse_quantity
from policyd.cel.caches import cache_short
from policyd.engine.objects.workloads import EACH, WorkloadKind, find_kind, pod_templates, value_at
from policyd.errors import PolicydError

ORDINARY = frozenset({"cpu", "memory", "ephemeral-storage"})
"""The resources that nearly every container requests, none of them a GPU."""

ASKED_FOR = (
    ("spec", "resources"),
    ("spec", "overhead"),
    *(("spec", field, EACH, "resources") for field in ("containers", "initContainers")),
    ("spec", "initContainers", EACH, "restartPolicy"),
)
"""All that says how much a pod asks for, as paths in it."""

PART_OF_GPU = tuple(("metadata", "annotations", name) for name in PARTS)
"""All that says whether a pod asks for a part of a GPU, as paths in it."""

_NOTHING = Quantity(0)

_OBJECTS = frozenset({dict})
"""The types that the items of a list of objects have."""

Side = Literal["requests", "limits"]


class PodError(PolicydError):
    """A pod is so misshapen that it cannot be evaluated."""


is_gpu = cache_short(1024)(counts_as_gpu)
"""Tells whether one of a resource counts as a GPU."""


def gpus(obj: Json) -> int:
    """Count the GPUs that a pod or pod template asks for, or all pods of a workload together.

    A part of a GPU counts as one, whether or not the pod has the replica for it already.
    Devices of ResourceClaims are not among them: `claims` tells whether there are any.

    Raises:
        PodError: If the pod is misshapen, or an amount is not a quantity.
    """
    return _of_all_pods(obj, _gpus_of_pod) + _gpus_besides(obj)


def devices(obj: Json) -> int:
    """Count the GPUs and ResourceClaims of one pod of each template, however many pods there are.

    It finds devices of an object even while it has no pods: many kinds can be scaled
    without another review of the templates.

    Raises:
        PodError: If the pod is misshapen, or an amount is not a quantity.
    """
    kind = find_kind(obj)
    pods = [obj] if kind is None else [value_at(obj, t.path) for t in pod_templates(obj, kind)]
    pods += [pod for _, pod in _assembled(obj, kind)]
    return sum(_gpus_of_pod(pod) + _claims_of(pod) for pod in pods) + _gpus_besides(obj)


def claims(obj: Json) -> int:
    """Count the ResourceClaims of a pod or pod template, or of all pods of a workload together.

    The number of devices of a claim is in the claim itself, which is another object.

    Raises:
        PodError: If the pod is misshapen.
    """
    return _of_all_pods(obj, _claims_of)


def gpu_parts(obj: Json) -> int:
    """Count the pods of a pod, pod template or workload that request a part of a GPU.

    Raises:
        PodError: If a pod is misshapen.
    """
    return _of_all_pods(obj, _parts_of)


ClaimSpecOf = Callable[[str, str], Json]
"""Returns the specification of a claim, given `ResourceClaim` or `ResourceClaimTemplate` and its
name. Raises a PolicydError if it is not known."""


def claimed_devices(obj: Json, spec_of: ClaimSpecOf) -> int:
    """Count the devices that a pod or pod template gets by claims, or all pods of a workload.

    A claim that pods share counts once; of alternatives, the largest counts.

    Raises:
        PodError: If the pod or a claim is misshapen, or it says no number.
    """
    known: dict[tuple[str, str], int] = {}
    shared: set[tuple[str, str]] = set()

    def of_pod(pod: Json) -> int:
        total = 0
        for each in _items(_object(pod, "spec"), "resourceClaims"):
            template = each.get("resourceClaimTemplateName")
            named = template or each.get("resourceClaimName")
            if not isinstance(named, str) or not named:
                raise PodError("a claim of the pod names no ResourceClaim and no template")
            key = ("ResourceClaimTemplate" if template else "ResourceClaim"), named
            if key not in known:
                known[key] = _devices_of_claim(spec_of(*key), *key)
            if template:
                total += known[key]
            else:
                shared.add(key)
        return total

    total = _of_all_pods(obj, of_pod)
    return total + sum(known[key] for key in shared)


_COUNTED = frozenset(
    {"spec", "devices", "requests", "exactly", "firstAvailable"}
    | {"count", "allocationMode", "adminAccess"}
)


def counted_part(claim: Json) -> Json:
    """Return the part of a claim, or of a template, by which its devices are counted."""
    if isinstance(claim, dict):
        return {key: counted_part(each) for key, each in claim.items() if key in _COUNTED}
    return [counted_part(each) for each in claim] if isinstance(claim, list) else claim


def _devices_of_claim(spec: Json, kind: str, name: str) -> int:
    """Return the most devices that a claim is for; admin access takes none from others."""
    total = 0
    for request in _items(_object({"devices": {}, **_mapping(spec)}, "devices"), "requests"):
        exactly = request.get("exactly")
        wanted = [exactly] if isinstance(exactly, dict) else _items(request, "firstAvailable")
        wanted = wanted or [request]  # as written before v1
        counts = [0]
        for each in wanted:
            if each.get("adminAccess") is True:
                continue
            count = each.get("count", 1)
            if each.get("allocationMode", "ExactCount") != "ExactCount":
                raise PodError(
                    f"{kind} `{name}` requests all devices that match, and their number is known"
                    " only when it is allocated"
                )
            if type(count) is not int or count < 0:
                raise PodError(f"{kind} `{name}` requests a number of devices that is none")
            counts.append(count)
        total += max(counts)
    return total


def _mapping(value: Json) -> dict[str, Json]:
    return value if isinstance(value, dict) else {}


def _gpus_of_pod(pod: Json) -> int:
    return _effective(pod, _gpus_of) or _parts_of(pod)


def _parts_of(pod: Json) -> int:
    metadata = pod.get("metadata")
    annotations = metadata.get("annotations") if isinstance(metadata, dict) else None
    return int(isinstance(annotations, dict) and any(map(annotations.__contains__, PARTS)))


def _claims_of(pod: Json) -> int:
    return len(_items(_object(pod, "spec"), "resourceClaims"))


def _gpus_besides(obj: Json) -> int:
    """Count the GPUs of containers that a controller adds to the pods of an object."""
    kind = find_kind(obj)
    paths = kind.besides if kind else ()
    found = (value_at(obj, path) for path in paths)
    return sum(_gpus_of(each) for each in found if isinstance(each, dict))


def _of_all_pods(obj: Json, count: Callable[[Json], int]) -> int:
    kind = find_kind(obj)
    if kind is None or kind.kind == "Pod":
        return count(obj)
    return sum(
        template.pods * count(value_at(obj, template.path)) for template in pod_templates(obj, kind)
    ) + sum(number * count(pod) for number, pod in _assembled(obj, kind))


def _assembled(obj: Json, kind: WorkloadKind | None) -> Iterable[tuple[int, Json]]:
    return kind.assembled(obj) if kind and kind.assembled else ()


def count_pods(obj: Json) -> int:
    """Count the pods of an object: 1 for a pod, 0 for an object that makes no pods."""
    kind = find_kind(obj)
    if kind is None:
        return 0
    templates = sum(template.pods for template in pod_templates(obj, kind))
    return templates + sum(number for number, _ in _assembled(obj, kind))


def total(pod: Json, resource: str, side: Side) -> Quantity:
    """Return the `requests` or `limits` of a pod or template for a resource.

    A container that states a limit and no request asks for its limit.

    Raises:
        PodError: If the pod is misshapen, or an amount is not a quantity.
    """
    whole_pod = (side, "limits") if is_stated_for_pods(resource) else ()
    for stated in whole_pod:  # a limit without a request counts as the request
        whole = value_at(pod, ("spec", "resources", stated, resource))
        if whole is not None:
            overhead = _quantity(value_at(pod, ("spec", "overhead", resource)) or 0)
            return max(_quantity(whole), _NOTHING) + max(overhead, _NOTHING)
    formats: list[Format] = []

    def nano(container: Json) -> int:
        amount = _stated(container, side).get(resource)
        if amount is None:
            return 0
        quantity = _quantity(amount)
        formats.append(quantity.format)
        return max(0, quantity.nano)

    # A sum has no suffix of its own: it is written like the first of its parts.
    amount = _effective(pod, nano)
    return Quantity(amount, formats[0]) if formats else Quantity(amount)


def _effective(pod: Json, amount_of: Callable[[Json], int]) -> int:
    """Add up a pod's containers as the scheduler does."""
    spec = _object(pod, "spec")
    starting = (
        (amount_of(each), each.get("restartPolicy") == "Always")
        for each in _items(spec, "initContainers")
    )
    whole = effective(map(amount_of, _items(spec, "containers")), starting)
    overhead = spec.get("overhead")
    if overhead:
        whole += amount_of({"resources": {"requests": overhead, "limits": overhead}})
    return whole


def _gpus_of(container: Json) -> int:
    if not container.get("resources"):
        return 0
    # The same as of all that is stated, without making a mapping of it.
    requests, limits = _sides(container)
    gpus = 0
    for name in requests:
        if name not in ORDINARY and is_gpu(name):
            gpus += max(0, _quantity(requests[name]).value())
    for name in limits:
        if name not in ORDINARY and name not in requests and is_gpu(name):
            gpus += max(0, _quantity(limits[name]).value())
    return gpus


def _stated(container: Json, side: Side) -> Mapping[str, Json]:
    """Return a container's amounts; limits replace requests that are not stated."""
    requests, limits = _sides(container)
    if side == "limits" or not requests:
        return limits
    return {**limits, **requests} if limits else requests


def _sides(container: Json) -> tuple[Mapping[str, Json], Mapping[str, Json]]:
    """Return the requests and the limits of a container."""
    resources = container.get("resources")
    if not resources:
        return {}, {}
    if not isinstance(resources, dict):
        raise PodError("`resources` is not an object")
    limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
    if not isinstance(limits, dict) or not isinstance(requests, dict):
        raise PodError("`requests` and `limits` are not objects")
    return requests, limits


def _quantity(amount: Json) -> Quantity:
    try:
        return parse_quantity(amount)
    except QuantityError as error:
        raise PodError(f"`{amount}` is not a quantity") from error


def _object(parent: Json, field: str) -> Json:
    if not isinstance(parent, dict):
        raise PodError("the pod is not an object")
    value = parent.get(field)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise PodError(f"`{field}` is not an object")
    return value


def _items(spec: Json, field: str) -> list[Json]:
    """Return a list of objects, empty if there is none."""
    items = spec.get(field)
    if items is None:
        return []
    if not isinstance(items, list) or not set(map(type, items)) <= _OBJECTS:
        raise PodError(f"`{field}` is not a list of objects")
    return items
