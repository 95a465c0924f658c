"""What holds in any scenario with preemption, fewer pods and fair sharing, until all ended."""

import msgspec
from hypothesis import given, settings

from policyd.alloc.plan import Admit, Preempt
from policyd.alloc.queue import FlavorSpec, Fungibility, PreemptionPolicy
from policyd.alloc.settings import FairSharingRules, QueueingSettings
from policyd.alloc.state import CoreState
from policyd.optimize.opt_ins import OptIns, Protection
from policyd.optimize.optimizer import Optimizer
from policyd.simulate.scenario import Arrival, Simulation
from tests.alloc.builders import held, put, usage
from tests.alloc.choices import scenarios
from tests.alloc.worlds import FLAVORS, NAMES, cohorts, queues, workloads

MOST_STEPS = 2_000
NEVER_AGAIN = OptIns(protection=Protection(repetition=1_000.0))
"""Else two workloads could preempt each other for ever, by the policies of their queues."""

RATE = settings(deadline=None)


def policies(choose):
    reclaim = choose.one(("Never", "LowerPriority", "Any"))
    borrow = choose.one(("Never", "LowerPriority")) if reclaim != "Never" else "Never"
    return PreemptionPolicy(
        within_cluster_queue=choose.one(("Never", "LowerPriority", "LowerOrNewerEqualPriority")),
        reclaim_within_cohort=reclaim,
        borrow_within_cohort=borrow,
    )


def fungibility(choose):
    return Fungibility(
        when_can_borrow=choose.one(("MayStopSearch", "TryNextFlavor")),
        when_can_preempt=choose.one(("MayStopSearch", "TryNextFlavor")),
        preference=choose.one(("BorrowingOverPreemption", "PreemptionOverBorrowing")),
    )


def arrivals(choose, number):
    asked = workloads(choose, number)
    first, *rest = asked.pod_sets
    shrunk = msgspec.structs.replace(first, minimum=choose.maybe(1, first.count))
    return Arrival(
        workload=msgspec.structs.replace(asked, pod_sets=(shrunk, *rest)),
        at=float(choose.number(0, 5)),
        run_seconds=float(choose.number(1, 5)),
    )


def scenario_of(choose):
    """Queues, workloads that come and end, and whether cohorts share fairly."""
    specs = [
        msgspec.structs.replace(
            queues(choose, name),
            preemption=policies(choose),
            fungibility=fungibility(choose),
            opt_ins=NEVER_AGAIN,
        )
        for name in choose.shuffled(NAMES)[: choose.number(1, 4)]
    ]
    coming = [arrivals(choose, number) for number in range(choose.number(1, 9))]
    sharing = choose.one((None, FairSharingRules()))
    return [*cohorts(choose), *specs], coming, QueueingSettings(fair_sharing=sharing)


SCENARIOS = scenarios(scenario_of, 230)


def made(scenario):
    things, coming, chosen = scenario
    of = CoreState(chosen, Optimizer)
    for name in FLAVORS:
        of.put_flavor(FlavorSpec(name=name))
    for thing in things:
        put(of, thing)
    return Simulation(of, coming)


def steps(simulation):
    for number, step in enumerate(simulation.steps()):
        assert number < MOST_STEPS, "cycles go on for ever"
        yield step


@RATE
@given(SCENARIOS)
def test_no_tree_uses_more_than_it_has_and_everything_ends(scenario):
    simulation = made(scenario)
    tree = simulation.state.tree

    for _ in steps(simulation):
        for cell, node in enumerate(tree.node):
            assert node.parent is not None or tree.usage[cell] <= tree.subtree[cell]

    assert usage(simulation.state) == {}


@RATE
@given(SCENARIOS)
def test_usage_is_what_is_held_now(scenario):
    simulation = made(scenario)

    for _ in steps(simulation):
        used = {key: amount for key, amount in usage(simulation.state).items() if key[0]}
        assert used == held(simulation.state)


@RATE
@given(SCENARIOS)
def test_partial_admission_gives_no_fewer_pods_than_needed(scenario):
    simulation = made(scenario)

    for step in steps(simulation):
        for action in step.plan.actions:
            if isinstance(action, Admit):
                wanted = {p.name: p for p in action.workload.pod_sets}
                for got in action.admission.pod_sets:
                    asked = wanted[got.name]
                    least = asked.count if asked.minimum is None else asked.minimum
                    assert least <= got.count <= asked.count


@RATE
@given(SCENARIOS)
def test_no_workload_is_preempted_twice_in_a_cycle_nor_for_a_stranger(scenario):
    simulation = made(scenario)

    for step in steps(simulation):
        victims = [a.workload.key for a in step.plan.actions if isinstance(a, Preempt)]
        assert len(set(victims)) == len(victims)
        for action in step.plan.actions:
            if isinstance(action, Preempt):
                top, other = action.path.split("/")[1], action.preemptor_path.split("/")[1]
                assert top == other


@RATE
@given(SCENARIOS)
def test_the_same_scenario_goes_the_same_way(scenario):
    first, second = steps(made(scenario)), steps(made(scenario))

    assert [summarize_step(step) for step in first] == [summarize_step(step) for step in second]


def summarize_step(step):
    return step.at, step.ended, [(type(a), a.workload.key) for a in step.plan.actions]
