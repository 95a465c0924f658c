"""Bugs that are planted to see whether a judge finds them: `python -m tests.histories.planted`."""

import argparse
import os
import sys
from unittest import mock

from policyd.alloc.fair_sharing import BorrowedShare
from policyd.alloc.pending import Ticket
from policyd.alloc.quota import QuotaTree
from policyd.alloc.state import CoreState
from policyd.api.kueue.names import ADMITTED
from policyd.api.meta import find_condition
from policyd.controller.cycle_loop import CycleLoop
from policyd.controller.jobs import membership
from policyd.controller.jobs.job_steps import WorkloadSteps
from policyd.controller.jobs.membership import Membership
from policyd.controller.jobs.pod_reconciler import PodReconciler
from policyd.controller.reasons.workload_reasons import PendingReasons
from policyd.controller.watch import mirror
from policyd.controller.watch.cache import Cache
from policyd.controller.watch.keys import workload_key
from policyd.controller.workload_writes import WorkloadWrites
from policyd.controller.writes import Writes
from policyd.jobs import lifecycle
from policyd.jobs.lifecycle import has_quota
from policyd.jobs.pod_groups import PodGroup
from policyd.kube.changes import Added
from policyd.kube.informer import Informer
from tests.histories.apart import apart
from tests.histories.history import outcome_of, warm_up
from tests.histories.plan import HASH_SEED, plan_of

MOST = 200
"""Histories, within which each is to be found."""


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
    """Of several pods that may start, the last keeps its gate."""
    admit = Membership.admit_members

    def most(self, pods, workload):
        found = admit(self, pods, workload)
        return found[:-1] if len(found) > 1 else found

    return mock.patch.object(Membership, "admit_members", most)


def _a_stale_read():
    """An older version of an object takes the place of a newer one."""
    return mock.patch.object(mirror, "_newer", return_value=True)


def _unanswered_is_refused():
    """A write that was not answered counts as not done, and its quota as free."""

    def failed(self, workload, _error):
        self._cache.retract(workload.metadata.key)

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
        found = admit(self, pods, workload)
        return [p for p in found if not (since and p.metadata.creation_timestamp > since)]

    return mock.patch.object(Membership, "admit_members", first_only)


def _a_reason_never_cleared():
    """That pods are missing stays written when others have replaced them."""
    replacement = membership._replacement

    def kept(*given, **named):
        found = replacement(*given, **named)
        return None if found is None or found.status == "False" else found

    return mock.patch.object(membership, "_replacement", kept)


PLANTED = {
    each.__name__.strip("_").replace("_", " "): each
    for each in (
        _a_lost_wake_up, _no_requeue, _deletions_unseen, _conflicts_ignored,
        _quota_returned_at_once, _late_leader, _quota_returned_twice, _a_gate_never_removed,
        _a_stale_read, _unanswered_is_refused, _order_inverted, _a_gang_with_one_pod_less,
        _a_reason_never_corrected, _a_finalizer_that_stays, _held_jobs_run_on,
        _pods_start_without_their_node_labels, _what_runs_is_forgotten_by_a_crash,
        _fairness_inverted, _a_gang_split_by_a_lost_node, _a_reason_never_cleared,
    )
}  # fmt: skip


def found_in(plant, most, at_once):
    """Return the first history that fails with a bug, and the judge; None if none does."""
    with plant():
        for number, outcome in enumerate(
            apart(outcome_of, map(plan_of, range(most)), at_once=at_once), start=1
        ):
            if outcome.faults:
                return number, outcome.plan.seed, outcome.faults[0][0]
    return None


def main():
    """Plant each bug, print where it is found, and end with 1 if one is not."""
    parser = argparse.ArgumentParser(prog="python -m tests.histories.planted")
    parser.add_argument("-n", type=int, default=MOST, help="histories of each, at most")
    parser.add_argument("--processes", type=int, default=os.cpu_count(), help="at a time")
    parser.add_argument("--only", default="", help="bugs with these words")
    options = parser.parse_args()
    if os.environ.get(HASH_SEED) != "0":
        os.execve(sys.executable, [sys.executable, "-m", "tests.histories.planted", *sys.argv[1:]],
                  {**os.environ, HASH_SEED: "0"})  # fmt: skip
    warm_up()
    missed = 0
    for name, plant in PLANTED.items():
        if options.only in name:
            place = found_in(plant, options.n, options.processes)
            missed += place is None
            where = place and f"history {place[0]}, seed {place[1]}, by `{place[2]}`"
            print(f"{name}: {where or 'not found'}", flush=True)
    return missed > 0


if __name__ == "__main__":
    sys.exit(main())
