"""Follow the cluster: a line for each event, and a summary."""

import asyncio
from collections import Counter
from collections.abc import Iterable
from typing import NoReturn

from rich.console import Console
from rich.status import Status

from policyd.api.kueue import Workload
from policyd.api.kueue.names import ADMITTED, EVICTED, FINISHED, QUOTA_RESERVED
from policyd.api.meta import Condition, condition_true, find_condition
from policyd.api.pod_requests import pod_requests
from policyd.controller.reasons.shortage import job_path
from policyd.jobs.pods import QueuedPod, has_ended
from policyd.kube.changes import Added, Change, Deleted, Modified
from policyd.kube.client import Reader
from policyd.kube.informer import Informer
from policyd.kube.resources import PODS, WORKLOADS
from policyd.terminal import without_controls

GPU = "nvidia.com/gpu"


def describe_change(change: Change[Workload]) -> str | None:
    """Describe a change of a workload in one line; None if it is not worth one."""
    match change:
        case Modified(old, new):
            return _describe(new, old.status.conditions)
        case Added(new):
            return _describe(new, ())
        case Deleted():
            return None


def _describe(new: Workload, before: tuple[Condition, ...]) -> str | None:
    job = job_path(new.metadata)
    for kind, verb in ((FINISHED, "finished"), (EVICTED, "evicted"), (ADMITTED, "admitted")):
        if condition_true(new.status.conditions, kind):
            known = condition_true(before, kind)
            return None if known else f"{job} {verb}{_because(new, kind)}"
    reserved = find_condition(new.status.conditions, QUOTA_RESERVED)
    if reserved is None or reserved.status == "True":
        return None
    earlier = find_condition(before, QUOTA_RESERVED)
    if earlier is not None and earlier.message == reserved.message:
        return None
    return f"{job} waits: {reserved.message}"


def _because(workload: Workload, kind: str) -> str:
    condition = find_condition(workload.status.conditions, kind)
    return f": {condition.message}" if condition and kind == EVICTED else ""


class Live:
    """Follows workloads and pods, and shows their changes."""

    def __init__(self, reader: Reader, console: Console) -> None:
        self._console = console
        self._status = Status("", console=console, spinner="dots")
        self._pods = Informer(reader, PODS, into=QueuedPod, on_change=self._sum_up)
        self._workloads = Informer(reader, WORKLOADS, into=Workload, on_change=self._print_change)

    async def run(self) -> NoReturn:
        """Show changes until cancelled."""
        if self._console.is_terminal:
            self._status.start()
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._pods.run())
                group.create_task(self._workloads.run())
        finally:
            self._status.stop()
        raise AssertionError("informers run until cancelled")

    def _print_change(self, change: Change[Workload]) -> None:
        line = describe_change(change)
        if line is not None:
            self._console.print(
                without_controls(line), highlight=False, markup=False, soft_wrap=True
            )
        self._sum_up()

    def _sum_up(self, *_change: object) -> None:
        self._status.update(summary(self._pods.store.values(), self._workloads.store.values()))


def summary(pods: Iterable[QueuedPod], workloads: Iterable[Workload]) -> str:
    """Return the line that sums up: GPUs in use, pods by phase, workloads that wait."""
    phases: Counter[str] = Counter()
    gpus = 0
    for pod in pods:
        phases["Gated" if pod.spec.scheduling_gates else pod.status.phase] += 1
        if pod.spec.node_name and not has_ended(pod):
            gpus += pod_requests(pod.spec).get(GPU, 0)
    waiting = sum(not _settled(workload) for workload in workloads)
    counted = ", ".join(f"{count} {phase.lower()}" for phase, count in sorted(phases.items()))
    return f"{gpus} GPUs in use · pods: {counted or 'none'} · pending workloads: {waiting}"


def _settled(workload: Workload) -> bool:
    conditions = workload.status.conditions
    return condition_true(conditions, ADMITTED) or condition_true(conditions, FINISHED)
