"""Bugs that a tired engineer might write, by folder: each is a patch of the product."""

from dataclasses import replace
from datetime import UTC, datetime
from unittest import mock

import msgspec

from policyd.admission import jobs as admission_of_jobs
from policyd.alloc.fair_sharing import BorrowedShare
from policyd.alloc.pending import Ticket
from policyd.alloc.preemption import search
from policyd.alloc.preemption.search import Search
from policyd.alloc.quota import Hierarchy, QuotaTree
from policyd.alloc.state import CoreState
from policyd.api.kueue import ReclaimablePod
from policyd.api.kueue.names import ADMITTED
from policyd.api.meta import find_condition
from policyd.controller.cycle_loop import CycleLoop
from policyd.controller.jobs import job_reconciler, membership
from policyd.controller.jobs.job_reconciler import JobReconciler
from policyd.controller.jobs.job_steps import WorkloadSteps
from policyd.controller.jobs.membership import Membership
from policyd.controller.jobs.pod_reconciler import PodReconciler
from policyd.controller.queues import queue_statuses
from policyd.controller.reasons.workload_reasons import PendingReasons
from policyd.controller.watch import mirror
from policyd.controller.watch.cache import Cache
from policyd.controller.watch.keys import workload_key
from policyd.controller.workload_writes import WorkloadWrites
from policyd.controller.writes import Writes
from policyd.jobs import lifecycle
from policyd.jobs.lifecycle import has_quota
from policyd.jobs.pod_groups import PodGroup
from policyd.jobs.rules import validation
from policyd.kube.changes import Added, Modified
from policyd.kube.informer import Informer
from policyd.kube.workqueue import WorkQueue
from policyd.workload import transitions


def _a_lost_wake_up():
    """Every third change does not wake the cycles."""
    calls, wake = iter(range(10**9)), CycleLoop.wake
    return mock.patch.object(
        CycleLoop, "wake", lambda self: None if next(calls) % 3 == 0 else wake(self)
    )


def _no_requeue():
    """An evicted workload keeps its quota."""

    async def release(*_given, **_named):
        return None

    return mock.patch.object(WorkloadSteps, "release", release)


def _deletions_unseen():
    """An informer does not notice what a list lacks or a watch deletes."""
    return mock.patch.object(Informer, "_drop", return_value=None)


def _conflicts_ignored():
    """A write that failed is taken for one that succeeded."""

    async def status(self, _mirror, workload, _status):
        return workload

    return mock.patch.object(Writes, "status", status)


def _quota_returned_at_once():
    """The allocator forgets what it has assumed."""
    return mock.patch.object(CoreState, "_assume", return_value=None)


def _late_leader():
    """A process that lost the Lease writes on."""
    return mock.patch.object(Writes, "_check", return_value=None)


def _quota_returned_twice():
    """What a workload held is released once more when it leaves."""
    release = QuotaTree.release

    def twice(self, charges):
        release(self, charges)
        release(self, charges)

    return mock.patch.object(QuotaTree, "release", twice)


def _a_gate_never_removed():
    """Of several pods of a group, the one that came last keeps its gate."""
    admit = Membership.admit_members

    def most(self, pods, workload):
        (found, again), owners = admit(self, pods, workload), workload.metadata.owner_references
        return [p for p in found if len(owners) < 2 or p.metadata.uid != owners[-1].uid], again

    return mock.patch.object(Membership, "admit_members", most)


def _a_stale_read():
    """An older version of an object takes the place of a newer one."""
    return mock.patch.object(mirror, "_newer", return_value=True)


def _unanswered_is_refused():
    """A write that was not answered counts as not done, and its quota as free."""

    def failed(self, _workload, action, _error):
        self._cache.settle(action)

    return mock.patch.object(WorkloadWrites, "_failed", failed)


def _order_inverted():
    """The least important workload comes first."""
    begin = Ticket.__post_init__

    def inverted(self):
        begin(self)
        self.rank = self.workload.priority, *self.rank[1:]
        self.set_order_key(shortest=False)

    return mock.patch.object(Ticket, "__post_init__", inverted)


def _a_gang_with_one_pod_less():
    """A group counts as complete while a pod is missing."""
    total = PodGroup.total.fget
    return mock.patch.object(PodGroup, "total", property(lambda self: max(1, total(self) - 1)))


