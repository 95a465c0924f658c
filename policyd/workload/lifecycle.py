"""The next status of a workload, given its queues: one change at a time."""

from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from policyd.api.kueue import (
    AdmissionCheckRule,
    AdmissionCheckState,
    ClusterQueue,
    PreemptionGateState,
    Workload,
    WorkloadStatus,
)
from policyd.api.kueue.names import (
    DEACTIVATION_TARGET,
    EVICTED,
    QUOTA_RESERVED,
    REQUEUED,
)
from policyd.api.meta import (
    Condition,
    condition_true,
    find_condition,
    timestamp,
    without_condition,
)
from policyd.jobs.lifecycle import has_quota, is_finished
from policyd.workload.obstacles import DEACTIVATED, StatusContext, gated, released, unreserved
from policyd.workload.time_limits import (
    after_checks,
    backoff_left,
    end_execution,
    execution_left,
    give_up_waiting,
    ready_time_left,
    without_backoff,
)
from policyd.workload.transitions import (
    evict,
    holding_queue,
    is_admitted,
    requeue,
    set_condition,
    sync_admitted,
    with_status,
    without_deactivation,
)

INADMISSIBLE: Final = "Inadmissible"
"""Kueue's reason why a workload does not queue whose devices cannot be counted."""


def next_status(workload: Workload, context: StatusContext, *, now: float) -> WorkloadStatus:
    """Return the status that a workload should have next; its own if nothing is to be changed.

    Args:
        workload: The workload.
        context: Its queues, and the settings that concern it.
        now: Seconds since the epoch.
    """
    if is_finished(workload):
        return workload.status
    if not workload.spec.active and not condition_true(workload.status.conditions, EVICTED):
        return deactivate(workload, now=now)
    for changed in _changes(workload, context, now):
        if changed != workload.status:
            return changed
    return workload.status


def to_be_deactivated(workload: Workload) -> bool:
    """Tell whether something has decided that a workload shall not go on."""
    return workload.spec.active and condition_true(workload.status.conditions, DEACTIVATION_TARGET)


def deactivate(workload: Workload, *, now: float) -> WorkloadStatus:
    """Begin to stop a workload that is not to be active."""
    target = find_condition(workload.status.conditions, DEACTIVATION_TARGET)
    due = target is not None and target.status == "True"
    cause = target.reason if target is not None and due else ""
    detail = f" due to {target.message}" if target is not None and due else ""
    evicted = evict(
        workload, reason="Deactivated", message=DEACTIVATED + detail, cause=cause, now=now
    )
    return without_deactivation(evicted)


def _changes(workload: Workload, context: StatusContext, now: float) -> Iterator[WorkloadStatus]:
    yield _without_leftover(workload)
    gates = context.gates
    if gates.multi_kueue_orchestrated_preemption or gates.concurrent_admission:
        yield sync_preemption_gates(workload, now=now)
    if not workload.spec.active:  # and evicted before: it has no turn to wait for
        yield msgspec.structs.replace(workload.status, requeue_state=None)
    else:
        yield after_checks(workload, now=now)
        if not has_quota(workload) and _backs_off(workload, now):
            return
    yield _requeued(workload, context, now)
    if has_quota(workload):
        yield gated(workload, context, now)
    yield _with_checks(workload, context, now)
    if not has_quota(workload):
        counted = with_status(workload, _as_counted(workload, context, now))
        yield unreserved(counted, context, now)
    if not is_admitted(workload):
        detailed = context.gates.unadmitted_workloads_observability
        workload = with_status(workload, sync_admitted(workload, now=now, detailed=detailed))
        if is_admitted(workload):
            yield workload.status
    # The reason why a workload is not admitted yet is written together with its consequences.
    yield _reserved(workload, context, now) if has_quota(workload) else workload.status


def _without_leftover(workload: Workload) -> WorkloadStatus:
    """Clear the admission of a workload whose quota another client has taken away."""
    reserved = find_condition(workload.status.conditions, QUOTA_RESERVED)
    if reserved is None or reserved.status == "True" or workload.status.admission is None:
        return workload.status
    return msgspec.structs.replace(workload.status, admission=None)


