"""Preemption in queues whose order is not Kueue's: it comes to rest, and heeds the order."""

import pytest

from policyd.alloc.plan import Preempt
from policyd.alloc.queue import PreemptionPolicy
from policyd.optimize.opt_ins import OptIns
from policyd.simulate.scenario import Arrival, Simulation
from policyd.status.pending_reasons import refused_now
from policyd.status.remedies import WaitForProtection
from policyd.status.remedy_search import remedies
from tests.alloc.builders import admission, queue, workload
from tests.alloc.preemption.test_preemption import IN_QUEUE, claim, preempted
from tests.optimize.builders import state

NEWER = PreemptionPolicy(within_cluster_queue="LowerOrNewerEqualPriority")
WITHIN = PreemptionPolicy(within_cluster_queue="LowerPriority")
SHORTEST = OptIns(order="ShortestFirst")


def arrival(key, *, at, runs, of="one", priority=0):
    pending = workload(key, "q", gpu=4, run_seconds=runs, local_queue=of, priority=priority)
    return Arrival(pending, at=at, run_seconds=runs)


def newer(runs):
    """Return a workload that was queued last, and has quota."""
    return workload(
        "newer",
        "q",
        at=9,
        gpu=4,
        run_seconds=runs,
        admission=admission("q", gpu=4),
        reserved_at=9.0,
    )


@pytest.mark.parametrize("strict", [True, False], ids=["StrictFIFO", "BestEffortFIFO"])
@pytest.mark.parametrize(
    ("order", "policy", "priority", "preemptions"),
    [
        pytest.param("Priority", NEWER, 0, 0, id="age"),
        pytest.param("ShortestFirst", NEWER, 0, 0, id="run-time"),
        pytest.param("ShortestFirst", WITHIN, 1, 0, id="run-time-after-priority"),
        pytest.param("DominantShare", NEWER, 0, 1, id="share-of-a-newer-one"),
        pytest.param("DominantShare", WITHIN, 1, 1, id="share-of-a-less-important-one"),
        pytest.param("Proportion", WITHIN, 1, 1, id="part-of-a-less-important-one"),
    ],
)
def test_no_workload_is_admitted_and_preempted_again_and_again(
    strict, order, policy, priority, preemptions
):
    """Half of the quota gets free; the order and the policy of preemption prefer different ones."""
    spec = queue("q", gpu=8, strict=strict, preemption=policy, opt_ins=OptIns(order=order))
    coming = [
        arrival("runs", at=0, runs=1000, priority=5),
        arrival("ends", at=0, runs=10, of="other", priority=5),
        arrival("older", at=1, runs=500, priority=priority),
        arrival("newer", at=2, runs=50, of="other"),
    ]
    simulation = Simulation(state(spec), coming)

    steps = list(simulation.steps())

    stopped = [a.workload.key for s in steps for a in s.plan.actions if isinstance(a, Preempt)]
    assert stopped == ["newer"] * preemptions
    assert not simulation.unsettled
    assert {key for step in steps for key in step.ended} == {"runs", "ends", "older", "newer"}


@pytest.mark.parametrize(
    ("order", "mine", "other", "is_preempted"),
    [
        pytest.param(SHORTEST, 60, 30, False, id="a-shorter-one-goes-first"),
        pytest.param(SHORTEST, 60, 60, True, id="one-as-long"),
        pytest.param(SHORTEST, 30, 60, True, id="a-longer-one"),
        pytest.param(SHORTEST, 60, None, True, id="one-that-declares-nothing"),
        pytest.param(SHORTEST, None, 60, False, id="for-one-that-declares-nothing"),
        pytest.param(OptIns(), 60, 30, True, id="in-another-order"),
    ],
)
def test_a_newer_workload_is_preempted_unless_its_run_time_puts_it_first(
    order, mine, other, is_preempted
):
    spec = queue("q", gpu=4, preemption=NEWER, opt_ins=order)
    of = state(spec, newer(other))
    older = claim(of, "q", gpu=4)._replace(workload=workload("older", "q", gpu=4, run_seconds=mine))

    assert preempted(of, older) == [("newer", IN_QUEUE)] * is_preempted


def test_the_order_is_no_protection_to_wait_for():
    older = workload("older", "q", gpu=4, run_seconds=60)
    spec = queue("q", gpu=4, preemption=NEWER, opt_ins=SHORTEST)
    of = state(spec, newer(30), older)
    (ticket,) = of.queues["q"].pending
    of.settle()
    refusal = refused_now(of, ticket, of.queues["q"].options)

    found = list(remedies(of, older, refusal))

    assert found
    assert not [each for each in found if isinstance(each, WaitForProtection)]
