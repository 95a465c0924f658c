"""Workloads of the API as the allocator sees them, and those that wait for a second pass."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final

from policyd.alloc.settings import DEFAULTS, Gates, QueueingSettings
from policyd.alloc.workload import Objection, QueuedPodSet, QueuedWorkload, ReservedQuota
from policyd.api import kueue
from policyd.api.configuration.duration import DurationError, duration_seconds
from policyd.api.kueue.names import (
    ADMITTED,
    ALLOWED_FLAVORS,
    ELASTIC_JOB,
    EVICTED,
    FINISHED,
    PODS_READY,
    PREEMPTED,
    QUOTA_RESERVED,
    REQUEUED,
)
from policyd.api.meta import Condition, condition_true, find_condition
from policyd.controller.watch.index import replaced_key
from policyd.controller.watch.priorities import effective_priority
from policyd.jobs.copied import EXPECTED_RUN_TIME
from policyd.jobs.requests import NO_RULES, RequestRules, uncounted_claims
from policyd.jobs.workload import pods_given_back, pods_left
from policyd.workload.families import parent_of
from policyd.workload.node_health import sends_pods_to
from policyd.workload.pod_set_values import assignment_value, pod_set_values
from policyd.workload.records import preemptor_of

CHECKPOINT_EVERY: Final = "policyd.io/checkpoint-every"
"""Annotation of pods: how often they save their state, such as `15m`."""

NAMESPACE_MISMATCH: Final = "workload namespace doesn't match ClusterQueue selector"
FAILED_CHECKS: Final = "The workload has failed admission checks"

JUST_AFTER: Final = 0.001
"""Seconds by which a workload preempted for a borrower queues behind one evicted then, and a
variant behind the one for the flavor before its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadContext:
    """The inputs of a workload's value besides the workload."""

    now: float
    """Seconds since the epoch, for its back-off."""
    settings: QueueingSettings = DEFAULTS
    """The settings of the administrator."""
    rules: RequestRules = NO_RULES
    """Limits, overheads and resource settings that apply to its requests."""
    movable: bool = False
    """Whether it may be moved, so that its requests count while it holds quota too."""

    def within(self, namespace: str) -> "WorkloadContext":
        """Return the inputs for workloads of a namespace, which has templates of claims."""
        if self.rules.devices is None or self.rules.namespace == namespace:
            return self
        return replace(self, rules=replace(self.rules, namespace=namespace))


def workload_value(
    workload: kueue.Workload,
    circumstances: WorkloadContext,
    *,
    cluster_queue: str,
    objection: Objection | None = None,
) -> QueuedWorkload:
    """Convert a workload that holds quota, or waits for it.

    Args:
        workload: The workload.
        circumstances: The other inputs.
        cluster_queue: Its queue; it may hold quota of another one.
        objection: Why it cannot be considered, apart from the workload's own errors.
    """
    metadata, settings = workload.metadata, circumstances.settings
    given_back = _given_back(workload, settings)
    admission = _admission(workload, given_back, circumstances.rules)
    pod_sets: tuple[QueuedPodSet, ...] = ()
    invalid: Objection | None = None
    uncounted = None if admission else _uncounted(workload, circumstances)
    if admission is None or circumstances.movable or needs_second_pass(workload):
        pod_sets, invalid = pod_set_values(workload, given_back, circumstances.rules)
    return QueuedWorkload(
        key=metadata.key,
        uid=metadata.uid,
        cluster_queue=cluster_queue if admission is None else admission.cluster_queue,
        local_queue=f"{metadata.namespace}/{workload.spec.queue_name}",
        priority=effective_priority(workload, settings.gates),
        queued_at=queued_at(workload, settings),
        pod_sets=pod_sets,
        backing_off=admission is None and backs_off(workload, circumstances.now),
        objection=objection or uncounted or _failed_checks(workload) or invalid,
        admission=admission,
        admitted=condition_true(workload.status.conditions, ADMITTED),
        reserved_at=None if admission is None else _since(workload, QUOTA_RESERVED),
        evicted=condition_true(workload.status.conditions, EVICTED),
        preempted_by=preemptor_of(workload),
        given_back=sum(given_back.values()),
        ready=condition_true(workload.status.conditions, PODS_READY),
        replaces=_replaces(workload, settings),
        gated=_gated(workload),
        short_since=_short_since(workload),
        run_seconds=_run_seconds(workload),
        saves_seconds=_saves_seconds(workload),
        allowed_flavors=_allowed_flavors(workload, settings),
        variant_of=_variant_of(workload, settings),
        elastic=_elastic(workload, settings),
        failed_node=_failed_node(workload),
    )


def _elastic(workload: kueue.Workload, settings: QueueingSettings) -> bool:
    annotated = workload.metadata.annotations.get(ELASTIC_JOB) == "true"
    return annotated and settings.gates.elastic_jobs_via_workload_slices


