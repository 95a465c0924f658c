"""workload.codeflare.dev/v1beta2 AppWrapper: objects of any kinds that start and stop together.

The pods of kinds that the operator knows follow from the wrapped object. Of other kinds, the
component says where their templates are, and how many pods each has.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from policyd.api.integers import whole_number
from policyd.api.kueue import PodSet
from policyd.api.kueue.validation import FieldError
from policyd.api.meta import Condition, Json, Wire, condition_true
from policyd.api.pods import PodTemplate
from policyd.jobs.base import JobKind, JobObject, JobOutcome
from policyd.jobs.kinds.batch_job import BATCH_JOB
from policyd.jobs.kinds.job_set import JOB_SET
from policyd.jobs.kinds.kubeflow import TRAINING_JOBS
from policyd.jobs.kinds.ray_cluster import MOST_POD_SETS, RAY_CLUSTER
from policyd.jobs.kinds.ray_job import RAY_JOB
from policyd.jobs.topology import topology_request
from policyd.patch.draft import Draft
from policyd.patch.operations import Path

GROUP: Final = "workload.codeflare.dev"
_TAS: Final = f"{GROUP}.appwrapper/tas-"
"""How the annotations of a pod set begin that say by which labels its pods are numbered."""
_STEP: Final = re.compile(r"\.([^.\[\]]+)|\[([0-9]{1,5})\]", re.ASCII)
_MOST_PARTS: Final = 20_000
"""Parts of a component that are searched for templates."""
_KINDS: Final[dict[tuple[Any, Any], JobKind[Any]]] = {
    (kind.api_version, kind.kind): kind
    for kind in (BATCH_JOB, JOB_SET, RAY_CLUSTER, RAY_JOB, *TRAINING_JOBS)
    if kind.kind not in {"JAXJob", "MPIJob", "PaddleJob", "TFJob", "XGBoostJob"}
}
_PLAIN: Final[dict[tuple[Any, Any], Path]] = {
    ("v1", "Pod"): (),
    ("apps/v1", "Deployment"): ("spec", "template"),
    ("apps/v1", "StatefulSet"): ("spec", "template"),
}


class DeclaredPodSet(Wire, frozen=True):
    """Where a component has a template, and for how many pods."""

    path: str = ""
    replicas: int | None = None
    annotations: dict[str, str] = {}


class Component(Wire, frozen=True):
    """A wrapped object, and the changes to its pods of a start."""

    template: Json = None
    pod_sets: tuple[DeclaredPodSet, ...] = ()
    pod_set_infos: tuple[dict[str, Any], ...] = ()


class AppWrapperSpec(Wire, frozen=True):
    """The spec of an AppWrapper."""

    suspend: bool = False
    components: tuple[Component, ...] = ()


class AppWrapperStatus(Wire, frozen=True):
    """How far an AppWrapper has come."""

    phase: str = ""
    conditions: tuple[Condition, ...] = ()


class AppWrapper(JobObject, frozen=True):
    """An AppWrapper, trimmed to the fields that the queue reads."""

    spec: AppWrapperSpec = AppWrapperSpec()
    status: AppWrapperStatus = AppWrapperStatus()


@dataclass(frozen=True, slots=True)
class _Part:
    """One pod set of a component: its path there, and its template as the pods will have it."""

    pod_set: PodSet
    path: Path
    whole: Json


def _inferred(component: Component) -> list[_Part] | None:
    """Return the pod sets of a component whose kind is known; None for other kinds."""
    wrapped = component.template if isinstance(component.template, dict) else {}
    name = wrapped.get("apiVersion"), wrapped.get("kind")
    draft = Draft(wrapped)
    if name in _PLAIN:
        replicas = draft.get(("spec", "replicas")) if _PLAIN[name] else None
        count = replicas if isinstance(replicas, int) and replicas >= 0 else 1
        return [_part(draft, _PLAIN[name], count, {})]
    kind = _KINDS.get(name)
    if kind is None:
        return None
    job = msgspec.convert(wrapped, kind.type)
    paths = kind.templates(job)
    wholes = kind.whole(job, [draft.get(path) for path in paths])
    found = zip(kind.pod_sets(job), paths, wholes, strict=True)
    # The operator knows nothing of the pod that submits a RayJob.
    return [_Part(*each) for each in found if "submitterPodTemplate" not in each[1]]


def _parts(component: Component) -> list[_Part]:
    """Return the pod sets of a component."""
    inferred = _inferred(component)
    if inferred is not None:
        return inferred
    draft = Draft(component.template)
    found = []
    for declared in component.pod_sets:
        path = _path(declared.path)
        if path is not None and isinstance(draft.get(path), dict):
            count = 1 if declared.replicas is None else max(declared.replicas, 0)
            found.append(_part(draft, path, count, declared.annotations))
    return found


def _part(draft: Draft, path: Path, count: int, notes: dict[str, str]) -> _Part:
    whole = draft.get(path) or {}
    whole = {name: whole[name] for name in ("metadata", "spec") if name in whole}
    template = msgspec.convert(whole, PodTemplate)
    request = topology_request(
        template.metadata.annotations,
        pod_index_label=notes.get(f"{_TAS}pod-index-label", ""),
        sub_group_index_label=notes.get(f"{_TAS}sub-group-index-label", ""),
        sub_group_count=whole_number(notes.get(f"{_TAS}sub-group-count", ""), bits=32),
    )
    pod_set = PodSet(name="", template=template, count=count, topology_request=request)
    return _Part(pod_set, path, whole)


def _path(text: str) -> Path | None:
    """Read a path such as `template.spec.jobs[0].template`; None if it is not written so."""
    steps = [*_STEP.finditer(text.removeprefix("template"))]
    if f"template{''.join(each[0] for each in steps)}" != text:
        return None
    return tuple(each[1] or int(each[2]) for each in steps)


def _all(job: AppWrapper) -> Iterator[tuple[Path, Path, _Part]]:
    """Yield the place of each pod set, where a start writes, and the pod set itself."""
    for index, component in enumerate(job.spec.components):
        at: Path = ("spec", "components", index)
        for number, part in enumerate(_parts(component)):
            yield (*at, "template", *part.path), (*at, "podSetInfos", number), part


def _pod_sets(job: AppWrapper) -> tuple[PodSet, ...]:
    name = job.metadata.name
    found = enumerate(part.pod_set for _, _, part in _all(job))
    return tuple(msgspec.structs.replace(each, name=f"{name}-{i}") for i, each in found)


def _prepare(draft: Draft, job: AppWrapper) -> None:
    for index, component in enumerate(job.spec.components):
        places: list[Json] = [{} for _ in _parts(component)]
        if places:
            draft.set(("spec", "components", index, "podSetInfos"), places)


def clear(draft: Draft) -> None:
    """Take away the changes to the pods of all components."""
    for index in range(len(draft.get(("spec", "components")) or ())):
        draft.remove(("spec", "components", index, "podSetInfos"))


def _outcome(job: AppWrapper) -> JobOutcome | None:
    if job.status.phase == "Succeeded":
        return JobOutcome(succeeded=True, message="AppWrapper finished successfully")
    cleared = not condition_true(job.status.conditions, "ResourcesDeployed")
    if job.status.phase == "Failed" and cleared:
        return JobOutcome(succeeded=False, message="AppWrapper failed")
    return None


def _mistakes(job: AppWrapper, _old: AppWrapper | None) -> Iterator[FieldError]:
    total = sum(1 for _ in _all(job))
    if total > MOST_POD_SETS:
        detail = f"must have at most {MOST_POD_SETS} pod sets in all"
        yield FieldError("spec.components", total, detail, "TooMany")
    for index, component in enumerate(job.spec.components):
        at = f"spec.components[{index}]"
        inferred = _inferred(component)
        declared = [(each.path, each.replicas) for each in component.pod_sets]
        if inferred is None:
            yield from _undeclared(component, at)
        elif declared and declared != [(_written(p.path), p.pod_set.count) for p in inferred]:
            known = ", ".join(f"{_written(p.path)} ({p.pod_set.count})" for p in inferred)
            detail = f"the kind has these pod sets: {known}; leave `podSets` out"
            yield FieldError(f"{at}.podSets", len(declared), detail)
        yield from _uncounted(component, at, declared=inferred is None)


def _uncounted(component: Component, at: str, *, declared: bool) -> Iterator[FieldError]:
    """Yield that an object of a known kind has pods or devices that its pod sets do not have.

    Of kinds whose pod sets are inferred, only devices are compared: what submits a RayJob is no pod
    set, as for the operator.
    """
    # Webhooks check objects, the controller does not: it starts without the engine.
    from policyd.engine.objects.pods import PodError, claims, count_pods, gpus  # noqa: PLC0415
    from policyd.engine.objects.workloads import find_kind  # noqa: PLC0415

    kind = find_kind(component.template)
    if kind is None:
        return
    if not kind.places:
        detail = f"the pods of a {kind.kind} cannot be counted here: let it name its queue itself"
        yield FieldError(f"{at}.template.kind", kind.kind, detail)
        return
    parts = [(part.pod_set.count, part.whole) for part in _parts(component)]
    try:
        asked = gpus(component.template) + claims(component.template)
        counted = sum(count * (gpus(whole) + claims(whole)) for count, whole in parts)
    except PodError as error:
        yield FieldError(f"{at}.template", None, str(error))
        return
    pods = sum(count for count, _ in parts)
    if declared and count_pods(component.template) > pods:
        detail = f"the {kind.kind} has {count_pods(component.template)} pods"
        yield FieldError(f"{at}.podSets", pods, detail)
    elif asked > counted:
        detail = f"the {kind.kind} requests {asked} GPUs and claims, but its pod sets {counted}"
        yield FieldError(f"{at}.template", None, detail, "Forbidden")


def _undeclared(component: Component, at: str) -> Iterator[FieldError]:
    """Yield the pod sets whose templates are not there, and templates that no pod set names."""
    draft, named = Draft(component.template), set()
    for number, each in enumerate(component.pod_sets):
        path = _path(each.path)
        if path is None or not isinstance(draft.get((*path, "spec")), dict):
            detail = "is not the path of a template of pods, such as `template.spec.template`"
            yield FieldError(f"{at}.podSets[{number}].path", each.path, detail)
        else:
            named.add(path)
    for path in _templates(component.template):
        if path is None:
            detail = f"must have at most {_MOST_PARTS:,} parts, to be searched for templates"
            yield FieldError(f"{at}.template", None, detail, "TooMany")
            return
        if path not in named:
            detail = f"the template of pods at `{_written(path)}` needs a pod set of its own"
            yield FieldError(f"{at}.podSets", None, detail, "Required")
            return


def _templates(wrapped: Json) -> Iterator[Path | None]:
    """Yield the paths of all templates of pods in an object; None at last if it is too large."""
    left: list[tuple[Path, Json]] = [((), wrapped)]
    for _ in range(_MOST_PARTS):
        if not left:
            return
        path, part = left.pop()
        if isinstance(part, dict):
            spec = part.get("spec")
            if isinstance(spec, dict) and isinstance(spec.get("containers"), list):
                yield path
            left += (((*path, key), each) for key, each in part.items())
        elif isinstance(part, list):
            left += (((*path, number), each) for number, each in enumerate(part))
    yield None


def _written(path: Path) -> str:
    steps = (f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)
    return f"template{''.join(steps)}"


def _whole(job: AppWrapper, _given: Sequence[Json]) -> list[Json]:
    return [part.whole for _, _, part in _all(job)]


APP_WRAPPER = JobKind(
    group=GROUP,
    version="v1beta2",
    plural="appwrappers",
    kind="AppWrapper",
    type=AppWrapper,
    pod_sets=_pod_sets,
    templates=lambda job: tuple(where for _, where, _ in _all(job)),
    annotation_paths=lambda job: [
        f"{'.'.join(map(str, place))}.metadata.annotations" for place, _, _ in _all(job)
    ],
    moved={
        ("metadata", "labels"): ("labels",),
        ("metadata", "annotations"): ("annotations",),
        ("spec", "nodeSelector"): ("nodeSelector",),
        ("spec", "tolerations"): ("tolerations",),
        ("spec", "schedulingGates"): ("schedulingGates",),
    },
    whole=_whole,
    prepare=_prepare,
    clear=clear,
    suspended=lambda job: job.spec.suspend,
    active=lambda job: condition_true(job.status.conditions, "QuotaReserved"),
    outcome=_outcome,
    ready=lambda job: condition_true(job.status.conditions, "PodsReady"),
    reclaimable=lambda _job: (),
    mistakes=_mistakes,
)
