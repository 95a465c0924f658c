"""The rules of nodes, namespaces, priority classes, leases and claims of devices."""

from collections.abc import Iterator, Mapping

from policyd.local.apiserver.checks import metadata
from policyd.local.apiserver.kinds.container_checks import NOT_NEGATIVE
from policyd.local.apiserver.kinds.placing_checks import EFFECTS
from policyd.local.apiserver.status import (
    Cause,
    Object,
    not_permitted,
    not_supported,
    wrong,
)

HIGHEST_USER_PRIORITY = 1_000_000_000
SYSTEM_CLASS_PREFIX = "system-"
SYSTEM_CLASSES = frozenset({"system-cluster-critical", "system-node-critical"})
PREEMPTION_POLICIES = ("PreemptLowerPriority", "Never")


def check_node(node: Object) -> Iterator[Cause]:
    """Check a node."""
    for index, taint in enumerate(node.get("spec", {}).get("taints", ())):
        path, key = f"metadata.taints[{index}]", taint.get("key", "")
        yield from (wrong(f"{path}.key", key, line) for line in metadata.qualified_name(key))
        if taint.get("effect") not in EFFECTS:
            yield not_supported(f"{path}.effect", taint.get("effect", ""), EFFECTS)


def check_namespace(namespace: Object) -> Iterator[Cause]:
    """Check a namespace: whether it goes is not for its status to say."""
    phase = namespace.get("status", {}).get("phase", "Active")
    if "deletionTimestamp" not in namespace["metadata"] and phase != "Active":
        why = "may only be 'Active' if `deletionTimestamp` is empty"
        yield wrong("status.Phase", phase, why)


def check_priority_class(priority_class: Object) -> Iterator[Cause]:
    """Check a priority class."""
    value = priority_class.get("value", 0)
    name = priority_class["metadata"]["name"]
    if name.startswith(SYSTEM_CLASS_PREFIX):
        if name not in SYSTEM_CLASSES:
            why = (
                "priority class names with 'system-' prefix are reserved for system use only."
                f" error: {name} is not a known system priority class"
            )
            yield not_permitted("metadata.name", why)
    elif value > HIGHEST_USER_PRIORITY:
        why = f"maximum allowed value of a user defined priority is {HIGHEST_USER_PRIORITY}"
        yield not_permitted("value", why)
    policy = priority_class.get("preemptionPolicy")
    if policy not in PREEMPTION_POLICIES:
        yield not_supported("preemptionPolicy", policy, PREEMPTION_POLICIES)


def check_priority_class_update(new: Object, old: Object) -> Iterator[Cause]:
    """Check a change of a priority class: pods have its value already."""
    if new.get("value", 0) != old.get("value", 0):
        yield not_permitted("value", "may not be changed in an update.")
    policy = new.get("preemptionPolicy")
    if policy != old.get("preemptionPolicy"):
        yield wrong("preemptionPolicy", policy, "field is immutable")


def check_lease(lease: Object) -> Iterator[Cause]:
    """Check a lease."""
    spec = lease.get("spec", {})
    if spec.get("leaseDurationSeconds", 1) <= 0:
        seconds = spec["leaseDurationSeconds"]
        yield wrong("spec.leaseDurationSeconds", seconds, "must be greater than 0")
    if spec.get("leaseTransitions", 0) < 0:
        yield wrong("spec.leaseTransitions", spec["leaseTransitions"], NOT_NEGATIVE)


ADMIN_ACCESS = "resource.kubernetes.io/admin-access"
"""Label of the namespaces in which claims may have admin access."""


def check_claim_update(new: Object, old: Object) -> Iterator[Cause]:
    """Check a change of a claim or of a template of claims."""
    if new.get("spec") != old.get("spec"):
        yield wrong("spec", new.get("spec"), "field is immutable")


def check_admin_access(
    new: Object, old: Object | None, labels: Mapping[str, str]
) -> Iterator[Cause]:
    """Check that the namespace of a claim, or of a template of claims, permits admin access.

    Args:
        new: The claim or template.
        old: As it was; None if it is new. Its specification, and devices that it has, stay.
        labels: Of its namespace.
    """
    if labels.get(ADMIN_ACCESS) == "true":
        return
    why = f"admin access to devices requires the `{ADMIN_ACCESS}: true` label on the containing"
    path = _asked_for_admin(new) if old is None else _has_admin(new)
    if path and not (old is not None and _has_admin(old)):
        yield not_permitted(f"{path}.adminAccess", f"{why} namespace")


def _asked_for_admin(claim: Object) -> str:
    """Return the path of the first request with admin access; it is the same for templates."""
    spec = claim.get("spec") or {}
    devices = (spec.get("spec") or spec).get("devices") or {}
    for index, request in enumerate(devices.get("requests") or ()):
        if (request.get("exactly") or {}).get("adminAccess"):
            return f"spec.devices.requests[{index}]"
    return ""


def _has_admin(claim: Object) -> str:
    allocation = (claim.get("status") or {}).get("allocation") or {}
    for index, device in enumerate((allocation.get("devices") or {}).get("results") or ()):
        if device.get("adminAccess"):
            return f"status.allocation.devices.results[{index}]"
    return ""
