"""What makes up the place of each pending workload, and the shares and usages behind it."""

import pytest

from policyd.alloc.cycle import plan_cycle
from policyd.alloc.queue import PreemptionPolicy
from policyd.alloc.settings import FairSharingRules, QueueingSettings, UsageBasedOrder
from policyd.alloc.usage_history import nanos
from policyd.snapshot.priorities import priorities
from tests.alloc.builders import cohort, queue, state, workload
from tests.alloc.preemption.test_preemption import running
from tests.snapshot.taking import snapshot
from tests.status.test_pending_reasons import settled

HALF_LIFE = 3_600.0


def decided(answer):
    return [(line.job or line.workload, line.decided_by) for line in answer.workloads]


def waiting(key, at, priority=0, **fields):
    return workload(f"ns/{key}", "q", gpu=8, at=at, priority=priority, **fields)


def test_places_are_made_up_of_priority_then_time_then_the_uid():
    of = settled(
        queue("q", gpu=1),
        waiting("job-low", 1), waiting("job-high", 9, 5), waiting("job-later", 2),
        waiting("job-twin", 2, uid="z"), waiting("boxed", 3, backing_off=True),
    )  # fmt: skip
    answer = priorities(snapshot(of))

    assert decided(answer) == [
        ("Job/high", "first"), ("Job/low", "priority"), ("Job/later", "time"),
        ("Job/twin", "uid"), ("Workload/boxed", "time"),
    ]  # fmt: skip
    assert [line.backs_off for line in answer.workloads] == [False] * 4 + [True]
    assert answer.workloads[0].priority_class == "PriorityClass/high"
    assert (answer.shares, answer.usages, answer.half_life_seconds) == ((), (), None)


def test_a_workload_for_which_others_are_stopped_goes_first():
    lower = PreemptionPolicy(within_cluster_queue="LowerPriority")
    of = state(
        queue("q", gpu=8, preemption=lower), running("ns/job-runs", "q", gpu=8),
        waiting("job-takes", 5, 3),
    )  # fmt: skip
    of.commit(plan_cycle(of))
    of.put_workload(waiting("job-higher", 6, 9))

    assert decided(priorities(snapshot(of))) == [
        ("Job/takes", "first"),
        ("Job/higher", "preemption"),
    ]


SHARING = QueueingSettings(fair_sharing=FairSharingRules())


def test_shares_are_a_tree_with_weights_and_what_is_borrowed_most():
    of = state(
        cohort("c"), queue("a", "c", gpu=8), queue("b", "c", gpu=8),
        running("ns/job-r", "a", gpu=12), workload("ns/job-w", "a", gpu=8), rules=SHARING,
    )  # fmt: skip
    answer = priorities(snapshot(of))

    shares = {
        line.name: (line.kind, line.parent, line.share, line.dominant) for line in answer.shares
    }
    assert shares["a"] == ("ClusterQueue", "c", 250.0, "gpu")
    assert shares["b"] == ("ClusterQueue", "c", 0.0, "")
    assert answer.workloads[0].share == 250.0


def by_usage():
    """Ann's LocalQueue used much, Bob's little, and the third may use nothing."""
    of = state(
        queue("q", gpu=8, by_usage=True),
        waiting("job-a", 1, 5, local_queue="ns/ann"), waiting("job-b", 2, local_queue="ns/bob"),
        waiting("job-z", 0, local_queue="ns/zero"),
        rules=QueueingSettings(
            admission_fair_sharing=UsageBasedOrder(HALF_LIFE, weights={"gpu": 2.0})
        ),
    )  # fmt: skip
    of.local_weights["ns/zero"] = 0.0
    of.history.put_queue("ns/zero", 0.0)
    of.history.seed("ns/ann", nanos({"gpu": 6}), 500.0)
    of.history.seed("ns/bob", nanos({"gpu": 1}), 500.0)
    return of


def test_past_usage_goes_before_priority_and_its_parts_are_reported():
    answer = priorities(snapshot(by_usage()))

    assert decided(answer) == [("Job/b", "first"), ("Job/a", "usage"), ("Job/z", "usage")]
    assert [line.usage for line in answer.workloads] == [2.0, 12.0, None]
    usages = {line.local_queue: line for line in answer.usages}
    assert usages["ann"].consumed == {"gpu": 6.0}
    assert usages["ann"].updated == "1970-01-01T00:08:20Z"
    assert (answer.half_life_seconds, answer.resource_weights) == (HALF_LIFE, {"gpu": 2.0})


def test_what_other_teams_used_is_not_shown_where_they_are_hidden():
    answer = priorities(snapshot(by_usage(), reader="other", others="hidden"))

    assert {line.usage for line in answer.workloads} == {None}
    assert [line.decided_by for line in answer.workloads] == ["first", "", ""]
    assert [line.priority for line in answer.workloads] == [0, 5, 0]
    assert answer.usages == ()


@pytest.mark.parametrize(
    ("chosen", "jobs"),
    [
        pytest.param({"queue": "q"}, ["Job/a"], id="of-a-cluster-queue"),
        pytest.param({"queue": "l"}, ["Job/b"], id="of-a-local-queue"),
        pytest.param({"team": "other"}, ["Workload/c"], id="of-a-team"),
    ],
)
def test_places_are_chosen(chosen, jobs):
    of = settled(
        queue("q", gpu=1), queue("r", gpu=1), waiting("job-a", 1),
        workload("ns/job-b", "r", gpu=8, at=1, local_queue="ns/l"),
        workload("other/c", "r", gpu=8, at=2),
    )  # fmt: skip

    assert [line.job for line in priorities(snapshot(of), **chosen).workloads] == jobs
