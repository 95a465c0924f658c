"""What a workload without quota is told, where that is not for the scheduling loop to say."""

import msgspec
import pytest

from policyd.alloc.settings import Gates
from policyd.alloc.workload import Objection
from policyd.api.kueue import ClusterQueue, LocalQueue, Workload
from policyd.api.meta import Condition
from policyd.workload.lifecycle import next_status
from policyd.workload.obstacles import BYPASSED, CLEARED, PENDING, StatusContext, unreserved
from policyd.workload.transitions import set_condition, with_status

NOW = 1_700_000_000.0
GATED_BY = {"kueue.x-k8s.io/admission-gated-by": "example.com/gate"}
LOCAL = msgspec.convert(
    {"metadata": {"name": "lq", "namespace": "ns"}, "spec": {"clusterQueue": "cq"}}, LocalQueue
)
CLUSTER = msgspec.convert({"metadata": {"name": "cq"}}, ClusterQueue)

TERSE = Gates(unadmitted_workloads_observability=False)
MISPLACED = Objection(reason="Misconfigured", message="of another namespace", misplaced=True)
UNCOUNTED = msgspec.structs.replace(MISPLACED, uncounted=True)


def workload(annotations=None, reason="", message="said", **spec):
    metadata = {"name": "w", "namespace": "ns", "annotations": annotations or {}}
    held = {"type": "QuotaReserved", "status": "False", "reason": reason, "message": message}
    body = {
        "metadata": metadata,
        "spec": {"queueName": "lq", **spec},
        "status": {"conditions": [held] if reason else []},
    }
    return msgspec.convert(body, Workload)


def next_of(given, **around):
    around = {"local_queue": LOCAL, "cluster_queue": CLUSTER, **around}
    return next_status(given, StatusContext(**around), now=NOW)


def reason_of(given, **around):
    reasons = {c.type: c.reason for c in next_of(given, **around).conditions}
    return reasons.get("QuotaReserved")


@pytest.mark.parametrize(
    ("given", "around", "reason"),
    [
        pytest.param(workload(), {}, None, id="nothing-before-it-was-considered"),
        pytest.param(workload(GATED_BY), {}, "AdmissionGated", id="gated"),
        pytest.param(
            workload(GATED_BY),
            {"inactive": True},
            "AdmissionGated",
            id="gated-first",
        ),
        pytest.param(
            workload(GATED_BY),
            {"gates": Gates(admission_gated_by=False)},
            None,
            id="nobody-heeds-who-gates-with-the-feature-off",
        ),
        pytest.param(workload(), {"inactive": True}, "Suspended", id="queue-is-inactive"),
        pytest.param(workload(), {"local_queue": None}, "Misconfigured", id="no-queue"),
        pytest.param(
            workload(reason="OnHold"), {"inactive": True}, "OnHold", id="on-hold-stays-on-hold"
        ),
        pytest.param(
            workload(reason="AdmissionGated"), {}, "PendingEvaluation", id="gated-no-longer"
        ),
        pytest.param(
            workload(reason="AdmissionGated"),
            {"inactive": True},
            "PendingEvaluation",
            id="gated-no-longer-is-told-first",
        ),
        pytest.param(
            workload(reason="PendingEvaluation"), {"inactive": True}, "Suspended", id="and-then-why"
        ),
        pytest.param(
            workload(reason="WaitingForQuota"),
            {"shared": "ExceedsMaxQuota"},
            "ExceedsMaxQuota",
            id="why-nobody-fits-who-asks-for-the-same",
        ),
        pytest.param(
            workload(reason="Inadmissible"), {"gates": TERSE}, "Pending", id="without-detail"
        ),
        pytest.param(workload(), {"objection": MISPLACED}, "Misconfigured", id="misplaced"),
        pytest.param(
            workload(),
            {"objection": MISPLACED, "gates": TERSE},
            "Pending",
            id="misplaced-without-detail",
        ),
        pytest.param(
            workload(),
            {"objection": UNCOUNTED, "gates": TERSE},
            "Inadmissible",
            id="uncounted-without-detail",
        ),
        pytest.param(
            workload(),
            {"inactive": True, "gates": TERSE},
            "Inadmissible",
            id="inactive-without-detail",
        ),
    ],
)
@pytest.mark.gate("AdmissionGatedBy")
def test_the_first_obstacle_is_reported(given, around, reason):
    assert reason_of(given, **around) == reason


