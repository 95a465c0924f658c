"""The fewest moves that let a gang in: what they are, what they cost, and that all fit then."""

from itertools import combinations, product

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from policyd.alloc.cycle import plan_cycle
from policyd.alloc.plan import Admit, Preempt
from policyd.alloc.queue import FlavorSpec
from policyd.alloc.topology.values import (
    HOSTNAME,
    Placement,
    PlacementRequest,
    TopologyNode,
    TopologyPlacement,
)
from policyd.alloc.workload import PodSetFlavors, QueuedPodSet, ReservedQuota
from policyd.optimize.joint_placement import SearchBudget
from policyd.optimize.moves import Preemptor, cost_of, fewest_moves, may_move
from policyd.optimize.opt_ins import OptIns
from policyd.simulate.scenario import Arrival, Simulation
from tests.alloc.builders import queue, workload
from tests.optimize.builders import state

LEVELS = ("rack", HOSTNAME)
MOVES = OptIns(moves=3)
HOW = (("Required", "rack"), ("Preferred", "rack"), ("Unconstrained", ""))


def world(*things, opt_ins=MOVES, quota=99, **racks):
    """Racks of nodes with so many GPUs each: `r1=(4, 4)` has the nodes `r1-0` and `r1-1`."""
    made = state(flavors=())
    made.put_flavor(FlavorSpec(name="default", topology="racks", levels=LEVELS))
    for rack, gpus in racks.items():
        for number, amount in enumerate(gpus):
            labels = {"rack": rack, HOSTNAME: f"{rack}-{number}"}
            allocatable = {"gpu": amount, "pods": 20}
            made.ledger.nodes.put(
                TopologyNode(name=labels[HOSTNAME], labels=labels, allocatable=allocatable)
            )
    made.put_queue(queue("q", gpu=quota, opt_ins=opt_ins))
    for each in things:
        made.put_workload(each)
    return made


def gang(key, count=1, mode="Required", level="rack", *, gpu=1, on=None, **fields):
    """A workload that waits, or runs on nodes: `on={"r1-0": 2}`."""
    asked = PlacementRequest(
        pod_set="main", count=count, requests={"gpu": gpu}, mode=mode, level=level
    )
    pods = QueuedPodSet(name="main", count=count, requests={"gpu": gpu}, placed=True, place=asked)
    if on is None:
        return workload(key, "q", pods, **fields)
    domains = tuple(((name,), n) for name, n in sorted(on.items()))
    given = PodSetFlavors(
        name="main",
        count=count,
        flavors={"gpu": "default"},
        usage={"gpu": gpu * count},
        placement=TopologyPlacement(levels=(HOSTNAME,), domains=domains),
        pod_requests={"gpu": gpu},
    )
    held = ReservedQuota(cluster_queue="q", pod_sets=(given,))
    fields = {"reserved_at": -100.0, "admitted": True, "ready": True, **fields}
    return workload(key, "q", pods, admission=held, **fields)


def anywhere(key, count=1, **others):
    return gang(key, count, "Unconstrained", "", **others)


def plan(of, key, *, most=3, steps=200_000, sets=500):
    of.settle()
    (waiting,) = (
        t.workload for q in of.queues.values() for t in q.pending if t.workload.key == key
    )
    preemptor = Preemptor(of, waiting, of.queues["q"].options, SearchBudget(steps, sets))
    movable = [each for each in of.queues["q"].holdings.values() if may_move(each, waiting)]
    return fewest_moves(preemptor, movable, most=most)


def moved(found):
    return None if found is None else sorted(each.workload.key for each in found.victims)


def where(move):
    (pods,) = move.admission.pod_sets
    return {name: n for (name,), n in pods.placement.domains}


def test_an_occupant_of_a_rack_moves_to_another():
    of = world(anywhere("a", 2, on={"r1-0": 2}), gang("new", 2, gpu=4), r1=(4, 4), r2=(2, 2))

    found = plan(of, "new")

    assert moved(found) == ["a"]
    assert [(each.key, where(each)) for each in found.moves] == [
        ("new", {"r1-0": 1, "r1-1": 1}),
        ("a", {"r2-0": 2}),
    ]
    assert found.fewest


