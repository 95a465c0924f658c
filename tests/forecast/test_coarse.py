"""Queues by their quotas alone, and how far that equals the allocation core."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policyd.alloc.plan import Admit
from policyd.forecast.coarse import CoarseQueues, CoarseRun, ForecastWorkload
from policyd.simulate.draws import DrawnNumbers
from policyd.simulate.scenario import Arrival, Simulation
from tests.alloc.builders import cohort, group, queue, quota, state, workload


def starts(queues, *coming, running=(), until=1e9, cohorts=()):
    """When each workload starts: given as (time, workload, run time)."""
    of = CoarseQueues(queues, cohorts)
    kinds = [of.kind_of(each) for _, each, _ in coming]
    arrivals = [
        ForecastWorkload(at, kind, runs, each.key)
        for (at, each, runs), kind in zip(coming, kinds, strict=True)
        if kind is not None
    ]
    held = [(of.kind_of(each), ends) for each, ends in running]
    run = CoarseRun(of, held, [each for each in arrivals if each.at <= 0], now=0.0)
    later = iter(sorted(each for each in arrivals if each.at > 0))
    return {each.key: at for at, each in run.starts(later, until=until)}


def test_a_workload_starts_when_another_ends():
    a, b = workload("a", "q", gpu=4), workload("b", "q", gpu=4)

    assert starts([queue("q", gpu=4)], (0, a, 60), (10, b, 60)) == {"a": 0, "b": 60}


def test_a_smaller_one_passes_unless_the_queue_is_strict():
    coming = [
        (0, workload("a", "q", gpu=3), 60),
        (1, workload("b", "q", gpu=4), 60),
        (2, workload("c", "q", gpu=1), 5),
    ]

    assert starts([queue("q", gpu=4)], *coming) == {"a": 0, "b": 60, "c": 2}
    assert starts([queue("q", gpu=4, strict=True)], *coming) == {"a": 0, "b": 60, "c": 120}


def test_the_higher_priority_goes_first():
    held = workload("r", "q", gpu=4)
    low, high = workload("low", "q", gpu=4), workload("high", "q", gpu=4, priority=1)

    found = starts([queue("q", gpu=4)], (0, low, 9), (5, high, 9), running=[(held, 60)])

    assert found == {"high": 60, "low": 69}


def test_queues_of_a_cohort_borrow_up_to_their_limits():
    limited = queue("b", "c", groups=[group(default={"gpu": quota(2, borrow=1)})])
    coming = [
        (0, workload("big", "a", gpu=6), 50),
        (1, workload("other", "b", gpu=3), 50),
        (2, workload("never", "b", gpu=4), 50),
    ]

    assert starts([queue("a", "c", gpu=4), limited], *coming) == {"big": 0, "other": 50}
    lent = [cohort("c", parent="top"), cohort("top", gpu=3)]
    assert starts([queue("a", "c", gpu=4), limited], *coming, cohorts=lent)["other"] == 1


def test_a_stopped_queue_starts_nothing():
    assert starts([queue("q", gpu=4, stopped=True)], (0, workload("a", "q", gpu=1), 1)) == {}


def test_nothing_happens_after_the_end():
    a, b = workload("a", "q", gpu=4), workload("b", "q", gpu=4)

    assert starts([queue("q", gpu=4)], (0, a, 60), (10, b, 60), until=59) == {"a": 0}


def test_a_workload_of_an_unknown_queue_or_resource_never_starts():
    of = CoarseQueues([queue("q", gpu=4)])

    assert of.kind_of(workload("a", "other", gpu=1)) is None
    assert of.kind_of(workload("a", "q", cpu=1)) is None


jobs = st.lists(
    st.tuples(
        st.integers(0, 60),
        st.integers(1, 8),
        st.integers(1, 40),
        st.sampled_from([0, 0, 0, 5]),
        st.sampled_from("pqr"),
    ),
    max_size=25,
)


def compare(specs, drawn):
    """Run both with jobs whose times all differ, so that no tie decides."""
    coming = [
        (
            at + number / 64,
            workload(f"w{number}", name, at=at + number / 64, gpu=gpu, priority=priority),
            float(runs) + number / 4096,
        )
        for number, (at, gpu, runs, priority, name) in enumerate(drawn)
    ]
    arrivals = [Arrival(workload=each, at=at, run_seconds=runs) for at, each, runs in coming]
    core = {
        action.workload.key: step.at
        for step in Simulation(state(*specs), arrivals).steps()
        for action in step.plan.actions
        if isinstance(action, Admit)
    }

    assert starts(specs, *coming) == core


@given(jobs, st.booleans())
def test_queues_of_their_own_are_as_in_the_core(drawn, strict):
    compare([queue(name, gpu=8, strict=strict) for name in "pqr"], drawn)


@given(jobs)
def test_a_cohort_is_as_in_the_core(drawn):
    compare(
        [queue(name, "c", gpu=amount) for name, amount in zip("pqr", (2, 3, 6), strict=True)], drawn
    )


@pytest.mark.parametrize("queues", [1, 2, 5])
def test_a_long_queue_is_as_in_the_core(queues):
    rng = DrawnNumbers(f"{queues} queues")
    drawn = [
        (0, 1 + int(8 * rng.next()), 1 + int(90 * rng.next()), 0, f"q{number % queues}")
        for number in range(150)
    ]

    compare(
        [queue(f"q{n}", "c" if queues > 1 else "", gpu=40 // queues) for n in range(queues)], drawn
    )
