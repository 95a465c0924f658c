"""The next steps of a workload that goes to other clusters, from its copies there.

1. A workload that ended, or lost its quota, is removed from all workers.
2. A copy that finished finishes the workload. One that its worker evicted gives the quota back.
3. Copies that ask for something else than the workload are removed, or updated.
4. The copy that was admitted first wins: the others are removed, its job is created there, and the
   status of the job is copied back.
5. Without an admitted copy the workers are nominated, and each gets a copy.

Steps are found from the objects each time, so that they may be repeated.
"""

from collections.abc import Mapping, Sequence
from typing import Final, Literal, NamedTuple

import msgspec

from policyd.api.kueue import AdmissionCheckState, PreemptionGateState, Workload
from policyd.api.kueue.names import (
    ADMITTED,
    EVICTED,
    FINISHED,
    MULTI_KUEUE,
    SLICE_REPLACEMENT_FOR,
)
from policyd.api.meta import Condition, condition_true, find_condition, timestamp
from policyd.jobs.lifecycle import has_quota, is_finished
from policyd.jobs.slices import SLICE_REPLACED
from policyd.jobs.workload import is_elastic
from policyd.multikueue.settings import ALL_AT_ONCE, MultiKueueSettings
from policyd.workload.transitions import BLOCKED_ON_GATES

DEFERRED_SECONDS: Final = 2.0
"""Until the status of a job is copied whose counterpart here is still suspended."""
ROUND_SECONDS: Final = 300.0
"""Between two rounds of the incremental dispatcher."""
GATE_SECONDS: Final = 300.0
"""Between two workers that may preempt for one workload."""
FOLLOW_SECONDS: Final = 5.0
"""Until a workload is looked at again that waits for another of the same object."""
OUT_OF_SYNC: Final = "OutOfSync"
EVICTED_ON_MANAGER: Final = "EvictedOnManagerCluster"
UNRECORDED: Final = (
    "Admission check is Ready but no admitting cluster is recorded; this is unexpected, please"
    " report it"
)


class Remove(NamedTuple):
    """Delete the job and the workload of a worker, as far as they were made by this manager."""

    cluster: str


class SyncJob(NamedTuple):
    """Create the job on a worker, or copy its status back."""

    cluster: str
    only_back: bool = False
    """Whether a job that is not there stays away, as it has ended or must stop."""


class Withdraw(NamedTuple):
    """Take back what a worker reported of the job: it is gone, and its pods are not waited for."""


class Push(NamedTuple):
    """Change the requests of a copy to those of the workload."""

    cluster: str
    spec: Literal["whole", "priority"]


class OpenGate(NamedTuple):
    """Let the copy of one worker preempt."""

    cluster: str
    gates: tuple[PreemptionGateState, ...]


class Deactivate(NamedTuple):
    """Have a worker stop its copy."""

    cluster: str
    message: str


class SetCheck(NamedTuple):
    """Write the state of the check.

    Attributes:
        state: The new state.
        message: Its message.
        cluster: The worker that the workload runs on; empty to leave that as it is.
        event: The type of an event with the message; empty for none.
    """

    state: Literal["Ready", "Retry"]
    message: str
    cluster: str = ""
    event: Literal["", "Normal", "Warning"] = ""


class FinishWorkload(NamedTuple):
    """Declare the workload finished."""

    reason: str
    message: str


class Nominate(NamedTuple):
    """Write which workers may get a copy."""

    clusters: tuple[str, ...]


class Create(NamedTuple):
    """Create a copy on a worker."""

    cluster: str
    gated: bool = False
    """Whether it must not preempt yet."""


Action = (
    Remove
    | SyncJob
    | Withdraw
    | Push
    | OpenGate
    | Deactivate
    | SetCheck
    | FinishWorkload
    | Nominate
    | Create
)


class DispatchPlan(NamedTuple):
    """What is to be done, in order.

    Attributes:
        actions: The steps.
        again: Seconds until the workload is to be looked at again; None for at a change only.
        error: What is wrong all the same, so that it is tried again soon; empty if nothing.
    """

    actions: tuple[Action, ...] = ()
    again: float | None = None
    error: str = ""


