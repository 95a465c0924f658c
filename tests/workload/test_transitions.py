"""A workload's status, change by change, and the patches that write it."""

import msgspec
import pytest

from policyd.api.kueue import Admission, AdmissionCheckState, PodSetAssignment, Workload
from policyd.api.meta import timestamp
from policyd.controller.patches import status_patch
from policyd.controller.watch.preemptions import blocked_on_gates
from policyd.controller.watch.workload_values import WorkloadContext, workload_value
from policyd.jobs.lifecycle import is_on_hold
from policyd.patch.merge_patch import apply_merge_patch, merge_difference
from policyd.workload import transitions as t

NOW = 1_700_000_000.0
ADMISSION = Admission("cq", (PodSetAssignment("main", {"cpu": "f"}, {"cpu": "2"}, 2),))


def workload(**status):
    metadata = {"name": "w", "namespace": "ns", "resourceVersion": "7", "generation": 3}
    return msgspec.convert({"metadata": metadata, "status": status}, Workload)


def summarize(status):
    return {c.type: (c.status, c.reason, c.message) for c in status.conditions}


def check(state):
    return {"name": "c", "state": state}


def test_without_checks_a_reservation_admits():
    status = t.reserve(workload(resourceRequests=[{"name": "main"}]), ADMISSION, now=NOW)

    assert summarize(status) == {
        "QuotaReserved": ("True", "QuotaReserved", "Quota reserved in ClusterQueue cq"),
        "Admitted": ("True", "Admitted", "The workload is admitted"),
    }
    assert status.admission == ADMISSION
    assert status.resource_requests == ()
    assert {c.observed_generation for c in status.conditions} == {3}


def test_with_a_check_that_is_not_ready_it_does_not():
    status = t.reserve(workload(admissionChecks=[check("Pending")]), ADMISSION, now=NOW)

    assert summarize(status)["Admitted"] == (
        "False",
        "UnsatisfiedAdmissionChecks",
        "The workload has not all checks ready",
    )


def test_a_reservation_ends_an_eviction_and_says_what_it_was():
    evicted = t.with_status(
        workload(), t.evict(workload(), reason="Preempted", message="for another", now=NOW)
    )

    status = t.reserve(evicted, ADMISSION, now=NOW + 5)

    assert summarize(status)["Evicted"] == ("False", "QuotaReserved", "Previously: for another")


def test_an_eviction_closes_the_gates_of_preemption_and_nobody_is_blocked_on_them():
    gates = [{"name": "kueue.x-k8s.io/multikueue", "position": "Open"}]
    blocked = blocked_on_gates(workload(preemptionGates=gates), now=NOW)
    assert summarize(blocked.status)["BlockedOnPreemptionGates"] == (
        "True",
        "PreemptionGated",
        "Workload requires preemption, but it's gated",
    )

    status = t.evict(blocked, reason="Preempted", message="for another", now=NOW + 5)

    assert summarize(status)["BlockedOnPreemptionGates"] == ("False", "Preempted", "for another")
    (gate,) = status.preemption_gates
    assert (gate.position, gate.last_transition_time.timestamp()) == ("Closed", NOW + 5)


@pytest.mark.parametrize(
    ("reason", "requeued"),
    [
        pytest.param("Preempted", "True", id="preempted-queues-at-once"),
        pytest.param("ClusterQueueStopped", "False", id="stopped-waits-for-a-restart"),
    ],
)
def test_after_an_eviction_the_quota_is_given_back(reason, requeued):
    admitted = t.with_status(workload(), t.reserve(workload(), ADMISSION, now=NOW))
    evicted = t.with_status(admitted, t.evict(admitted, reason=reason, message="m", now=NOW + 60))

    status = t.after_eviction(evicted, now=NOW + 90)

    assert status.admission is None
    assert status.accumulated_past_execution_time_seconds == 90
    assert summarize(status) == {
        "QuotaReserved": ("False", "PendingEvaluation", "m"),
        "Admitted": ("False", "NoReservation", "The workload has no reservation"),
        "Evicted": ("True", reason, "m"),
        "Requeued": (requeued, reason, "m"),
    }


@pytest.mark.parametrize("answer", ["Ready", "Retry", "Rejected"])
def test_an_answer_that_came_while_a_job_stopped_does_not_count_for_its_next_quota(answer):
    admitted = t.with_status(workload(), t.reserve(workload(), ADMISSION, now=NOW))
    evicted = t.evict(admitted, reason="Preempted", message="m", now=NOW + 60)
    late = AdmissionCheckState(name="a", state=answer, last_transition_time=timestamp(NOW + 70))
    stopping = t.with_status(admitted, msgspec.structs.replace(evicted, admission_checks=(late,)))

    status = t.after_eviction(stopping, now=NOW + 90)

    assert [(each.name, each.state) for each in status.admission_checks] == [("a", "Pending")]