@pytest.mark.parametrize(
    ("things", "racks"),
    [
        pytest.param(
            [anywhere("a", 2, on={"r1-0": 2})], {"r1": (4, 4), "r2": (1,)}, id="no-room-elsewhere"
        ),
        pytest.param(
            [gang("a", 2, on={"r1-0": 2})],
            {"r1": (4, 4), "r2": (1,), "r3": (1,)},
            id="no-room-in-one-rack-elsewhere",
        ),
        pytest.param(
            [anywhere("a", 2, on={"r1-0": 2}, priority=1)],
            {"r1": (4, 4), "r2": (4,)},
            id="more-important",
        ),
        pytest.param(
            [anywhere("a", 2, on={"r1-0": 2}, evicted=True)],
            {"r1": (4, 4), "r2": (4,)},
            id="stops-already",
        ),
        pytest.param(
            [anywhere(f"w{n}", 1, on={"r1-0": 1}) for n in range(4)],
            {"r1": (4, 4), "r2": (4,)},
            id="more-than-may-be-moved",
        ),
        pytest.param([], {"r1": (4, 3), "r2": (4,)}, id="not-even-on-an-empty-cluster"),
    ],
)
def test_no_workload_is_moved_if_it_does_not_help(things, racks):
    assert plan(world(*things, gang("new", 2, gpu=4), **racks), "new") is None


def test_a_chain_is_moved_where_one_move_needs_another():
    """`a` has to leave its rack for the only node that suits it, which `b` has to leave."""
    of = world(
        anywhere("a", 1, gpu=4, on={"r1-0": 1}),
        anywhere("b", 1, gpu=2, on={"r2-0": 1}),
        gang("new", 2, gpu=4),
        r1=(4, 4),
        r2=(4,),
        r3=(2,),
    )

    assert moved(plan(of, "new")) == ["a", "b"]


def test_of_as_many_those_go_that_lose_least():
    of = world(
        anywhere("long", 2, on={"r1-0": 2}, reserved_at=-9000.0),
        anywhere("short", 2, on={"r2-0": 2}, reserved_at=-60.0),
        gang("new", 2, gpu=4),
        r1=(4, 4),
        r2=(4, 4),
        r3=(2,),
    )

    assert moved(plan(of, "new")) == ["short"]


@pytest.mark.parametrize(
    ("who", "cost"),
    [
        pytest.param(anywhere("a", 3, gpu=2, on={"r1-0": 3}), 300.0, id="pods-and-seconds"),
        pytest.param(
            anywhere("a", 3, on={"r1-0": 3}, saves_seconds=30.0), 90.0, id="it-saves-its-state"
        ),
        pytest.param(
            anywhere("a", 1, on={"r1-0": 1}, saves_seconds=900.0), 100.0, id="it-has-not-yet"
        ),
        pytest.param(anywhere("a", 1, on={"r1-0": 1}, reserved_at=None), 0.0, id="not-known"),
    ],
)
def test_a_move_costs_what_is_lost_of_a_run(who, cost):
    of = world(who, r1=(8,))

    assert cost_of(of.holding("a"), 0.0) == cost


def test_devices_are_what_costs_where_there_are_some():
    given = PodSetFlavors(
        name="main", count=2, flavors={}, usage={"cpu": 9, "nvidia.com/mig-3g.20gb": 7}
    )
    running = gang("a", on={"r1-0": 1})
    held = replace(running, admission=ReservedQuota(cluster_queue="q", pod_sets=(given,)))

    assert cost_of(world(held, r1=(8,)).holding("a"), 0.0) == pytest.approx(3 * 100.0)


def test_planning_leaves_everything_as_it_was():
    of = world(anywhere("a", 2, on={"r1-0": 2}), gang("new", 2, gpu=4), r1=(4, 4), r2=(2, 2))
    before = dict(of.ledger.nodes.held), of.ledger.nodes.usage("default"), list(of.tree.usage)

    plan(of, "new")

    after = dict(of.ledger.nodes.held), of.ledger.nodes.usage("default"), list(of.tree.usage)
    assert after == before