def _failed_node(workload: kueue.Workload) -> str:
    """Return the node whose pods need another place; only the first is replaced."""
    nodes = workload.status.unhealthy_nodes
    return nodes[0].name if nodes and needs_second_pass(workload) else ""


def _short_since(workload: kueue.Workload) -> float | None:
    """Return since when a workload whose pods all ran has too few; None if it has enough.

    What its condition says of the pods of a former run is not about those of this one.
    """
    conditions = workload.status.conditions
    ready = find_condition(conditions, PODS_READY)
    if ready is None or (ready.status, ready.reason) != ("False", "WaitForRecovery"):
        return None
    since, admitted = _since(workload, PODS_READY), _since(workload, ADMITTED)
    runs = condition_true(conditions, ADMITTED) and (since or 0.0) >= (admitted or 0.0)
    return since if runs else None


def _run_seconds(workload: kueue.Workload) -> float | None:
    """Return how long a workload holds its quota at most; None if it does not say.

    Earlier runs count against its limit; and it does not run before it is admitted.
    """
    limit, status = workload.spec.maximum_execution_time_seconds, workload.status
    text = workload.metadata.annotations.get(EXPECTED_RUN_TIME, "")
    known = []
    if limit is not None:
        known.append(limit - (status.accumulated_past_execution_time_seconds or 0.0))
    with suppress(DurationError):  # an invalid duration counts as unset
        known.append(duration_seconds(text))
    if not known:
        return None
    waited = (_since(workload, ADMITTED) or 0.0) - (_since(workload, QUOTA_RESERVED) or 0.0)
    admitted = condition_true(status.conditions, ADMITTED)
    return max(0.0, min(known)) + (max(0.0, waited) if admitted else 0.0)


def _saves_seconds(workload: kueue.Workload) -> float | None:
    """Return how often pods of a workload save their state; None if they do not say."""
    annotations = (each.template.metadata.annotations for each in workload.spec.pod_sets)
    text = next((each[CHECKPOINT_EVERY] for each in annotations if CHECKPOINT_EVERY in each), "")
    with suppress(DurationError):  # an invalid duration counts as unset
        return max(0.0, duration_seconds(text))
    return None


def _replaces(workload: kueue.Workload, settings: QueueingSettings) -> str:
    """Return the key of the smaller slice of the same job that a workload is to replace."""
    if not settings.gates.elastic_jobs_via_workload_slices:
        return ""
    return replaced_key(workload)


def _gated(workload: kueue.Workload) -> bool:
    """Tell whether a preemption gate is closed; one without a state is."""
    open_ = {g.name for g in workload.status.preemption_gates if g.position == "Open"}
    return any(gate.name not in open_ for gate in workload.spec.preemption_gates)


def _variant_of(workload: kueue.Workload, settings: QueueingSettings) -> str:
    """Return the uid of the workload that one is a variant of; empty if it is none.

    With the namespace: a user could name the uid of another team's workload.
    """
    owner = parent_of(workload)
    if owner is None or not settings.gates.concurrent_admission:
        return ""
    return f"{workload.metadata.namespace}/{owner.uid}"


def _allowed_flavors(
    workload: kueue.Workload, settings: QueueingSettings
) -> tuple[str, ...] | None:
    named = workload.metadata.annotations.get(ALLOWED_FLAVORS)
    if named is None or not settings.gates.concurrent_admission:
        return None
    return tuple(named.split(","))


def queued_at(workload: kueue.Workload, settings: QueueingSettings = DEFAULTS) -> float:
    """Return since when a workload has its place in the queue: an eviction keeps it, mostly.

    Pods that did not get ready cost the place, unless the administrator lets it be kept; so does an
    admission check that wants to try again.
    """
    conditions = workload.status.conditions
    evicted = find_condition(conditions, EVICTED)
    late = {"AdmissionCheck"} if settings.requeues_by_creation else _LATER
    if evicted is not None and evicted.status == "True" and evicted.reason in late:
        since = _since(workload, EVICTED)
        if since is not None:
            return since
    preempted = find_condition(conditions, PREEMPTED)
    if not settings.gates.priority_sorting_within_cohort and _for_borrower(preempted):
        since = _since(workload, PREEMPTED)
        if since is not None:
            return since + JUST_AFTER
    created = workload.metadata.creation_timestamp
    return created.timestamp() if created else 0.0


_LATER: Final = frozenset({"PodsReadyTimeout", "AdmissionCheck"})


def _for_borrower(preempted: Condition | None) -> bool:
    reason = "InCohortReclaimWhileBorrowing"
    return preempted is not None and (preempted.status, preempted.reason) == ("True", reason)


def _since(workload: kueue.Workload, condition: str) -> float | None:
    found = find_condition(workload.status.conditions, condition)
    since = None if found is None else found.last_transition_time
    return None if since is None else since.timestamp()