def _a_reason_never_corrected():
    """The first reason of a workload stays."""
    write = PendingReasons._write

    async def once(self, workload, pending_reason):
        if self.written(workload) is None:
            await write(self, workload, pending_reason)

    return mock.patch.object(PendingReasons, "_write", once)


def _a_finalizer_that_stays():
    """Pods that the queue has let go keep its finalizer."""

    async def nothing(self, _pods):
        return None

    return mock.patch.object(Membership, "let_out", nothing)


def _held_jobs_run_on():
    """A job whose workload is on hold goes on."""
    return mock.patch.object(lifecycle, "_held", return_value=None)


def _pods_start_without_their_node_labels():
    """Pods get their gate taken away, and nothing of their flavor; the version is not checked."""

    def bare(self, pod, workload, given):
        return [{"op": "replace", "path": "/spec/schedulingGates", "value": []}]

    return mock.patch.object(PodReconciler, "_ungating", bare)


def _what_runs_is_forgotten_by_a_crash():
    """A controller that starts does not count what runs, and starts others in its place."""
    take = Cache.take

    def forgetful(self, change):
        if not (isinstance(change, Added) and has_quota(change.object)):
            return take(self, change)
        self.index.add(change.object)
        return [workload_key(change.object)]

    return mock.patch.object(Cache, "take", forgetful)


def _fairness_inverted():
    """Who borrows most comes first."""
    rank = BorrowedShare.rank.fget

    def inverted(self):
        weightless, ratio = rank(self)
        return not weightless, -ratio

    return mock.patch.object(BorrowedShare, "rank", property(inverted))


def _a_gang_split_by_a_lost_node():
    """A pod that replaces a lost one does not start with the others."""
    admit = Membership.admit_members

    def first_only(self, pods, workload):
        admitted = find_condition(workload.status.conditions, ADMITTED)
        since = admitted and admitted.last_transition_time
        found, again = admit(self, pods, workload)
        return [p for p in found if not (since and p.metadata.creation_timestamp > since)], again

    return mock.patch.object(Membership, "admit_members", first_only)


def _a_reason_never_cleared():
    """That pods are missing stays written when others have replaced them."""
    replacement = membership._replacement

    def kept(*given, **named):
        found = replacement(*given, **named)
        return None if found is None or found.status == "False" else found

    return mock.patch.object(membership, "_replacement", kept)


def _a_lending_limit_of_one_more():
    """A queue lends one device more than it may."""
    recompute = QuotaTree._recompute_cell

    def more(self, cell, quota, below):
        if quota.lending_limit is not None:
            quota = msgspec.structs.replace(quota, lending_limit=quota.lending_limit + 1)
        recompute(self, cell, quota, below)

    return mock.patch.object(QuotaTree, "_recompute_cell", more)


def _a_cohort_above_forgotten():
    """A cohort has no part in the quota of the one above it."""
    put = Hierarchy.put_cohort
    return mock.patch.object(
        Hierarchy, "put_cohort", lambda self, name, _parent, quotas: put(self, name, "", quotas)
    )


def _siblings_are_not_woken():
    """Released quota wakes those that wait in the same queue, and no others of its cohort."""

    def note(self, node):
        self.revision += 1
        if node is not None and node.name in self.queues:
            self.queues[node.name].pending.wake()

    return mock.patch.object(CoreState, "_note_change", note)


def _equals_are_preempted():
    """A workload preempts others of the same priority."""

    def may(policy, preemptor, candidate):
        return policy != "Never" and preemptor.priority >= candidate.priority

    return mock.patch.object(search, "may_preempt", may)


def _reclaimed_from_those_who_lend():
    """All that other queues hold may be reclaimed, not only what they borrowed."""
    return mock.patch.object(Search, "within_nominal", lambda self, node: node is self.node)


def _weights_forgotten():
    """Shares are compared as if all queues had the same weight."""
    return mock.patch.object(
        BorrowedShare, "rank", property(lambda self: (self.weight == 0, self.ratio))
    )


def _local_time():
    """Times are those of the machine's zone."""
    return mock.patch.object(transitions, "timestamp", _of_zone)


def _of_zone(seconds):
    return datetime.fromtimestamp(int(seconds)).replace(tzinfo=UTC)  # noqa: DTZ006 - the bug


def _answers_outlive_an_eviction():
    """Admission checks keep their answers when a workload is evicted."""
    return mock.patch.object(transitions, "_reset", lambda check, _now: check)


