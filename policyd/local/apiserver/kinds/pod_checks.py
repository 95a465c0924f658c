"""The rules of a pod, or of a pod template, that users meet."""

from collections.abc import Callable, Iterator, Sequence

from policyd.local.apiserver.checks import metadata
from policyd.local.apiserver.kinds.container_checks import NOT_NEGATIVE, check_container
from policyd.local.apiserver.kinds.placing_checks import (
    check_affinity,
    check_gates,
    check_spreading,
    check_tolerations,
)
from policyd.local.apiserver.status import (
    Cause,
    Object,
    duplicate,
    not_permitted,
    not_supported,
    required,
    wrong,
)

__all__ = ["NOT_NEGATIVE", "check_created_pod", "check_pod", "check_template"]

RESTART_POLICIES = ("Always", "OnFailure", "Never")
DNS_POLICIES = ("ClusterFirstWithHostNet", "ClusterFirst", "Default", "None")
SYSTEMS = ("linux", "windows")
LONGEST_SECONDS = 2**31 - 1

NAMED: tuple[tuple[str, Callable[[str], list[str]]], ...] = (
    ("serviceAccountName", metadata.subdomain),
    ("nodeName", metadata.subdomain),
    ("hostname", metadata.label),
    ("subdomain", metadata.label),
    ("priorityClassName", metadata.subdomain),
    ("runtimeClassName", metadata.subdomain),
)
"""The fields that have a name, with the rule for it."""


def check_pod(pod: Object) -> Iterator[Cause]:
    """Check a pod that is created or changed."""
    yield from check_pod_spec(pod.get("spec", {}), "spec")


def check_created_pod(pod: Object) -> Iterator[Cause]:
    """Check the rules that apply only to new pods."""
    spec = pod["spec"]
    if spec.get("schedulingGates") and spec.get("nodeName"):
        yield not_permitted(
            "spec.nodeName", "cannot be set until all schedulingGates have been cleared"
        )


def check_template(template: Object, path: str) -> Iterator[Cause]:
    """Check a pod template."""
    about = template.get("metadata", {})
    yield from metadata.check_labels(about.get("labels"), f"{path}.labels")
    yield from metadata.check_keys(about.get("annotations"), f"{path}.annotations")
    yield from check_pod_spec(template.get("spec", {}), f"{path}.spec")


def check_pod_spec(spec: Object, path: str) -> Iterator[Cause]:
    """Check the rules that pods and templates have in common."""
    volumes = spec.get("volumes", ())
    yield from _check_volumes(volumes, f"{path}.volumes")
    yield from _check_containers(spec, path)
    if spec.get("restartPolicy") not in RESTART_POLICIES:
        yield not_supported(f"{path}.restartPolicy", spec.get("restartPolicy"), RESTART_POLICIES)
    if spec.get("dnsPolicy") not in DNS_POLICIES:
        yield not_supported(f"{path}.dnsPolicy", spec.get("dnsPolicy"), DNS_POLICIES)
    yield from metadata.check_labels(spec.get("nodeSelector"), f"{path}.nodeSelector")
    yield from check_affinity(spec.get("affinity", {}), f"{path}.affinity")
    yield from check_gates(spec.get("schedulingGates", ()), f"{path}.schedulingGates")
    constraints = spec.get("topologySpreadConstraints", ())
    yield from check_spreading(constraints, f"{path}.topologySpreadConstraints")
    yield from check_tolerations(spec.get("tolerations", ()), f"{path}.tolerations")
    yield from _check_rest(spec, path)


def _check_containers(spec: Object, path: str) -> Iterator[Cause]:
    if not spec.get("containers"):
        yield required(f"{path}.containers")
    volumes = {volume.get("name", "") for volume in spec.get("volumes", ())}
    seen: set[str] = set()
    for part in ("containers", "initContainers"):
        for index, container in enumerate(spec.get(part, ())):
            at = f"{path}.{part}[{index}]"
            yield from check_container(container, at, seen=seen, volumes=volumes)


def _check_volumes(volumes: Sequence[Object], path: str) -> Iterator[Cause]:
    seen: set[str] = set()
    for index, volume in enumerate(volumes):
        name, at = volume.get("name", ""), f"{path}[{index}]"
        for source in sorted(set(volume) - {"name"})[1:]:
            yield not_permitted(f"{at}.{source}", "may not specify more than 1 volume type")
        if not name:
            yield required(f"{at}.name")
        elif name in seen:
            yield duplicate(f"{at}.name", name)
        else:
            yield from (wrong(f"{at}.name", name, line) for line in metadata.label(name))
        seen.add(name)


def _check_rest(spec: Object, path: str) -> Iterator[Cause]:
    for field, check in NAMED:
        name = spec.get(field, "")
        yield from (wrong(f"{path}.{field}", name, line) for line in check(name) if name)
    deadline = spec.get("activeDeadlineSeconds", 1)
    if not 1 <= deadline <= LONGEST_SECONDS:
        what = f"must be between 1 and {LONGEST_SECONDS}, inclusive"
        yield wrong(f"{path}.activeDeadlineSeconds", deadline, what)
    system = spec.get("os", {}).get("name")
    if system and system not in SYSTEMS:
        yield not_supported(f"{path}.os", system, SYSTEMS)
