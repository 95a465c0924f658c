"""What holds in any scenario with preemption, fewer pods and fair sharing, until all ended."""

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from policyd.alloc.flavor import FlavorSpec
from policyd.alloc.plan import Admit, Preempt
from policyd.alloc.queue import Fungibility, PreemptionPolicy, Protection
from policyd.alloc.settings import FairSharing, Settings
from policyd.alloc.state import State
from policyd.simulate.scenario import Arrival, Simulation
from tests.alloc.builders import held, put, usage
from tests.alloc.test_properties import COHORTS, FLAVORS, NAMES, queues, workloads

MOST_STEPS = 2_000
NEVER_AGAIN = Protection(repetition=1_000.0)
"""Else two workloads could preempt each other for ever, by the policies of their queues."""

RATE = settings(deadline=None)


@st.composite
def policies(draw):
    reclaim = draw(st.sampled_from(["Never", "LowerPriority", "Any"]))
    borrow = draw(st.sampled_from(["Never", "LowerPriority"])) if reclaim != "Never" else "Never"
    within = ["Never", "LowerPriority", "LowerOrNewerEqualPriority"]
    return PreemptionPolicy(
        within_cluster_queue=draw(st.sampled_from(within)),
        reclaim_within_cohort=reclaim,
        borrow_within_cohort=borrow,
    )


FUNGIBILITY = st.builds(
    Fungibility,
    when_can_borrow=st.sampled_from(["MayStopSearch", "TryNextFlavor"]),
    when_can_preempt=st.sampled_from(["MayStopSearch", "TryNextFlavor"]),
    preference=st.sampled_from(["BorrowingOverPreemption", "PreemptionOverBorrowing"]),
)


@st.composite
def arrivals(draw, number):
    asked = draw(workloads(number))
    first, *rest = asked.pod_sets
    shrunk = msgspec.structs.replace(first, minimum=draw(st.none() | st.integers(1, first.count)))
    return Arrival(
        workload=msgspec.structs.replace(asked, pod_sets=(shrunk, *rest)),
        at=float(draw(st.integers(0, 5))),
        run_seconds=float(draw(st.integers(1, 5))),
    )


@st.composite
def scenarios(draw):
    """Queues, workloads that come and end, and whether cohorts share fairly."""
    specs = [
        msgspec.structs.replace(
            draw(queues(name)),
            preemption=draw(policies()),
            fungibility=draw(FUNGIBILITY),
            protection=NEVER_AGAIN,
        )
        for name in draw(st.lists(st.sampled_from(NAMES), unique=True, min_size=1))
    ]
    coming = [draw(arrivals(n)) for n in range(draw(st.integers(1, 9)))]
    sharing = draw(st.none() | st.builds(FairSharing))
    return [*draw(COHORTS), *specs], coming, Settings(fair_sharing=sharing)


def made(scenario):
    things, coming, chosen = scenario
    of = State(chosen)
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
@given(scenarios())
def test_no_tree_uses_more_than_it_has_and_everything_ends(scenario):
    simulation = made(scenario)
    tree = simulation.state.tree

    for _ in steps(simulation):
        for cell, node in enumerate(tree.node):
            assert node.parent is not None or tree.usage[cell] <= tree.subtree[cell]

    assert usage(simulation.state) == {}


@RATE
@given(scenarios())
def test_usage_is_what_is_held_now(scenario):
    simulation = made(scenario)

    for _ in steps(simulation):
        used = {key: amount for key, amount in usage(simulation.state).items() if key[0]}
        assert used == held(simulation.state)


@RATE
@given(scenarios())
def test_who_gets_fewer_pods_gets_no_fewer_than_it_needs(scenario):
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
@given(scenarios())
def test_nobody_is_preempted_twice_in_a_cycle_nor_for_a_stranger(scenario):
    simulation = made(scenario)

    for step in steps(simulation):
        victims = [a.workload.key for a in step.plan.actions if isinstance(a, Preempt)]
        assert len(set(victims)) == len(victims)
        for action in step.plan.actions:
            if isinstance(action, Preempt):
                top, other = action.path.split("/")[1], action.preemptor_path.split("/")[1]
                assert top == other


@RATE
@given(scenarios())
def test_the_same_scenario_goes_the_same_way(scenario):
    first, second = steps(made(scenario)), steps(made(scenario))

    assert [told(step) for step in first] == [told(step) for step in second]


def told(step):
    return step.at, step.ended, [(type(a), a.workload.key) for a in step.plan.actions]
