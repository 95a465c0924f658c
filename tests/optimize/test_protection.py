"""Workloads that a queue protects from preemption for some time."""

import msgspec
import pytest

from policyd.optimize.opt_ins import OptIns, Protection
from tests.alloc.builders import put, queue, workload
from tests.alloc.preemption.test_preemption import (
    IN_QUEUE,
    RECLAIM,
    WITHIN,
    claim,
    preempted,
    running,
)
from tests.optimize.builders import state


def protected(**seconds):
    return OptIns(protection=Protection(**seconds))


@pytest.mark.parametrize(
    ("protection", "now", "own", "reclaimed"),
    [
        pytest.param(Protection(), 100, True, True, id="none"),
        pytest.param(Protection(preemption=60), 100, False, True, id="against-its-own-queue"),
        pytest.param(Protection(reclaim=60), 100, True, False, id="against-other-queues"),
        pytest.param(Protection(preemption=60, reclaim=60), 110, True, True, id="until-it-ends"),
        pytest.param(
            Protection(repetition=60), 100, True, True, id="not-of-who-was-never-preempted"
        ),
    ],
)
def test_a_recent_start_is_protected_by_its_queues_setting(protection, now, own, reclaimed):
    of = state(
        queue("a", "x", gpu=4, preemption=RECLAIM),
        queue("b", "x", gpu=4, preemption=WITHIN, opt_ins=OptIns(protection=protection)),
        running("b1", "b", at=50, gpu=8),
    )
    of.now = now

    assert bool(preempted(of, claim(of, "b", priority=1, gpu=4))) == own
    assert bool(preempted(of, claim(of, "a", gpu=4))) == reclaimed


def test_a_stopping_workload_is_no_longer_protected():
    spec = queue("q", gpu=8, preemption=WITHIN, opt_ins=protected(preemption=60))
    of = state(spec, running("a", "q", evicted=True, gpu=8))

    assert preempted(of, claim(of, "q", priority=1, gpu=4)) == [("a", IN_QUEUE)]


def test_a_victim_is_not_soon_preempted_again_by_the_same_one():
    spec = queue("q", gpu=8, preemption=WITHIN, opt_ins=protected(repetition=60))
    victim = msgspec.structs.replace(running("victim", "q", at=90, gpu=8), preempted_by="new")
    of = state(spec, victim)
    of.now = 100

    again, other = claim(of, "q", priority=1, gpu=8), workload("else", "q", priority=1)
    assert preempted(of, again) == []
    assert preempted(of, again._replace(workload=other)) == [("victim", IN_QUEUE)]

    of.now = 150
    assert preempted(of, again) == [("victim", IN_QUEUE)]


def test_an_earlier_preemptor_is_known_after_later_ones():
    spec = queue("q", gpu=8, preemption=WITHIN, opt_ins=protected(repetition=60))
    of = state(spec, workload("victim", "q", gpu=8, preempted_by="new"))
    put(of, msgspec.structs.replace(running("victim", "q", gpu=8), preempted_by="another"))

    assert preempted(of, claim(of, "q", priority=1, gpu=8)) == []
