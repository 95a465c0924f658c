"""How important a job is: its WorkloadPriorityClass, else the priority class of its pods."""

from collections.abc import Sequence

from policyd.api.kueue import PodSet, PriorityClassReference
from policyd.api.kueue.names import PRIORITY_CLASS
from policyd.api.meta import ObjectMeta
from policyd.controller.mirrors import Mirrors
from policyd.errors import PolicydError
from policyd.jobs.workload import Priority


class PriorityClassMissingError(PolicydError):
    """A job names a WorkloadPriorityClass that does not exist."""


def priority_of(job: ObjectMeta, pod_sets: Sequence[PodSet], mirrors: Mirrors) -> Priority:
    """Return the priority of a job.

    Args:
        job: The job's metadata.
        pod_sets: What it demands.
        mirrors: Where the classes are.

    Raises:
        PriorityClassMissingError: If the job names a WorkloadPriorityClass that is not there.
    """
    named = job.labels.get(PRIORITY_CLASS)
    if named:
        own = mirrors.priorities.get(named)
        if own is None:
            raise PriorityClassMissingError(f'WorkloadPriorityClass "{named}" not found')
        reference = PriorityClassReference("kueue.x-k8s.io", "WorkloadPriorityClass", named)
        return Priority(value=own.value, reference=reference)
    for pod_set in pod_sets:
        name = pod_set.template.spec.priority_class_name
        if name:
            return _of_pods(name, mirrors)
    defaults = [c for c in mirrors.priority_classes if c.global_default]
    if not defaults:
        return Priority()
    lowest = min(defaults, key=lambda each: (each.value, each.metadata.name))
    return _of_pods(lowest.metadata.name, mirrors)


def _of_pods(name: str, mirrors: Mirrors) -> Priority:
    found = mirrors.priority_classes.get(name)
    reference = PriorityClassReference("scheduling.k8s.io", "PriorityClass", name)
    return Priority(value=0 if found is None else found.value, reference=reference)
