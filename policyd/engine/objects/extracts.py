"""Extract pods from the objects that contain them, and put them back."""

from policyd.api.meta import Json
from policyd.engine.objects.workloads import value_at
from policyd.patch.operations import Path

CONTAINER_LISTS = ("containers", "initContainers", "ephemeralContainers")
"""The fields of a pod that hold containers."""

IDENTITY = ("name", "namespace")
"""The metadata that identifies an object."""


def as_pod(obj: Json, template: Path) -> Json:
    """Return an object as if it were the pod that its template makes, in the object's namespace.

    It has the object's name, as pods have none yet. All but `spec` and `metadata` is the object's;
    fields that the template lacks are absent.
    """
    if not template or not isinstance(obj, dict):
        return obj
    inner = value_at(obj, template)
    pod = {key: value for key, value in obj.items() if key not in ("spec", "metadata")}
    if not isinstance(inner, dict):
        return pod
    if "spec" in inner:
        pod["spec"] = inner["spec"]
    if isinstance(inner.get("metadata"), dict):
        pod["metadata"] = {**inner["metadata"], **_identity(obj)}
    return pod


def named(pod: Json, obj: Json) -> Json:
    """Return a pod of a template without metadata by the name of its object all the same."""
    if not isinstance(pod, dict) or "metadata" in pod:
        return pod
    return {**pod, "metadata": _identity(obj)}


def _identity(obj: Json) -> dict[str, Json]:
    """Return the metadata that identifies an object, as far as it has any."""
    given = value_at(obj, ("metadata",))
    metadata = given if isinstance(given, dict) else {}
    return {key: metadata[key] for key in IDENTITY if metadata.get(key) is not None}


def in_template(obj: Json, template: Path, pod: Json) -> Json:
    """Put a changed pod of a template back into a copy of the object; see `as_pod`."""
    if template:
        step, *rest = template
        inner = in_template(obj[step], tuple(rest), pod)
        if isinstance(obj, list):
            return [inner if index == step else item for index, item in enumerate(obj)]
        return {**obj, step: inner}
    changed = {**obj, **{key: pod[key] for key in ("spec", "metadata") if key in pod}}
    metadata = changed.get("metadata")
    if isinstance(metadata, dict):
        own = {key: part for key, part in metadata.items() if key not in IDENTITY}
        changed["metadata"] = {**own, **_identity(obj)}
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
