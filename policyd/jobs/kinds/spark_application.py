"""sparkoperator.k8s.io/v1beta2 SparkApplication: a driver, and the executors that it asks for."""

from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec

from policyd.api.kueue import PodSet
from policyd.api.kueue.names import ELASTIC_JOB
from policyd.api.kueue.validation import FieldError
from policyd.api.meta import Json, Wire
from policyd.api.pods import PodTemplate
from policyd.jobs.base import JobKind, JobObject, JobOutcome
from policyd.jobs.kinds.spark_pods import (
    AT_FIRST,
    INSTANCES,
    LEAST,
    SparkRole,
    conf_mistakes,
    number_in,
    number_mistakes,
    role_mistakes,
    template_of,
)
from policyd.jobs.topology import topology_request
from policyd.patch.draft import Draft

ELASTIC_EXECUTORS: Final = "policyd.io/elastic-executors"
"""Annotation of an application: quota is held for the most executors that it may have."""
_ROLES: Final = ("driver", "executor")
_OF_SPARK: Final = 2
"""The executors that Spark makes where nothing says how many."""
_WITH_PODS: Final = frozenset(
    {"SUBMITTED", "RUNNING", "SUCCEEDING", "FAILING", "INVALIDATING", "SUSPENDING"}
)
_FAILED: Final = frozenset({"FAILED", "SUBMISSION_FAILED"})
_UP: Final = frozenset({"RUNNING", "COMPLETED"})


class DynamicAllocation(Wire, frozen=True):
    """Whether the driver changes the number of executors, and between which bounds."""

    enabled: bool = False
    initial_executors: int | None = None
    min_executors: int | None = None
    max_executors: int | None = None


class SparkApplicationSpec(Wire, frozen=True):
    """The spec of an application."""

    suspend: bool = False
    mode: str = ""
    main_application_file: str | None = None
    arguments: tuple[str, ...] = ()
    node_selector: dict[str, str] = {}
    spark_conf: dict[str, str] = {}
    volumes: tuple[dict[str, Any], ...] = ()
    driver: SparkRole = SparkRole()
    executor: SparkRole = SparkRole()
    dynamic_allocation: DynamicAllocation | None = None


class ApplicationState(Wire, frozen=True):
    """The state that the operator reports."""

    state: str = ""
    error_message: str = ""


class SparkApplicationStatus(Wire, frozen=True):
    """How far an application has come."""

    application_state: ApplicationState = ApplicationState()
    executor_state: dict[str, str] = {}


class SparkApplication(JobObject, frozen=True):
    """A SparkApplication, trimmed to the fields that the queue reads."""

    spec: SparkApplicationSpec = SparkApplicationSpec()
    status: SparkApplicationStatus = SparkApplicationStatus()


def _state(job: SparkApplication) -> str:
    return job.status.application_state.state


def _bounds(job: SparkApplication) -> DynamicAllocation:
    return job.spec.dynamic_allocation or DynamicAllocation()


def _executors(job: SparkApplication) -> int:
    """Return the number of executors that quota is requested for: the most, if it changes."""
    bounds, conf = _bounds(job), job.spec.spark_conf
    given = job.spec.executor.instances
    if given is None:
        given = number_in(conf, INSTANCES)
    if not bounds.enabled:
        return _OF_SPARK if given is None else max(given, 0)
    # Spark begins with the largest of these numbers, even if it is above the most.
    first, least = bounds.initial_executors, bounds.min_executors
    first = number_in(conf, AT_FIRST) if first is None else first
    least = number_in(conf, LEAST) if least is None else least
    return max(bounds.max_executors or 0, given or 0, first or 0, least or 0)


def _whole(job: SparkApplication, _given: Sequence[Json]) -> list[Json]:
    spec = job.spec
    templates = [template_of(getattr(spec, r), r, spec.spark_conf, spec.volumes) for r in _ROLES]
    for template in templates if spec.node_selector else ():
        own = template["spec"].get("nodeSelector") or {}
        template["spec"]["nodeSelector"] = {**spec.node_selector, **own}
    return templates


def _pod_sets(job: SparkApplication) -> tuple[PodSet, ...]:
    templates = msgspec.convert(_whole(job, ()), list[PodTemplate])
    return tuple(
        PodSet(
            name=name,
            template=template,
            count=count,
            topology_request=topology_request(template.metadata.annotations),
        )
        for name, template, count in zip(_ROLES, templates, (1, _executors(job)), strict=True)
    )


