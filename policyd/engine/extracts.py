"""Pods taken out of the objects that hold them, and put back."""

from policyd.api.meta import Json
from policyd.engine.workloads import value_at
from policyd.patch.operations import Path

CONTAINER_LISTS = ("containers", "initContainers", "ephemeralContainers")
"""The fields of a pod that hold containers."""


def as_pod(obj: Json, template: Path) -> Json:
    """Return an object as if it were the pod that its template makes, in the object's namespace.

    All but `spec` and `metadata` stays the object's; what the template has not, is not there.
    """
    if not template or not isinstance(obj, dict):
        return obj
    inner = value_at(obj, template)
    pod = {key: value for key, value in obj.items() if key not in ("spec", "metadata")}
    if not isinstance(inner, dict):
        return pod
    if "spec" in inner:
        pod["spec"] = inner["spec"]
    metadata = inner.get("metadata")
    if isinstance(metadata, dict):
        namespace = value_at(obj, ("metadata", "namespace"))
        own = {} if namespace is None else {"namespace": namespace}
        pod["metadata"] = {**metadata, **own}
    return pod


def in_template(obj: Json, template: Path, pod: Json) -> Json:
    """Put what became of a template's pod back into a copy of the object; see `as_pod`."""
    if template:
        step, *rest = template
        inner = in_template(obj[step], tuple(rest), pod)
        if isinstance(obj, list):
            return [inner if index == step else item for index, item in enumerate(obj)]
        return {**obj, step: inner}
    changed = {**obj, **{key: pod[key] for key in ("spec", "metadata") if key in pod}}
    if "namespace" not in (obj.get("metadata") or {}) and isinstance(pod.get("metadata"), dict):
        metadata = {key: value for key, value in pod["metadata"].items() if key != "namespace"}
        changed["metadata"] = metadata
    return changed


def without_containers(obj: Json, templates: tuple[Path, ...], names: frozenset[str]) -> Json:
    """Return an object without some containers of its pods."""
    for template in templates:
        for field in CONTAINER_LISTS:
            obj = _without(obj, (*template, "spec", field), names)
    return obj


def _without(obj: Json, path: Path, names: frozenset[str]) -> Json:
    if not isinstance(value_at(obj, path), list):
        return obj
    if not path:
        return [c for c in obj if not (isinstance(c, dict) and c.get("name") in names)]
    step, *rest = path
    inner = _without(obj[step], tuple(rest), names)
    if isinstance(obj, list):
        return [inner if index == step else item for index, item in enumerate(obj)]
    return {**obj, step: inner}
