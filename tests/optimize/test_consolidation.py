"""Consolidation: who is moved so that one more fits, and that nobody is stopped in vain."""

import pytest
from hypothesis import given, settings

from policyd.alloc.cycle import plan_cycle
from policyd.alloc.plan import Admit, Preempt, Requeue
from policyd.alloc.queue import FlavorSpec
from policyd.optimize.opt_ins import OptIns, Protection
from policyd.simulate.scenario import Arrival, Simulation
from policyd.status.messages import message_of
from tests.alloc.builders import admission, cohort, group, keys, pod_set, queue, workload
from tests.alloc.choices import scenarios
from tests.optimize.builders import state

MOVES = OptIns(moves=2)
PROTECTED = OptIns(moves=2, protection=Protection(reclaim=200.0))
FLAVORS = [FlavorSpec(name=name, labels={"size": name}) for name in ("big", "small")]


def two_flavors(small=4, big=4):
    return [group(big={"gpu": big}, small={"gpu": small})]


def running(key, queue_name="q", *, flavor="big", gpu=2, **fields):
    return workload(
        key, queue_name, gpu=gpu, admission=admission(queue_name, flavor, gpu=gpu),
        reserved_at=-100.0, admitted=True, **fields,
    )  # fmt: skip


def wants_big(key="new", *, gpu=4, **fields):
    return workload(key, "q", pod_set(selector={"size": "big"}, gpu=gpu), **fields)


def world(*things, opt_ins=MOVES, **fields):
    return state(*FLAVORS, queue("q", groups=two_flavors(), opt_ins=opt_ins, **fields), *things)


def moved(of):
    plan = plan_cycle(of)
    return [action.workload.key for action in plan.actions if isinstance(action, Preempt)]


def admitted(of):
    """Who gets quota in the next few cycles."""
    got = []
    for _ in range(6):
        plan = plan_cycle(of)
        of.commit(plan)
        got += keys(plan.actions)
    return got


def test_a_workload_that_fits_elsewhere_makes_room():
    of = world(running("a"), wants_big())

    assert moved(of) == ["a"]


@pytest.mark.parametrize(
    ("things", "fields"),
    [
        pytest.param([running("a")], {"opt_ins": OptIns()}, id="off"),
        pytest.param([running("a", gpu=4), running("b", flavor="small")], {}, id="no-room"),
        pytest.param([running("a", priority=1)], {}, id="more-important"),
        pytest.param([running("a", evicted=True)], {}, id="stops-already"),
        pytest.param([running("a")], {"opt_ins": PROTECTED}, id="is-protected"),
        pytest.param(
            [running(key, gpu=1) for key in "abc"], {}, id="more-than-may-be-moved-at-a-time"
        ),
    ],
)
def test_no_other_workload_is_stopped(things, fields):
    assert moved(world(*things, wants_big(), **fields)) == []


def test_the_fewest_are_moved():
    of = world(running("one"), running("two", gpu=1), running("three", gpu=1), wants_big(gpu=2))

    assert moved(of) == ["one"]


def test_quota_of_other_queues_that_take_part_counts_too():
    """Each of two queues lends what it does not use; the moved gets it from the other."""
    of = state(
        *FLAVORS,
        cohort("all"),
        queue("q", "all", groups=[group(big={"gpu": 4}, small={"gpu": 0})], opt_ins=MOVES),
        queue("r", "all", groups=[group(big={"gpu": 0}, small={"gpu": 4})], opt_ins=MOVES),
        running("a", "r"),
        wants_big(),
    )

    assert moved(of) == ["a"]


def test_the_new_places_are_held_until_all_are_there():
    of = world(running("a"), wants_big())
    of.commit(plan_cycle(of))
    of.put_workload(workload("a", "q", gpu=2, at=1))
    of.put_workload(workload("late", "q", gpu=4, priority=9, at=2))
    assert admitted(of) == ["new", "a"]
    assert of.extension.moving == {}
    assert dict(of.holding("a").admission.pod_sets[0].flavors) == {"gpu": "small"}


def test_places_are_not_held_for_ever():
    of = world(running("a"), wants_big())
    of.commit(plan_cycle(of))
    of.put_workload(workload("late", "q", gpu=2, priority=9, at=2))
    assert admitted(of) == []

    of.now = 601.0
    of.wake("q")

    assert admitted(of) == ["late"]


# Properties.


def setting(choose):
    """Two queues that take part, of two flavors of which some workloads can use only one."""
    wants = OptIns(moves=choose.number(1, 3))
    queues = [
        queue(
            name, "all", groups=two_flavors(choose.number(0, 5), choose.number(0, 5)),
            opt_ins=wants,
        )
        for name in "qr"
    ]  # fmt: skip
    return queues, [arrival(choose, number) for number in range(choose.number(1, 8))]


def arrival(choose, number):
    selector = {"size": "big"} if choose.yes() else {}
    asked = workload(
        f"w{number}", choose.one("qr"), pod_set(selector=selector, gpu=choose.number(1, 5)),
        priority=choose.number(0, 1),
    )  # fmt: skip
    at, runs = choose.number(0, 5), choose.maybe(1, 5)
    return Arrival(workload=asked, at=float(at), run_seconds=runs and float(runs))


@settings(deadline=None)
@given(scenarios(setting, 55))
def test_all_that_are_moved_run_again_at_once_beside_whom_they_made_room_for(scenario):
    queues, coming = scenario
    of = state(*FLAVORS, cohort("all"), *queues)
    owed = {}

    for step in Simulation(of, coming).steps():
        for key, at in owed.items():
            assert at == step.at, f"{key} is not back"
        for action in step.plan.actions:
            if isinstance(action, Preempt):
                owed[action.workload.key] = owed[action.preemptor.key] = step.at
            elif isinstance(action, Admit):
                owed.pop(action.workload.key, None)
            elif isinstance(action, Requeue):
                assert message_of(action.refusal), "whoever waits is told why"

    assert not owed
