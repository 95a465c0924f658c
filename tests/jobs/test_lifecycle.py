"""The next step of a job and its workload, from what is there."""

import msgspec
import pytest

from policyd.api.kueue import ReclaimablePod, Workload
from policyd.api.kueue.workload import PriorityClassReference
from policyd.api.meta import ObjectMeta
from policyd.jobs import lifecycle as step
from policyd.jobs.base import JobOutcome
from policyd.jobs.lifecycle import next_step
from policyd.jobs.matching import choose
from policyd.jobs.steps import JobView
from policyd.jobs.workload import Priority

METADATA = ObjectMeta(name="j", namespace="ns", labels={"kueue.x-k8s.io/queue-name": "lq"})
GOLD = PriorityClassReference("kueue.x-k8s.io", "WorkloadPriorityClass", "gold")
DONE = JobOutcome(succeeded=True, message="done")


def view(**changes):
    """A job that is held."""
    given = {"metadata": METADATA, "held": True, "running": False, "active": False, **changes}
    return JobView(**given)


def on_hold(**changes):
    found = workload(**changes)
    condition = {"type": "QuotaReserved", "status": "False", "reason": step.ON_HOLD, "message": "m"}
    status = msgspec.convert({"conditions": [condition]}, type(found.status))
    return msgspec.structs.replace(found, status=status)


def running(**changes):
    return view(held=False, running=True, active=True, **changes)


def workload(*true, deleting=False, finalizer=True, queue="lq", reclaimable=0, active=True, pods=9):
    conditions = [{"type": kind, "status": "True", "reason": "R", "message": "m"} for kind in true]
    metadata = {"name": "w", "namespace": "ns"}
    if finalizer:
        metadata["finalizers"] = ["kueue.x-k8s.io/resource-in-use"]
    if deleting:
        metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    status = {"conditions": conditions}
    if reclaimable:
        status["reclaimablePods"] = [{"name": "main", "count": reclaimable}]
    pod_sets = [{"name": "main", "count": pods, "template": {}}]
    spec = {"queueName": queue, "active": active, "priority": 0, "podSets": pod_sets}
    return msgspec.convert({"metadata": metadata, "spec": spec, "status": status}, Workload)


ADMITTED = ("QuotaReserved", "Admitted")
EVICTED = (*ADMITTED, "Evicted")


