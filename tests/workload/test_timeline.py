"""The life of a job as a time line, from its Workload's conditions and its events."""

import pytest

from policyd.api.meta import rfc3339
from policyd.workload.records import ConditionRecord
from policyd.workload.timeline import MOST_MOMENTS, TimelineEvent, timeline

START = 1_700_000_000.0


def conditions(*given):
    return [
        ConditionRecord(kind, status, reason, message, rfc3339(START + seconds))
        for kind, status, reason, message, seconds in given
    ]


def steps(*given, **more):
    moments = timeline(*given, **{"created": START, **more})
    return [(each.at - START, each.step) for each in moments]


def test_conditions_alone_show_the_last_time_of_each_step():
    of = conditions(
        ("QuotaReserved", "True", "QuotaReserved", "Quota reserved", 10),
        ("Admitted", "True", "Admitted", "The workload is admitted", 12),
        ("PodsReady", "True", "Started", "All pods reached readiness", 15),
        ("Finished", "True", "Succeeded", "Job finished successfully", 70),
        ("Evicted", "False", "QuotaReserved", "Previously: preempted", 10),
    )

    assert steps(of, ()) == [
        (0, "created"), (10, "reserved"), (12, "admitted"), (15, "ready"), (70, "finished"),
    ]  # fmt: skip


def test_an_event_and_a_condition_of_the_same_step_are_one_moment():
    of = conditions(("QuotaReserved", "True", "QuotaReserved", "short", 10))
    event = TimelineEvent(START + 11, "QuotaReserved", "long, wait time since queued was 9s")

    moments = timeline(of, [event], created=START)

    assert [each.message for each in moments if each.step == "reserved"] == [event.message]


def test_events_show_earlier_runs():
    events = [
        TimelineEvent(START + 5, "Admitted", "Admitted by ClusterQueue q"),
        TimelineEvent(START + 5, "Started", "Admitted by clusterQueue q"),
        TimelineEvent(START + 50, "Preempted", "Preempted to accommodate a workload (UID: u)"),
        TimelineEvent(START + 50, "EvictedDueToPreempted", "Preempted to accommodate (UID: u)"),
        TimelineEvent(START + 90, "Admitted", "Admitted by ClusterQueue q"),
    ]

    assert steps((), events) == [
        (0, "created"), (5, "admitted"), (50, "preempted"), (90, "admitted"),
    ]  # fmt: skip


def test_a_preemption_is_reported_once_and_in_words():
    events = [
        TimelineEvent(START + 50, "Stopped", "Preempted to accommodate (UID: u)"),
        TimelineEvent(START + 50, "Preempted", "Preempted to accommodate (UID: u); path"),
        TimelineEvent(START + 50, "EvictedDueToPreempted", "Preempted to accommodate (UID: u)"),
        TimelineEvent(START + 51, "PreemptedBy", "preempted by team-a/urgent"),
        TimelineEvent(START + 80, "EvictedDueToPodsReadyTimeout", "too late"),
    ]

    moments = timeline((), events, created=START)

    assert [(each.step, each.message) for each in moments[1:]] == [
        ("preempted", "preempted by team-a/urgent"), ("evicted", "too late"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("reason", "step"),
    [
        pytest.param("AdmissionGated", "gated", id="gated"),
        pytest.param("WaitingForQuota", "waiting", id="waiting"),
    ],
)
def test_a_job_without_quota_is_gated_or_waits(reason, step):
    of = conditions(("QuotaReserved", "False", reason, "not yet", 3))

    assert steps(of, ()) == [(0, "created"), (3, step)]


def test_a_job_of_which_nothing_is_known_has_no_moments():
    assert steps((), (), created=None) == []


def test_of_a_long_life_the_latest_moments_are_kept():
    events = [TimelineEvent(START + n, "Oops", f"{n}", warning=True) for n in range(1, 999)]

    moments = timeline((), events, created=START)

    assert len(moments) == MOST_MOMENTS
    assert moments[-1].message == "998"
    assert moments[-1].warning
