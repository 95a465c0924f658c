"""The rules of a pod, or of a pod template, that users meet."""

from collections.abc import Iterator, Sequence

from policyd.api.quantity import parse_quantity
from policyd.local.apiserver.checks import names
from policyd.local.apiserver.status import (
    Cause,
    Object,
    duplicate,
    not_permitted,
    not_supported,
    required,
    wrong,
)

RESTART_POLICIES = ("Always", "OnFailure", "Never")
NOT_NEGATIVE = "must be greater than or equal to 0"

EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
OVERCOMMITTABLE = frozenset({"cpu", "memory", "ephemeral-storage"})
"""Resources of which a container may use more than it requests."""


def check_pod(pod: Object) -> Iterator[Cause]:
    """Check a pod that is created or changed."""
    yield from check_pod_spec(pod.get("spec", {}), "spec")


def check_created_pod(pod: Object) -> Iterator[Cause]:
    """Check what only a new pod keeps to."""
    spec = pod["spec"]
    if spec.get("schedulingGates") and spec.get("nodeName"):
        yield not_permitted(
            "spec.nodeName", "cannot be set until all schedulingGates have been cleared"
        )


def check_template(template: Object, path: str) -> Iterator[Cause]:
    """Check a pod template."""
    about = template.get("metadata", {})
    yield from names.check_labels(about.get("labels"), f"{path}.metadata.labels")
    yield from names.check_keys(about.get("annotations"), f"{path}.metadata.annotations")
    yield from check_pod_spec(template.get("spec", {}), f"{path}.spec")


def check_pod_spec(spec: Object, path: str) -> Iterator[Cause]:
    """Check what pods and templates have in common."""
    if not spec.get("containers"):
        yield required(f"{path}.containers")
    seen: set[str] = set()
    for part in ("initContainers", "containers"):
        for index, container in enumerate(spec.get(part, ())):
            yield from _check_container(container, f"{path}.{part}[{index}]", seen)
    if spec.get("restartPolicy") not in RESTART_POLICIES:
        yield not_supported(f"{path}.restartPolicy", spec.get("restartPolicy"), RESTART_POLICIES)
    yield from names.check_labels(spec.get("nodeSelector"), f"{path}.nodeSelector")
    for index, toleration in enumerate(spec.get("tolerations", ())):
        yield from _check_toleration(toleration, f"{path}.tolerations[{index}]")
    yield from _check_gates(spec.get("schedulingGates", ()), f"{path}.schedulingGates")
    yield from _check_rest(spec, path)


def _check_rest(spec: Object, path: str) -> Iterator[Cause]:
    grace = spec.get("terminationGracePeriodSeconds", 0)
    if grace < 0:
        yield wrong(f"{path}.terminationGracePeriodSeconds", grace, NOT_NEGATIVE)
    for index, volume in enumerate(spec.get("volumes", ())):
        if not volume.get("name"):
            yield required(f"{path}.volumes[{index}].name")


def _check_container(container: Object, path: str, seen: set[str]) -> Iterator[Cause]:
    name = container.get("name", "")
    if not name:
        yield required(f"{path}.name")
    elif name in seen:
        yield duplicate(f"{path}.name", name)
    else:
        yield from (wrong(f"{path}.name", name, line) for line in names.label(name))
    seen.add(name)
    if not container.get("image"):
        yield required(f"{path}.image")
    yield from _check_resources(container.get("resources", {}), f"{path}.resources")


def _check_resources(resources: Object, path: str) -> Iterator[Cause]:
    limits, requests = resources.get("limits", {}), resources.get("requests", {})
    for part, amounts in (("limits", limits), ("requests", requests)):
        for name, amount in amounts.items():
            yield from _check_amount(name, amount, f"{path}.{part}")
    for name, amount in requests.items():
        limit = limits.get(name)
        if limit is None:
            if name not in OVERCOMMITTABLE:
                what = "Limit must be set for non overcommitable resources"
                yield required(f"{path}.limits", what)
        elif parse_quantity(amount) > parse_quantity(limit):
            what = f"must be less than or equal to {name} limit of {limit}"
            yield wrong(f"{path}.requests", amount, what)
        elif name not in OVERCOMMITTABLE and parse_quantity(amount) != parse_quantity(limit):
            yield wrong(f"{path}.requests", amount, f"must be equal to {name} limit of {limit}")


def _check_amount(name: str, amount: str, path: str) -> Iterator[Cause]:
    if "/" not in name and name not in OVERCOMMITTABLE and not name.startswith("hugepages-"):
        yield wrong(path, name, "must be a standard resource for containers")
    for line in names.qualified_name(name):
        yield wrong(f"{path}[{name}]", name, line)
    quantity = parse_quantity(amount)
    if quantity.sign() < 0:
        yield wrong(f"{path}[{name}]", amount, NOT_NEGATIVE)
    elif "/" in name and quantity.milli() % 1000:
        yield wrong(f"{path}[{name}]", amount, "must be an integer")


def _check_toleration(toleration: Object, path: str) -> Iterator[Cause]:
    key, operator = toleration.get("key", ""), toleration.get("operator", "")
    value, effect = toleration.get("value", ""), toleration.get("effect", "")
    if not key and operator != "Exists":
        why = (
            "operator must be Exists when `key` is empty, which means"
            ' "match all values and all keys"'
        )
        yield wrong(f"{path}.operator", operator, why)
    if "tolerationSeconds" in toleration and effect != "NoExecute":
        why = "effect must be 'NoExecute' when `tolerationSeconds` is set"
        yield wrong(f"{path}.effect", effect, why)
    if operator == "Exists" and value:
        why = "value must be empty when `operator` is 'Exists'"
        yield wrong(f"{path}.operator", value, why)
    if operator not in {"", "Exists", "Equal"}:
        yield not_supported(f"{path}.operator", operator, ("Equal", "Exists"))
    if effect and effect not in EFFECTS:
        yield not_supported(f"{path}.effect", effect, EFFECTS)


def _check_gates(gates: Sequence[Object], path: str) -> Iterator[Cause]:
    seen: set[str] = set()
    for index, gate in enumerate(gates):
        name = gate.get("name", "")
        for line in names.qualified_name(name):
            yield wrong(f"{path}[{index}]", name, line)
        if name in seen:
            yield duplicate(f"{path}[{index}]", name)
        seen.add(name)
