"""Nobody is preempted in vain: whoever it is for fits then, and where it is held, gets it."""

import msgspec
from hypothesis import given, settings

from policyd.alloc.plan import Preempt, Requeue
from policyd.alloc.queue import QueueSpec
from policyd.optimize.opt_ins import OptIns
from policyd.status.messages import message_of
from tests.simulate.test_properties import SCENARIOS, made, steps


def claiming(scenario):
    """The same scenario, in which queues hold what others are preempted for."""
    things, coming, chosen = scenario
    wants = OptIns(claims=True)
    asking = [
        msgspec.structs.replace(each, opt_ins=wants) if isinstance(each, QueueSpec) else each
        for each in things
    ]
    return asking, coming, chosen


@settings(deadline=None)
@given(SCENARIOS)
def test_a_preemptor_starts_as_soon_as_its_victims_have_stopped(scenario):
    owed, simulation = {}, made(claiming(scenario))

    for step in steps(simulation):
        if simulation.unsettled:  # two preempt each other, until the simulation ends that
            return
        assert all(at == step.at for at in owed.values()), "a preemptor still waits"
        actions = step.plan.actions
        owed |= {each.preemptor.key: step.at for each in actions if isinstance(each, Preempt)}
        settled = {each.workload.key for each in actions if not isinstance(each, Requeue)}
        owed = {key: at for key, at in owed.items() if key not in settled}
        assert all(message_of(each.refusal) for each in actions if isinstance(each, Requeue))

    assert not owed
