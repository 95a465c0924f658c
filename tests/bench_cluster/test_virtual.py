"""What preemption costs in simulated time, with Kueue's timing and with policyd's."""

from dataclasses import replace

import pytest

from tests.bench_cluster.loads import LOADS
from tests.bench_cluster.virtual import TIMINGS, figures_of

SMALL = replace(LOADS["baseline"], cohorts=1).part(0.1)


@pytest.fixture(scope="module")
def found():
    """The figures of each timing, for one seed."""
    return {name: figures_of(SMALL, timing, [1])[0] for name, timing in TIMINGS.items()}


def test_policyd_loses_no_more_work_than_kueues_timing_does(found):
    assert 0 < found["policyd"]["share"] <= 1.25 * found["Kueue's timing"]["share"]


def test_gathered_quota_saves_evictions(found):
    assert 3 * found["policyd"]["evictions"] < found["policyd, without gathering"]["evictions"]


def test_decisions_are_undone_where_each_cycle_is_written(found):
    each = found["policyd, each cycle written"]["undone"]["count"]
    assert 5 * found["policyd"]["undone"]["count"] < each


def test_preemption_buys_important_workloads_an_early_start(found):
    never = found["policyd, no preemption"]
    assert never["evictions"] == 0
    assert 10 * found["policyd"]["waits"]["large"] < never["waits"]["large"]


def test_strict_queues_do_not_borrow_what_is_taken_back_at_once(found):
    (strict,) = figures_of(SMALL, TIMINGS["policyd"], [1], strict=True)

    assert strict["share"] <= 1.5 * found["policyd"]["share"]