@pytest.mark.parametrize(
    ("around", "reason", "message"),
    [
        pytest.param({}, "Deactivated", "The workload is deactivated", id="detailed"),
        pytest.param({"gates": TERSE}, "Pending", "too many retries", id="as-evicted"),
        pytest.param(
            {"gates": TERSE, "local_queue": None},
            "Inadmissible",
            "LocalQueue lq doesn't exist",
            id="without-queue",
        ),
    ],
)
def test_why_a_deactivated_workload_has_no_quota_is_shown_in_detail(around, reason, message):
    given = workload(reason="Pending", message="too many retries", active=False)
    context = StatusContext(**{"local_queue": LOCAL, "cluster_queue": CLUSTER, **around})

    status = unreserved(given, context, NOW)

    (shown,) = (each for each in status.conditions if each.type == "QuotaReserved")
    assert (shown.reason, shown.message) == (reason, message)


HELD = {"clusterQueue": "cq", "podSetAssignments": []}


@pytest.mark.parametrize("admitted", ["True", "False"])
@pytest.mark.parametrize(
    ("gates", "reason"),
    [
        pytest.param(Gates(), "AdmissionGated", id="heeded"),
        pytest.param(Gates(admission_gated_by=False), "QuotaReserved", id="not-heeded"),
    ],
)
def test_quota_is_taken_back_from_gated_workloads(admitted, gates, reason):
    conditions = [
        {"type": kind, "status": status, "reason": kind, "message": "said"}
        for kind, status in (("QuotaReserved", "True"), ("Admitted", admitted))
    ]
    body = {"conditions": conditions, "admission": HELD}
    given = msgspec.structs.replace(
        workload(GATED_BY), status=msgspec.convert(body, type(workload().status))
    )
    around = StatusContext(local_queue=LOCAL, cluster_queue=CLUSTER, gates=gates)

    status = next_status(given, around, now=NOW)

    reasons = {c.type: (c.status, c.reason) for c in status.conditions}
    held = reason == "QuotaReserved"
    assert reasons["QuotaReserved"] == (str(held), reason)
    assert (status.admission is not None) == held
    assert held or reasons["Admitted"][0] == "False"


@pytest.mark.parametrize(
    ("reason", "around"),
    [
        pytest.param("WaitingForQuota", {}, id="by-the-scheduling-loop"),
        pytest.param("WaitingForQuota", {"shared": "WaitingForQuota"}, id="known-of-equals-too"),
        pytest.param("Pending", {"gates": TERSE}, id="without-detail"),
        pytest.param("Pending", {"gates": TERSE, "shared": "WaitingForQuota"}, id="of-equals-too"),
        pytest.param("Waiting", {"gates": TERSE}, id="for-pods-of-others"),
    ],
)
def test_reasons_of_the_scheduling_loop_stay(reason, around):
    given = workload(reason=reason)

    around = StatusContext(local_queue=LOCAL, cluster_queue=CLUSTER, **around)
    status = next_status(given, around, now=NOW)

    assert [c.message for c in status.conditions if c.type == "QuotaReserved"] == ["said"]


