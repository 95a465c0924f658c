"""The changes to a job's pods when it is admitted, and their removal.

Pods are sent to the nodes of their flavor by labels that they select and taints that they tolerate.
Existing entries are kept; a key that exists with another value is an error, as one of the two
would be ignored.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

import msgspec
from msgspec.structs import replace

from policyd.alloc.settings import DEFAULTS, Gates
from policyd.api.kueue import (
    Admission,
    AdmissionCheckState,
    PodSet,
    PodSetAssignment,
    PodSetUpdate,
    ResourceFlavor,
    TopologyRequest,
    Workload,
)
from policyd.api.kueue.names import (
    POD_SET,
    PODSET_UNCONSTRAINED_TOPOLOGY,
    SLICE_NAME,
    TOPOLOGY_GATE,
    WORKLOAD,
)
from policyd.api.meta import Json
from policyd.api.pods import PodTemplate, Toleration
from policyd.errors import PolicydError
from policyd.jobs.base import J, JobKind
from policyd.jobs.gangs.hand_over import mark
from policyd.jobs.gangs.schedulers import GangMetadata
from policyd.jobs.topology import asks_for_topology
from policyd.jobs.workload import is_elastic, slice_name
from policyd.patch.draft import Draft
from policyd.patch.operations import Path

LOCAL_QUEUE_LABEL = "kueue.x-k8s.io/local-queue-name"
CLUSTER_QUEUE_LABEL = "kueue.x-k8s.io/cluster-queue-name"
LONGEST_DNS_LABEL = 63

CONSUMES = "autoscaling.x-k8s.io/consume-provisioning-request"
CLASS_NAME = "autoscaling.x-k8s.io/provisioning-class-name"
_OF_SLICE = (SLICE_NAME, WORKLOAD, CONSUMES, CLASS_NAME)
"""Annotations that pods have of the slice that was there when their template was written."""


RESTORED: Final = (
    ("metadata", "labels"),
    ("metadata", "annotations"),
    ("spec", "nodeSelector"),
    ("spec", "tolerations"),
    ("spec", "schedulingGates"),
)
"""The fields that a start may change in a template, and a stop restores."""
_NOT_MOVED: Final[Mapping[Path, Path]] = MappingProxyType({})


class StartError(PolicydError):
    """A job can never be started as it was admitted: its own values contradict its assignment."""


class FlavorMissingError(PolicydError):
    """A flavor that a workload was given is not there, or not yet."""


@dataclass(slots=True)
class PodInjection:
    """The changes to the pods of one pod set; those of a slice get its name again."""

    labels: dict[str, str] = field(default_factory=dict)
    annotations: dict[str, str] = field(default_factory=dict)
    node_selector: dict[str, str] = field(default_factory=dict)
    tolerations: list[Toleration] = field(default_factory=list)
    gates: list[str] = field(default_factory=list)
    renews: bool = False
    marks: GangMetadata = field(default_factory=GangMetadata)
    """The labels that name their gang to another scheduler."""


def injections(
    workload: Workload, flavors: Mapping[str, ResourceFlavor], gates: Gates = DEFAULTS.gates
) -> tuple[PodInjection, ...]:
    """Return the changes to the pods of each pod set, in the order of the pod sets.

    Args:
        workload: The workload, with quota.
        flavors: The existing ones, by name.
        gates: Whether pods are labelled with their queues, and their workload.

    Raises:
        FlavorMissingError: If an assigned flavor is not among `flavors`.
        StartError: If two admission checks contradict each other.
    """
    admission = workload.status.admission
    assert admission is not None, "a job is started when its workload is admitted"
    assigned = {each.name: each for each in admission.pod_set_assignments}
    if not gates.topology_aware_scheduling:
        assigned = {n: replace(each, topology_assignment=None) for n, each in assigned.items()}
    names = {WORKLOAD: workload.metadata.name} if gates.topology_aware_scheduling else {}
    sliced = gates.elastic_jobs_via_workload_slices and is_elastic(workload.metadata)
    if sliced:
        names[SLICE_NAME] = slice_name(workload)
    queues = _queues(workload, admission) if gates.assign_queue_labels_for_pods else {}
    return tuple(
        _filled(
            PodInjection(
                labels={POD_SET: pod_set.name, **queues}, annotations=dict(names), renews=sliced
            ),
            workload,
            pod_set,
            assigned.get(pod_set.name, PodSetAssignment()),
            flavors,
        )
        for pod_set in workload.spec.pod_sets
    )


def _filled(
    injection: PodInjection,
    workload: Workload,
    pod_set: PodSet,
    assigned: PodSetAssignment,
    flavors: Mapping[str, ResourceFlavor],
) -> PodInjection:
    if assigned.topology_assignment is not None:
        _hold_for_place(injection, pod_set)
    for name in dict.fromkeys(assigned.flavors.values()):
        flavor = flavors.get(name)
        if flavor is None:
            raise FlavorMissingError(f"the flavor `{name}` is not found")
        _merge(injection.node_selector, flavor.spec.node_labels, "nodeSelector")
        _add_tolerations(injection, flavor.spec.tolerations)
    for check in workload.status.admission_checks:
        for update in check.pod_set_updates:
            if check.state == "Ready" and update.name == pod_set.name:
                _add_update(injection, check, update)
    return injection


def _hold_for_place(injection: PodInjection, pod_set: PodSet) -> None:
    """Let pods wait until each has its place; those that asked for none say that they have one."""
    injection.gates.append(TOPOLOGY_GATE)
    asked = pod_set.topology_request or TopologyRequest()
    by_request = asked.required or asked.preferred or asked.unconstrained
    if not (by_request or asks_for_topology(pod_set.template.metadata.annotations)):
        injection.annotations[PODSET_UNCONSTRAINED_TOPOLOGY] = "true"


def _queues(workload: Workload, admission: Admission) -> dict[str, str]:
    labels = {LOCAL_QUEUE_LABEL: workload.spec.queue_name}
    if _is_label(admission.cluster_queue):
        labels[CLUSTER_QUEUE_LABEL] = admission.cluster_queue
    return labels


def _is_label(name: str) -> bool:
    return 0 < len(name) <= LONGEST_DNS_LABEL and "." not in name


def _add_update(injection: PodInjection, check: AdmissionCheckState, update: PodSetUpdate) -> None:
    what = f'in admission check "{check.name}": invalid admission check PodSetUpdate: conflict for '
    _merge(injection.labels, update.labels, "labels", what)
    _merge(injection.annotations, update.annotations, "annotations", what)
    _merge(injection.node_selector, update.node_selector, "nodeSelector", what)
    _add_tolerations(injection, update.tolerations)


def _add_tolerations(injection: PodInjection, tolerations: Sequence[Toleration]) -> None:
    for toleration in tolerations:
        if toleration not in injection.tolerations:
            injection.tolerations.append(toleration)


def _merge(
    into: dict[str, str], more: Mapping[str, str], field_name: str, what: str = "conflict for "
) -> None:
    for key, value in more.items():
        if into.setdefault(key, value) != value:
            raise StartError(
                f"{what}{field_name}: conflict for key={key}, value1={into[key]}, value2={value}"
            )


def inject(
    draft: Draft, path: Path, injection: PodInjection, moved: Mapping[Path, Path] = _NOT_MOVED
) -> None:
    """Give the pod template, or the pod, at `path` the assignment of its pod set.

    Args:
        draft: The object.
        path: Of the template; empty if the object is a pod.
        injection: The changes.
        moved: Fields that are elsewhere, as in `JobKind`.

    Raises:
        StartError: If it says something else already.
    """
    labels, annotations, selector, where, gates = (
        (*path, *moved.get(field, field)) for field in RESTORED
    )
    _set_keys(draft, labels, injection.labels)
    for name in _OF_SLICE if injection.renews else ():
        draft.remove((*annotations, name))
    _set_keys(draft, annotations, injection.annotations)
    _set_keys(draft, selector, injection.node_selector)
    given = msgspec.convert(draft.get(where) or [], list[Toleration])
    present = {_written_out(each) for each in given}
    for toleration in injection.tolerations:
        if _written_out(toleration) not in present:
            draft.append(where, msgspec.to_builtins(toleration))
    for gate in injection.gates:
        _add_gate(draft, gates, gate)
    mark(draft, labels, annotations, injection.marks)


def _written_out(toleration: Toleration) -> Toleration:
    return replace(toleration, operator=toleration.operator or "Equal")


def add_gate(draft: Draft, path: Path, name: str) -> None:
    """Hold the pods of the template, or the pod, at `path` by one more scheduling gate."""
    _add_gate(draft, (*path, "spec", "schedulingGates"), name)


def _add_gate(draft: Draft, where: Path, name: str) -> None:
    if not any(gate.get("name") == name for gate in draft.get(where) or []):
        draft.append(where, {"name": name})


def _set_keys(draft: Draft, path: Path, values: Mapping[str, str]) -> None:
    for key, value in values.items():
        present = draft.get((*path, key))
        if present is not None and present != value:
            raise StartError(
                "invalid admission check PodSetUpdate: conflict for "
                f"{path[-1]}: conflict for key={key}, value1={present}, value2={value}"
            )
        draft.set((*path, key), value)


OF_JOBS = frozenset(
    f"{prefix}{name}"
    for prefix in ("", "batch.kubernetes.io/")
    for name in ("controller-uid", "job-name")
)
"""Labels that the API server gives the template of a Job, and that its selector uses."""


def restore(
    draft: Draft, path: Path, pod_set: PodSet, moved: Mapping[Path, Path] = _NOT_MOVED
) -> None:
    """Restore the template at `path` from the workload.

    A prebuilt workload does not have the defaults that the API server has added.
    """
    original = _plain(pod_set.template)
    given: Json = {"metadata": {}, "spec": {}}
    for section, name in RESTORED:
        value = draft.get((*path, *moved.get((section, name), (section, name))))
        if value is not None:
            given[section][name] = value
    present = _plain(msgspec.convert(given, PodTemplate))
    labels = present.get("metadata", {}).get("labels", {})
    kept = {name: text for name, text in labels.items() if name in OF_JOBS}
    if kept:
        metadata = original.setdefault("metadata", {})
        metadata["labels"] = {**metadata.get("labels", {}), **kept}
    for section, name in RESTORED:
        value = original.get(section, {}).get(name)
        if value == present.get(section, {}).get(name):
            continue
        where = (*path, *moved.get((section, name), (section, name)))
        if value:
            draft.set(where, value)
        else:
            draft.remove(where)


def _plain(template: PodTemplate) -> Json:
    return msgspec.json.decode(msgspec.json.encode(template))


def start(
    draft: Draft,
    job: J,
    *,
    kind: JobKind[J],
    given: Sequence[PodInjection],
    counts: Mapping[str, int],
) -> None:
    """Send the pods that a job will have to where they were given room.

    Args:
        draft: The job.
        job: The same, as its kind reads it.
        kind: Its kind.
        given: The changes to the pods of each pod set.
        counts: How many pods of each pod set have quota, by its name.

    Raises:
        StartError: If the job says something else already, or has other pod sets.
    """
    paths = kind.templates(job)
    if len(paths) != len(given):
        raise StartError(f"the job has {len(paths)} pod sets, its workload {len(given)}")
    kind.prepare(draft, job)
    for path, injection in zip(paths, given, strict=True):
        inject(draft, path, injection, kind.moved)
    if counts:
        kind.resize(draft, list(counts.values()))
    kind.settle(draft)


def put_back(draft: Draft, job: J, *, kind: JobKind[J], pod_sets: Sequence[PodSet]) -> None:
    """Restore the templates of a job from its workload.

    Args:
        draft: The job.
        job: The same, as its kind reads it.
        kind: Its kind.
        pod_sets: Of the workload; if they are others than the job's, all stays as it is.
    """
    if kind.clear is not None:
        kind.clear(draft)
        return
    paths = kind.templates(job)
    if len(paths) != len(pod_sets):
        return
    for path, pod_set in zip(paths, pod_sets, strict=True):
        restore(draft, path, pod_set, kind.moved)
    if pod_sets:
        kind.resize(draft, [each.count for each in pod_sets])
    kind.settle(draft)
