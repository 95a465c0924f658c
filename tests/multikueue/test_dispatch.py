"""The steps of a workload that goes to other clusters: they end, and no job runs twice."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from policyd.api.kueue import PreemptionGateState, Workload, WorkloadStatus
from policyd.api.meta import Condition, timestamp
from policyd.multikueue.copies import without_report
from policyd.multikueue.dispatch import (
    Create,
    Deactivate,
    FinishWorkload,
    Group,
    Remove,
    SetCheck,
    SyncJob,
    Withdraw,
    next_gate,
    next_round,
    plan,
)
from policyd.multikueue.settings import DEFAULTS, INCREMENTAL

NOW = 1_000_000.0
MULTI_KUEUE = "kueue.x-k8s.io/multikueue"


def workload(*conditions, state="Pending", cluster=None, **spec):
    conditions_of = [{"type": kind, "status": "True", "reason": "Test"} for kind in conditions]
    status = {
        "conditions": conditions_of,
        "admissionChecks": [{"name": "away", "state": state, "message": ""}],
        **({"clusterName": cluster} if cluster else {}),
    }
    body = {"metadata": {"name": "w", "namespace": "ns"}, "spec": spec, "status": status}
    return msgspec.convert(body, Workload)


def steps(local, unreachable=(), lost_at=None, **copies):
    group = Group(local, "away", copies, unreachable, lost_at or {})
    return plan(group, DEFAULTS, now=NOW)


def test_a_worker_that_was_away_does_not_get_a_job_back_that_runs_elsewhere():
    local = workload("QuotaReserved", state="Ready", cluster="west")
    copy = workload("Admitted")

    taken = steps(local, east=copy, west=copy).actions
    cut_off = steps(local, unreachable=["west"], lost_at={"west": NOW - 1}, east=copy)

    assert taken == (Remove("east"), SyncJob("west"))
    assert cut_off.actions == (Remove("east"),)
    assert cut_off.again == DEFAULTS.lost_seconds - 1


@pytest.mark.parametrize(
    ("local", "copies", "kinds"),
    [
        pytest.param(workload(), {"east": None}, [Remove], id="no-quota"),
        pytest.param(workload("QuotaReserved"), {"east": None}, ["Nominate", Create], id="new"),
        pytest.param(
            workload("QuotaReserved", "Evicted"),
            {"east": None},
            [Withdraw],
            id="an-eviction-goes-on",
        ),
        pytest.param(
            workload("QuotaReserved", "Evicted"),
            {"east": workload("Admitted")},
            [Deactivate],
            id="evicted-here",
        ),
        pytest.param(
            workload("QuotaReserved", state="Ready", cluster="east"),
            {"east": workload("Finished")},
            [SyncJob, FinishWorkload],
            id="finished",
        ),
        pytest.param(
            workload("QuotaReserved"), {"east": workload("Admitted")}, [SyncJob, SetCheck], id="won"
        ),
        pytest.param(
            workload("QuotaReserved", state="Ready", cluster="east"),
            {"east": workload("Admitted", queueName="other")},
            [Remove, SetCheck],
            id="other-requests",
        ),
    ],
)
def test_each_state_has_its_steps(local, copies, kinds):
    names = [kind if isinstance(kind, str) else kind.__name__ for kind in kinds]

    assert [type(action).__name__ for action in steps(local, **copies).actions] == names


STATES = st.sampled_from(["", "Admitted", "Evicted", "Finished"])


@given(
    states=st.lists(STATES, min_size=1, max_size=4),
    check=st.sampled_from(["Pending", "Ready", "Retry"]),
    chosen=st.integers(-1, 3),
    evicted=st.booleans(),
)
def test_a_job_is_created_on_one_worker_at_most(states, check, chosen, evicted):
    names = [f"c{index}" for index in range(len(states))]
    copies = {n: workload(s) if s else None for n, s in zip(names, states, strict=True)}
    conditions = ("QuotaReserved", *(("Evicted",) if evicted else ()))
    cluster = f"c{chosen}" if chosen >= 0 else None

    taken = plan(
        Group(workload(*conditions, state=check, cluster=cluster), "away", copies),
        DEFAULTS,
        now=NOW,
    ).actions

    synced = [action.cluster for action in taken if isinstance(action, SyncJob)]
    removed = [action.cluster for action in taken if isinstance(action, Remove)]
    assert len(synced) <= 1
    assert not set(synced) & set(removed)
    assert len(removed) == len(set(removed))


@pytest.mark.parametrize(
    ("on", "names"), [(True, ("b", "c")), (False, ("a", "b"))], ids=["on", "off"]
)
@pytest.mark.gate("MultiKueueIncrementalDispatcherRespectConfigOrder")
def test_workers_are_nominated_in_order_some_at_a_time(on, names):
    gates = {"MultiKueueIncrementalDispatcherRespectConfigOrder": on}
    settings = msgspec.structs.replace(
        DEFAULTS, dispatcher=INCREMENTAL, step=2, keeps_order=all(gates.values())
    )

    first = next_round((), ("b", "c", "a"), settings)

    assert first == names
    assert len(next_round(first, ("b", "c", "a"), settings)) == 3


@pytest.mark.parametrize(
    ("kind", "status", "left"),
    [
        pytest.param("Job", {"active": 2, "failed": 1}, {"active": 0, "failed": 1}, id="job"),
        pytest.param("Job", {}, {}, id="job-without-a-report"),
        pytest.param("RayCluster", {"state": "ready"}, None, id="any-other-kind"),
    ],
)
def test_no_pods_run_by_the_status_of_a_job_whose_worker_is_gone(kind, status, left):
    assert without_report({"kind": kind, "status": status}) == left


@pytest.mark.parametrize(
    ("opened", "expected"),
    [
        pytest.param(None, "west", id="none-is-open"),
        pytest.param(100.0, "", id="another-one-has-its-time"),
        pytest.param(-1000.0, "west", id="its-time-is-over"),
        pytest.param(1e9, "west", id="a-time-to-come-is-forged"),
    ],
)
def test_a_worker_cannot_keep_others_from_their_turn_to_preempt(opened, expected):
    blocked = Condition("BlockedOnPreemptionGates", "True", "R", "", timestamp(NOW - 500))
    west = Workload(status=WorkloadStatus(conditions=(blocked,)))
    gates = ()
    if opened is not None:
        gates = (PreemptionGateState(MULTI_KUEUE, "Open", timestamp(NOW - 200 + opened)),)
    east = Workload(status=WorkloadStatus(preemption_gates=gates))

    name, _ = next_gate({"east": east, "west": west}, now=NOW)

    assert name == expected
