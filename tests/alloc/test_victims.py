"""Victims found the fast way are those that the whole search finds."""

from unittest.mock import patch

from hypothesis import given, settings

from policyd.alloc.preemption import classical
from policyd.alloc.preemption.targets import Claim, find_targets
from policyd.alloc.queue import PreemptionPolicy
from tests.alloc.builders import admission, cohort, group, queue, quota, state, workload
from tests.alloc.choices import scenarios

NAMES = ("a", "b", "c", "d")
RESOURCES = ("gpu", "cpu")


def setting(choose):
    """Four queues in up to two levels of cohorts, who runs in them, and who claims something."""
    things = [cohort(name, choose.one(("", "top"))) for name in ("x", "y")]
    for name in NAMES:
        quotas = {
            resource: quota(choose.number(0, 6), choose.maybe(0, 6), choose.maybe(0, 4))
            for resource in RESOURCES
        }
        preemption = PreemptionPolicy(
            within_cluster_queue=choose.one(("LowerPriority", "LowerOrNewerEqualPriority")),
            reclaim_within_cohort=choose.one(("Any", "LowerPriority", "Never")),
            borrow_within_cohort=choose.one(("Never", "Never", "LowerPriority")),
        )
        groups = (group(default=quotas),)
        things.append(queue(name, choose.one("xy"), groups=groups, preemption=preemption))
    for number in range(choose.number(3, 12)):
        name = choose.one(NAMES)
        usage = {resource: choose.number(1, 3) for resource in RESOURCES if choose.yes()}
        running = workload(
            f"w{number}", name, priority=choose.number(0, 2), at=number,
            admission=admission(name, **usage or {"gpu": 1}),
            reserved_at=float(choose.number(0, 5)), evicted=choose.once_in(3),
        )  # fmt: skip
        things.append(running)
    return things, choose.one(NAMES), choose.number(0, 3), choose.number(1, 8), choose.number(0, 6)


@settings(deadline=None)
@given(scenarios(setting, 150))
def test_victims_of_the_own_queue_are_chosen_first_without_another_result(scenario):
    things, name, priority, gpus, cpus = scenario
    of = state(*things)
    of.settle()
    cells = of.queues[name].node.cells
    charges = {cells["default", "gpu"]: gpus, cells["default", "cpu"]: cpus}
    short = tuple(cell for cell, amount in charges.items() if amount > of.tree.available(cell))
    claim = Claim(workload("new", name, priority=priority, at=99), charges, short or (*charges,))

    found = find_targets(of, claim)
    with patch.object(classical, "_own_first", lambda *_: []):
        expected = find_targets(of, claim)

    assert {(v.workload.key, v.reason) for v in found} == {
        (v.workload.key, v.reason) for v in expected
    }
