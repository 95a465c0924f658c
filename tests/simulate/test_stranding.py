"""Free devices that no pending pod can use, the jobs in the way, and moves that free them."""

from collections import Counter
from random import Random

import pytest

from policyd.alloc.topology.values import TopologyNode
from policyd.node_rules import LabelRequirement, NodeTaint
from policyd.simulate.stranding import (
    COUNT_STEP,
    NodeFree,
    PendingGang,
    PendingPods,
    RunningPods,
    count_stranded,
    node_lines,
    planned_moves,
    whole_node,
)

GPU = "nvidia.com/gpu"


def node(name, gpus=8, cpu=64_000, rack="r1", **fields):
    labels = {"rack": rack, "kubernetes.io/hostname": name, **fields.pop("labels", {})}
    allocatable = {GPU: gpus, "cpu": cpu, "pods": 20} if gpus else {"cpu": cpu, "pods": 20}
    return TopologyNode(name=name, labels=labels, allocatable=allocatable, **fields)


def runs(job, on, gpus=1, cpu=1_000, count=1, **fields):
    requests = {"cpu": cpu, **({GPU: gpus} if gpus else {})}
    fields = {"ran_seconds": 600.0, **fields}
    return RunningPods(job=job, node=on, count=count, requests=requests, **fields)


def gang(name="new", gpus=8, cpu=1_000, count=1, **fields):
    asked = PendingPods(count=count, requests={GPU: gpus, "cpu": cpu}, **fields)
    return PendingGang(name=name, pods=(asked,))


def stranded(nodes, pods, *gangs):
    lines = node_lines(nodes, pods, gangs, [("rack", "kubernetes.io/hostname")])
    return {
        line.name: (each.amount, each.by, each.missing) for line in lines for each in line.stranded
    }


@pytest.mark.parametrize(
    ("pods", "gangs", "found"),
    [
        pytest.param([], [gang()], {}, id="an-empty-node"),
        pytest.param([runs("a", "n")], [gang()], {"n": (7, ("a",), (GPU,))}, id="one-small-pod"),
        pytest.param(
            [runs("a", "n"), runs("b", "n")],
            [gang()],
            {"n": (6, ("a", "b"), (GPU,))},
            id="two-small-pods-together",
        ),
        pytest.param(
            [runs("a", "n", 4), runs("b", "n")],
            [gang(gpus=4)],
            {"n": (3, ("b",), (GPU,))},
            id="only-the-one-in-the-way",
        ),
        pytest.param([runs("a", "n", 4)], [gang(gpus=4)], {}, id="the-rest-is-asked-for"),
        pytest.param(
            [runs("a", "n")], [gang(gpus=3)], {"n": (1, (), ())}, id="the-rest-of-a-division"
        ),
        pytest.param(
            [runs("a", "n", 0, cpu=63_500)],
            [gang(gpus=1)],
            {"n": (8, ("a",), ("cpu",))},
            id="no-cpu-left",
        ),
        pytest.param([runs("a", "n")], [gang(), gang(gpus=1)], {}, id="another-can-use-them"),
        pytest.param(
            [runs("a", "n")],
            [],
            {"n": (7, ("a",), (GPU,))},
            id="nothing-waits-but-a-whole-node-might",
        ),
        pytest.param(
            [runs("a", "n")],
            [gang(gpus=1, node_selector={"gpu": "other"})],
            {"n": (7, ("a",), (GPU,))},
            id="what-waits-may-not-be-there",
        ),
        pytest.param(
            [runs("a", "n")],
            [gang(gpus=1, affinity=((LabelRequirement(key="rack", operator="Exists"),),))],
            {},
            id="what-waits-may-be-there",
        ),
    ],
)
def test_free_devices_that_no_pending_pod_can_use(pods, gangs, found):
    assert stranded([node("n")], pods, *gangs) == found


@pytest.mark.parametrize(
    ("fields", "state"),
    [
        pytest.param({"schedulable": False}, "Cordoned", id="cordoned"),
        pytest.param({"ready": False}, "NotReady", id="not-ready"),
    ],
)
def test_all_free_devices_of_a_node_that_takes_no_pods_are_stranded(fields, state):
    (line,) = node_lines([node("n", **fields)], [runs("a", "n")], [gang(gpus=1)])

    assert (line.state, line.stranded[0].amount, line.stranded[0].by) == (state, 7, ())


def test_lines_are_in_the_order_of_the_topology_with_what_is_on_each():
    nodes = [node("b", rack="r2"), node("a", rack="r2"), node("z", rack="r1"), node("c", 0)]
    pods = [runs("j", "a", 2, count=2), runs("j", "a", 0), runs("k", "z", 8)]
    lines = list(node_lines(nodes, pods, [], [("rack", "kubernetes.io/hostname")]))

    assert [(line.domain, line.name) for line in lines] == [
        ("r1", "c"), ("r1", "z"), ("r2", "a"), ("r2", "b")
    ]  # fmt: skip
    a = lines[2]
    assert [(each.job, each.pods, each.requests[GPU]) for each in a.pods] == [("j", 3, 4)]
    assert (a.free[GPU], a.free["cpu"], a.free["pods"], a.fragments) == (4, 61_000, 17, {GPU: 4})
    assert lines[1].fragments == {}