@pytest.mark.parametrize(
    ("job", "found", "expected"),
    [
        pytest.param(view(), None, step.CreateWorkload, id="held-without-workload"),
        pytest.param(view(complete=False), None, None, id="not-all-pods-are-there"),
        pytest.param(view(active=True), None, None, id="old-pods-still-end"),
        pytest.param(running(), None, step.Stop, id="runs-without-workload"),
        pytest.param(view(), workload(), None, id="waits"),
        pytest.param(view(), workload("QuotaReserved"), None, id="waits-for-checks"),
        pytest.param(view(), workload(*ADMITTED), step.Start, id="admitted"),
        pytest.param(
            view(complete=False), workload(*ADMITTED), step.Start, id="admitted-and-a-pod-is-gone"
        ),
        pytest.param(
            view(running=True, active=True, complete=False),
            workload(*ADMITTED),
            step.Start,
            id="half-started",
        ),
        pytest.param(running(), workload(*ADMITTED), None, id="runs"),
        pytest.param(running(), workload(), step.Stop, id="slipped-past-the-webhook"),
        pytest.param(running(), workload(*EVICTED), step.Stop, id="evicted"),
        pytest.param(view(active=True), workload(*EVICTED), None, id="evicted-pods-still-end"),
        pytest.param(view(), workload(*EVICTED), step.Release, id="evicted-and-stopped"),
        pytest.param(view(), workload("Evicted"), None, id="evicted-and-released"),
        pytest.param(view(), workload(*ADMITTED, active=False), None, id="being-deactivated"),
        pytest.param(view(outcome=DONE), workload(*ADMITTED), step.Finish, id="ended"),
        pytest.param(view(outcome=DONE), None, None, id="ended-without-workload"),
        pytest.param(view(outcome=DONE), workload("Finished"), step.DropFinalizer, id="finished"),
        pytest.param(
            view(outcome=DONE), workload("Finished", finalizer=False), None, id="finished-let-go"
        ),
        pytest.param(running(), workload(*ADMITTED, deleting=True), step.Stop, id="deleted-runs"),
        pytest.param(view(), workload(deleting=True), step.DropFinalizer, id="deleted-held"),
        pytest.param(view(leaves=True), workload(deleting=True), step.Stop, id="deleted-together"),
        pytest.param(
            running(elastic=True), workload("QuotaReserved"), None, id="grows-and-waits-for-checks"
        ),
        pytest.param(running(elastic=True), workload(), step.Stop, id="grows-without-quota"),
        pytest.param(running(), workload("QuotaReserved"), step.Stop, id="runs-before-its-checks"),
        pytest.param(view(), workload(queue="old"), step.UpdateWorkload, id="other-queue"),
        pytest.param(
            running(reclaimable=(ReclaimablePod("main", 2),)),
            workload(*ADMITTED, reclaimable=1),
            step.Report,
            id="more-to-reclaim",
        ),
        pytest.param(
            running(reclaimable=(ReclaimablePod("main", 1),)),
            workload(*ADMITTED, reclaimable=2),
            None,
            id="less-to-reclaim-is-not-told",
        ),
        pytest.param(
            running(reclaimable=(ReclaimablePod("main", 3),)),
            workload(*EVICTED, reclaimable=2, pods=2),
            step.Stop,
            id="more-to-reclaim-than-there-are",
        ),
        pytest.param(
            view(priority=Priority(reference=GOLD)),
            workload(),
            step.ChangePriority,
            id="other-priority-class",
        ),
        pytest.param(view(priority=Priority(value=5)), workload(), None, id="other-value-alone"),
        pytest.param(view(on_hold=True), workload(), step.Release, id="comes-on-hold"),
        pytest.param(view(on_hold=True), on_hold(), None, id="on-hold"),
        pytest.param(
            view(on_hold=True, priority=Priority(reference=GOLD)),
            on_hold(),
            step.ChangePriority,
            id="other-priority-class-on-hold",
        ),
        pytest.param(
            view(on_hold=True), on_hold(queue="old"), step.UpdateWorkload, id="other-queue-on-hold"
        ),
        pytest.param(view(), on_hold(), step.Release, id="on-hold-no-longer"),
    ],
)
def test_next_step(job, found, expected):
    taken = next_step(job, found)

    assert (None if taken is None else type(taken)) is expected


@pytest.mark.parametrize(
    ("job", "others", "expected"),
    [
        pytest.param(view(), [workload()], step.UpdateWorkload, id="changed-while-it-waits"),
        pytest.param(view(), [workload(*ADMITTED)], step.DeleteWorkload, id="changed-with-quota"),
        pytest.param(view(), [workload(), workload()], step.DeleteWorkload, id="two-of-them"),
        pytest.param(running(), [workload(*ADMITTED)], step.Stop, id="changed-while-it-runs"),
        pytest.param(view(outcome=DONE), [workload(*ADMITTED)], step.Finish, id="ended"),
    ],
)
def test_workloads_that_do_not_fit(job, others, expected):
    assert type(next_step(job, None, others)) is expected


def test_a_second_workload_is_deleted():
    taken = next_step(running(), workload(*ADMITTED), [workload()])

    assert isinstance(taken, step.DeleteWorkload)


def test_a_stop_says_why():
    deleted = next_step(running(), workload(*ADMITTED, deleting=True))
    evicted = next_step(running(), workload(*EVICTED))
    wild = next_step(running(), workload())

    assert (deleted.reason, deleted.message) == ("WorkloadDeleted", "Workload is deleted")
    assert (evicted.reason, evicted.message) == ("WorkloadEvictedDueToR", "m")
    assert (wild.reason, wild.message) == ("NotAdmitted", "Not admitted by cluster queue")


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        pytest.param(workload(), step.UpdateWorkload(workload()), id="while-it-waits"),
        pytest.param(
            workload("QuotaReserved"),
            step.DeleteWorkload(workload("QuotaReserved")),
            id="with-quota",
        ),
    ],
)
def test_a_workload_of_another_time_limit_does_not_fit(found, expected):
    labels = {**METADATA.labels, "kueue.x-k8s.io/max-exec-time-seconds": "60"}
    job = view(metadata=msgspec.structs.replace(METADATA, labels=labels))

    _, taken = choose(job, [found], None, watched=lambda _: False)

    assert taken == expected
