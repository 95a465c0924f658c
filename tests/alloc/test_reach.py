"""Whether anybody could be preempted: never denied where a search would find victims."""

from hypothesis import given, settings

from policyd.alloc.cycle import plan_cycle
from policyd.alloc.plan import Preempt
from policyd.alloc.preemption.targets import TargetFeasibility
from policyd.alloc.queue import PreemptionPolicy
from policyd.alloc.settings import FairSharingRules, QueueingSettings
from tests.alloc.builders import put, queue, state, workload
from tests.alloc.choices import scenarios

NAMES = ("a", "b", "c")


def setting(choose):
    """Three queues, up to twelve workloads for them, and whether they share fairly."""
    specs = [
        queue(
            name,
            choose.one(("x", "")),
            gpu=choose.number(0, 5),
            preemption=PreemptionPolicy(
                within_cluster_queue=choose.one(
                    ("LowerPriority", "LowerOrNewerEqualPriority", "Never")
                ),
                reclaim_within_cohort=choose.one(("Any", "LowerPriority", "Never")),
                borrow_within_cohort=choose.one(("LowerPriority", "Never")),
            ),
        )
        for name in NAMES
    ]
    sharing = choose.one((None, FairSharingRules()))
    return specs, [arrival(choose, number) for number in range(choose.number(4, 12))], sharing


def arrival(choose, number):
    return workload(
        f"w{number}", choose.one(NAMES), gpu=choose.number(1, 4), priority=choose.number(0, 2),
        at=choose.number(0, 5),
    )  # fmt: skip


def searching(of):
    """Plan as if somebody could be preempted always."""
    original, TargetFeasibility.possible = TargetFeasibility.possible, lambda *_: True
    try:
        return plan_cycle(of)
    finally:
        TargetFeasibility.possible = original


@settings(deadline=None)
@given(scenarios(setting, 70))
def test_a_plan_is_the_same_with_all_searches_made(scenario):
    specs, coming, sharing = scenario
    of = state(*specs, rules=QueueingSettings(fair_sharing=sharing))

    for each in coming:
        put(of, each)
        searched, plan = searching(of), plan_cycle(of)
        assert plan == searched
        of.commit(plan)
        for action in plan.actions:
            if isinstance(action, Preempt):
                of.retract(action.workload.key)
