"""Who waits in a queue, and at which place."""

import pytest

from policyd.alloc.plan import Requeue
from policyd.alloc.reasons import Refusal
from policyd.status.queues import places
from tests.alloc.builders import queue, state, workload


def of(key, local_queue, **fields):
    return workload(key, "q", local_queue=local_queue, gpu=1, **fields)


def told(given):
    found = places(given, "q")
    return [(each.workload.key, each.in_cluster_queue, each.in_local_queue) for each in found]


@pytest.mark.parametrize(
    ("waiting", "expected"),
    [
        pytest.param([], [], id="nobody"),
        pytest.param(
            [of("a", "ns/x", at=2), of("b", "ns/x", at=1)],
            [("b", 0, 0), ("a", 1, 1)],
            id="the-older-first",
        ),
        pytest.param(
            [of("a", "ns/x"), of("b", "ns/y", priority=1), of("c", "ns/y"), of("d", "ns/x")],
            [("b", 0, 0), ("a", 1, 0), ("c", 2, 1), ("d", 3, 1)],
            id="each-local-queue-counts-its-own",
        ),
        pytest.param(
            [of("a", "ns/x", backing_off=True), of("b", "ns/x", at=1)],
            [("a", 0, 0), ("b", 1, 1)],
            id="who-waits-aside-keeps-its-place",
        ),
    ],
)
def test_places_are_in_the_order_of_turns(waiting, expected):
    assert told(state(queue("q", gpu=1), *waiting)) == expected


def test_who_preempted_others_is_first_where_others_could_take_what_it_made_free():
    waiting = [of("a", "ns/x", at=1), of("b", "ns/y", at=2)]
    given = state(queue("q", gpu=1), *waiting)
    pending = given.queues["q"].pending
    action = Requeue(
        workload=waiting[1],
        reason="PendingPreemption",
        refusal=Refusal("WaitingForPreemptedWorkloads"),
        requests={},
        inadmissible=False,
    )
    pending.requeue(action, strict=False, equivalents=True)

    assert told(given) == [("b", 0, 0), ("a", 1, 0)]


def test_a_queue_that_nobody_knows_has_no_places():
    assert places(state(), "q") == []
