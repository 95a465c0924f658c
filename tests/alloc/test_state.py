"""The state between cycles: what changes it, and whom a change wakes up."""

import msgspec
import pytest

from policyd.alloc.cycle import plan_cycle
from policyd.alloc.plan import Requeue
from policyd.alloc.queue import FlavorSpec
from tests.alloc.builders import admission, cohort, keys, queue, state, usage, workload


def run(of):
    plan = plan_cycle(of)
    of.commit(plan)
    return plan


def admitted(of):
    return keys(run(of).actions)


def refused(of):
    return keys(run(of).actions, Requeue)


def held(key, name, gpu, **fields):
    return workload(key, name, gpu=gpu, admission=admission(name, gpu=gpu), **fields)


def inadmissible(of):
    return sum(queue.pending.inadmissible for queue in of.queues.values())


USED = {
    (True, "a", "default", "gpu"): 3,
    (False, "all", "default", "gpu"): 3,
}


def test_an_admission_is_charged_to_the_queue_and_its_cohort():
    of = state(queue("a", "all", gpu=4), workload("w", "a", gpu=3))

    run(of)

    assert usage(of) == USED


def test_an_admission_that_is_written_down_is_charged_once():
    of = state(queue("a", "all", gpu=4), workload("w", "a", gpu=3))
    run(of)

    of.put_workload(held("w", "a", 3, admitted=True))

    assert usage(of) == USED


def test_an_older_view_does_not_take_back_what_is_assumed():
    of = state(queue("a", "all", gpu=4), workload("w", "a", gpu=3))
    run(of)

    of.put_workload(workload("w", "a", gpu=3))

    assert (usage(of), admitted(of)) == (USED, [])


def test_an_admission_that_could_not_be_written_down_is_taken_back():
    of = state(queue("a", "all", gpu=4), workload("w", "a", gpu=3))
    run(of)

    of.retract("w")

    assert usage(of) == {}
    assert admitted(of) == ["w"]


def test_an_admission_that_is_written_down_is_not_retracted():
    of = state(queue("a", "all", gpu=4), held("w", "a", 3))

    of.retract("w")
    of.retract("nobody")

    assert usage(of) == USED


def test_an_evicted_workload_waits_again():
    of = state(queue("a", gpu=4), held("w", "a", 3))

    of.put_workload(workload("w", "a", gpu=3))

    assert usage(of) == {}
    assert admitted(of) == ["w"]


def test_less_usage_after_pods_are_done_frees_the_rest():
    of = state(queue("a", "all", gpu=4), held("w", "a", 4))

    of.put_workload(held("w", "a", 3))

    assert usage(of) == USED


def test_a_finished_workload_frees_its_quota():
    of = state(queue("a", "all", gpu=4), held("w", "a", 3))

    of.remove_workload("w")
    of.remove_workload("w")

    assert usage(of) == {}


def test_a_workload_that_moves_to_another_queue_leaves_the_first():
    of = state(queue("a", gpu=4), queue("b", gpu=4), workload("w", "a", gpu=3))

    of.put_workload(workload("w", "b", gpu=3))

    assert len(of.queues["a"].pending) == 0
    assert admitted(of) == ["w"]


def full(*more):
    """A cohort in which `a1` holds everything, and `b1` was refused and inadmissible."""
    of = state(
        queue("a", "all", gpu=4), queue("b", "all", gpu=4), queue("c", gpu=4),
        held("a1", "a", 8), workload("b1", "b", gpu=4), workload("c1", "c", gpu=9), *more,
    )  # fmt: skip
    assert refused(of) == ["b1", "c1"]
    assert inadmissible(of) == 2
    return of


@pytest.mark.parametrize(
    ("change", "awake"),
    [
        pytest.param(lambda of: of.remove_workload("a1"), ["b1"], id="quota-freed-in-the-cohort"),
        pytest.param(
            lambda of: of.put_workload(workload("a1", "a", backing_off=True)), ["b1"], id="evicted"
        ),
        pytest.param(lambda of: of.put_queue(queue("a", "all", gpu=5)), ["b1"], id="quota-changed"),
        pytest.param(
            lambda of: of.put_queue(queue("d", "all", gpu=5)), ["b1"], id="queue-joins-the-cohort"
        ),
        pytest.param(lambda of: of.put_queue(queue("a", gpu=4)), ["b1"], id="queue-leaves"),
        pytest.param(lambda of: of.remove_queue("a"), ["b1"], id="queue-removed"),
        pytest.param(
            lambda of: of.put_cohort(cohort("all", gpu=1)), ["b1"], id="cohort-gets-quota"
        ),
        pytest.param(
            lambda of: of.put_flavor(FlavorSpec(name="default", labels={"a": "b"})),
            ["b1", "c1"],
            id="flavor-changed",
        ),
        pytest.param(lambda of: of.wake("c"), ["c1"], id="asked-for"),
        pytest.param(lambda of: of.wake("none"), [], id="asked-for-in-vain"),
        pytest.param(lambda of: of.put_queue(queue("a", "all", gpu=4)), [], id="nothing-changed"),
        pytest.param(
            lambda of: of.put_flavor(FlavorSpec(name="default")), [], id="flavor-as-it-was"
        ),
        pytest.param(lambda of: of.put_queue(queue("d", gpu=4)), [], id="a-queue-elsewhere"),
        pytest.param(
            lambda of: of.put_workload(held("a1", "a", 8, admitted=True)), [], id="now-it-runs"
        ),
    ],
)
def test_workloads_that_a_change_reactivates(change, awake):
    of = full()

    change(of)
    of.settle()

    waiting = [t.workload.key for q in of.queues.values() for t in q.pending.active]
    assert [key for key in waiting if key != "a1"] == awake