def backs_off(workload: kueue.Workload, now: float) -> bool:
    """Tell whether a workload must not be tried yet."""
    requeued = find_condition(workload.status.conditions, REQUEUED)
    if requeued is not None and requeued.status == "False":
        return True
    state = workload.status.requeue_state
    return state is not None and state.requeue_at is not None and state.requeue_at.timestamp() > now


def needs_second_pass(workload: kueue.Workload) -> bool:
    """Tell whether a workload holds quota and must still be placed, or placed anew.

    Its topology was left open until its checks are ready; or a node it was given has failed.
    """
    status = workload.status
    conditions = status.conditions
    if any(condition_true(conditions, kind) for kind in (FINISHED, EVICTED)):
        return False
    if status.admission is None or not condition_true(conditions, QUOTA_RESERVED):
        return False
    assignments = status.admission.pod_set_assignments
    if condition_true(conditions, ADMITTED):
        failed = {node.name for node in status.unhealthy_nodes}
        return any(sends_pods_to(workload, name) for name in failed)
    ready = bool(status.admission_checks) and all(
        c.state == "Ready" for c in status.admission_checks
    )
    delayed = (
        each.delayed_topology_request == "Pending" and each.topology_assignment is None
        for each in assignments
    )
    return ready and any(delayed)


DEVICES_OFF: Final = (
    "Workload uses DRA resources but the KueueDRAIntegration feature gate is not enabled"
)


def _uncounted(workload: kueue.Workload, circumstances: WorkloadContext) -> Objection | None:
    """Return that a workload requests devices that no quota counts; none behind it waits for it."""
    gates = circumstances.settings.gates
    if circumstances.rules.devices is not None or not refuses_uncounted(gates):
        return None
    message = uncounted_claims(workload)
    if message and not gates.kueue_dra_integration:
        message = DEVICES_OFF
    if not message:
        return None
    return Objection(reason="Misconfigured", message=message, misplaced=True, uncounted=True)


def refuses_uncounted(gates: Gates) -> bool:
    """Tell whether devices that no quota counts are refused."""
    return gates.kueue_dra_integration or gates.kueue_dra_reject_workloads_when_dra_disabled


def _failed_checks(workload: kueue.Workload) -> Objection | None:
    if any(check.failed for check in workload.status.admission_checks):
        return Objection(reason="PendingEvaluation", message=FAILED_CHECKS)
    return None


def _given_back(workload: kueue.Workload, settings: QueueingSettings) -> dict[str, int]:
    """Return how many pods of each pod set no longer need their quota."""
    if not settings.gates.reclaimable_pods:
        return {}
    return pods_given_back(workload)


def _admission(
    workload: kueue.Workload, given_back: Mapping[str, int], rules: RequestRules
) -> ReservedQuota | None:
    admission = workload.status.admission
    if admission is None or not condition_true(workload.status.conditions, QUOTA_RESERVED):
        return None
    templates = {pod_set.name: pod_set.template for pod_set in workload.spec.pod_sets}
    left = pods_left(workload, given_back)
    return ReservedQuota(
        cluster_queue=admission.cluster_queue,
        pod_sets=tuple(
            assignment_value(
                each, left=left[each.name], template=templates.get(each.name), rules=rules
            )
            for each in admission.pod_set_assignments
        ),
    )


FIRST_WAIT_SECONDS = 1.0
LONGEST_WAIT_SECONDS = 30.0


class SecondPass:
    """The workloads that wait for a second pass, and from when on they may be tried.

    Every attempt doubles the wait for the next.
    """

    def __init__(self) -> None:
        self._ready_at: dict[str, float] = {}
        self._attempts: dict[str, int] = {}

    def put(self, key: str, *, now: float, attempts: int | None = None) -> None:
        """Let a workload wait; one that waits already keeps its time.

        Args:
            key: `namespace/name`.
            now: Seconds since the epoch.
            attempts: How often it was tried since it needs this; as often as it was taken, if not
                given.
        """
        tried = self._attempts.get(key, 0) if attempts is None else attempts
        wait = min(FIRST_WAIT_SECONDS * 2.0**tried, LONGEST_WAIT_SECONDS)
        self._ready_at.setdefault(key, now + wait)

    def remove(self, key: str) -> None:
        """Remove a workload: it was placed, evicted or deleted."""
        self._ready_at.pop(key, None)
        self._attempts.pop(key, None)

    @property
    def next_at(self) -> float | None:
        """When the first may be tried, in seconds since the epoch; None if there is none."""
        return min(self._ready_at.values(), default=None)

    def take_ready(self, now: float) -> list[str]:
        """Take out those that may be tried, in order of their time and name."""
        ready = sorted((at, key) for key, at in self._ready_at.items() if at <= now)
        for _, key in ready:
            del self._ready_at[key]
            self._attempts[key] = self._attempts.get(key, 0) + 1
        return [key for _, key in ready]