@pytest.mark.parametrize(
    ("reason", "before", "message"),
    [
        pytest.param("PendingEvaluation", "said", "said", id="the-last-eviction-or-what-is-ahead"),
        pytest.param("WaitingForQuota", "said", "said", id="what-was-missing-before"),
        pytest.param("Pending", "said", "said", id="of-an-older-release"),
        pytest.param("PendingEvaluation", PENDING, BYPASSED, id="not-that-nobody-has-looked"),
        pytest.param("PendingEvaluation", CLEARED, BYPASSED, id="not-that-gates-are-open"),
        pytest.param("Suspended", "said", BYPASSED, id="not-that-a-queue-was-stopped"),
        pytest.param("", "", BYPASSED, id="nothing-was-said"),
    ],
)
def test_the_message_stays_until_it_is_known_why_equal_requests_fail(reason, before, message):
    given = workload(reason=reason, message=before)
    gates = Gates(unadmitted_workloads_explicit_status=True)

    around = StatusContext(
        local_queue=LOCAL, cluster_queue=CLUSTER, shared="ExceedsMaxQuota", gates=gates
    )
    status = next_status(given, around, now=NOW)

    found = {c.type: (c.reason, c.message) for c in status.conditions}
    assert found["QuotaReserved"] == ("ExceedsMaxQuota", message)


@pytest.mark.parametrize(
    ("known", "wanted"),
    [
        pytest.param([], ["a", "b"], id="new-ones-are-closed"),
        pytest.param([("b", "Open"), ("c", "Open")], ["a", "b"], id="those-gone-are-dropped"),
        pytest.param([("c", "Open")], [], id="none-is-left"),
    ],
)
def test_every_preemption_gate_of_the_spec_has_a_state(known, wanted):
    given = workload(preemptionGates=[{"name": name} for name in wanted])
    states = [{"name": name, "position": position} for name, position in known]
    status = msgspec.convert({"preemptionGates": states}, type(given.status))
    gates = Gates(multi_kueue_orchestrated_preemption=True)
    around = StatusContext(local_queue=LOCAL, cluster_queue=CLUSTER, gates=gates)

    after = next_status(msgspec.structs.replace(given, status=status), around, now=NOW)

    before = dict(known)
    assert [(g.name, g.position) for g in after.preemption_gates] == [
        (name, before.get(name, "Closed")) for name in wanted
    ]


def test_a_workload_in_backoff_keeps_its_gates():
    waits = {"requeueState": {"count": 1, "requeueAt": "2100-01-01T00:00:00Z"}}
    given = workload(preemptionGates=[{"name": "a"}])
    given = msgspec.structs.replace(given, status=msgspec.convert(waits, type(given.status)))
    gates = Gates(multi_kueue_orchestrated_preemption=True)
    around = StatusContext(local_queue=LOCAL, cluster_queue=CLUSTER, gates=gates)

    after = next_status(given, around, now=NOW)

    assert [g.position for g in after.preemption_gates] == ["Closed"]


def requeued(given):
    return {c.type: (c.status, c.reason, c.message) for c in given.status.conditions}.get(
        "Requeued"
    )


def test_a_workload_does_not_queue_until_its_devices_can_be_counted():
    uncounted = with_status(workload(), next_of(workload(), objection=UNCOUNTED))
    still = next_of(uncounted, objection=UNCOUNTED)
    counted = with_status(uncounted, next_of(uncounted))

    assert requeued(uncounted) == ("False", "Inadmissible", UNCOUNTED.message)
    assert reason_of(workload(), objection=UNCOUNTED) == "Misconfigured"
    assert still == uncounted.status
    assert requeued(counted) is None


def test_what_keeps_a_workload_from_queueing_otherwise_stays_written():
    stopped = Condition("Requeued", "False", "LocalQueueStopped", "m")
    given = with_status(workload(), set_condition(workload(), stopped, now=NOW))
    closed = msgspec.structs.replace(
        LOCAL, spec=msgspec.structs.replace(LOCAL.spec, stop_policy="Hold")
    )

    found = with_status(given, next_of(given, objection=UNCOUNTED, local_queue=closed))

    assert requeued(found) == ("False", "LocalQueueStopped", "m")