def test_workloads_wait_for_a_queue_that_is_not_there_yet():
    of = state(workload("w", "a", gpu=3))
    assert run(of).actions == ()

    of.put_queue(queue("a", gpu=4))

    assert admitted(of) == ["w"]


def test_quota_held_before_its_queue_is_there_is_charged_when_it_comes():
    of = state(held("w", "a", 3))

    of.put_queue(queue("a", "all", gpu=4))

    assert usage(of) == USED


def test_a_queue_that_comes_back_finds_its_workloads():
    of = state(queue("a", "all", gpu=4), held("w", "a", 3), workload("v", "a", gpu=1))

    of.remove_queue("a")
    assert usage(of) == {}
    of.put_queue(queue("a", "all", gpu=4))

    assert usage(of) == USED
    assert admitted(of) == ["v"]


def test_quota_freed_while_the_queue_is_missing_is_not_charged_later():
    of = state(queue("a", "all", gpu=4), held("w", "a", 3))

    of.remove_queue("a")
    of.remove_workload("w")
    of.put_queue(queue("a", "all", gpu=4))

    assert usage(of) == {}


def test_nothing_is_left_of_a_queue_nobody_names():
    of = state(queue("a", gpu=4), workload("w", "a", gpu=1))

    of.remove_queue("a")
    of.remove_workload("w")
    of.remove_queue("a")

    assert of.queues == {}


def test_a_stopped_queue_admits_no_workload():
    spec = queue("a", gpu=4)
    of = state(msgspec.structs.replace(spec, stopped=True), workload("w", "a", gpu=1))
    assert run(of).actions == ()

    of.put_queue(spec)

    assert admitted(of) == ["w"]


def test_a_queue_with_a_missing_flavor_waits_for_it():
    of = state(queue("a", gpu=4), workload("w", "a", gpu=1), flavors=())
    assert run(of).actions == ()

    of.put_flavor(FlavorSpec(name="default"))
    assert admitted(of) == ["w"]

    of.put_workload(workload("v", "a", at=1, gpu=1))
    of.remove_flavor("default")
    of.remove_flavor("default")
    assert run(of).actions == ()


def test_queues_below_a_cycle_of_cohorts_admit_no_workload_until_it_is_broken():
    of = state(
        cohort("x", "y"), cohort("y", "x"), queue("a", "x", gpu=4), workload("w", "a", gpu=1)
    )
    assert run(of).actions == ()

    of.remove_cohort("y")
    of.remove_cohort("none")

    assert admitted(of) == ["w"]


def test_a_borrower_gets_quota_of_a_cohort_above():
    of = state(
        cohort("top", gpu=4), cohort("all", "top"), queue("a", "all", gpu=1),
        workload("w", "a", gpu=5),
    )  # fmt: skip

    (action,) = plan_cycle(of).actions

    assert action.level == 2


def test_a_change_of_quota_holders_restarts_searches():
    of = state(queue("q", gpu=4), workload("a", "q", admission=admission("q", gpu=2)))
    of.settle()
    before = of.queues["q"].node.generation

    of.put_workload(workload("a", "q", admission=admission("q", gpu=2), admitted=True))

    assert of.queues["q"].node.generation == before + 1


@pytest.mark.parametrize(
    ("priority", "inadmissible"),
    [pytest.param(1, 0, id="another-priority"), pytest.param(5, 1, id="the-same")],
)
def test_another_priority_of_a_quota_holder_reactivates_pending_workloads(priority, inadmissible):
    of = state(
        queue("q", gpu=4),
        workload("a", "q", admission=admission("q", gpu=4), priority=5),
        workload("w", "q", gpu=2),
    )
    of.commit(plan_cycle(of))

    of.put_workload(workload("a", "q", admission=admission("q", gpu=4), priority=priority))
    of.settle()

    assert of.queues["q"].pending.inadmissible == inadmissible