def test_of_many_those_who_crowd_a_rack_are_found():
    """Five hundred sets of two are not all: those in one rack are tried."""
    crowd = [anywhere(f"w{n}", 1, on={f"r{n}-0": 1}) for n in range(60)]
    of = world(
        *crowd,
        anywhere("x", 2, on={"full-0": 1, "full-1": 1}),
        anywhere("y", 1, on={"full-1": 1}),
        gang("new", 2, gpu=4),
        full=(4, 4),
        **{f"r{n}": (3,) for n in range(60)},
    )

    found = plan(of, "new")

    assert moved(found) == ["x", "y"]
    assert found.fewest, "all single moves were tried"


# Against every set and every placement there is.


@st.composite
def crowds(draw):
    racks = {f"r{n}": tuple(draw(st.lists(st.integers(1, 3), min_size=1, max_size=2)))
             for n in range(draw(st.integers(1, 3)))}  # fmt: skip
    hosts = [f"{rack}-{n}" for rack, gpus in racks.items() for n in range(len(gpus))]
    free = {f"{rack}-{n}": g for rack, gpus in racks.items() for n, g in enumerate(gpus)}
    running = []
    for number in range(draw(st.integers(0, 4))):
        host, gpu = draw(st.sampled_from(hosts)), draw(st.integers(1, 2))
        if free[host] >= gpu:
            free[host] -= gpu
            how = draw(st.sampled_from([("Required", "rack"), ("Unconstrained", "")]))
            running.append(gang(f"w{number}", 1, *how, gpu=gpu, on={host: 1}))
    wanted = gang("new", draw(st.integers(1, 3)), gpu=draw(st.integers(1, 3)))
    return racks, running, wanted


