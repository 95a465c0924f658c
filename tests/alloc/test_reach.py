"""Whether anybody could be preempted: never denied where a search would find victims."""

from hypothesis import given, settings
from hypothesis import strategies as st

from policyd.alloc.cycle import plan_cycle
from policyd.alloc.plan import Preempt
from policyd.alloc.preemption import Reach
from policyd.alloc.queue import PreemptionPolicy
from policyd.alloc.settings import FairSharing, Settings
from tests.alloc.builders import group, put, queue, quota, state, workload

NAMES = ("a", "b", "c")
POLICIES = st.builds(
    PreemptionPolicy,
    within_cluster_queue=st.sampled_from(["LowerPriority", "LowerOrNewerEqualPriority", "Never"]),
    reclaim_within_cohort=st.sampled_from(["Any", "LowerPriority", "Never"]),
    borrow_within_cohort=st.sampled_from(["LowerPriority", "Never"]),
)
QUEUES = st.tuples(st.sampled_from(["x", ""]), st.integers(0, 5), POLICIES)
WORKLOADS = st.tuples(
    st.sampled_from(NAMES), st.integers(1, 4), st.integers(0, 2), st.integers(0, 5)
)


def searching(of):
    """Plan as if somebody could be preempted always."""
    told, Reach.anybody = Reach.anybody, lambda *_: True
    try:
        return plan_cycle(of)
    finally:
        Reach.anybody = told


@settings(deadline=None)
@given(
    st.tuples(*[QUEUES] * len(NAMES)),
    st.lists(WORKLOADS, min_size=4, max_size=12),
    st.sampled_from([None, FairSharing()]),
)
def test_a_plan_is_the_same_with_all_searches_made(specs, workloads, sharing):
    of = state(rules=Settings(fair_sharing=sharing))
    for name, (cohort, gpus, policy) in zip(NAMES, specs, strict=True):
        quotas = [group(default={"gpu": quota(gpus)})]
        put(of, queue(name, cohort, groups=quotas, preemption=policy))

    for number, (name, gpus, priority, at) in enumerate(workloads):
        put(of, workload(f"w{number}", name, gpu=gpus, priority=priority, at=at))
        searched, plan = searching(of), plan_cycle(of)
        assert plan == searched
        of.commit(plan)
        for action in plan.actions:
            if isinstance(action, Preempt):
                of.retract(action.workload.key)
