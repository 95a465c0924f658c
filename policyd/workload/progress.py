"""How far a workload has come, and what two looks at it say has happened in between."""

from typing import Literal, NamedTuple

from policyd.api.kueue import EvictionCount, Workload
from policyd.api.kueue.names import ADMITTED, EVICTED, FINISHED, REQUEUED
from policyd.api.meta import Condition, condition_true, find_condition
from policyd.jobs.lifecycle import has_quota, is_finished
from policyd.workload.transitions import holding_queue, is_admitted

Phase = Literal["pending", "quotaReserved", "admitted", "finished"]


class EvictionEnd(NamedTuple):
    """An eviction whose quota was given back: where, why, and after how many seconds."""

    cluster_queue: str
    reason: str
    seconds: float


def phase_of(workload: Workload) -> Phase:
    """Return how far a workload has come."""
    if is_finished(workload):
        return "finished"
    if is_admitted(workload):
        return "admitted"
    return "quotaReserved" if has_quota(workload) else "pending"


def fell_back(before: Phase, after: Phase) -> bool:
    """Tell whether a workload that had quota waits for it again."""
    return before in {"quotaReserved", "admitted"} and after == "pending"


def eviction_end(before: Workload, after: Workload, *, now: float) -> EvictionEnd | None:
    """Return the eviction that ended between two looks at a workload; None if none did.

    Args:
        before: At the first look.
        after: At the second.
        now: When that was, in seconds since the epoch.
    """
    if not fell_back(phase_of(before), phase_of(after)):
        return None
    eviction = find_condition(after.status.conditions, EVICTED)
    since, queue = time_of(after, EVICTED), holding_queue(before)
    if eviction is None or eviction.status != "True" or since is None or not queue:
        return None
    return EvictionEnd(queue, eviction.reason, max(0.0, now - since))


def latest_eviction(before: Workload, after: Workload) -> EvictionCount | None:
    """Return which count of evictions grew between two looks at a workload; None if none did."""
    stats = [each.status.scheduling_stats for each in (before, after)]
    old, new = ((() if each is None else each.evictions) for each in stats)
    known = {(each.reason, each.underlying_cause): each.count for each in old}
    grown = (e for e in new if e.count > known.get((e.reason, e.underlying_cause), 0))
    return next(grown, None)


def execution_seconds(workload: Workload) -> float | None:
    """Return how long a workload ran that has finished, in all its runs; None if it never did."""
    past = workload.status.accumulated_past_execution_time_seconds
    if not is_finished(workload):
        return None
    began, ended = time_of(workload, ADMITTED), time_of(workload, FINISHED)
    if not is_admitted(workload) or began is None or ended is None:
        return None if past is None else float(past)
    return max(0.0, ended - began) + (past or 0)


def waiting_since(workload: Workload) -> float:
    """Return when a workload began to wait: when it was created, or requeued last."""
    created = workload.metadata.creation_timestamp
    start = created.timestamp() if created else 0.0
    return max(start, time_of(workload, REQUEUED) or start)


def time_of(workload: Workload, kind: str) -> float | None:
    """Return since when a condition of a workload is as it is, in seconds since the epoch."""
    condition = find_condition(workload.status.conditions, kind)
    since = None if condition is None else condition.last_transition_time
    return None if since is None else since.timestamp()


def became_true(before: tuple[Condition, ...], after: tuple[Condition, ...]) -> list[str]:
    """Return the types of the conditions that were not true, and now are."""
    return [
        each.type
        for each in after
        if each.status == "True" and not condition_true(before, each.type)
    ]
