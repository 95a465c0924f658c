"""The priority that a workload has by its WorkloadPriorityClass."""

from collections.abc import Callable

from policyd.api.kueue import Workload, WorkloadPriorityClass


def new_class_value(
    workload: Workload, find: Callable[[str], WorkloadPriorityClass | None]
) -> int | None:
    """Return the value of a workload's class, if its priority is another; else None.

    Args:
        workload: The workload.
        find: Finds a WorkloadPriorityClass by its name.
    """
    reference = workload.spec.priority_class_ref
    if reference is None or reference.kind != "WorkloadPriorityClass":
        return None
    named = find(reference.name)
    if named is None or named.value == (workload.spec.priority or 0):
        return None
    return named.value