class Group(NamedTuple):
    """A workload, and its copies.

    Attributes:
        local: The workload.
        check: The name of the check that sends it away.
        copies: Its copy on each connected worker; None where there is none.
        unreachable: Workers that are not connected, or do not show their copy.
        lost_at: Since when each of those is not, in seconds since the epoch.
        follows: The worker that another workload of the same object runs on, empty while that is
            not known; None if this workload is sent wherever there is room.
    """

    local: Workload
    check: str
    copies: Mapping[str, Workload | None]
    unreachable: Sequence[str] = ()
    lost_at: Mapping[str, float] = {}
    follows: str | None = None

    @property
    def runs(self) -> bool:
        """Whether a worker has been chosen, and the job runs there."""
        return self.state.state == "Ready"

    @property
    def state(self) -> AdmissionCheckState:
        """Where the check stands."""
        return next(s for s in self.local.status.admission_checks if s.name == self.check)

    def earliest(self, kind: str) -> tuple[Condition, str] | None:
        """Return the condition that has been true on a worker for longest, and that worker.

        The worker that a workload runs on goes first: one that was away may have an older copy.
        """
        chosen = self.local.status.cluster_name
        found = []
        for cluster, copy in self.copies.items():
            condition = copy and find_condition(copy.status.conditions, kind)
            if condition and condition.status == "True":
                since = condition.last_transition_time
                at = since.timestamp() if since else 0.0
                found.append((cluster != chosen, at, cluster, condition))
        if not found:
            return None
        _, _, cluster, condition = min(found, key=lambda each: each[:3])
        return condition, cluster


def plan(group: Group, settings: MultiKueueSettings, *, now: float) -> DispatchPlan:
    """Return the next steps of a workload.

    Args:
        group: The workload and its copies.
        settings: How jobs are sent.
        now: Seconds since the epoch.
    """
    local = group.local
    elastic = settings.elastic and is_elastic(local.metadata)
    if elastic and _follows_slice(local):
        return DispatchPlan()
    if is_finished(local) or not has_quota(local):
        again = settings.lost_seconds if group.unreachable else None
        return DispatchPlan(tuple(Remove(c) for c in group.copies), again=again)
    done = _ended(group, elastic=elastic) or _evicted(group)
    if done is not None:
        return done
    actions, group = _synchronized(group, elastic=elastic)
    admitted = group.earliest(ADMITTED)
    chosen = local.status.cluster_name
    if admitted is not None and (not group.runs or chosen in {None, admitted[1]}):
        rest = _converged(group, admitted[1], settings)
    elif group.runs:
        rest = _lost(group, settings, now=now)
    elif condition_true(local.status.conditions, EVICTED) and not any(group.copies.values()):
        rest = _withdrawn(group, settings, now=now)
    else:
        rest = _pending(group, settings, elastic=elastic, now=now)
    return rest._replace(actions=(*actions, *rest.actions))


def _follows_slice(local: Workload) -> bool:
    """Tell whether another slice of an elastic job is responsible for the copies."""
    if is_finished(local):
        ended = find_condition(local.status.conditions, FINISHED)
        return ended is not None and ended.reason == SLICE_REPLACED
    return not has_quota(local) and bool(local.metadata.annotations.get(SLICE_REPLACEMENT_FOR))


def _ended(group: Group, *, elastic: bool) -> DispatchPlan | None:
    ended = group.earliest(FINISHED)
    if ended is None:
        return None
    condition, cluster = ended
    if condition.reason == OUT_OF_SYNC and not elastic:
        return _out_of_sync(group, cluster)
    return DispatchPlan(
        (SyncJob(cluster, only_back=True), FinishWorkload(condition.reason, condition.message))
    )


def _out_of_sync(group: Group, cluster: str) -> DispatchPlan:
    """Send a workload again whose job on the worker asks for something else."""
    state = group.state.state
    if group.runs:
        message = (
            f'Remote workload on worker cluster "{cluster}" is out of sync with its user job,'
            f' resetting for re-dispatch, Previously: "{state}"'
        )
        return DispatchPlan((SetCheck("Retry", message, event="Warning"),))
    return DispatchPlan() if state == "Retry" else DispatchPlan((Remove(cluster),))


def _evicted(group: Group) -> DispatchPlan | None:
    evicted = group.earliest(EVICTED)
    if evicted is None:
        return None
    _, cluster = evicted
    if condition_true(group.local.status.conditions, EVICTED):
        return DispatchPlan((SyncJob(cluster, only_back=True),))
    state = group.state.state
    if not group.runs or group.local.status.cluster_name not in {None, cluster}:
        return None
    message = (
        f'Workload evicted on worker cluster: "{group.local.status.cluster_name or cluster}",'
        f' resetting for re-admission. Previously: "{state}"'
    )
    return DispatchPlan((SetCheck("Retry", message, event="Normal"),))


