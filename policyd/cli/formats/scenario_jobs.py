"""Jobs in the file of a simulation: they queue as they do in a cluster, where a Workload is made.

Kinds that are suspended are simulated. Pods, and what makes pods of its own, are distinguished
from them, since only a cluster makes the groups that they queue in.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec

from policyd.api import kueue
from policyd.api.kueue.v1beta1 import KINDS
from policyd.api.meta import Json, ObjectMeta, OwnerReference
from policyd.api.names import RUN_FOR
from policyd.controller.watch.mirrors import PriorityClass
from policyd.engine.objects.workloads import value_at
from policyd.errors import PolicydError
from policyd.jobs.base import JobKind, JobObject, prebuilt_name, queue_name
from policyd.jobs.copied import CopiedKeys
from policyd.jobs.kinds.registry import find_kind, find_parent, kind_of_owner
from policyd.jobs.workload import Priority, new_workload
from policyd.status.naming import Names

_POD: Final = ("", "Pod")
_CRON_JOB: Final = ("batch", "CronJob")


class SkippedJobs:
    """The objects that are not simulated, by reason; each reason is reported once, with a count."""

    def __init__(self, names: Names) -> None:
        self._names = names
        self._why: dict[str, list[str]] = {}

    def note(self, kind: str, key: str, why: str) -> None:
        """Take note of an object."""
        naming = self._names.to(key)
        name = f"{kind} {key}" if naming.names(key) else naming.one(key)
        self._why.setdefault(why, []).append(name)

    @property
    def sentences(self) -> Iterator[str]:
        """The warnings."""
        for why, names in self._why.items():
            more = f" and {len(names) - 1} more" if len(names) > 1 else ""
            yield f"{names[0]}{more}: not simulated: {why}"


def job_workloads(
    objects: Iterable[Mapping[str, Json]],
    workloads: Iterable[kueue.Workload],
    left_out: SkippedJobs,
    *,
    past: bool = False,
) -> Iterator[kueue.Workload]:
    """Yield the workloads of jobs that have none among the objects.

    Args:
        objects: All objects of the scenario.
        workloads: The workloads among them.
        left_out: Collects the jobs that are not simulated.
        past: Whether jobs count that have finished, or that name no queue.
    """
    objects = list(objects)
    stored = {
        (owner.kind, each.metadata.namespace, owner.name)
        for each in workloads
        for owner in each.metadata.owner_references
    }
    classes = _Classes(objects)
    for each in objects:
        metadata = value_at(each, ("metadata",))
        if not isinstance(metadata, dict):
            continue
        namespace, name = metadata.get("namespace") or "default", metadata.get("name")
        if (each["kind"], str(namespace), str(name)) not in stored:
            yield from _workload(each, classes, left_out, past=past)


def _workload(
    given: Mapping[str, Json], classes: "_Classes", left_out: SkippedJobs, *, past: bool
) -> Iterator[kueue.Workload]:
    group = str(given.get("apiVersion", "")).rpartition("/")[0]
    found = find_kind(group, given["kind"])
    if found is None:
        _note_held(given, group, left_out)
        return
    key = "/".join(
        str(value_at(given, ("metadata", each)) or "default") for each in ("namespace", "name")
    )
    try:
        job: JobObject = msgspec.convert(given, found.type)
        why = _why_not(found, job, past=past)
        if why is not None:
            if why:
                left_out.note(found.kind, key, why)
            return
        yield _made(found, job, classes)
    except (msgspec.ValidationError, PolicydError, ValueError) as error:
        left_out.note(found.kind, key, str(error))


def _note_held(given: Mapping[str, Json], group: str, left_out: SkippedJobs) -> None:
    """Note what names a queue and is not simulated, and what is of no kind that Kueue has."""
    kind = str(given["kind"])
    cron = (group, kind) == _CRON_JOB
    about = value_at(given, ("spec", "jobTemplate", "metadata") if cron else ("metadata",))
    try:
        metadata = msgspec.convert(given.get("metadata"), ObjectMeta)
        queue = queue_name(msgspec.convert(about or {}, ObjectMeta))
    except msgspec.ValidationError:
        return
    if group == kueue.names.GROUP:
        why = "" if kind in KINDS else "Kueue has no such kind"
    elif not queue or metadata.owner_references:
        why = ""
    elif cron:
        why = "its Jobs are made in a cluster"
    elif (group, kind) == _POD or find_parent(group, kind) is not None:
        why = "the Workloads of pods and their groups are made in a cluster"
    else:
        why = "no job of this kind can be in a queue here"
    if why:
        left_out.note(kind, f"{metadata.namespace or 'default'}/{metadata.name}", why)


def _why_not(kind: JobKind[Any], job: JobObject, *, past: bool) -> str | None:
    """Return why a job has no workload of its own; empty if there is nothing to tell."""
    metadata = job.metadata
    if (kind.outcome(job) is not None and not past) or kind.ignored(job):
        return ""
    if any(kind_of_owner(owner) is not None for owner in metadata.owner_references):
        return ""
    if prebuilt_name(metadata):
        return "it names a prebuilt workload"
    return None if past or queue_name(metadata) else "it names no queue"


def _made(kind: JobKind[Any], job: JobObject, classes: "_Classes") -> kueue.Workload:
    namespace = job.metadata.namespace or "default"
    metadata = msgspec.structs.replace(job.metadata, namespace=namespace)
    pod_sets = kind.pod_sets(job)
    owner = OwnerReference(
        api_version=kind.api_version,
        kind=kind.kind,
        name=metadata.name,
        uid=metadata.uid or f"{namespace}/{metadata.name}",
        controller=True,
    )
    made = new_workload(
        metadata,
        owner=owner,
        pod_sets=pod_sets,
        priority=classes.priority(metadata, pod_sets, kind.priority_class(job)),
    )
    copied = CopiedKeys().of(metadata)
    own = {k: text for k, text in metadata.annotations.items() if k.startswith("policyd.io/")}
    runs = (each.template.metadata.annotations.get(RUN_FOR) for each in pod_sets)
    run_for = next((text for text in runs if text is not None), None)
    about = {**copied.annotations, **({} if run_for is None else {RUN_FOR: run_for}), **own}
    whole = msgspec.structs.replace(
        made.metadata, annotations=about, creation_timestamp=metadata.creation_timestamp
    )
    return msgspec.structs.replace(made, metadata=whole)


class _Classes:
    """The priority classes of a scenario."""

    def __init__(self, objects: Iterable[Mapping[str, Json]]) -> None:
        self._own: dict[str, int] = {}
        self._of_pods: dict[str, PriorityClass] = {}
        for each in objects:
            if each["kind"] in ("WorkloadPriorityClass", "PriorityClass"):
                found = msgspec.convert(each, PriorityClass)
                if each["kind"] == "PriorityClass":
                    self._of_pods[found.metadata.name] = found
                else:
                    self._own[found.metadata.name] = found.value

    def priority(self, job: ObjectMeta, pod_sets: Iterable[kueue.PodSet], named: str) -> Priority:
        """Return the priority of a job.

        Raises:
            PolicydError: If it names a class that is not there.
        """
        label = job.labels.get(kueue.names.PRIORITY_CLASS)
        if label:
            if label not in self._own:
                raise PolicydError(f"WorkloadPriorityClass `{label}` not found")
            return Priority(value=self._own[label])
        for name in (named, *(each.template.spec.priority_class_name for each in pod_sets)):
            if name:
                if name not in self._of_pods:
                    raise PolicydError(f"PriorityClass `{name}` not found")
                return Priority(value=self._of_pods[name].value)
        default = [each.value for each in self._of_pods.values() if each.global_default]
        return Priority(value=min(default, default=0))
