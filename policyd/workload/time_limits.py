"""How long a workload may take: to have its pods ready, to run at all, to be tried again.

Each function takes a workload and the time, and returns the due change and the time of the next.
"""

from dataclasses import dataclass
from typing import Literal

import msgspec

from policyd.api.kueue import RequeueState, Workload, WorkloadStatus
from policyd.api.kueue.names import ADMITTED, DEACTIVATION_TARGET, EVICTED, PODS_READY
from policyd.api.meta import Condition, condition_true, find_condition, timestamp
from policyd.jobs.lifecycle import has_quota
from policyd.workload.transitions import evict, is_admitted, set_condition

OWNERLESS_STOP_SECONDS = 120.0
"""An evicted workload without an owner has so long for its pods to end, if it has any."""

JITTER = 0.0001
"""Largest random share added to a wait, so that workloads that failed together spread out."""

MOST_DOUBLINGS = 62
"""Beyond these a wait is longer than any limit."""

Cause = Literal["WaitForStart", "WaitForRecovery"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadyRules:
    """How long pods may take to get ready (waitForPodsReady), all in seconds.

    Attributes:
        timeout: From the admission until all pods run.
        recovery: From a failure until all run again; 0 for as long as it takes.
        retries: How often a workload is tried again before it is deactivated; None for ever.
        first_wait: Before it is tried again the first time; doubled each time.
        longest_wait: Before it is tried again at the most.
    """

    timeout: float = 1800.0
    recovery: float = 1800.0
    retries: int | None = None
    first_wait: float = 60.0
    longest_wait: float = 3600.0


def ready_time_left(
    workload: Workload, rules: ReadyRules | None, *, now: float
) -> tuple[Cause, float] | None:
    """Return the cause of the wait for a workload's pods, and the seconds that are left.

    Returns:
        None if there is no limit: there are no rules, they are ready, or the workload is not
        to run.
    """
    admitted = find_condition(workload.status.conditions, ADMITTED)
    ready = find_condition(workload.status.conditions, PODS_READY)
    if rules is None or not _runs(workload) or (ready is not None and ready.status == "True"):
        return None
    if ready is None or ready.reason != "WaitForRecovery":
        return _left("WaitForStart", admitted, rules.timeout, now)
    return _left("WaitForRecovery", ready, rules.recovery, now)


def _runs(workload: Workload) -> bool:
    return is_admitted(workload) and not condition_true(workload.status.conditions, EVICTED)


def _left(
    cause: Cause, since: Condition | None, limit: float, now: float
) -> tuple[Cause, float] | None:
    if not limit or since is None or since.last_transition_time is None:
        return None
    return cause, since.last_transition_time.timestamp() + limit - now


def give_up_waiting(
    workload: Workload, rules: ReadyRules, cause: Cause, *, now: float, jitter: float
) -> WorkloadStatus:
    """Evict a workload whose pods took too long, until its next turn; or for good, if often enough.

    Args:
        workload: The workload.
        rules: How often, and how long until then.
        cause: The cause of the wait for its pods.
        now: Seconds since the epoch.
        jitter: A random number from 0 to 1.
    """
    state = workload.status.requeue_state
    count = (state.count if state is not None and state.count else 0) + 1
    if rules.retries is not None and count > rules.retries:
        message = "exceeding the maximum number of re-queuing retries"
        return _target(workload, "RequeuingLimitExceeded", message, now)
    wait = min(rules.first_wait * 2.0 ** min(count - 1, MOST_DOUBLINGS), rules.longest_wait)
    status = evict(
        workload,
        reason="PodsReadyTimeout",
        message=f"Exceeded the PodsReady timeout {workload.metadata.key}",
        cause=cause,
        now=now,
    )
    later = _not_before(state, now + wait * (1 + JITTER * jitter))
    counted = msgspec.structs.replace(later, count=count)
    return msgspec.structs.replace(status, requeue_state=counted)


def execution_left(workload: Workload, *, now: float) -> float | None:
    """Return how many seconds a workload may still run; None for as long as it takes."""
    limit = workload.spec.maximum_execution_time_seconds
    admitted = find_condition(workload.status.conditions, ADMITTED)
    if limit is None or admitted is None or admitted.last_transition_time is None:
        return None
    if not _runs(workload):
        return None
    before = workload.status.accumulated_past_execution_time_seconds or 0
    return limit - before - (now - admitted.last_transition_time.timestamp())


def stop_left(workload: Workload, *, now: float) -> float | None:
    """Return how many seconds an evicted workload without an owner keeps its quota; None for ever.

    Its job gives the quota back when it has stopped. A workload that was made before its job may
    never get one, or lose it before the job became its owner.
    """
    evicted = find_condition(workload.status.conditions, EVICTED)
    if evicted is None or evicted.status != "True" or evicted.last_transition_time is None:
        return None
    if workload.metadata.owner_references or not has_quota(workload):
        return None
    return OWNERLESS_STOP_SECONDS - (now - evicted.last_transition_time.timestamp())


def end_execution(workload: Workload, *, now: float) -> WorkloadStatus:
    """Stop a workload for good that has run for as long as it may."""
    message = "exceeding the maximum execution time"
    status = _target(workload, "MaximumExecutionTimeExceeded", message, now)
    return msgspec.structs.replace(status, accumulated_past_execution_time_seconds=None)


def after_checks(workload: Workload, *, now: float) -> WorkloadStatus:
    """Let a workload wait for as long as an admission check asks before it is tried again."""
    ends = [
        check.last_transition_time.timestamp() + check.requeue_after_seconds
        for check in workload.status.admission_checks
        if check.state == "Retry"
        and check.requeue_after_seconds is not None
        and check.last_transition_time
    ]
    status, state = workload.status, workload.status.requeue_state
    if not ends or max(ends) <= now:
        return status
    later = _not_before(state, max(ends))
    return status if later == state else msgspec.structs.replace(status, requeue_state=later)


def backoff_left(workload: Workload, *, now: float) -> float | None:
    """Return the seconds until a workload may be tried again; None if it need not wait."""
    state = workload.status.requeue_state
    if state is None or state.requeue_at is None:
        return None
    return state.requeue_at.timestamp() - now


def without_backoff(status: WorkloadStatus) -> WorkloadStatus:
    """Return a status that says no longer until when its workload waited."""
    state = status.requeue_state
    if state is None or state.requeue_at is None:
        return status
    kept = msgspec.structs.replace(state, requeue_at=None)
    return msgspec.structs.replace(status, requeue_state=kept)


def _not_before(state: RequeueState | None, moment: float) -> RequeueState:
    state = state or RequeueState()
    if state.requeue_at is not None and state.requeue_at.timestamp() >= moment:
        return state
    return msgspec.structs.replace(state, requeue_at=timestamp(moment))


def _target(workload: Workload, reason: str, message: str, now: float) -> WorkloadStatus:
    target = Condition(DEACTIVATION_TARGET, "True", reason, message)
    return set_condition(workload, target, now=now)
