"""Volcano's orders: whose turn it is among the LocalQueues of a ClusterQueue."""

import pytest
from hypothesis import given, settings

from policyd.alloc.cycle import plan_cycle
from policyd.optimize.local_order import deserved, local_shares
from policyd.optimize.opt_ins import OptIns
from tests.alloc.builders import admission, group, keys, queue, workload
from tests.alloc.choices import scenarios
from tests.optimize.builders import state


def world(order, *things, weights=None):
    """A queue of 10 GPUs and 100 cores."""
    of = state(
        queue("q", groups=[group(default={"gpu": 10, "cpu": 100})], opt_ins=OptIns(order=order)),
        *things,
    )
    of.local_weights.update(weights or {})
    return of


def running(name, **requests):
    held = admission("q", **requests)
    return workload(f"of-{name}", "q", local_queue=name, admission=held, **requests)


def shares(of):
    of.settle()
    return local_shares(of.queues["q"], of.local_weights)


def test_the_resource_counts_of_which_most_is_used():
    of = world("DominantShare", running("a", gpu=2, cpu=10), running("b", gpu=1, cpu=40))

    assert shares(of) == {"a": 0.2, "b": 0.4}


@pytest.mark.parametrize(
    ("order", "weights", "first"),
    [
        pytest.param("Priority", {}, "a1", id="off-by-priority-and-age"),
        pytest.param("DominantShare", {}, "b1", id="least-dominant-share"),
        pytest.param("DominantShare", {"a": 10.0}, "a1", id="by-weight"),
        pytest.param("DominantShare", {"b": 0.0}, "a1", id="without-weight-last"),
        pytest.param("Proportion", {}, "b1", id="least-of-what-is-deserved"),
        pytest.param("Proportion", {"a": 10.0}, "a1", id="by-weight-too"),
    ],
)
def test_the_local_queue_that_has_least_is_next(order, weights, first):
    of = world(
        order,
        running("a", gpu=4),
        running("b", gpu=2),
        workload("a1", "q", gpu=4, local_queue="a", at=1),
        workload("b1", "q", gpu=4, local_queue="b", at=2),
        weights=weights,
    )

    assert keys(plan_cycle(of).actions) == [first]


def test_the_order_follows_what_is_admitted():
    """Ten of each want one GPU: they take turns, whoever came first."""
    asked = [workload(f"{n}{i}", "q", gpu=1, local_queue=n, at=i) for i in range(10) for n in "ab"]
    of = world("DominantShare", *asked[::2], *asked[1::2])
    got = []
    for _ in range(10):
        plan = plan_cycle(of)
        of.commit(plan)
        got += keys(plan.actions)

    assert [key[0] for key in got].count("a") == 5


def test_the_unneeded_part_of_one_is_divided_among_the_others():
    assert deserved(12, {"a": 2, "b": 20, "c": 20}, {"b": 3.0}) == {"a": 2.0, "b": 7.5, "c": 2.5}


def demands(choose):
    """What there is, what is asked by name, and the weights of some of the names."""
    total = choose.number(0, 100)
    asked = {name: choose.number(1, 40) for name in choose.shuffled("abcde")[: choose.number(0, 5)]}
    weighing = choose.shuffled("abcde")[: choose.number(0, 5)]
    return total, asked, {name: choose.one((0.0, 0.5, 1.0, 2.0, 5.0)) for name in weighing}


@settings(deadline=None)
@given(scenarios(demands, 25))
def test_all_is_divided_by_weight_and_none_gets_more_than_its_requests(demand):
    total, asked, weights = demand
    due = deserved(total, asked, weights)

    assert all(0 <= due[name] <= asked[name] + 1e-9 for name in asked)
    weighing = {name: weights.get(name, 1.0) for name in asked if weights.get(name, 1.0)}
    reachable = sum(asked[name] for name in weighing)
    assert sum(due.values()) == pytest.approx(min(total, reachable))
    short = [due[name] / weight for name, weight in weighing.items() if due[name] < asked[name]]
    assert all(level == pytest.approx(short[0]) for level in short)
    assert all(due[n] / w <= short[0] + 1e-9 for n, w in weighing.items() if short)
