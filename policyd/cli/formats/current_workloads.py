"""The present of a cluster: its jobs that run and that wait, with their places and their times.

The objects are those of a scenario. Workloads keep the places in the queue that they have, and
those that run have run since they were admitted.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from msgspec.structs import replace

from policyd.alloc.workload import Objection
from policyd.api import kueue
from policyd.api.kueue.names import (
    ADMISSION_GATED_BY,
    ADMITTED,
    FINISHED,
    IS_GROUP_WORKLOAD,
    WAITING_FOR_REPLACEMENT,
)
from policyd.api.meta import Json, ObjectMeta, Wire, condition_true, find_condition
from policyd.cli.formats.scenario_jobs import SkippedJobs, job_workloads
from policyd.cli.formats.scenarios import (
    ARRIVES_AFTER,
    declared_seconds,
    most_seconds,
    scenario_context,
    scenario_kind,
    scenario_workloads,
    seconds_of,
)
from policyd.controller.watch.workload_values import (
    NAMESPACE_MISMATCH,
    WorkloadContext,
    backs_off,
    workload_value,
)
from policyd.errors import did_you_mean
from policyd.jobs.lifecycle import is_on_hold
from policyd.simulate.scenario import Arrival
from policyd.workload.class_priority import new_class_value
from policyd.workload.families import without_variants
from policyd.workload.node_health import sends_pods_to
from policyd.workload.records import job_of

UNDECLARED: Final = "it declares no run time"
_ENDED: Final = "it has run for longer than it declared"
_JUST_AFTER: Final = 0.001
"""Seconds by which a job that is new queues behind those that were created in the same moment."""


class _Namespace(Wire, frozen=True):
    metadata: ObjectMeta = ObjectMeta()


class CurrentWorkloads(NamedTuple):
    """Workloads at one moment.

    Attributes:
        now: The time, in seconds since the epoch.
        arrivals: All that run, wait or come later, in the same seconds.
        jobs: `Kind/name` of the job that each stands for, by key; "" if it stands for itself.
        unclear: Why the end of a workload is unknown, by key.
    """

    now: float
    arrivals: tuple[Arrival, ...]
    jobs: Mapping[str, str]
    unclear: Mapping[str, str]


def last_known(objects: Iterable[Mapping[str, Json]]) -> float:
    """Return the last time that workloads name, in seconds since the epoch; 0 if they name none."""
    found = [0.0]
    for workload in scenario_workloads(objects):
        changes = (each.last_transition_time for each in workload.status.conditions)
        times = (*changes, workload.metadata.creation_timestamp)
        found.extend(each.timestamp() for each in times if each is not None)
    return max(found)


def present(
    objects: Sequence[dict[str, Json]],
    left_out: SkippedJobs,
    *,
    now: float,
    lost: Iterable[str] = (),
) -> CurrentWorkloads:
    """Return the workloads among the objects, and those of jobs that have none.

    Args:
        objects: All objects.
        left_out: Collects those that are not considered.
        now: The time, in seconds since the epoch.
        lost: Names of nodes that are lost: how long jobs run that have pods there is unknown.
    """
    reader = _Reader(objects, now, frozenset(lost))
    workloads = without_variants(scenario_workloads(objects))
    arrivals: list[Arrival] = []
    jobs: dict[str, str] = {}
    for workload in (*workloads, *job_workloads(objects, workloads, left_out)):
        why = reader.why_not(workload)
        if why is None:
            arrivals.append(reader.arrival(workload))
            jobs[workload.metadata.key] = job_of(workload.metadata)
        elif why:
            left_out.note("Workload", workload.metadata.key, why)
    return CurrentWorkloads(now, tuple(arrivals), jobs, reader.unclear)


class _Reader:
    """Reads workloads as they are at a time."""

    def __init__(
        self, objects: Sequence[dict[str, Json]], now: float, lost: frozenset[str]
    ) -> None:
        self.unclear: dict[str, str] = {}
        self._now, self._lost = now, lost
        self._context: WorkloadContext = scenario_context(objects, now)
        self._local_queues = {
            each.metadata.key: each
            for each in scenario_kind(objects, kueue.LocalQueue, "LocalQueue")
        }
        self._queues = {
            each.metadata.name: each
            for each in scenario_kind(objects, kueue.ClusterQueue, "ClusterQueue")
        }
        self._labels = {
            each.metadata.name: each.metadata.labels
            for each in scenario_kind(objects, _Namespace, "Namespace")
        }
        self._classes = {
            each.metadata.name: each
            for each in scenario_kind(objects, kueue.WorkloadPriorityClass, "WorkloadPriorityClass")
        }

    def why_not(self, workload: kueue.Workload) -> str | None:
        """Return why a workload is not considered; empty if there is nothing to tell."""
        if condition_true(workload.status.conditions, FINISHED):
            return ""
        if workload.status.admission is not None:
            return None
        if not workload.spec.active:
            return "it is deactivated (`spec.active: false`)"
        local_queue = f"{workload.metadata.namespace}/{workload.spec.queue_name}"
        if local_queue not in self._local_queues:
            near = did_you_mean(local_queue, self._local_queues)
            return f"LocalQueue `{local_queue}` not found{f', {near}' if near else ''}"
        return self._why_held(workload)

    def _why_held(self, workload: kueue.Workload) -> str | None:
        """Return why a workload of a queue does not queue, until somebody does something."""
        if condition_true(workload.status.conditions, WAITING_FOR_REPLACEMENT):
            return "it was stopped, and waits for new pods"
        gated = workload.metadata.annotations.get(ADMISSION_GATED_BY)
        if gated and self._context.settings.gates.admission_gated_by:
            return f"it is held back by `{gated}`"
        return "it is on hold" if is_on_hold(workload) else None

    def arrival(self, workload: kueue.Workload) -> Arrival:
        """Return when a workload comes, or that it is there, and how long it runs."""
        key, annotations = workload.metadata.key, workload.metadata.annotations
        local_queue = self._local_queues.get(
            f"{workload.metadata.namespace}/{workload.spec.queue_name}"
        )
        cluster_queue = "" if local_queue is None else local_queue.spec.cluster_queue
        priority = new_class_value(workload, self._classes.get)
        if priority is not None:
            workload = replace(workload, spec=replace(workload.spec, priority=priority))
        value = workload_value(
            workload,
            self._context.within(workload.metadata.namespace),
            cluster_queue=cluster_queue,
            objection=self._objection(workload, local_queue),
        )
        at = self._now + seconds_of(annotations.get(ARRIVES_AFTER, "0s"))
        if value.backing_off and backs_off(workload, self._now):
            at = max(at, _requeued_at(workload))
            value = replace(value, backing_off=False)
        ran = self._ran(workload)
        runs, most = declared_seconds(workload), most_seconds(workload)
        why = self._unclear(workload, value.cluster_queue, runs=runs, most=most, ran=ran)
        if why:
            self.unclear[key], runs, most = why, None, None
        return Arrival(
            workload=replace(value, uid=value.uid or key),
            at=at,
            run_seconds=runs,
            most_seconds=most,
            ran_seconds=ran,
            queued_at=value.queued_at or at + _JUST_AFTER,
            ends_when_stopped=_is_of_pods(workload.metadata),
        )

    def _objection(
        self, workload: kueue.Workload, local_queue: kueue.LocalQueue | None
    ) -> Objection | None:
        """Return why a pending workload is not tried, apart from its own errors."""
        if local_queue is None or workload.status.admission is not None:
            return None
        if local_queue.spec.stop_policy != "None":
            message = f"LocalQueue {local_queue.metadata.name} is stopped"
            return Objection(reason="Misconfigured", message=message, misplaced=True)
        queue = self._queues.get(local_queue.spec.cluster_queue)
        selector = None if queue is None else queue.spec.namespace_selector
        labels = self._labels.get(workload.metadata.namespace)
        if selector is None or labels is None or selector.matches(labels):
            return None
        return Objection(reason="Misconfigured", message=NAMESPACE_MISMATCH, misplaced=True)

    def _ran(self, workload: kueue.Workload) -> float:
        admitted = find_condition(workload.status.conditions, ADMITTED)
        since = None if admitted is None else admitted.last_transition_time
        if admitted is None or admitted.status != "True" or since is None:
            return 0.0
        return max(0.0, self._now - since.timestamp())

    def _unclear(
        self,
        workload: kueue.Workload,
        queue: str,
        *,
        runs: float | None,
        most: float | None,
        ran: float,
    ) -> str:
        """Return why the end of a workload is unknown; empty if it is known."""
        if runs is None and most is None:
            return UNDECLARED
        if runs is not None and most is None and runs < ran:
            return _ENDED
        spec = self._queues[queue].spec if queue in self._queues else None
        strategy = None if spec is None else spec.admission_checks_strategy
        admitted = condition_true(workload.status.conditions, ADMITTED)
        if strategy is not None and strategy.admission_checks and not admitted:
            return f"the admission checks of ClusterQueue {queue} may take any time"
        lost = sorted(node for node in self._lost if sends_pods_to(workload, node))
        return f"it loses pods on {', '.join(lost)}" if lost else ""


def _is_of_pods(metadata: ObjectMeta) -> bool:
    """Tell whether a workload is a pod, or a group of pods that nothing makes anew."""
    is_group = metadata.annotations.get(IS_GROUP_WORKLOAD) == "true"
    return not job_of(metadata) if is_group else job_of(metadata).startswith("Pod/")


def _requeued_at(workload: kueue.Workload) -> float:
    """Return from when on a workload is tried again; infinite if that is not known."""
    state = workload.status.requeue_state
    at = None if state is None else state.requeue_at
    return float("inf") if at is None else at.timestamp()
