"""Pictures of a topology in text."""

import msgspec
import pytest

from policyd.alloc.queue import FlavorSpec
from policyd.alloc.state import CoreState
from policyd.alloc.topology.values import HOSTNAME, Placement, TopologyNode, TopologyPlacement
from policyd.cli.planning.simulate import TopologyMaps
from policyd.simulate.topology_map import TopologyMap, scarce_resource
from policyd.status.naming import Names

GPU = "nvidia.com/gpu"
LEVELS = ("example.com/block", "example.com/topology-rack", HOSTNAME)


def node(name, rack="r1", block="b1", **amounts):
    labels = dict(zip(LEVELS, (block, rack, name), strict=True))
    return TopologyNode(name=name, labels=labels, allocatable={GPU: 4, **amounts})


def held(levels, gpus=1, **domains):
    at = tuple((tuple(name.split("_")), count) for name, count in domains.items())
    assignment = TopologyPlacement(levels=levels, domains=at)
    return (Placement(flavor="f", assignment=assignment, requests={GPU: gpus}),)


def test_every_job_has_a_letter_and_keeps_it():
    nodes = [node("n1"), node("n2"), node("n3", "r2"), node("n4", "r1", "b2")]
    drawn = TopologyMap(LEVELS, nodes, resource=GPU)
    ring, sweep = held((HOSTNAME,), 2, n1=1, n3=2), held((HOSTNAME,), n1=1)

    assert list(drawn.draw({"a/ring": ring, "a/sweep": sweep}, {"n4": {GPU: 3}})) == [
        "block b1",
        "  rack r1     n1 AAB.   n2 ....",
        "  rack r2     n3 AAAA",
        "block b2",
        "  rack r1     n4 ###.",
        "A a/ring: 3 pods",
        "B a/sweep: 1 pod",
    ]
    assert list(drawn.draw({"a/sweep": sweep}))[1] == "  rack r1     n1 B...   n2 ...."


def test_domains_above_nodes_are_drawn_as_one():
    levels = LEVELS[:2]
    drawn = TopologyMap(levels, [node("n1"), node("n2"), node("n3", "r2")], resource=GPU)

    assert next(drawn.draw({"a/ring": held(levels, 2, b1_r1=3)})) == (
        "block b1      r1 AAAAAA..   r2 ...."
    )


def test_big_nodes_are_drawn_smaller_and_many_on_several_lines():
    nodes = [node(f"n{number:02}", **{GPU: 64}) for number in range(8)]
    lines = list(TopologyMap(LEVELS, nodes, resource=GPU).draw({}))

    assert lines[1].count(".") == 16 * 3
    assert len(lines) == 1 + 3
    assert max(map(len, lines)) <= 96


def test_nodes_without_a_place_are_left_out():
    stray = TopologyNode(name="stray", allocatable={GPU: 4})

    assert list(TopologyMap(LEVELS, [stray], resource=GPU).draw({})) == []


@pytest.mark.parametrize(
    ("amounts", "expected"),
    [
        pytest.param([{"cpu": 4}], "cpu", id="no-devices"),
        pytest.param([{GPU: 1}, {GPU: 1, "a.com/x": 1}], GPU, id="what-most-have"),
        pytest.param([{GPU: 0, "cpu": 1}], "cpu", id="none-of-it"),
    ],
)
def test_nodes_are_drawn_by_what_is_scarce(amounts, expected):
    nodes = [TopologyNode(name=str(number), allocatable=a) for number, a in enumerate(amounts)]

    assert scarce_resource(nodes) == expected


def test_the_legend_says_how_many_gpus_parts_of_them_are():
    mig = "nvidia.com/mig-3g.20gb"
    drawn = TopologyMap(LEVELS, [node("n1", **{mig: 2})], resource=mig)
    (placement,) = held((HOSTNAME,), n1=2)
    parts = msgspec.structs.replace(placement, requests={mig: 1})

    assert list(drawn.draw({"a/notebook": (parts,)})) == [
        "block b1",
        "  rack r1     n1 AA",
        "A a/notebook: 2 pods, 6/7 GPU",
    ]


def test_the_maps_say_what_is_in_pieces_and_where():
    of = CoreState()
    of.put_flavor(FlavorSpec(name="f", topology="racks", levels=LEVELS))
    nodes = [node("n1"), node("n2"), node("n3", "r2")]
    for each in nodes:
        of.ledger.nodes.put(each)
    maps = TopologyMaps(of, nodes, Names())
    assert not any("in pieces" in line for line in maps.changed())
    of.ledger.nodes.hold("a/b", held((HOSTNAME,), n1=1))

    assert list(maps.changed())[-2:] == [
        "A a/b: 1 pod",
        "in pieces: 3 of 11 free nvidia.com/gpu: b1/r1 3",
    ]
