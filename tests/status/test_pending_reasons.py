"""Who is behind whom, why, and how others are called."""

import pytest

from policyd.alloc.cycle import plan_cycle
from policyd.alloc.queue import PreemptionPolicy
from policyd.alloc.reasons import Refusal
from policyd.status.naming import Naming
from policyd.status.pending_reasons import behind_text, refused_now, turns
from tests.alloc.builders import group, pod_set, queue, state, workload
from tests.alloc.preemption.test_preemption import running


def settled(*things):
    """A state after as many cycles as decide something."""
    of = state(*things)
    while (plan := plan_cycle(of)).actions:
        of.commit(plan)
        if not plan.goes_on:
            break
    return of


def line(of, *, strict=False):
    found = turns(of.queues["q"].pending, strict=strict)
    return {t.workload.key: ahead and ahead.workload.key for t, ahead in found}


def why(of, key="w"):
    of.settle()
    found = of.queues["q"]
    (ticket,) = (each for each in found.pending if each.workload.key == key)
    return refused_now(of, ticket, found.options)


def test_equal_requests_are_behind_the_first_and_others_are_not():
    of = settled(
        queue("q", gpu=4), running("a", "q", gpu=4), workload("w1", "q", gpu=2, at=1),
        workload("w2", "q", gpu=2, at=2), workload("other", "q", gpu=3, at=3),
    )  # fmt: skip

    assert line(of) == {"w1": None, "w2": "w1", "other": None}


def test_in_a_strict_queue_all_are_behind_the_head():
    of = settled(
        queue("q", gpu=4, strict=True), running("a", "q", gpu=4), workload("w1", "q", gpu=2, at=1),
        workload("small", "q", gpu=1, at=2),
    )  # fmt: skip

    assert line(of, strict=True) == {"w1": None, "small": "w1"}


def test_why_a_workload_waits_is_reported_from_the_state_as_it_is():
    of = settled(queue("q", gpu=4), running("a", "q", gpu=2), workload("w", "q", gpu=3))
    (before,) = why(of).missing
    of.put_workload(running("b", "q", gpu=1))
    (after,) = why(of).missing

    assert (before.missing, after.missing) == (1, 2)


@pytest.mark.parametrize(
    "things",
    [
        pytest.param([queue("q", gpu=4), workload("w", "q", gpu=3)], id="it-fits"),
        pytest.param(
            [
                queue(
                    "q", gpu=4, preemption=PreemptionPolicy(within_cluster_queue="LowerPriority")
                ),
                running("a", "q", gpu=4),
                workload("w", "q", gpu=3, priority=1),
            ],
            id="it-may-preempt",
        ),
    ],
)
def test_nobody_says_why_who_would_not_be_refused(things):
    assert why(state(*things)) is None


@pytest.mark.parametrize(
    ("things", "text"),
    [
        pytest.param(
            [queue("q", gpu=4), running("a", "q", gpu=3), workload("w", "q", gpu=2)],
            "behind w, which needs 2 gpu of default; 1 is free",
            id="quota-that-others-use",
        ),
        pytest.param(
            [queue("q", gpu=4), workload("w", "q", gpu=6)],
            "behind w, which needs 6 gpu of default; its queue can have 4 at most",
            id="more-than-there-is",
        ),
        pytest.param(
            [
                queue("q", groups=(group(default={"gpu": 4, "cpu": 4000}),)),
                running("a", "q", gpu=4, cpu=4000),
                workload("w", "q", pod_set(gpu=2, cpu=1000)),
            ],
            "behind w, which needs 2 gpu of default; 0 are free, and 1 cpu of default; 0 are free",
            id="two-resources",
        ),
        pytest.param(
            [queue("q", gpu=4), workload("w", "q", pod_set(fpga=1))],
            "behind w, which is pending: couldn't assign flavors to pod set main: resource fpga"
            " unavailable in ClusterQueue",
            id="no-quota-at-all",
        ),
    ],
)
def test_the_needs_of_the_one_before(things, text):
    of = state(*things)

    assert behind_text("w", why(of)) == text


def test_of_a_preemptor_the_number_of_its_victims_is_reported():
    refusal = Refusal("WaitingForPreemptedWorkloads", pending=2)

    assert behind_text("w", refusal).endswith("Pending the preemption of 2 workload(s)")
    assert behind_text("w", None) == "behind w, which is next"


@pytest.mark.parametrize(
    ("others", "one", "sums"),
    [
        ("names", "b/x", {"a/mine": 1, "b/x": 2, "b/y": 4}),
        ("team", "a job of b", {"a/mine": 1, "b": 6}),
        ("hidden", "a job of another team", {"a/mine": 1, "other teams": 6}),
    ],
)
def test_the_names_of_others(others, one, sums):
    naming = Naming(namespace="a", others=others)

    assert naming.one("b/x") == one
    assert naming.one("a/mine") == "a/mine"
    assert naming.sums([("a/mine", 1), ("b/x", 2), ("b/y", 4)]) == sums