def of_pod(**owner):
    owners = [{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u", **owner}]
    metadata = {"name": "w", "namespace": "ns", "ownerReferences": owners}
    return msgspec.convert({"metadata": metadata}, Workload)


@pytest.mark.parametrize(
    ("stopped", "spares_pods", "requeued"),
    [
        pytest.param(of_pod(controller=True), True, "False", id="pod-that-was-deleted"),
        pytest.param(of_pod(controller=True), False, "True", id="without-the-gate"),
        pytest.param(of_pod(), True, "True", id="group-of-one-that-is-replaced"),
        pytest.param(of_pod(kind="Job", controller=True), True, "True", id="job"),
    ],
)
def test_a_pod_that_was_deleted_does_not_queue_again(stopped, spares_pods, requeued):
    evicted = t.with_status(stopped, t.evict(stopped, reason="Preempted", message="m", now=NOW))

    status = t.after_eviction(evicted, now=NOW + 1, spares_pods=spares_pods)

    assert summarize(status)["Requeued"] == (requeued, "Preempted", "m")


def test_an_eviction_resets_checks_and_is_counted():
    before = workload(admissionChecks=[check("Ready"), {"name": "d", "state": "Retry"}])

    status = t.evict(before, reason="Deactivated", message="m", cause="AdmissionCheck", now=NOW)

    assert [c.state for c in status.admission_checks] == ["Pending", "Pending"]
    assert [c.retry_count for c in status.admission_checks] == [None, 1]
    assert summarize(status)["Evicted"][1] == "DeactivatedDueToAdmissionCheck"
    assert status.scheduling_stats.evictions[0].count == 1


def test_evictions_are_counted_by_their_reasons():
    evicted = workload()
    for reason in ("Preempted", "NodeFailures", "Preempted"):
        status = t.evict(evicted, reason=reason, message="why", now=9)
        evicted = msgspec.structs.replace(evicted, status=status)

    counts = {each.reason: each.count for each in evicted.status.scheduling_stats.evictions}
    assert counts == {"Preempted": 2, "NodeFailures": 1}


def test_saying_the_same_again_changes_nothing():
    first = t.with_status(workload(), waiting(workload(), now=NOW))

    again = waiting(first, now=NOW + 9)

    assert again == first.status
    assert status_patch(first, again) is None
    assert first.status.resource_requests[0].resources == {"cpu": "1500m"}


def test_without_detail_every_reason_is_the_same_and_none_is_written_newly():
    status = waiting(workload(), now=NOW, detailed=False)

    assert summarize(status) == {"QuotaReserved": ("False", "Pending", "m")}


def test_without_detail_a_workload_on_hold_stays_on_hold():
    status = t.release(workload(), reason="OnHold", message="m", now=NOW, detailed=False)

    assert is_on_hold(t.with_status(workload(), status))


@pytest.mark.parametrize(
    ("reserved", "detailed", "reason"),
    [
        pytest.param("True", True, "UnsatisfiedAdmissionChecks", id="checks"),
        pytest.param("True", False, "UnsatisfiedChecks", id="checks-without-detail"),
        pytest.param("False", True, "NoReservation", id="quota"),
        pytest.param("False", False, "NoReservationUnsatisfiedChecks", id="both-without-detail"),
    ],
)
def test_a_workload_that_is_no_longer_admitted_gets_the_reason(reserved, detailed, reason):
    states = [("QuotaReserved", reserved), ("Admitted", "True")]
    conditions = [{"type": kind, "status": status, "reason": "R"} for kind, status in states]
    before = workload(conditions=conditions, admissionChecks=[check("Pending")])

    status = t.sync_admitted(before, now=NOW, detailed=detailed)

    assert summarize(status)["Admitted"][:2] == ("False", reason)


def waiting(one, **options):
    released = t.release(one, reason="WaitingForQuota", message="m", **options)
    return t.with_requests(released, {"main": {"cpu": 1500}})


def test_a_patch_holds_what_changed_and_the_version_it_is_based_on():
    patch = status_patch(workload(), t.reserve(workload(), ADMISSION, now=NOW))

    assert patch["metadata"] == {"resourceVersion": "7"}
    assert sorted(patch["status"]) == ["admission", "conditions"]


def test_finished_workloads_stay_as_they_ended():
    ended = t.with_status(workload(), t.finish(workload(), reason="A", message="a", now=NOW))

    assert t.finish(ended, reason="B", message="b", now=NOW + 1) == ended.status


def test_a_long_message_is_cut():
    status = t.finish(workload(), reason="Failed", message="é" * 40_000, now=NOW)

    assert len(status.conditions[0].message.encode()) <= t.MESSAGE_BYTES


@pytest.mark.parametrize(
    ("old", "new"),
    [
        pytest.param({"a": 1}, {"a": 1}, id="the-same"),
        pytest.param({"a": 1, "b": {"c": 1, "d": 2}}, {"b": {"c": 1, "d": 3}}, id="nested"),
        pytest.param({"a": [1, 2]}, {"a": [2]}, id="lists-are-replaced"),
        pytest.param({}, {"a": {"b": 1}}, id="new"),
        pytest.param({"a": {"b": 1}}, {"a": "text"}, id="another-type"),
    ],
)
def test_merge_patches_make_the_new_of_the_old(old, new):
    assert apply_merge_patch(old, merge_difference(old, new)) == new


@pytest.mark.parametrize(
    ("reclaimed", "held"),
    [
        pytest.param(0, 2000, id="all-run"),
        pytest.param(1, 1000, id="one-has-ended"),
        pytest.param(2, 0, id="all-have-ended"),
    ],
)
def test_quota_is_held_for_the_pods_that_are_left(reclaimed, held):
    conditions = [{"type": "QuotaReserved", "status": "True"}]
    body = {
        "spec": {"podSets": [{"name": "main", "count": 2}]},
        "status": {
            "conditions": conditions,
            "admission": msgspec.to_builtins(ADMISSION) | {"clusterQueue": "cq"},
            "reclaimablePods": [{"name": "main", "count": reclaimed}],
        },
    }
    body["status"]["admission"]["podSetAssignments"][0]["name"] = "main"

    value = workload_value(
        msgspec.convert(body, Workload), WorkloadContext(now=NOW), cluster_queue="cq"
    )

    assert value.admission.usage() == {("f", "cpu"): held}
