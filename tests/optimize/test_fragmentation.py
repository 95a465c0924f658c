"""How much of what is free is in pieces, and that ties are broken by it where that is wanted."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from policyd.alloc.settings import Gates
from policyd.alloc.topology.nodes import ClaimedOfNode
from policyd.alloc.topology.placement import place
from policyd.alloc.topology.values import (
    CLAIMED,
    HOSTNAME,
    Placement,
    TopologyNode,
    TopologyPlacement,
)
from policyd.optimize.fragmentation import (
    fragmentation,
    fragments_first,
    fragments_of,
    free_of,
    measured,
)
from tests.alloc.topology.builders import FLAVOR, LEVELS, assignment, cluster, only, request

GPU = "nvidia.com/gpu"


def hosts(levels=LEVELS, **amounts):
    """Nodes with so many GPUs, of which some are taken: `b1_r1_x1=(8, 3)`."""
    nodes = []
    for path, (gpus, _) in amounts.items():
        labels = dict(zip(LEVELS, path.split("_"), strict=True))
        nodes.append(
            TopologyNode(name=labels[HOSTNAME], labels=labels, allocatable={"pods": 99, GPU: gpus})
        )
    found = cluster(*nodes, levels=levels)
    for each, (_, taken) in zip(nodes, amounts.values(), strict=True):
        if taken:
            where = tuple(each.labels[level] for level in levels[-1:])
            where = where if levels[-1] == HOSTNAME else tuple(each.labels[lv] for lv in levels)
            taken_there = TopologyPlacement(levels=levels[-1:], domains=((where, taken),))
            found.hold(
                each.name, [Placement(flavor=FLAVOR, assignment=taken_there, requests={GPU: 1})]
            )
    return found


@pytest.mark.parametrize(
    ("amounts", "free", "fragments"),
    [
        pytest.param({"b_r_x": (8, 0)}, 8, 0, id="whole"),
        pytest.param({"b_r_x": (8, 3)}, 5, 5, id="in-use-in-part"),
        pytest.param({"b_r_x": (8, 8)}, 0, 0, id="full"),
        pytest.param({"b_r_x": (8, 1), "b_r_y": (4, 0)}, 11, 7, id="of-several-nodes"),
        pytest.param({}, 0, 0, id="no-nodes"),
    ],
)
def test_free_devices_of_nodes_in_use_are_fragments(amounts, free, fragments):
    found = fragmentation(hosts(**amounts).trees[FLAVOR], GPU)

    assert found == (free, fragments)
    assert found.share == (fragments / free if free else 0)


def test_devices_by_claims_are_measured_with_those_that_nodes_have_themselves():
    nodes, claimed = hosts(b_r_x=(8, 0), b_r_y=(4, 1)), CLAIMED + GPU
    offers = {
        name: ClaimedOfNode({claimed: 4}, {claimed: left}) for name, left in (("x", 3), ("y", 4))
    }
    nodes.put_claimed(offers, {claimed})

    assert [*measured(nodes)] == [(FLAVOR, GPU, (8 + 3 + 3 + 4, 3 + 3))]


def test_pods_that_no_topology_placed_break_a_node_up_too():
    nodes = hosts(b_r_x=(8, 0))
    nodes.put_pod("other/pod", "x", {GPU: 2})

    assert fragmentation(nodes.trees[FLAVOR], GPU) == (6, 6)


def test_a_node_that_gets_more_devices_is_in_use_in_part_as_far_as_they_are():
    nodes = hosts(b_r_x=(4, 0))
    tree = nodes.trees[FLAVOR]
    before = nodes.node("x")
    nodes.put(replace(before, allocatable={"pods": 99, GPU: 8}))
    nodes.put_pod("other/pod", "x", {GPU: 4})

    assert fragmentation(tree, GPU) == (4, 4)


def test_a_lowest_domain_of_several_nodes_counts_as_one():
    nodes = hosts(LEVELS[:2], b_r1_x=(8, 0), b_r1_y=(8, 3), b_r2_z=(8, 0))

    assert fragmentation(nodes.trees[FLAVOR], GPU) == (21, 13)


@given(st.lists(st.tuples(st.integers(0, 1), st.integers(0, 2), st.integers(1, 4)), max_size=8))
def test_domains_have_what_their_nodes_have(drawn):
    amounts = {f"b{b}_r{b}{r}_x{n}": (gpus, n % (gpus + 1)) for n, (b, r, gpus) in enumerate(drawn)}
    tree = hosts(**amounts).trees[FLAVOR]
    free, fragments = free_of(tree, GPU), fragments_of(tree, GPU)

    for level in tree.at:
        for domain in level:
            inside = [
                (gpus - taken, taken)
                for path, (gpus, taken) in amounts.items()
                if tuple(path.split("_"))[: len(tree.values[domain])] == tree.values[domain]
            ]
            assert free[domain] == sum(left for left, _ in inside)
            assert fragments[domain] == sum(left for left, taken in inside if taken)


# Ties.


def gpus(count, mode="Unconstrained", level="", **others):
    return request(count, mode, level, requests={GPU: 1}, **others)


def test_of_places_as_good_the_one_in_pieces_goes_first_where_that_is_wanted():
    names = {"b_r1_a": (4, 0), "b_r2_b": (8, 4)}

    assert only(hosts(**names), gpus(2)) == {"a": 2}
    assert only(hosts(**names), gpus(2, tie_break=fragments_first)) == {"b": 2}


@pytest.mark.parametrize(("mode", "level"), [("Required", "rack"), ("Preferred", "rack")])
def test_a_rack_in_pieces_goes_before_one_with_a_whole_node(mode, level):
    nodes = hosts(b_r1_a=(4, 0), b_r1_b=(4, 4), b_r2_c=(4, 2), b_r2_d=(4, 2))

    assert only(nodes, gpus(2, mode, level)) == {"a": 2}
    assert only(nodes, gpus(2, mode, level, tie_break=fragments_first)) == {"c": 2}


def test_a_better_option_still_goes_first():
    nodes = hosts(b_r1_a=(4, 0), b_r2_b=(8, 3))

    assert only(nodes, gpus(4, "Required", HOSTNAME, tie_break=fragments_first)) == {"a": 4}


def test_pods_without_devices_go_where_they_went():
    nodes = hosts(b_r1_a=(4, 0), b_r2_b=(4, 2))
    asked = request(1, "Required", HOSTNAME, requests={"nvidia.com/gpu.memory": 0})

    assert only(nodes, replace(asked, tie_break=fragments_first)) == only(nodes, asked)


def in_several_racks(nodes, assigned):
    """Tell whether pods are in more than one rack."""
    return len({nodes.node(name).labels["rack"] for (name,), _ in assigned.domains}) > 1


@given(
    st.lists(st.tuples(st.integers(0, 1), st.integers(0, 1), st.integers(0, 4)), max_size=6),
    st.integers(1, 6),
    st.sampled_from([("Required", "rack"), ("Preferred", "rack")]),
    st.booleans(),
)
def test_breaking_ties_changes_neither_who_fits_nor_how_wide_it_is_placed(
    drawn, count, how, balanced
):
    amounts = {f"b{b}_r{b}{r}_x{n}": (4, taken) for n, (b, r, taken) in enumerate(drawn)}
    nodes, asked = hosts(**amounts), gpus(count, *how)
    gates = Gates(tas_balanced_placement=balanced)

    usual, tidy = (
        place(nodes, {FLAVOR: [each]}, gates=gates)["main"]
        for each in (asked, replace(asked, tie_break=fragments_first))
    )

    assert isinstance(usual, TopologyPlacement) == isinstance(tidy, TopologyPlacement)
    if isinstance(tidy, TopologyPlacement):
        assert tidy.count == usual.count
        assert in_several_racks(nodes, tidy) == in_several_racks(nodes, usual)


def test_an_assignment_is_in_the_order_of_nodes_whatever_went_first():
    nodes = hosts(b_r1_a=(2, 0), b_r2_b=(4, 2))

    found = place(nodes, {FLAVOR: [gpus(4, tie_break=fragments_first)]})["main"]

    assert found == assignment(a=2, b=2)
