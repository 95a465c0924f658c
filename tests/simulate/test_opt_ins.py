"""Whatever queues ask for beyond Kueue's rules: no quota is exceeded, and everything ends."""

import msgspec
from hypothesis import given, settings

from policyd.alloc.queue import QueueSpec
from tests.alloc.builders import held, usage
from tests.alloc.choices import scenarios
from tests.simulate.test_properties import NEVER_AGAIN, made, scenario_of, steps, summarize_step


def seconds(choose, least, most):
    chosen = choose.maybe(least, most)
    return None if chosen is None else float(chosen)


def opt_ins(choose):
    return msgspec.structs.replace(
        NEVER_AGAIN,
        order=choose.one(("Priority", "DominantShare", "Proportion", "ShortestFirst")),
        packs=choose.one(({}, {"gpu": 1.0}, {"gpu": 1.0, "cpu": 2.0})),
        stale_seconds=seconds(choose, 0, 4),
        moves=choose.number(0, 2),
        claims=choose.yes(),
        reserve_seconds=seconds(choose, 0, 4),
    )


def asking(choose):
    """A scenario whose queues ask for anything, and whose workloads say when they end, or not."""
    things, coming, chosen = scenario_of(choose)
    specs = [
        msgspec.structs.replace(each, opt_ins=opt_ins(choose))
        if isinstance(each, QueueSpec)
        else each
        for each in things
    ]
    return specs, [bounded(choose, each) for each in coming], chosen


def bounded(choose, arrival):
    bound = arrival.run_seconds + choose.number(0, 2) if choose.yes() else None
    workload = msgspec.structs.replace(
        arrival.workload, run_seconds=bound, local_queue=choose.one(("ns/a", "ns/b"))
    )
    loses = seconds(choose, 1, 5)
    return msgspec.structs.replace(arrival, workload=workload, loses_pod_seconds=loses)


ASKING = scenarios(asking, 300)


@settings(deadline=None)
@given(ASKING)
def test_no_tree_uses_more_than_it_has_and_usage_is_what_is_held(scenario):
    simulation = made(scenario)
    tree = simulation.state.tree

    for _ in steps(simulation):
        used = {key: amount for key, amount in usage(simulation.state).items() if key[0]}
        assert used == held(simulation.state)
        for cell, node in enumerate(tree.node):
            assert node.parent is not None or tree.usage[cell] <= tree.subtree[cell]


@settings(deadline=None)
@given(ASKING)
def test_only_a_hanging_call_is_left_if_it_is_never_stopped(scenario):
    simulation = made(scenario)
    list(steps(simulation))

    for queue in simulation.state.queues.values():
        for holding in queue.holdings.values():
            assert holding.workload.short_since is not None
            assert queue.spec.opt_ins.stale_seconds is None


@settings(deadline=None)
@given(ASKING)
def test_the_same_scenario_goes_the_same_way(scenario):
    first, second = steps(made(scenario)), steps(made(scenario))

    assert [summarize_step(step) for step in first] == [summarize_step(step) for step in second]
