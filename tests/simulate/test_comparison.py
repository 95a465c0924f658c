"""What a change would change: who starts earlier or later, who is preempted, what is unknown."""

from math import inf

import pytest
from msgspec.structs import replace

from policyd.alloc.queue import PreemptionPolicy
from policyd.alloc.settings import DEFAULTS, UsageBasedOrder
from policyd.simulate.comparison import compare, course
from policyd.simulate.scenario import Arrival
from tests.alloc.builders import admission, queue, state, workload

PREEMPTING = PreemptionPolicy(within_cluster_queue="LowerPriority")


def arrival(key, at=0.0, runs=None, q="q", **fields):
    return Arrival(workload=workload(key, q, **fields), at=at, run_seconds=runs)


def differences(before, after):
    return {each.key: each for each in compare(before, after)}


def test_more_quota_lets_a_workload_start_earlier():
    coming = [arrival("a", runs=60, gpu=4), arrival("b", at=10, runs=5, gpu=4)]

    found = differences(
        course(state(queue("q", gpu=4)), coming), course(state(queue("q", gpu=8)), coming)
    )

    assert (found["b"].change, found["b"].seconds) == ("Earlier", -50)
    assert found["a"].change == "Same"


def test_a_workload_that_is_new_lets_another_start_later():
    coming = [arrival("a", runs=60, gpu=4), arrival("b", at=10, runs=5, gpu=4)]
    new = arrival("new", at=5, runs=7, gpu=4)

    found = compare(
        course(state(queue("q", gpu=4)), coming), course(state(queue("q", gpu=4)), [*coming, new])
    )

    assert [(each.key, each.change, each.seconds) for each in found] == [
        ("new", "New", None),
        ("b", "Later", 7),
        ("a", "Same", None),
    ]


def test_a_victim_is_reported_with_its_preemptor():
    coming = [arrival("low", runs=60, gpu=4)]
    high = arrival("high", at=30, runs=10, gpu=4, priority=1)
    queues = [queue("q", gpu=4, preemption=PREEMPTING)]

    found = differences(course(state(*queues), coming), course(state(*queues), [*coming, high]))

    (stop,) = found["low"].after.interruptions
    assert found["low"].change == "Preempted"
    assert (stop.at, stop.by, stop.reason) == (30, "high", "InClusterQueue")
    assert found["low"].after.starts == (0, 40)


def test_a_run_that_is_stopped_when_it_begins_is_none():
    """A cycle admits the first of two queues, and the next cycle preempts it for the other."""
    any_ = PreemptionPolicy(reclaim_within_cohort="Any")
    of = state(queue("q", "all", gpu=0), queue("r", "all", gpu=8, preemption=any_))
    coming = [
        arrival("guest", runs=60, gpu=4),
        arrival("first", runs=10, gpu=4, q="r"),
        arrival("second", at=0, runs=10, gpu=4, q="r"),
    ]

    found = course(of, coming).stays

    assert (found["guest"].starts, found["guest"].interruptions) == ((10,), ())
    assert (found["first"].starts, found["second"].starts) == ((0,), (0,))


@pytest.mark.parametrize(
    ("before", "after", "change"), [(4, 8, "Starts"), (8, 4, "Never"), (4, 5, "Same")]
)
def test_a_workload_that_its_queue_cannot_hold_never_starts(before, after, change):
    coming = [arrival("big", runs=60, gpu=8)]

    found = differences(
        course(state(queue("q", gpu=before)), coming), course(state(queue("q", gpu=after)), coming)
    )

    assert (found["big"].change, found["big"].seconds) == (change, None)
    assert found["big"].before.start == (inf if before < 8 else 0)


def test_after_a_workload_without_a_run_time_has_started_nothing_is_known_in_its_cohort():
    coming = [
        arrival("a", runs=60, gpu=4),
        arrival("endless", at=10, gpu=4),
        arrival("behind", at=20, runs=5, gpu=2),
        arrival("beside it", at=20, runs=5, gpu=4, q="r"),
        arrival("elsewhere", at=20, runs=5, gpu=4, q="alone"),
    ]
    of = state(queue("q", "all", gpu=4), queue("r", "all", gpu=4), queue("alone", gpu=4))

    found = course(of, coming)

    assert found.doubts == ("endless",)
    assert found.stays["endless"].start == 10  # beside `a`, by the quota of `r`
    assert [found.stays[key].start for key in ("behind", "beside it")] == [None, None]
    assert found.stays["elsewhere"].start == 20
    assert (found.stays["a"].known_until, found.stays["elsewhere"].known_until) == (10, inf)


def test_a_start_that_is_known_is_earlier_than_one_that_is_not():
    """Though it is unknown by how much: the other has not started when the knowledge ends."""
    running = arrival("endless", admission=admission("q", gpu=4), admitted=True)
    coming = [running, arrival("waits", runs=5, gpu=4)]

    before = course(state(queue("q", gpu=4)), coming)
    after = course(state(queue("q", gpu=8)), coming)

    assert differences(before, after)["waits"].change == "Earlier"
    assert differences(after, before)["waits"].change == "Later"
    assert differences(before, before)["waits"].change == "Unknown"
    assert differences(before, after)["waits"].seconds is None


def test_what_comes_after_the_last_moment_is_unknown():
    coming = [arrival("a", runs=60, gpu=4), arrival("b", at=10, runs=5, gpu=4)]

    found = course(state(queue("q", gpu=4)), coming, until=30)

    assert (found.stays["a"].start, found.stays["b"].start) == (0, None)


def test_nothing_is_known_of_a_queue_that_past_usage_orders():
    rules = replace(DEFAULTS, admission_fair_sharing=UsageBasedOrder(60.0, 10.0))
    of = state(queue("q", gpu=4, by_usage=True), queue("r", gpu=4), rules=rules)

    found = course(of, [arrival("a", runs=60, gpu=4), arrival("b", runs=60, gpu=4, q="r")])

    assert (found.stays["a"].start, found.stays["b"].start) == (None, 0)
    assert found.unordered == ("q",)
