"""The fields of a pod that can change: few, and a few more while it is gated."""

from collections.abc import Iterator

from policyd.api.meta import Json
from policyd.local.apiserver.status import Cause, Object, not_permitted, wrong

UPDATABLE = (
    "pod updates may not change fields other than `spec.containers[*].image`,"
    "`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions"
    " to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it"
    " was previously negative)"
)

TERMS_PATH = (
    "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms"
)


def check_pod_update(new: Object, old: Object) -> Iterator[Cause]:
    """Check a change of a pod's spec."""
    spec, before = new.get("spec", {}), old.get("spec", {})
    yield from _check_nomination(new, old)
    if spec == before:
        return
    for part in ("containers", "initContainers"):
        if len(spec.get(part, ())) != len(before.get(part, ())):
            yield not_permitted(f"spec.{part}", "pod updates may not add or remove containers")
            return
    yield from _check_tolerations(spec, before)
    yield from _check_gates(spec, before)
    yield from _check_deadline(spec, before)
    gated = bool(before.get("schedulingGates"))
    if gated:
        yield from _check_node_selector(spec, before)
        yield from _check_node_affinity(spec, before)
    differing = sorted(
        _fixed_part(spec, gated=gated).items() ^ _fixed_part(before, gated=gated).items()
    )
    if differing:
        fields = sorted({name for name, _ in differing})
        yield not_permitted("spec", f"{UPDATABLE}\n  changed: {', '.join(fields)}")


def _check_nomination(new: Object, old: Object) -> Iterator[Cause]:
    nominated = new.get("status", {}).get("nominatedNodeName")
    was = old.get("status", {}).get("nominatedNodeName")
    if nominated and nominated != was and new["spec"].get("nodeName"):
        why = "may not be set on pods that are already bound to a node"
        yield not_permitted("status.nominatedNodeName", why)


def _fixed_part(spec: Object, *, gated: bool) -> dict[str, str]:
    """Write the fields that may not change, each as text."""
    left_out = {"tolerations", "schedulingGates", "activeDeadlineSeconds"}
    if gated:
        left_out.add("nodeSelector")
    fixed = {name: value for name, value in spec.items() if name not in left_out}
    for part in ("containers", "initContainers"):
        if part in fixed:
            fixed[part] = [{**container, "image": ""} for container in fixed[part]]
    if gated and "affinity" in fixed:
        others = {k: v for k, v in fixed["affinity"].items() if k != "nodeAffinity"}
        fixed["affinity"] = others or None
    return {name: repr(value) for name, value in fixed.items() if value is not None}


def _check_tolerations(spec: Object, before: Object) -> Iterator[Cause]:
    kept = [_without_seconds(toleration) for toleration in spec.get("tolerations", ())]
    if any(
        _without_seconds(toleration) not in kept for toleration in before.get("tolerations", ())
    ):
        yield not_permitted(
            "spec.tolerations",
            "existing toleration can not be modified except its tolerationSeconds",
        )


def _check_deadline(spec: Object, before: Object) -> Iterator[Cause]:
    new, old = spec.get("activeDeadlineSeconds"), before.get("activeDeadlineSeconds")
    if old is None or new == old:
        return
    path = "spec.activeDeadlineSeconds"
    if new is None:
        yield wrong(path, new, "must not update from a positive integer to nil value")
    elif new > old:
        yield wrong(path, new, "must be less than or equal to previous value")


def _without_seconds(toleration: Object) -> Object:
    return {name: value for name, value in toleration.items() if name != "tolerationSeconds"}


def _check_gates(spec: Object, before: Object) -> Iterator[Cause]:
    known = {gate.get("name") for gate in before.get("schedulingGates", ())}
    for index, gate in enumerate(spec.get("schedulingGates", ())):
        if gate.get("name") not in known:
            yield not_permitted(
                f"spec.schedulingGates[{index}].name",
                f"only deletion is allowed, but found new scheduling gate '{gate.get('name')}'",
            )


def _check_node_selector(spec: Object, before: Object) -> Iterator[Cause]:
    selector = spec.get("nodeSelector", {})
    if not before.get("nodeSelector", {}).items() <= selector.items():
        yield wrong(
            "spec.nodeSelector",
            selector,
            "only additions to spec.nodeSelector are allowed (no mutations or deletions)",
        )


def _terms(spec: Object) -> list[Json]:
    affinity = spec.get("affinity", {}).get("nodeAffinity", {})
    needed = affinity.get("requiredDuringSchedulingIgnoredDuringExecution", {})
    terms: list[Json] = needed.get("nodeSelectorTerms", [])
    return terms


def _check_node_affinity(spec: Object, before: Object) -> Iterator[Cause]:
    new, old = _terms(spec), _terms(before)
    if not old:
        return
    if len(new) != len(old):
        why = "no additions/deletions to non-empty NodeSelectorTerms list are allowed"
        yield wrong(TERMS_PATH, new, why)
        return
    for index, (term, was) in enumerate(zip(new, old, strict=True)):
        parts = ("matchExpressions", "matchFields")
        if any(e not in term.get(part, ()) for part in parts for e in was.get(part, ())):
            why = "only additions are allowed (no mutations or deletions)"
            yield wrong(f"{TERMS_PATH}[{index}]", term, why)
