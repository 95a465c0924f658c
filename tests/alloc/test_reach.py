"""Whether anybody could be preempted: never denied where a search would find victims."""

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from policyd.alloc.cycle import plan_cycle
from policyd.alloc.plan import Preempt
from policyd.alloc.queue import PreemptionPolicy, QueueSpec
from policyd.alloc.reach import Reach
from policyd.alloc.settings import FairSharing, Settings
from tests.alloc.builders import put, state
from tests.alloc.test_properties import FLAVORS, worlds

POLICIES = st.builds(
    PreemptionPolicy,
    within_cluster_queue=st.sampled_from(["Never", "LowerPriority", "LowerOrNewerEqualPriority"]),
    reclaim_within_cohort=st.sampled_from(["Never", "LowerPriority", "Any"]),
    borrow_within_cohort=st.sampled_from(["Never", "LowerPriority"]),
)


def searching(of):
    """Plan as if somebody could be preempted always."""
    told, Reach.anybody = Reach.anybody, lambda *_: True
    try:
        return plan_cycle(of)
    finally:
        Reach.anybody = told


@settings(deadline=None)
@given(worlds(), st.data(), st.booleans())
def test_a_plan_is_the_same_with_all_searches_made(things, data, fair):
    things = [
        msgspec.structs.replace(each, preemption=data.draw(POLICIES))
        if isinstance(each, QueueSpec)
        else each
        for each in things
    ]
    of = state(flavors=FLAVORS, rules=Settings(fair_sharing=FairSharing() if fair else None))

    for each in things:
        put(of, each)
        searched, plan = searching(of), plan_cycle(of)
        assert plan == searched
        of.commit(plan)
        for action in plan.actions:
            if isinstance(action, Preempt):
                of.retract(action.workload.key)