def _synchronized(group: Group, *, elastic: bool) -> tuple[tuple[Action, ...], Group]:
    """Remove or update the copies that ask for something else."""
    actions: list[Action] = []
    copies = dict(group.copies)
    for cluster, copy in group.copies.items():
        if copy is None or _same_requests(group.local, copy):
            continue
        if elastic and _has_shrunk(group.local, copy):
            actions.append(Push(cluster, "whole"))
        elif _has_other_priority(group.local, copy):
            actions.append(Push(cluster, "priority"))
        else:
            actions.append(Remove(cluster))
            copies[cluster] = None
    return tuple(actions), group._replace(copies=copies)


def _same_requests(local: Workload, copy: Workload) -> bool:
    """Compare what both ask for; each side has its own preemption gates."""
    return msgspec.structs.replace(local.spec, preemption_gates=()) == msgspec.structs.replace(
        copy.spec, preemption_gates=()
    )


def _has_shrunk(local: Workload, copy: Workload) -> bool:
    old = {each.name: each.count for each in copy.spec.pod_sets}
    new = {each.name: each.count for each in local.spec.pod_sets}
    return old.keys() == new.keys() and old != new and all(new[n] <= old[n] for n in new)


def _has_other_priority(local: Workload, copy: Workload) -> bool:
    mine, its = local.spec.priority_class_ref, copy.spec.priority_class_ref
    if its is None or its.kind != "WorkloadPriorityClass":
        return False
    if mine is not None and mine.kind == "PriorityClass":
        return False
    others = (None if mine is None else mine.name) != its.name
    return others or local.spec.priority != copy.spec.priority


def _converged(group: Group, cluster: str, settings: MultiKueueSettings) -> DispatchPlan:
    """Keep the copy that was admitted first, and none else."""
    local = group.local
    removed = tuple(Remove(c) for c, copy in group.copies.items() if copy and c != cluster)
    eviction = find_condition(local.status.conditions, EVICTED)
    if eviction is not None and eviction.status == "True":
        message = f"Evicted on manager: {eviction.message}"
        return DispatchPlan((*removed, Deactivate(cluster, message)))
    actions: tuple[Action, ...] = (*removed, SyncJob(cluster))
    if group.state.state in {"Retry", "Rejected"}:
        return DispatchPlan(actions, again=settings.lost_seconds)
    known = local.status.cluster_name
    if known is not None and known != cluster:
        error = f'attempting to change immutable ClusterName from "{known}" to "{cluster}"'
        return DispatchPlan(actions, error=error)
    message = f'The workload was admitted on "{cluster}"'
    if (group.state.state, known) != ("Ready", cluster):
        actions = (*actions, SetCheck("Ready", message, cluster=cluster, event="Normal"))
    return DispatchPlan(actions, again=settings.lost_seconds)


def _lost(group: Group, settings: MultiKueueSettings, *, now: float) -> DispatchPlan:
    """Wait for a worker that is out of reach, and requeue what is not there any more."""
    cluster = group.local.status.cluster_name or ""
    # Copies of an earlier run, on a worker that was away: the job must not run twice.
    removed = tuple(Remove(c) for c, copy in group.copies.items() if copy and c != cluster)
    previously = f'Previously: "{group.state.state}"'
    if cluster not in group.unreachable:
        what = "Admitting remote no longer exists" if cluster else UNRECORDED
        return DispatchPlan((*removed, SetCheck("Retry", f"{what}, {previously}")))
    left = _patience(group, cluster, settings, now=now)
    if left > 0:
        return DispatchPlan(removed, again=left)
    return DispatchPlan((*removed, SetCheck("Retry", f"Admitting remote lost, {previously}")))


def _patience(group: Group, cluster: str, settings: MultiKueueSettings, *, now: float) -> float:
    """Return the seconds that a worker out of reach is still waited for."""
    return settings.lost_seconds - (now - group.lost_at.get(cluster, now))


def _withdrawn(group: Group, settings: MultiKueueSettings, *, now: float) -> DispatchPlan:
    """Let go of an evicted workload of which no worker in reach has a copy.

    Its job here says for ever what the last worker reported, such as that its pods run.
    """
    left = max((_patience(group, c, settings, now=now) for c in group.unreachable), default=0.0)
    return DispatchPlan(again=left) if left > 0 else DispatchPlan((Withdraw(),))


def _pending(
    group: Group, settings: MultiKueueSettings, *, elastic: bool, now: float
) -> DispatchPlan:
    opened: tuple[Action, ...] = ()
    again = None
    if settings.orchestrates:
        cluster, again = next_gate(group.copies, now=now)
        if cluster:
            opened = (OpenGate(cluster, _opened(group.copies[cluster], now)),)
    if is_settled(group, elastic=elastic):
        return DispatchPlan(opened, again=again)
    found = nominated(group, settings, elastic=elastic)
    if group.follows == "":
        again = FOLLOW_SECONDS
    return found._replace(actions=(*opened, *found.actions), again=again)


