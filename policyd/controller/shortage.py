"""Who holds what a workload waits for, in words that people know their jobs by."""

from collections.abc import Sequence

from policyd.api.kueue import Workload
from policyd.api.kueue.names import IS_GROUP_WORKLOAD
from policyd.api.meta import ObjectMeta
from policyd.controller.mirror import Mirror
from policyd.jobs.base import controller_of
from policyd.status.quantities import format_amount
from policyd.status.shortages import Holder, Shortage, and_others


def held_by(shortages: Sequence[Shortage], workloads: Mirror[Workload]) -> str:
    """Return what to add to Kueue's message: who holds what is missing; empty if nobody does."""
    parts = []
    for shortage in shortages:
        if shortage.holders:
            resource = shortage.missing.resource
            holders = ", ".join(_holder(h, resource, workloads) for h in shortage.holders)
            parts.append((resource, holders + and_others(shortage.others)))
    if not parts:
        return ""
    if len(parts) == 1:
        return f"; held by {parts[0][1]}"
    return "".join(f"; {resource} held by {holders}" for resource, holders in parts)


def _holder(holder: Holder, resource: str, workloads: Mirror[Workload]) -> str:
    workload = workloads.get(holder.workload)
    name = holder.workload if workload is None else job_path(workload.metadata)
    return f"{name} ({format_amount(resource, holder.amount)})"


def job_path(workload: ObjectMeta) -> str:
    """Return `namespace/name` of the job that a workload stands for, or of the workload itself."""
    if workload.annotations.get(IS_GROUP_WORKLOAD) == "true":
        return workload.key
    owner = controller_of(workload)
    return f"{workload.namespace}/{owner.name if owner else workload.name}"
