"""When inadmissible workloads are tried again, where releases are gathered."""

import pytest

from policyd.alloc.cycle import plan_cycle
from policyd.optimize.reservation import LATELY_SECONDS
from tests.alloc.builders import admission, keys, queue, workload
from tests.optimize.builders import state

SECONDS = 0.25


def gathering(*things):
    """Two queues of a cohort without room, in which `things` wait; releases are gathered."""
    of = state(
        queue("q", "x", gpu=4),
        queue("other", "x", gpu=4),
        *(
            workload(f"runs-{name}", name, admission=admission(name, gpu=4))
            for name in ("q", "other")
        ),
        *things,
    )
    of.extension.gather_seconds = SECONDS
    for _ in things:  # one of each queue at a time
        planned(of)
    of.extension.preempting(workload("preemptor", "q"))
    return of


def planned(of, *, after=0.0):
    """Run a cycle some seconds later; return what was decided."""
    of.now += after
    plan = plan_cycle(of)
    of.commit(plan)
    return plan.actions


def admitted(of, *, after=0.0):
    return keys(planned(of, after=after))


def test_parked_workloads_are_tried_a_moment_after_something_came_free():
    of = gathering(workload("waits", "q", gpu=4))
    of.remove_workload("runs-q")

    assert admitted(of) == []
    assert of.extension.next_due() == SECONDS
    assert admitted(of, after=SECONDS) == ["waits"]
    assert of.extension.next_due() is None


def test_quota_that_becomes_free_meanwhile_does_not_delay_it():
    of = gathering(workload("waits", "q", gpu=4))
    of.remove_workload("runs-q")
    planned(of)
    of.now += SECONDS / 2
    of.remove_workload("runs-other")
    planned(of)

    assert of.extension.next_due() == SECONDS


def test_a_more_important_workload_is_decided_at_once():
    of = gathering(workload("waits", "q", gpu=4, priority=1))
    of.remove_workload("runs-q")
    of.put_workload(workload("urgent", "q", gpu=4, priority=2))

    assert admitted(of) == ["urgent"]


def test_less_important_workloads_do_not_pass_inadmissible_ones():
    of = gathering(workload("waits", "q", gpu=4, priority=2))
    of.remove_workload("runs-q")
    of.put_workload(workload("small", "q", gpu=1, priority=1))

    assert admitted(of) == []
    assert admitted(of, after=SECONDS) == ["waits"]


@pytest.mark.parametrize(
    ("asked", "first"),
    [
        # Else the head would borrow what the other one takes back a moment later.
        pytest.param(4, "waits", id="takes-nothing-that-others-wait-for"),
        pytest.param(8, "head", id="is-tried-with-the-others"),
    ],
)
def test_the_head_of_a_strict_queue_waits_with_the_others(asked, first):
    of = gathering(
        queue("strict", "x", gpu=0, strict=True),
        workload("head", "strict", gpu=4),
        workload("waits", "q", gpu=asked),
    )
    of.remove_workload("runs-q")

    assert admitted(of) == []
    assert admitted(of, after=SECONDS) == [first]


def test_a_new_head_of_a_strict_queue_is_tried_at_once():
    of = gathering(queue("strict", "x", gpu=0, strict=True), workload("waits", "q", gpu=8))
    of.remove_workload("runs-q")
    of.put_workload(workload("new", "strict", gpu=4))

    assert admitted(of) == ["new"]


@pytest.mark.parametrize(
    "inadmissible",
    [
        pytest.param({"backing_off": True}, id="who-backs-off"),
        pytest.param({"gpu": 1, "queue_name": "other"}, id="who-is-in-another-queue"),
    ],
)
def test_a_workload_not_tried_in_its_queue_lets_others_pass(inadmissible):
    wanted = {"gpu": 4, "queue_name": "q", **inadmissible}
    of = gathering(workload("waits", priority=2, **wanted), workload("full", "q", gpu=8))
    of.remove_workload("runs-q")
    of.put_workload(workload("small", "q", gpu=1, priority=1))

    assert admitted(of) == ["small"]


@pytest.mark.parametrize(
    ("queue_name", "after"),
    [
        pytest.param("q", LATELY_SECONDS, id="long-ago"),
        pytest.param("elsewhere", 0.0, id="in-another-tree"),
        pytest.param("nowhere", 0.0, id="for-a-queue-that-is-gone"),
    ],
)
def test_without_recent_preemptions_no_workload_waits(queue_name, after):
    of = gathering(workload("waits", "q", gpu=4), queue("elsewhere"))
    of.now += LATELY_SECONDS
    of.extension.preempting(workload("preemptor", queue_name))
    of.now += after
    of.remove_workload("runs-q")

    assert admitted(of) == ["waits"]


def test_without_inadmissible_workloads_there_is_nothing_to_wait_for():
    of = gathering()
    of.remove_workload("runs-q")
    planned(of)

    assert of.extension.next_due() is None


def test_a_tree_waits_for_itself_alone():
    of = gathering(workload("waits", "q", gpu=4))
    of.put_queue(queue("alone", gpu=1))
    of.put_workload(workload("holds", "alone", admission=admission("alone", gpu=1)))
    of.put_workload(workload("next", "alone", gpu=1))
    of.extension.preempting(workload("preemptor", "alone"))
    planned(of)
    of.remove_workload("runs-q")
    planned(of)
    of.now += SECONDS / 2
    of.remove_workload("holds")
    planned(of)

    assert admitted(of, after=SECONDS / 2) == ["waits"]
    assert admitted(of, after=SECONDS / 2) == ["next"]
