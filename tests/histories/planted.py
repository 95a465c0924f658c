"""Bugs that are planted to see whether a judge finds them: `python -m tests.histories.planted`."""

import sys
from unittest import mock

from rich.progress import track

from policyd.alloc.state import CoreState
from policyd.controller.cycle_loop import CycleLoop
from policyd.controller.jobs.job_steps import WorkloadSteps
from policyd.controller.writes import Writes
from policyd.kube.informer import Informer
from tests.histories.history import outcome_of

MOST = 40
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


PLANTED = {
    each.__name__.strip("_").replace("_", " "): each
    for each in (
        _a_lost_wake_up, _no_requeue, _deletions_unseen, _conflicts_ignored,
        _quota_returned_at_once, _late_leader,
    )
}  # fmt: skip


def found_in(plant):
    """Return the first seed whose history fails with a bug, and the judge; None if none does."""
    for seed in range(MOST):
        with plant():
            outcome = outcome_of(seed)
        if outcome.faults:
            return seed, outcome.faults[0][0]
    return None


def main():
    """Plant each bug, print where it is found, and end with 1 if one is not."""
    found = {name: found_in(plant) for name, plant in track(PLANTED.items(), "planted bugs")}
    for name, place in found.items():
        where = "not found" if place is None else f"found by `{place[1]}` with seed {place[0]}"
        print(f"{name}: {where}")
    return None in found.values()


if __name__ == "__main__":
    sys.exit(main())