def _backs_off(workload: Workload, now: float) -> bool:
    return (backoff_left(workload, now=now) or 0.0) > 0


def _requeued(workload: Workload, context: StatusContext, now: float) -> WorkloadStatus:
    """Let a workload queue again if its backoff is over."""
    if workload.spec.active and not has_quota(workload):
        workload = with_status(workload, without_backoff(workload.status))
    requeued = find_condition(workload.status.conditions, REQUEUED)
    if requeued is None or requeued.status != "False":
        return workload.status
    if requeued.reason in {"PodsReadyTimeout", "AdmissionCheck"}:
        if not workload.spec.active or _backs_off(workload, now):
            return workload.status
        waited = with_status(workload, without_backoff(workload.status))
        message = "The workload backoff was finished"
        return requeue(waited, reason="BackoffFinished", message=message, now=now)
    if requeued.reason.startswith("Deactivated") and workload.spec.active:
        message = "The workload was reactivated"
        return requeue(workload, reason="Reactivated", message=message, now=now)
    return _restarted(workload, requeued.reason, context, now)


def _as_counted(workload: Workload, context: StatusContext, now: float) -> WorkloadStatus:
    """Say that a workload does not queue whose devices cannot be counted, until they can be."""
    status, objection = workload.status, context.objection
    requeued = find_condition(status.conditions, REQUEUED)
    written = "" if requeued is None or requeued.status != "False" else requeued.reason
    if objection is not None and objection.uncounted:
        if written not in {"", INADMISSIBLE}:
            return status
        uncounted = Condition(REQUEUED, "False", INADMISSIBLE, objection.message)
        return set_condition(workload, uncounted, now=now)
    if written != INADMISSIBLE:
        return status
    kept = without_condition(status.conditions, REQUEUED)
    return msgspec.structs.replace(status, conditions=kept)


def _restarted(
    workload: Workload, reason: str, context: StatusContext, now: float
) -> WorkloadStatus:
    """Let a workload queue again whose queue is no longer stopped, if that was the `reason`."""
    for what, queue in (("Local", context.local_queue), ("Cluster", context.cluster_queue)):
        stopped = queue is None or queue.spec.stop_policy != "None"
        if reason == f"{what}QueueStopped" and not stopped:
            return requeue(
                workload,
                reason=f"{what}QueueRestarted",
                message=f"The {what}Queue was restarted after being stopped",
                now=now,
            )
    return workload.status


def _with_checks(workload: Workload, context: StatusContext, now: float) -> WorkloadStatus:
    if context.cluster_queue is None or context.role == "parent":  # its variants are checked
        return workload.status
    names = required_checks(workload, context.cluster_queue)
    return sync_checks(workload.status, names, now=now)


def required_checks(workload: Workload, queue: ClusterQueue) -> tuple[str, ...]:
    """Return the admission checks that a workload must pass, sorted.

    Before it has quota, those that it must pass for any flavor.
    """
    strategy = queue.spec.admission_checks_strategy
    if strategy is None:
        return ()
    admission = workload.status.admission
    if admission is None:
        every = {flavor.name for group in queue.spec.resource_groups for flavor in group.flavors}
        return tuple(
            sorted(r.name for r in strategy.admission_checks if every <= _flavors(r, every))
        )
    assigned = {name for each in admission.pod_set_assignments for name in each.flavors.values()}
    return tuple(
        sorted(r.name for r in strategy.admission_checks if assigned & _flavors(r, assigned))
    )


def _flavors(rule: AdmissionCheckRule, every: set[str]) -> set[str]:
    return set(rule.on_flavors) or every


def sync_checks(status: WorkloadStatus, names: Sequence[str], *, now: float) -> WorkloadStatus:
    """Return a status with a state for each of the admission checks, and for no others."""
    states = {check.name: check for check in status.admission_checks}
    if set(states) == set(names):
        return status
    new = AdmissionCheckState(name="", state="Pending", last_transition_time=timestamp(now))
    wanted = [states.get(n) or msgspec.structs.replace(new, name=n) for n in sorted(names)]
    return msgspec.structs.replace(status, admission_checks=tuple(wanted))


