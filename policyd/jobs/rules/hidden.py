"""Objects that name a queue but do not queue: kinds that no module reads, or that are off here.

Such an object passes unchanged, and so do its pods, unless they name the queue themselves. So the
user gets a warning with the integration that is off, and the place to name the queue if pods queue.
"""

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any, Final

from policyd.api.configuration.frameworks import KINDS as FRAMEWORKS
from policyd.api.kueue.names import QUEUE_NAME
from policyd.api.meta import Json
from policyd.jobs.integrations import EVERYTHING, POD, Integrations
from policyd.jobs.rules.defaults import holds
from policyd.jobs.rules.submission import labels_of

MOST_PARTS: Final = 20_000
"""Parts of an object that are looked into: a large one has some thousands."""
MOST_PLACES: Final = 8
"""Places that are named; there may be as many as parts."""
MOST_LETTERS: Final = 200
"""Of the path of a place: each part of an object has one, and keys may be long."""

_WITHOUT_TEMPLATES: Final[Mapping[tuple[str, str], tuple[str, ...]]] = {
    ("sparkoperator.k8s.io", "SparkApplication"): ("spec.driver.labels", "spec.executor.labels"),
    ("sparkoperator.k8s.io", "ScheduledSparkApplication"): (
        "spec.template.driver.labels",
        "spec.template.executor.labels",
    ),
    ("kubeflow.org", "Notebook"): (),  # its controller copies its labels to the pod
}
"""Where kinds name the queue of their pods, if not in templates of pods."""

_INTEGRATIONS: Final[Mapping[tuple[str, str], str]] = {
    ("batch", "CronJob"): "batch/job",
    **{(group, kind): name for name, (group, _, kind) in FRAMEWORKS.items()},
}


def hidden_from_queue(
    obj: Json, *, group: str, kind: str, integrations: Integrations = EVERYTHING
) -> str:
    """Say that an object names a queue that holds nothing of it; empty if that is not so.

    Args:
        obj: The object, decoded.
        group: API group; empty for the core group.
        kind: Kind of the object.
        integrations: Which kinds of jobs queue.
    """
    if (
        not labels_of(obj).get(QUEUE_NAME)
        or holds(group, kind, integrations)
        or (group, kind) in integrations.external
    ):
        return ""
    cause = f"`{QUEUE_NAME}` on a {kind} has no effect"
    name = _INTEGRATIONS.get((group, kind))
    if name is not None:
        cause += f": the integration `{name}` is off"
    if (group, kind) == POD:
        return cause
    missing = [*islice(_unlabelled(obj, group, kind, integrations), MOST_PLACES + 1)]
    hidden = (group, kind) not in _WITHOUT_TEMPLATES and _runs(obj, integrations)
    if not integrations.has(*POD) and (name is not None or missing or hidden):
        return cause if name else f"{cause}: the kind has no integration, and that of pods is off"
    if not missing and hidden:
        return (
            f"{cause}, and it has no pod template: name the queue in the labels that its pods get"
        )
    if not missing:
        return ""
    places = ", ".join(sorted(missing[:MOST_PLACES]))
    if len(missing) > MOST_PLACES:
        places += " and in other places"
    return f"{cause}{':' if name is None else ';'} name the queue in {places}"


def _unlabelled(obj: Json, group: str, kind: str, integrations: Integrations) -> Iterator[str]:
    """Yield where the pods of an object should name their queue and do not."""
    places = _WITHOUT_TEMPLATES.get((group, kind))
    if places is None:
        yield from _templates(obj, integrations)
        return
    for place in places:
        if not _at(obj, place).get(QUEUE_NAME):
            yield place


def _at(obj: Json, place: str) -> Mapping[str, Any]:
    for step in place.split("."):
        obj = obj.get(step) if isinstance(obj, dict) else None
    return obj if isinstance(obj, dict) else {}


def _within(where: str, step: str) -> str:
    """Return the path of a part; of a long one, the end, which is where to look."""
    path = f"{where}{step}".lstrip(".")
    return path if len(path) <= MOST_LETTERS else f"…{path[1 - MOST_LETTERS :]}"


def _templates(obj: Json, integrations: Integrations) -> Iterator[str]:
    """Yield the labels of the pod templates in an object that name no queue."""
    for where, part in _parts(obj, integrations):
        if where and _has_containers(part) and not _at(part, "metadata.labels").get(QUEUE_NAME):
            yield f"{where}.metadata.labels"


def _runs(obj: Json, integrations: Integrations) -> bool:
    """Tell whether an object describes containers, and none of them in a pod template."""
    found = False
    for where, part in _parts(obj, integrations):
        if where and _has_containers(part):
            return False
        found = found or isinstance(part.get("image"), str) or _requests(part)
    return found


def _requests(part: Mapping[str, Any]) -> bool:
    resources = part.get("resources")
    return isinstance(resources, dict) and bool({"limits", "requests"} & resources.keys())


def _parts(obj: Json, integrations: Integrations) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the objects in an object, with their paths, and itself.

    A whole object in it, as a Job in an AppWrapper, may queue by itself: it is left out.
    """
    left: list[tuple[str, Json]] = [("", obj)]
    for _ in range(MOST_PARTS):
        if not left:
            return
        where, part = left.pop()
        if isinstance(part, list):
            left += ((_within(where, f"[{index}]"), each) for index, each in enumerate(part))
        if not isinstance(part, dict) or (where and _queues(part, integrations)):
            continue
        yield where, part
        left += ((_within(where, f".{key[:MOST_LETTERS]}"), each) for key, each in part.items())


def _has_containers(part: Mapping[str, Any]) -> bool:
    spec = part.get("spec")
    return isinstance(spec, dict) and isinstance(spec.get("containers"), list)


def _queues(part: Mapping[str, Any], integrations: Integrations) -> bool:
    """Tell whether a part is an object of its own that is held when it is made."""
    version, kind = part.get("apiVersion"), part.get("kind")
    if not isinstance(version, str) or not isinstance(kind, str):
        return False
    group = version.rpartition("/")[0]
    return holds(group, kind, integrations) and bool(_at(part, "metadata.labels").get(QUEUE_NAME))
