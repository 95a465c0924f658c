"""Whatever queues ask for beyond Kueue's rules: no quota is exceeded, and everything ends."""

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from policyd.alloc.opt_ins import OptIns
from policyd.alloc.queue import QueueSpec
from tests.alloc.builders import held, usage
from tests.simulate.test_properties import made, scenarios, steps, told

SECONDS = st.none() | st.integers(0, 4).map(float)
OPT_INS = st.builds(
    OptIns,
    order=st.sampled_from(["Priority", "DominantShare", "Proportion"]),
    packs=st.sampled_from([{}, {"gpu": 1.0}, {"gpu": 1.0, "cpu": 2.0}]),
    stale_seconds=SECONDS,
    moves=st.integers(0, 2),
    claims=st.booleans(),
    reserve_seconds=SECONDS,
)


@st.composite
def asking(draw):
    """A scenario whose queues ask for anything, and whose workloads say when they end, or not."""
    things, coming, chosen = draw(scenarios())
    specs = [
        msgspec.structs.replace(each, opt_ins=draw(OPT_INS))
        if isinstance(each, QueueSpec)
        else each
        for each in things
    ]
    arrivals = []
    for each in coming:
        bound = each.run_seconds + draw(st.integers(0, 2)) if draw(st.booleans()) else None
        workload = msgspec.structs.replace(
            each.workload,
            run_seconds=bound,
            local_queue=draw(st.sampled_from(["ns/a", "ns/b"])),
        )
        loses = draw(st.none() | st.integers(1, 5).map(float))
        arrivals.append(msgspec.structs.replace(each, workload=workload, loses_pod_seconds=loses))
    return specs, arrivals, chosen


@settings(deadline=None)
@given(asking())
def test_no_tree_uses_more_than_it_has_and_usage_is_what_is_held(scenario):
    simulation = made(scenario)
    tree = simulation.state.tree

    for _ in steps(simulation):
        used = {key: amount for key, amount in usage(simulation.state).items() if key[0]}
        assert used == held(simulation.state)
        for cell, node in enumerate(tree.node):
            assert node.parent is not None or tree.usage[cell] <= tree.subtree[cell]


@settings(deadline=None)
@given(asking())
def test_who_hangs_is_all_that_is_left_and_only_where_nobody_stops_it(scenario):
    simulation = made(scenario)
    list(steps(simulation))

    for queue in simulation.state.queues.values():
        for holding in queue.holdings.values():
            assert holding.workload.short_since is not None
            assert queue.spec.opt_ins.stale_seconds is None


@settings(deadline=None)
@given(asking())
def test_the_same_scenario_goes_the_same_way(scenario):
    first, second = steps(made(scenario)), steps(made(scenario))

    assert [told(step) for step in first] == [told(step) for step in second]