def is_settled(group: Group, *, elastic: bool) -> bool:
    """Tell whether no worker is to be nominated: not now, or as one is chosen.

    Args:
        group: The workload and its copies.
        elastic: Whether the job may grow: the worker of its first slice is nominated again.
    """
    local = group.local
    if group.state.state != "Pending" or condition_true(local.status.conditions, EVICTED):
        return True
    return not elastic and local.status.cluster_name is not None


def next_gate(copies: Mapping[str, Workload | None], *, now: float) -> tuple[str, float | None]:
    """Return the worker whose copy may preempt next, and when to look again.

    Args:
        copies: The copies.
        now: Seconds since the epoch.

    Returns:
        An empty name if no worker's turn has come; None if nothing changes by itself.
    """
    opened, waiting = [], []
    for cluster, copy in copies.items():
        if copy is None:
            continue
        gate = next((g for g in copy.status.preemption_gates if g.name == MULTI_KUEUE), None)
        if gate is not None and gate.position == "Open":
            opened.append(gate.last_transition_time.timestamp() if gate.last_transition_time else 0)
            continue
        blocked = find_condition(copy.status.conditions, BLOCKED_ON_GATES)
        if blocked is not None and blocked.status == "True":
            since = blocked.last_transition_time
            waiting.append((since.timestamp() if since else 0.0, cluster))
    if not waiting:
        return "", None
    past = [at for at in opened if at <= now]  # the manager wrote them: others are forged
    left = GATE_SECONDS - (now - max(past)) if past else 0.0
    return ("", left) if left > 0 else (min(waiting)[1], GATE_SECONDS)


def _opened(copy: Workload | None, now: float) -> tuple[PreemptionGateState, ...]:
    assert copy is not None, "a gate is opened where there is one"
    gate = PreemptionGateState(MULTI_KUEUE, "Open", timestamp(now))
    others = [g for g in copy.status.preemption_gates if g.name != MULTI_KUEUE]
    return (*others, gate)


def nominated(group: Group, settings: MultiKueueSettings, *, elastic: bool = False) -> DispatchPlan:
    """Return the steps that give each nominated worker a copy, and take the others away.

    Args:
        group: The workload and its copies.
        settings: How jobs are sent.
        elastic: Whether the job may grow: its later slices go to the same worker.
    """
    status = group.local.status
    if any(s.state != "Ready" for s in status.admission_checks if s.name != group.check):
        return DispatchPlan()
    actions: list[Action] = []
    names: tuple[str, ...] = status.nominated_cluster_names
    follows = status.cluster_name if elastic and group.follows is None else group.follows
    everywhere = follows is None and settings.dispatcher == ALL_AT_ONCE
    if everywhere:
        names = tuple(sorted(group.copies))
    elif follows is not None:
        names = (follows,) if follows else ()
    writes = everywhere or bool(group.follows)
    if writes and set(status.nominated_cluster_names) != set(names):
        actions.append(Nominate(names))
    for cluster, copy in group.copies.items():
        if cluster in names and copy is None:
            actions.append(Create(cluster, gated=settings.orchestrates))
        elif cluster not in names and copy is not None:
            actions.append(Remove(cluster))
    absent = [name for name in names if name not in group.copies]
    error = "" if not absent else f"cluster {absent[0]}: it is nominated, but not connected"
    return DispatchPlan(tuple(actions), error=error)


def waits_for_worker(group: Group) -> bool:
    """Tell whether a workload with quota may be nominated for more workers."""
    status = group.local.status
    others = (s for s in status.admission_checks if s.name != group.check)
    free = status.cluster_name is None and not condition_true(status.conditions, EVICTED)
    return free and group.state.state == "Pending" and all(s.state == "Ready" for s in others)


def next_round(
    nominated_names: Sequence[str], clusters: Sequence[str], settings: MultiKueueSettings
) -> tuple[str, ...]:
    """Return all workers that are nominated in the next round of the incremental dispatcher.

    Args:
        nominated_names: Those that are nominated already.
        clusters: Those of the config, in its order.
        settings: How many more there are, and in which order.
    """
    left = [name for name in clusters if name not in nominated_names]
    if not settings.keeps_order:
        left.sort()
    return (*nominated_names, *left[: settings.step])