def moves(nodes, pods, *gangs, most=2, **fields):
    return [
        (found.workload, dict(found.target), [(m.workload, dict(m.target)) for m in found.moves])
        for found in planned_moves(nodes, pods, gangs, most=most, **fields)
    ]


def test_the_job_in_the_way_moves_to_where_it_is_in_nobodys_way():
    nodes = [node("n1"), node("n2")]
    pods = [runs("small", "n1"), runs("big", "n2", 4)]

    assert moves(nodes, pods, gang()) == [("new", {"n1": 1}, [("small", {"n2": 1})])]


@pytest.mark.parametrize(
    ("pods", "gangs"),
    [
        pytest.param([runs("a", "n1", 4)], [gang()], id="it-fits-now"),
        pytest.param(
            [runs("a", "n1", 6), runs("b", "n2", 6)], [gang()], id="there-is-no-room-for-both"
        ),
        pytest.param(
            [runs("a", "n1", movable=False), runs("b", "n2", 8)], [gang()], id="it-cannot-move"
        ),
        pytest.param(
            [runs("a", "n1", node_selector={"kind": "n1"}), runs("b", "n2", 4, movable=False)],
            [gang()],
            id="it-may-not-be-elsewhere",
        ),
    ],
)
def test_no_moves_are_planned_that_do_not_help(pods, gangs):
    nodes = [node("n1", labels={"kind": "n1"}), node("n2", labels={"kind": "n2"})]

    assert moves(nodes, pods, *gangs) == []


def test_a_taint_keeps_those_away_that_move_and_not_what_waits():
    taint = NodeTaint(key="gpu")
    nodes = [node("n1"), node("n2", taints=(taint,))]
    stays = runs("big", "n2", 4, movable=False)

    assert moves(nodes, [runs("small", "n1"), stays], gang()) == []
    waits = gang(gpus=4, cpu=60_000)
    assert moves(nodes, [runs("small", "n1", cpu=9_000)], waits) == [], "it fits on the other"


def test_a_gang_moves_as_a_whole_and_says_what_it_loses():
    nodes = [node("n1"), node("n2"), node("n3", 2)]
    pods = [runs("wide", "n1", 1), runs("wide", "n3", 1), runs("big", "n2", 6)]
    (found,) = planned_moves(nodes, pods, [gang()], most=1)

    (move,) = found.moves
    assert (move.workload, move.pods, dict(move.source)) == ("wide", 2, {"n1": 1, "n3": 1})
    assert "n1" not in move.target
    assert (move.lost_seconds, found.cost) == (600.0, 1_200.0)


def test_of_many_jobs_those_in_the_way_are_tried(monkeypatch):
    monkeypatch.setattr("policyd.simulate.stranding.MOST_MOVABLE", 1)
    nodes = [node("n1"), node("n2", 12)]
    pods = [runs("small", "n1", 2), runs("tiny", "n2"), runs("big", "n2", 8)]

    assert moves(nodes, pods, gang()) == []
    assert moves(nodes, pods, gang(), stranding={"small"}) != []


def test_the_pod_of_a_whole_node_is_of_the_most_common_size():
    assert whole_node([node("a", 8), node("b", 8), node("c", 16)], GPU).pods[0].requests == {GPU: 8}
    assert whole_node([node("a", 0)], GPU) is None


def counted(nodes, asked):
    steps, number = count_stranded(nodes, asked), 0
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value, number
        number += 1


@pytest.mark.parametrize("seed", range(20))
def test_a_count_is_the_sum_of_what_is_stranded_on_each_node(seed):
    rng = Random(seed)
    nodes = [
        node(f"n{n}", cpu=rng.choice([8_000, 64_000]), rack=f"r{n % 3}",
             ready=rng.random() < 0.9, schedulable=rng.random() < 0.9)
        for n in range(COUNT_STEP + 5)
    ]  # fmt: skip
    pods = [
        runs(f"j{n}", f"n{rng.randrange(len(nodes))}", rng.choice([0, 1, 2]), count=1)
        for n in range(300)
    ]
    gangs = [
        gang(
            f"g{n}",
            rng.choice([1, 2, 4, 8]),
            cpu=rng.choice([1_000, 30_000]),
            node_selector=rng.choice([{}, {"rack": "r1"}, {"rack": "none"}]),
        )
        for n in range(rng.randrange(5))
    ]
    lines = [*node_lines(nodes, pods, gangs)]
    wanted = Counter[str]()
    for line in lines:
        wanted.update({each.resource: each.amount for each in line.stranded})
    free = {line.name: line.free for line in lines}

    found, steps = counted(
        [NodeFree(each, free[each.name]) for each in nodes],
        [pods for each in gangs for pods in each.pods],
    )

    assert wanted
    assert found == wanted
    assert steps == 1


def test_a_count_of_devices_of_which_none_is_stranded_is_0():
    assert counted([NodeFree(node("n"), node("n").allocatable)], []) == ({GPU: 0}, 0)
