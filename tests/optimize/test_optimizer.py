"""What queues want beyond Kueue's rules is decided by the optimizer alone."""

from policyd.alloc.cycle import plan_cycle
from policyd.optimize.opt_ins import NO_OPT_INS, OptIns
from tests.alloc import builders
from tests.alloc.builders import admission, keys, queue, workload
from tests.optimize.builders import state

WANTS = OptIns(reserve_seconds=0.0)


def scene(make, opt_ins):
    """A big one that waits, and a small one behind it that would run for ever."""
    of = make(
        queue("q", gpu=4, opt_ins=opt_ins),
        workload("running", "q", gpu=2, admission=admission("q", gpu=2), run_seconds=10.0),
        workload("big", "q", gpu=4, at=1),
        workload("small", "q", gpu=2, at=2),
    )
    of.now = 5.0
    of.commit(plan_cycle(of))
    return of


def test_a_reservation_holds_up_the_workloads_behind():
    assert keys(plan_cycle(scene(state, WANTS)).actions) == []


def test_without_the_optimizer_a_queue_decides_as_kueue():
    kueue = plan_cycle(scene(builders.state, NO_OPT_INS))
    plan = plan_cycle(scene(builders.state, WANTS))

    assert keys(plan.actions) == keys(kueue.actions) == ["small"]
    assert plan.reserved == {}