def _as_many_pods_as_requested():
    """A job starts with all its pods, though fewer were admitted."""

    def counts(workload):
        return {each.name: each.count for each in workload.spec.pod_sets}

    return mock.patch.object(job_reconciler, "admitted_counts", counts)


def _templates_are_not_put_back():
    """A job that was stopped keeps the nodes and the number of pods of its last start."""

    async def nothing(self, _job, _workload):
        return None

    return mock.patch.multiple(
        JobReconciler, _put_back=nothing, _restore=lambda _self, *_given: None
    )


def _priority_of_an_older_job():
    """A workload keeps the priority that its job had first."""

    async def nothing(self, *_given):
        return None

    return mock.patch.object(WorkloadSteps, "change_priority", nothing)


def _a_retry_lost():
    """What failed is not tried again."""
    return mock.patch.object(WorkQueue, "requeue", return_value=0.0)


def _a_finalizer_left_on_one_path():
    """A workload that is deleted keeps its finalizer, unless it has finished."""
    drop = WorkloadSteps.drop_finalizer

    async def some(self, resource, job, workload):
        if workload.metadata.deletion_timestamp is None:
            await drop(self, resource, job, workload)

    return mock.patch.object(WorkloadSteps, "drop_finalizer", some)


def _a_status_of_other_figures():
    """What is reserved is counted as admitted."""
    figures = queue_statuses.queue_figures

    def all_admitted(*given, **named):
        found = figures(*given, **named)
        return msgspec.structs.replace(found, admitted=found.reserving)

    return mock.patch.object(queue_statuses, "queue_figures", all_admitted)


def _a_change_taken_in_late():
    """Of every third change of a workload, the allocator gets the object as it was before."""
    take, calls = Cache.take, iter(range(10**9))

    def late(self, change):
        if isinstance(change, Modified) and next(calls) % 3 == 0:
            return take(self, Modified(change.old, change.old))
        return take(self, change)

    return mock.patch.object(Cache, "take", late)


def _jobs_begin_at_once():
    """The webhook does not suspend Jobs."""
    default = admission_of_jobs.default_on_create

    def some(draft, *, group, kind, surroundings):
        if kind != "Job":
            default(draft, group=group, kind=kind, surroundings=surroundings)

    return mock.patch.object(admission_of_jobs, "default_on_create", some)


def _quota_of_pods_that_never_were():
    """A Job gives back the quota of its places, also of those that never have pods."""
    view = JobReconciler._view

    def seen(self, job):
        found = view(self, job)
        if found is None or self._kind.kind != "Job" or not job.status.succeeded:
            return found
        count = max(0, job.spec.parallelism - job.spec.completions + job.status.succeeded)
        given = (ReclaimablePod(name="main", count=count),) if count else ()
        return replace(found, reclaimable=given)

    return mock.patch.object(JobReconciler, "_view", seen)


def _any_change_of_a_running_job():
    """The webhook lets a running job go to another queue."""
    return mock.patch.object(validation, "_changes", return_value=())


PLANTED = {
    each.__name__.strip("_").replace("_", " "): each
    for each in (
        _a_lost_wake_up, _no_requeue, _deletions_unseen, _conflicts_ignored,
        _quota_returned_at_once, _late_leader, _quota_returned_twice, _a_gate_never_removed,
        _a_stale_read, _unanswered_is_refused, _order_inverted, _a_gang_with_one_pod_less,
        _a_reason_never_corrected, _a_finalizer_that_stays, _held_jobs_run_on,
        _pods_start_without_their_node_labels, _what_runs_is_forgotten_by_a_crash,
        _fairness_inverted, _a_gang_split_by_a_lost_node, _a_reason_never_cleared,
        _a_lending_limit_of_one_more, _a_cohort_above_forgotten, _siblings_are_not_woken,
        _equals_are_preempted, _reclaimed_from_those_who_lend, _weights_forgotten, _local_time,
        _answers_outlive_an_eviction, _as_many_pods_as_requested, _templates_are_not_put_back,
        _priority_of_an_older_job, _a_retry_lost, _a_finalizer_left_on_one_path,
        _a_status_of_other_figures, _a_change_taken_in_late, _jobs_begin_at_once,
        _any_change_of_a_running_job, _quota_of_pods_that_never_were,
    )
}  # fmt: skip