def _reserved(workload: Workload, context: StatusContext, now: float) -> WorkloadStatus:
    if condition_true(workload.status.conditions, EVICTED):
        return workload.status
    rejected = _in_state(workload, "Rejected")
    if rejected:
        message = _checks_text(rejected, "Rejected")
        target = Condition(DEACTIVATION_TARGET, "True", "AdmissionCheck", message)
        return set_condition(workload, target, now=now)
    retried = _in_state(workload, "Retry")
    if retried:
        message = f"Evicted due to {_checks_text(retried, 'Retry')}"
        return evict(workload, reason="AdmissionCheck", message=message, now=now)
    stopped = _under_stop_policy(workload, context, now)
    return stopped if stopped != workload.status else _overdue(workload, context, now)


def _checks_text(checks: list[AdmissionCheckState], state: str) -> str:
    """Return the checks in a state with their messages, in Kueue's words."""
    parts = [f'"{c.name}"' + (f" ({c.message})" if c.message else "") for c in checks]
    return f"AdmissionCheck{'s' * (len(checks) > 1)} in {state} state: {'; '.join(parts)}"


def _overdue(workload: Workload, context: StatusContext, now: float) -> WorkloadStatus:
    if context.role == "variant":  # its parent knows the time of the job
        return workload.status
    rules = context.ready_rules
    waited = ready_time_left(workload, rules, now=now)
    if rules is not None and waited is not None and waited[1] <= 0:
        return give_up_waiting(workload, rules, waited[0], now=now, jitter=context.jitter)
    left = execution_left(workload, now=now)
    return workload.status if left is None or left > 0 else end_execution(workload, now=now)


def time_left(workload: Workload, context: StatusContext, *, now: float) -> float | None:
    """Return the seconds until time alone changes a workload's status; None if it does not."""
    ends = [backoff_left(workload, now=now)]
    if context.role != "variant":
        waited = ready_time_left(workload, context.ready_rules, now=now)
        ends += [None if waited is None else waited[1], execution_left(workload, now=now)]
    return min((left for left in ends if left is not None and left > 0), default=None)


def _in_state(workload: Workload, state: str) -> list[AdmissionCheckState]:
    found = (check for check in workload.status.admission_checks if check.state == state)
    return sorted(found, key=lambda check: check.name)


def _under_stop_policy(workload: Workload, context: StatusContext, now: float) -> WorkloadStatus:
    """Evict admitted workloads of a drained queue; release unadmitted ones of a stopped queue.

    A deleted queue cannot be known to drain: admitted workloads run on.
    """
    queues = (
        ("Local", workload.spec.queue_name, context.local_queue),
        ("Cluster", _cluster_queue_name(workload, context), context.cluster_queue),
    )
    admitted = is_admitted(workload)
    for what, name, queue in queues:
        policy = "None" if queue is None else queue.spec.stop_policy
        if admitted and policy == "HoldAndDrain":
            message = f"The {what}Queue is stopped"
            return evict(workload, reason=f"{what}QueueStopped", message=message, now=now)
        if not admitted and (queue is None or queue.metadata.deletion_timestamp is not None):
            message = f"{what}Queue {name} is terminating or missing"
            return released(workload, context, "Misconfigured", message, now)
        if not admitted and policy != "None":
            message = f"{what}Queue {name} is stopped"
            return released(workload, context, "Suspended", message, now)
    return workload.status


def _cluster_queue_name(workload: Workload, context: StatusContext) -> str:
    queue = context.local_queue
    return holding_queue(workload) if queue is None else queue.spec.cluster_queue


def sync_preemption_gates(workload: Workload, *, now: float) -> WorkloadStatus:
    """Return the status with a state for each preemption gate, and for no others.

    A new one is closed; its owner, which has put it into the spec, opens it.

    Args:
        workload: The workload.
        now: Seconds since the epoch.
    """
    status, gates = workload.status, workload.spec.preemption_gates
    if not (gates or status.preemption_gates):
        return status
    states = {state.name: state for state in status.preemption_gates}
    if states.keys() == {gate.name for gate in gates}:
        return status
    wanted = (
        states.get(gate.name) or PreemptionGateState(gate.name, "Closed", timestamp(now))
        for gate in gates
    )
    return msgspec.structs.replace(status, preemption_gates=tuple(wanted))