def _prepare(draft: Draft, job: SparkApplication) -> None:
    """Move the nodes of the application into its roles: the operator takes only one of both."""
    if not job.spec.node_selector:
        return
    for role in _ROLES:
        for key, value in job.spec.node_selector.items():
            if draft.get(("spec", role, "nodeSelector", key)) is None:
                draft.set(("spec", role, "nodeSelector", key), value)
    draft.remove(("spec", "nodeSelector"))


def _settle(draft: Draft) -> None:
    """Name the container in templates that have none: the operator asks for it."""
    for role in _ROLES:
        where = ("spec", role, "template", "spec")
        if draft.get(where) and not draft.get((*where, "containers")):
            draft.set((*where, "containers"), [{"name": f"spark-kubernetes-{role}"}])


def _resize(draft: Draft, counts: Sequence[int]) -> None:
    if draft.get(("spec", "executor", "instances")) is not None and not draft.get(
        ("spec", "dynamicAllocation", "enabled")
    ):
        draft.set(("spec", "executor", "instances"), counts[-1])


def _ready(job: SparkApplication) -> bool:
    least = _bounds(job).min_executors or 0 if _bounds(job).enabled else _executors(job)
    up = sum(each in _UP for each in job.status.executor_state.values())
    return _state(job) == "RUNNING" and up >= least


def _outcome(job: SparkApplication) -> JobOutcome | None:
    state, message = _state(job), job.status.application_state.error_message
    if state == "COMPLETED":
        return JobOutcome(succeeded=True, message=message or "the application has completed")
    if state not in _FAILED:
        return None
    return JobOutcome(succeeded=False, message=message or "the application has failed")


def _mistakes(job: SparkApplication, _old: SparkApplication | None) -> Iterator[FieldError]:
    spec, annotations = job.spec, job.metadata.annotations
    if spec.mode not in {"", "cluster"}:
        yield FieldError("spec.mode", spec.mode, "a queued application must have `mode: cluster`")
    bounds = _bounds(job)
    if bounds.enabled and annotations.get(ELASTIC_EXECUTORS) == "true":
        if bounds.max_executors is None:
            where, detail = "spec.dynamicAllocation.maxExecutors", "quota is held for this many"
            yield FieldError(where, None, detail, "Required")
    elif bounds.enabled and annotations.get(ELASTIC_JOB) != "true":
        detail = f"quota for the most executors is held only with {ELASTIC_EXECUTORS}: true"
        yield FieldError("spec.dynamicAllocation.enabled", bounds.enabled, detail)
    for name in _ROLES:
        yield from role_mistakes(getattr(spec, name), name, spec.spark_conf)
    yield from number_mistakes(spec.spark_conf, _numbers(job))
    yield from conf_mistakes(spec.spark_conf)
    yield from _options(spec)


def _numbers(job: SparkApplication) -> Iterator[str]:
    """Yield the settings with a number of executors that Spark reads."""
    bounds = _bounds(job)
    for key, field, read in (
        (INSTANCES, job.spec.executor.instances, True),
        (AT_FIRST, bounds.initial_executors, bounds.enabled),
        (LEAST, bounds.min_executors, bounds.enabled),
    ):
        if field is None and read:
            yield key


def _options(spec: SparkApplicationSpec) -> Iterator[FieldError]:
    """Yield that `spark-submit` would read options and settings in place of the program."""
    where, program = "spec.mainApplicationFile", spec.main_application_file
    if program is None and spec.arguments:
        where, program = "spec.arguments[0]", spec.arguments[0]
    if program is not None and program.startswith("-"):
        detail = "`spark-submit` would read it as an option, and settings after it"
        yield FieldError(where, program, detail)


SPARK_APPLICATION = JobKind(
    group="sparkoperator.k8s.io",
    version="v1beta2",
    plural="sparkapplications",
    kind="SparkApplication",
    type=SparkApplication,
    pod_sets=_pod_sets,
    templates=lambda _job: tuple(("spec", role) for role in _ROLES),
    annotation_paths=lambda _job: [f"spec.{role}.annotations" for role in _ROLES],
    moved={
        ("metadata", "labels"): ("labels",),
        ("metadata", "annotations"): ("annotations",),
        ("spec", "nodeSelector"): ("nodeSelector",),
        ("spec", "tolerations"): ("tolerations",),
        ("spec", "schedulingGates"): ("template", "spec", "schedulingGates"),
    },
    whole=_whole,
    prepare=_prepare,
    settle=_settle,
    resize=_resize,
    suspended=lambda job: job.spec.suspend,
    active=lambda job: _state(job) in _WITH_PODS,
    outcome=_outcome,
    ready=_ready,
    reclaimable=lambda _job: (),
    mistakes=_mistakes,
    only_managed=True,
    takes_prebuilt=False,
)
