"""The priority of a job: its WorkloadPriorityClass, else the priority class of its pods."""

import re
from collections.abc import Sequence
from typing import Final

from policyd.alloc.settings import Gates
from policyd.api.kueue import PodSet, PriorityClassReference, Workload
from policyd.api.kueue.names import PRIORITY_BOOST, PRIORITY_CLASS
from policyd.api.meta import Json, ObjectMeta
from policyd.controller.patches import merge_patch
from policyd.controller.watch.mirrors import Mirrors
from policyd.errors import PolicydError
from policyd.jobs.workload import Priority
from policyd.workload.class_priority import new_class_value

_INTEGER: Final = re.compile(r"[+-]?[0-9]+", re.ASCII)
_INT32: Final = range(-(2**31), 2**31)


class PriorityClassMissingError(PolicydError):
    """A job names a priority class that does not exist; `kind` says of which kind."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


class PriorityBoostError(PolicydError):
    """A workload's boost is not a whole number of 32 bits."""


def priority_of(
    job: ObjectMeta, pod_sets: Sequence[PodSet], mirrors: Mirrors, *, named: str = ""
) -> Priority:
    """Return the priority of a job.

    Args:
        job: The job's metadata.
        pod_sets: Its pod sets.
        mirrors: Where the classes are.
        named: PriorityClass that the job itself names; it comes before those of its pods.

    Raises:
        PriorityClassMissingError: If the job or its pods name a class that is not there.
    """
    label = job.labels.get(PRIORITY_CLASS)
    if label:
        own = mirrors.priorities.get(label)
        if own is None:
            message = f'WorkloadPriorityClass "{label}" not found'
            raise PriorityClassMissingError("WorkloadPriorityClass", message)
        reference = PriorityClassReference("kueue.x-k8s.io", "WorkloadPriorityClass", label)
        return Priority(value=own.value, reference=reference)
    for name in (named, *(each.template.spec.priority_class_name for each in pod_sets)):
        if name:
            return _of_pods(name, mirrors)
    defaults = [c for c in mirrors.priority_classes if c.global_default]
    if not defaults:
        return Priority()
    lowest = min(defaults, key=lambda each: (each.value, each.metadata.name))
    return _of_pods(lowest.metadata.name, mirrors)


def class_change(workload: Workload, mirrors: Mirrors) -> Json:
    """Return the patch that gives a workload the value its class has now; None if it has it."""
    value = new_class_value(workload, mirrors.priorities.get)
    return None if value is None else merge_patch(workload.metadata, spec={"priority": value})


def _of_pods(name: str, mirrors: Mirrors) -> Priority:
    found = mirrors.priority_classes.get(name)
    if found is None:
        message = f'priorityclasses.scheduling.k8s.io "{name}" not found'
        raise PriorityClassMissingError("PriorityClass", message)
    reference = PriorityClassReference("scheduling.k8s.io", "PriorityClass", name)
    return Priority(value=found.value, reference=reference)


def priority_boost(workload: Workload, gates: Gates) -> int:
    """Return the boost of a workload's priority by annotation; 0 without the feature gate.

    Raises:
        PriorityBoostError: If it is not a whole number of 32 bits.
    """
    written = workload.metadata.annotations.get(PRIORITY_BOOST, "")
    if not gates.priority_boost or not written:
        return 0
    if not _INTEGER.fullmatch(written) or int(written) not in _INT32:
        raise PriorityBoostError(f"`{written}` is not a whole number of 32 bits")
    return int(written)


def effective_priority(workload: Workload, gates: Gates) -> int:
    """Return the priority by which a workload is ordered; an invalid boost counts 0."""
    try:
        boost = priority_boost(workload, gates)
    except PriorityBoostError:
        boost = 0
    return (workload.spec.priority or 0) + boost