def spreads(racks, who, count, gpu):
    """Every way to put the pods of one on nodes, in one rack if that is required."""
    hosts = [(rack, n) for rack, gpus in racks.items() for n in range(len(gpus))]
    rooms = [range(racks[rack][n] // gpu + 1) for rack, n in hosts]
    for counts in product(*rooms):
        used = {rack for (rack, _), n in zip(hosts, counts, strict=True) if n}
        required = who.pod_sets[0].place.mode == "Required"
        if sum(counts) == count and (len(used) == 1 or not required):
            yield [n * gpu for n in counts]


def fewest(racks, running, wanted):
    """How many have to move at least; None if no set does."""
    hosts = [(rack, n) for rack, gpus in racks.items() for n in range(len(gpus))]
    capacity = [racks[rack][n] for rack, n in hosts]
    names = [f"{rack}-{n}" for rack, n in hosts]

    def has_places(some):
        stays = [0] * len(hosts)
        for each in running:
            if each not in some:
                ((domain, n),) = each.admission.pod_sets[0].placement.domains
                stays[names.index(domain[0])] += n * each.pod_sets[0].requests["gpu"]
        ways = [
            list(spreads(racks, each, each.pod_sets[0].count, each.pod_sets[0].requests["gpu"]))
            for each in (wanted, *some)
        ]
        return any(
            all(sum(on) <= cap for *on, cap in zip(stays, *chosen, capacity, strict=True))
            for chosen in product(*ways)
        )

    sizes = range(len(running) + 1)
    return next((n for n in sizes if any(map(has_places, combinations(running, n)))), None)


@settings(deadline=None)
@given(crowds())
def test_the_fewest_are_moved_that_any_search_finds(crowd):
    racks, running, wanted = crowd
    expected = fewest(racks, running, wanted)
    assume(expected != 0)  # nobody asks for moves who fits
    of = world(*running, wanted, **racks)

    found = plan(of, "new", most=4)

    assert (None if found is None else len(found.victims)) == expected
    assert found is None or found.fewest
    if found is not None:
        assert_all_fit(of, found)


def assert_all_fit(of, found):
    """Those that stay and those that move have no more than there is, all together."""
    with of.ledger.trial():
        for victim in found.victims:
            of.ledger.release(victim.holding)
        for move in found.moves:
            (pods,) = move.admission.pod_sets
            place = Placement(
                flavor="default", assignment=pods.placement, requests=pods.pod_requests
            )
            of.ledger.nodes.hold(move.key, [place])
        tree = of.ledger.nodes.trees["default"]
        assert all(tree.free.left("gpu", leaf) >= 0 for leaf in tree.leaves.values())


@settings(deadline=None)
@given(crowds())
def test_an_occupant_of_a_rack_is_found_without_trying_all_sets(crowd):
    racks, running, wanted = crowd
    of = world(*running, wanted, **racks)
    exact = plan(of, "new", most=4)

    found = plan(of, "new", most=4, sets=0)

    assert exact is not None or found is None
    if found is not None:
        assert len(found.victims) >= len(exact.victims)
        assert found.fewest <= (len(found.victims) == 1)
        assert_all_fit(of, found)


# Carried out.


def test_no_workload_is_moved_without_the_annotation():
    of = world(
        anywhere("a", 2, on={"r1-0": 2}), gang("new", 2, gpu=4), opt_ins=OptIns(),
        r1=(4, 4), r2=(2, 2),
    )  # fmt: skip

    assert not any(isinstance(action, Preempt) for action in plan_cycle(of).actions)


def test_the_new_places_are_held_until_all_are_there():
    of = world(anywhere("a", 2, on={"r1-0": 2}), gang("new", 2, gpu=4), r1=(4, 4), r2=(2, 2))
    first = plan_cycle(of)
    of.commit(first)
    assert [a.workload.key for a in first.actions if isinstance(a, Preempt)] == ["a"]

    of.put_workload(anywhere("a", 2, at=1))
    of.put_workload(anywhere("late", 2, gpu=2, priority=9, at=2))

    assert admitted(of) == ["new", "a"]
    assert of.extension.moving == {}
    assert {n: dict(p.assignment.domains) for n, (p,) in of.ledger.nodes.held.items()} == {
        "new": {("r1-0",): 1, ("r1-1",): 1},
        "a": {("r2-0",): 2},
    }


def admitted(of):
    """Who gets quota and places in the next few cycles."""
    got = []
    for _ in range(4):
        step = plan_cycle(of)
        of.commit(step)
        got += [action.workload.key for action in step.actions if isinstance(action, Admit)]
    return got


def test_new_places_are_held_against_queues_that_ask_for_nothing_while_the_old_are_in_use():
    of = world(anywhere("a", 2, on={"r1-0": 2}), gang("new", 2, gpu=4), r1=(4, 4), r2=(2, 2))
    of.put_queue(queue("other", gpu=99))
    of.commit(plan_cycle(of))

    for key in ("late", "later"):
        of.put_workload(replace(anywhere(key, 1, gpu=2, at=2), cluster_queue="other"))

    assert admitted(of) == ["late"], "of what is free, `a` is to have half"


def test_places_are_not_held_for_ever():
    of = world(anywhere("a", 2, on={"r1-0": 2}), gang("new", 2, gpu=4), r1=(4, 4), r2=(2, 2))
    of.commit(plan_cycle(of))
    of.put_workload(anywhere("late", 2, gpu=2, priority=9, at=2))
    assert admitted(of) == []

    of.now = 601.0
    of.wake("q")

    assert admitted(of) == ["late"]


@st.composite
def scenarios(draw):
    racks = {f"r{n}": (4,) * draw(st.integers(1, 2)) for n in range(draw(st.integers(1, 3)))}
    coming = []
    for number in range(draw(st.integers(1, 8))):
        how = draw(
            st.sampled_from([("Required", "rack"), ("Unconstrained", ""), ("Preferred", "rack")])
        )
        who = gang(
            f"w{number}", draw(st.integers(1, 4)), *how, gpu=draw(st.integers(1, 4)),
            priority=draw(st.integers(0, 1)),
        )  # fmt: skip
        at, runs = draw(st.integers(0, 5)), draw(st.none() | st.integers(1, 5))
        coming.append(Arrival(workload=who, at=float(at), run_seconds=runs and float(runs)))
    return racks, coming


@settings(deadline=None)
@given(scenarios())
def test_all_that_are_moved_run_again_at_once_beside_whom_they_made_room_for(scenario):
    racks, coming = scenario
    of = world(**racks)
    owed = {}

    for step in Simulation(of, coming).steps():
        for key, at in owed.items():
            assert at == step.at, f"{key} is not back"
        for action in step.plan.actions:
            if isinstance(action, Preempt):
                owed[action.workload.key] = owed[action.preemptor.key] = step.at
            elif isinstance(action, Admit):
                owed.pop(action.workload.key, None)

    assert not owed
