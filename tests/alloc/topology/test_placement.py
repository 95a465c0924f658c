"""Where pods go, and what is said where they cannot."""

import pytest

from policyd.alloc.queue import FlavorSpec
from policyd.alloc.settings import Gates
from policyd.alloc.topology.placement import place
from policyd.alloc.topology.values import (
    HOSTNAME,
    NoRoom,
    Placement,
    PlacementRequest,
    TopologyNode,
    Unusable,
)
from policyd.node_rules import LabelRequirement, NodeTaint, TaintToleration
from policyd.status.excluded_nodes import left_out
from tests.alloc.topology.builders import (
    FLAVOR,
    LEVELS,
    assignment,
    cluster,
    holding,
    hosts,
    node,
    only,
    placed,
    request,
)

GROUP = {"group": "g"}
BIG_RACK = {"b1_r1_x1": 3, "b1_r1_x2": 3, "b1_r2_x3": 4, "b2_r3_x4": 4}


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        pytest.param(request(4, "Required", "rack"), {"x3": 4}, id="required-least-rack-that-fits"),
        pytest.param(request(5, "Required", "rack"), {"x1": 3, "x2": 2}, id="required-whole-rack"),
        pytest.param(request(7, "Preferred", "rack"), {"x1": 3, "x3": 4}, id="preferred-goes-up"),
        pytest.param(
            request(12, "Preferred", "rack"),
            {"x1": 3, "x2": 1, "x3": 4, "x4": 4},
            id="preferred-in-several-blocks",
        ),
        pytest.param(request(3), {"x1": 3}, id="unconstrained-on-the-fullest-node-that-fits"),
        pytest.param(
            request(7), {"x1": 3, "x2": 3, "x3": 1}, id="unconstrained-fills-little-room-first"
        ),
        pytest.param(
            request(6, slices=[("rack", 3)]), {"x1": 3, "x3": 3}, id="slices-stay-in-racks"
        ),
        pytest.param(
            request(4, "Required", "block", slices=[("rack", 2), (HOSTNAME, 2)]),
            {"x4": 4},
            id="slices-in-slices",
        ),
        pytest.param(request(0, "Required", "rack"), {}, id="no-pods-need-no-place"),
        pytest.param(
            request(0, slices=[("rack", 2)]), {}, id="no-pods-need-no-place-for-a-slice-either"
        ),
        pytest.param(
            request(5, "Required", "rack", slices=[(HOSTNAME, 2)]),
            {"x3": 4},
            id="pods-beyond-the-last-whole-slice-get-no-place",
        ),
    ],
)
def test_placement(asked, expected):
    assert only(hosts(**BIG_RACK), asked) == expected


@pytest.mark.parametrize(
    ("asked", "text"),
    [
        pytest.param(
            request(7, "Required", "rack"),
            'topology "racks" allows to fit only 6 out of 7 pod(s)',
            id="too-little-in-one-rack",
        ),
        pytest.param(
            request(500),
            'topology "racks" allows to fit only 14 out of 500 pod(s)',
            id="larger-than-the-cluster",
        ),
        pytest.param(
            request(1, gpu=9),
            'topology "racks" doesn\'t allow to fit any of 1 pod(s). Total nodes: 4; excluded:'
            ' resource "gpu": 4',
            id="larger-than-a-node",
        ),
        pytest.param(
            request(1, node_selector={"zone": "a"}),
            'topology "racks" doesn\'t allow to fit any of 1 pod(s). Total nodes: 4; excluded:'
            " nodeSelector: 4",
            id="no-such-node",
        ),
        pytest.param(
            request(1, "Required", "row"), "no requested topology level: row", id="no-such-level"
        ),
        pytest.param(
            request(2, slices=[("row", 2)]),
            "no requested topology level for slices: row",
            id="no-such-level-for-slices",
        ),
        pytest.param(
            request(2, "Required", HOSTNAME, slices=[("rack", 2)]),
            "podset slice topology rack is above the podset topology kubernetes.io/hostname",
            id="slices-above-the-level",
        ),
        pytest.param(
            request(1, slices=[("rack", 2)]),
            "podset count 1 is less than the slice size 2",
            id="less-than-a-slice",
        ),
        pytest.param(
            request(2, slices=[("rack", 0)]),
            "slice topology requested, but slice size not provided",
            id="slices-without-size",
        ),
        pytest.param(
            request(2, slices=[("rack", -1)]), "slice size must be positive: -1", id="negative-size"
        ),
        pytest.param(
            request(6, slices=[("rack", 6), (HOSTNAME, 4)]),
            "additional slice layer size 4 must evenly divide parent layer size 6",
            id="sizes-that-do-not-divide",
        ),
        pytest.param(
            request(4, slices=[("rack", 4), ("rack", 2)]),
            "additional slice layer topology rack must be at a lower level than rack",
            id="layers-of-one-level",
        ),
        pytest.param(
            request(4, slices=[("rack", 4), ("row", 2)]),
            "no requested topology level for additional slice layer: row",
            id="no-such-level-for-a-layer",
        ),
        pytest.param(
            request(8, "Required", "block", slices=[("rack", 4), (HOSTNAME, 0)]),
            "slice size must be positive: 0",
            id="an-empty-layer",
        ),
        pytest.param(
            request(12, "Required", "block", slices=[("rack", 4), (HOSTNAME, 2)]),
            'topology "racks" doesn\'t allow to fit; 2/3 slice(s) fit on level rack; 4/6 slice(s)'
            " fit on level kubernetes.io/hostname",
            id="too-little-for-layers",
        ),
    ],
)
def test_refusal(asked, text):
    assert only(hosts(**BIG_RACK), asked) == text


@pytest.mark.parametrize(
    ("count", "expected"),
    [
        pytest.param(5, {"x1": 2, "x2": 2, "y1": 1}, id="one-is-missing-of-the-last-slice"),
        pytest.param(1, {"x1": 1}, id="less-than-a-slice"),
        pytest.param(4, {"x1": 2, "x2": 2}, id="none-is-missing"),
    ],
)
def test_of_pods_that_have_ended_the_last_slice_may_lack_some(count, expected):
    nodes = hosts(b1_r1_x1=2, b1_r1_x2=2, b1_r2_y1=2, b1_r2_y2=2)

    assert only(nodes, request(count, "Required", "block", slices=[(HOSTNAME, 2)], short=True)) == (
        expected
    )


def test_inner_slices_are_whole_on_every_node():
    nodes = hosts(b1_r1_x1=3, b1_r1_x2=1, b1_r2_x3=2, b1_r2_x4=2)
    asked = request(4, "Required", "block", slices=[("rack", 4), (HOSTNAME, 2)])

    assert only(nodes, asked) == {"x3": 2, "x4": 2}
    nodes.remove("x4")
    assert only(nodes, asked) == (
        'topology "racks" doesn\'t allow to fit; 0/1 slice(s) fit on level rack; 2/2 slice(s) fit'
        " on level kubernetes.io/hostname"
    )


def test_a_refusal_names_the_best_domain_and_its_room():
    found = place(hosts(**BIG_RACK), {FLAVOR: [request(7, "Required", "rack")]})["main"]

    assert found == NoRoom(
        topology="racks", unit="pod(s)", fitting=6, wanted=7, level="rack", best=("b1", "r1"),
        nodes=4,
    )  # fmt: skip


def test_without_nodes_there_are_no_domains():
    assert only(cluster(), request(1, "Required", "rack")) == ("no topology domains at level: rack")


def test_a_flavor_without_topology_is_refused():
    found = place(hosts(**BIG_RACK), {"cpu-only": [request(1)]})

    assert found == {"main": Unusable(kind="TopologyMissing", names=("cpu-only",))}


class TestNodes:
    def test_a_node_without_a_level_is_left_out_and_named(self):
        lost = node("b1/r1/x9", gpu=8)
        lost = type(lost)(name="x9", labels={HOSTNAME: "x9"}, allocatable=lost.allocatable)
        nodes = cluster(node("b1/r1/x1", gpu=1), lost)

        assert only(nodes, request(1)) == {"x1": 1}
        assert left_out(nodes.trees[FLAVOR], limit=3) == ({"x9": "has no label `block`"}, 0)

    def test_of_nodes_with_one_host_name_the_first_is_used_and_the_others_are_named(self):
        first, second = node("b1/r1/x1", name="a", gpu=2), node("b1/r2/x1", name="b", gpu=8)
        nodes = cluster(second, first)

        assert only(nodes, request(2)) == {"x1": 2}
        assert only(nodes, request(3)) == 'topology "racks" allows to fit only 2 out of 3 pod(s)'
        assert left_out(nodes.trees[FLAVOR], limit=3) == (
            {"b": "has the host name `x1` of node `a`"},
            0,
        )

        nodes.remove("a")

        assert only(nodes, request(8, "Required", "rack")) == {"x1": 8}
        assert left_out(nodes.trees[FLAVOR], limit=3) == ({}, 0)

    @pytest.mark.parametrize(
        "facts",
        [
            pytest.param({"ready": False}, id="not-ready"),
            pytest.param({"schedulable": False}, id="cordoned"),
            pytest.param({"labels": {"speed": "slow"}}, id="of-another-flavor"),
            pytest.param({"taints": (NodeTaint(key="broken"),)}, id="tainted"),
        ],
    )
    def test_pods_go_elsewhere(self, facts):
        flavor = FlavorSpec(name=FLAVOR, topology="racks", labels={"speed": "fast"})
        first = node("b1/r1/x1", gpu=1, **{"labels": {"speed": "fast"}, **facts})
        nodes = cluster(first, node("b1/r1/x2", gpu=1, labels={"speed": "fast"}), flavor=flavor)

        assert only(nodes, request(1)) == {"x2": 1}

    def test_a_node_that_gets_the_number_of_a_rack_has_nothing_inside(self):
        nodes = hosts(b1_r1_x1=1, b2_r2_x2=1)
        tree = nodes.trees[FLAVOR]
        tree.settle()

        nodes.remove("x2")
        nodes.put(node("b1/r1/x3", gpu=1))
        tree.settle()

        assert [tree.children[leaf] for leaf in tree.at[-1]] == [[], []]

    def test_obstacles_of_a_deleted_node_are_not_reported(self):
        nodes = cluster(
            node("b1/r1/x1", gpu=1, taints=(NodeTaint(key="broken"),)), node("b1/r1/x2", gpu=1)
        )
        assert 'Total nodes: 2; excluded: taint "broken:NoSchedule": 1' in only(nodes, request(2))

        nodes.remove("x1")

        assert only(nodes, request(2)) == 'topology "racks" allows to fit only 1 out of 2 pod(s)'

    def test_tolerations_of_pods_and_of_the_flavor_let_them_in(self):
        flavor = FlavorSpec(
            name=FLAVOR,
            topology="racks",
            tolerations=(TaintToleration(key="gpu", operator="Exists"),),
        )
        taints = (NodeTaint(key="gpu"), NodeTaint(key="team", value="a"))
        nodes = cluster(node("b1/r1/x1", gpu=1, taints=taints), flavor=flavor)
        tolerant = request(1, tolerations=(TaintToleration(key="team", value="a"),))

        assert only(nodes, tolerant) == {"x1": 1}
        assert 'taint "team=a:NoSchedule": 1' in only(nodes, request(1))

    @pytest.mark.parametrize(
        ("terms", "expected"),
        [
            pytest.param([[("zone", "In", "a")]], {"x1": 1}, id="label"),
            pytest.param([[("zone", "In", "c")], [("zone", "NotIn", "a")]], {"x2": 1}, id="or"),
            pytest.param([[("field:metadata.name", "In", "x2")]], {"x2": 1}, id="name"),
            pytest.param([[]], None, id="empty-term-matches-nothing"),
        ],
    )
    def test_affinity(self, terms, expected):
        nodes = cluster(
            node("b1/r1/x1", gpu=1, labels={"zone": "a"}),
            node("b1/r1/x2", gpu=1, labels={"zone": "b"}),
        )
        affinity = tuple(
            tuple(LabelRequirement(key=k, operator=op, values=(v,)) for k, op, v in term)
            for term in terms
        )

        found = only(nodes, request(1, affinity=affinity))

        assert found == expected if expected else "affinity: 2" in found

    def test_pods_that_are_not_ours_take_their_room_and_a_pod_each(self):
        nodes = cluster(node("b1/r1/x1", gpu=4, pods=3))
        nodes.put_pod("default/agent", "x1", {"gpu": 1})
        nodes.put_pod("default/agent", "x1", {"gpu": 2})

        assert only(nodes, request(2)) == {"x1": 2}
        assert "allows to fit only 2 out of 3" in only(nodes, request(3, gpu=0, cpu=0))
        assert nodes.remove_pod("default/agent") == "x1"
        assert only(nodes, request(3)) == {"x1": 3}

    @pytest.mark.parametrize(
        ("node", "requests", "freed"),
        [
            pytest.param("x1", {"gpu": 2, "cpu": 4}, "", id="nothing-changed"),
            pytest.param("x1", {"gpu": 1, "cpu": 4}, "x1", id="less-of-one"),
            pytest.param("x1", {"gpu": 1, "cpu": 9}, "x1", id="less-of-one-more-of-another"),
            pytest.param("x1", {"gpu": 2}, "x1", id="one-no-more"),
            pytest.param("x1", {"gpu": 3, "cpu": 4}, "", id="more"),
            pytest.param("x2", {"gpu": 3, "cpu": 4}, "x1", id="elsewhere"),
        ],
    )
    def test_a_pod_that_shrinks_or_leaves_frees_its_node(self, node, requests, freed):
        nodes = hosts(b1_r1_x1=4, b1_r1_x2=4)
        assert nodes.put_pod("ns/other", "x1", {"gpu": 2, "cpu": 4}) == ""

        assert nodes.put_pod("ns/other", node, requests) == freed

    def test_a_port_of_a_node_is_taken_once(self):
        nodes = cluster(*(node(f"b1/r1/x{n}", gpu=9) for n in (1, 2, 3)))
        port = {"hostPort/TCP/8080": 1}
        nodes.put_pod("default/agent", "x1", port)
        nodes.hold("ns/other", [Placement(
            flavor=FLAVOR, assignment=assignment(x2=1), requests=port,
        )])  # fmt: skip
        asked = PlacementRequest(pod_set="main", count=1, requests=port)
        two = PlacementRequest(pod_set="main", count=2, requests=port)

        assert only(nodes, asked) == {"x3": 1}
        assert only(nodes, two) == (
            'topology "racks" allows to fit only 1 out of 2 pod(s). Total nodes: 3; excluded:'
            ' resource "hostPort/TCP/8080": 2'
        )
        assert only(nodes, two, empty=True) == {"x2": 1, "x3": 1}

        nodes.remove("x2")
        nodes.put(node("b1/r1/x9", gpu=9))

        assert only(nodes, two) == {"x3": 1, "x9": 1}

    def test_ports_do_not_matter_where_domains_have_many_nodes(self):
        nodes = cluster(
            TopologyNode(name="a", labels={"rack": "r1"}, allocatable={"pods": 9}), levels=("rack",)
        )
        asked = PlacementRequest(pod_set="main", count=2, requests={"hostPort/TCP/8080": 1})

        assert only(nodes, asked) == {"r1": 2}

    def test_usage_is_ignored_if_all_workloads_could_be_preempted(self):
        nodes = hosts(b1_r1_x1=4)
        nodes.hold("ns/other", [holding(gpu=1, x1=3)])

        assert "allows to fit only 1 out of 2" in only(nodes, request(2))
        assert only(nodes, request(4), empty=True) == {"x1": 4}

    def test_flavors_of_the_same_nodes_know_of_each_others_usage(self):
        nodes = hosts(b1_r1_x1=4)
        nodes.put_flavor(FlavorSpec(name="other", topology="racks"), (HOSTNAME,))
        nodes.hold("ns/other", [holding("other", gpu=1, x1=3)])

        assert "allows to fit only 1 out of 2" in only(nodes, request(2))
        assert nodes.usage("other") == {"x1": {"gpu": 3, "pods": 3}}

    def test_flavors_keep_usage_to_themselves_where_the_gate_says_so(self):
        nodes = cluster(node("b1/r1/x1", gpu=4), overlapping=False)
        nodes.put_flavor(FlavorSpec(name="other", topology="racks"), (HOSTNAME,))
        nodes.hold("ns/other", [holding("other", gpu=1, x1=3)])

        assert only(nodes, request(4)) == {"x1": 4}

    def test_pod_sets_of_several_flavors_see_each_other(self):
        nodes = hosts(b1_r1_x1=2, b1_r1_x2=1)
        nodes.put_flavor(FlavorSpec(name="other", topology="racks"), (HOSTNAME,))

        found = place(
            nodes, {"other": [request(1, pod_set="b")], FLAVOR: [request(2, pod_set="a")]}
        )

        assert {name: dict(each.domains) for name, each in found.items()} == {
            "a": {("x1",): 2},
            "b": {("x2",): 1},
        }
        assert only(nodes, request(3)) == {"x1": 2, "x2": 1}


class TestGroups:
    def test_leader_and_workers_share_the_domain(self):
        nodes = hosts(b1_r1_x1=4, b1_r2_x2=2, b1_r2_x3=3)
        leader = request(1, "Required", "rack", pod_set="leader", **GROUP)
        workers = request(4, "Required", "rack", pod_set="workers", **GROUP)

        found = placed(nodes, leader, workers)

        assert found == {"workers": {"x2": 2, "x3": 2}, "leader": {"x3": 1}}

    @pytest.mark.parametrize(
        ("mode", "level"),
        [
            pytest.param("Required", "rack", id="in-one-rack"),
            pytest.param("Preferred", HOSTNAME, id="on-several-nodes"),
            pytest.param("Unconstrained", "", id="anywhere"),
        ],
    )
    def test_the_leader_goes_where_it_takes_no_room_that_workers_need(self, mode, level):
        nodes = cluster(
            node("b1/r1/x1", cpu=5, gpu=9), node("b1/r1/x2", cpu=9, gpu=2), levels=LEVELS
        )
        leader = request(1, mode, level, pod_set="leader", cpu=2, gpu=0, **GROUP)
        workers = request(7, mode, level, pod_set="workers", cpu=1, gpu=1, **GROUP)

        assert placed(nodes, leader, workers) == {
            "workers": {"x1": 5, "x2": 2},
            "leader": {"x2": 1},
        }

    def test_slices_have_the_room_that_the_leader_leaves(self):
        nodes = cluster(node("b1/r1/x1", cpu=4, gpu=9), node("b1/r1/x2", cpu=9, gpu=2))
        slices = [("rack", 2)]
        leader = request(1, "Required", "rack", pod_set="leader", cpu=2, gpu=0, **GROUP)
        workers = request(
            6, "Required", "rack", pod_set="workers", cpu=1, gpu=1, slices=slices, **GROUP
        )

        assert placed(nodes, leader, workers) == {
            "workers": {"x1": 4, "x2": 2},
            "leader": {"x2": 1},
        }

    def test_all_of_a_group_are_refused_together(self):
        nodes = hosts(b1_r1_x1=4)
        leader = request(1, "Required", "rack", pod_set="leader", **GROUP)
        workers = request(4, "Required", "rack", pod_set="workers", **GROUP)

        found = placed(nodes, workers, leader)

        assert set(found) == {"leader", "workers"}
        assert len(set(found.values())) == 1

    @pytest.mark.parametrize(
        "counts", [pytest.param((2, 2), id="two-pods-lead"), pytest.param((1, 4, 1), id="three")]
    )
    def test_a_group_has_one_leader(self, counts):
        members = [request(n, pod_set=f"s{i}", **GROUP) for i, n in enumerate(counts)]

        found = placed(hosts(b1_r1_x1=9), *members)

        assert set(found.values()) == {"podset group g has no podset of a single pod to lead it"}


def test_pod_sets_after_one_that_is_refused_are_not_looked_at():
    found = placed(hosts(b1_r1_x1=1), request(2, pod_set="a"), request(1, pod_set="b"))

    assert list(found) == ["a"]


@pytest.mark.gate("TASRespectNodeAffinityPreferred")
def test_preferred_affinity_goes_before_room_where_the_gate_says_so():
    nodes = cluster(
        node("b1/r1/x1", gpu=1), node("b1/r2/x2", gpu=4, labels={"zone": "a"}),
    )  # fmt: skip
    term = (LabelRequirement(key="zone", operator="In", values=("a",)),)
    asked = request(1, "Required", HOSTNAME, preferred_affinity=((10, term),))

    assert only(nodes, asked) == {"x1": 1}
    assert only(nodes, asked, gates=Gates(tas_respect_node_affinity_preferred=True)) == {"x2": 1}


@pytest.mark.gate("TASBalancedPlacement")
def test_balanced_placement_gives_every_domain_about_as_much():
    nodes = hosts(b1_r1_x1=6, b1_r1_x2=6, b1_r1_x3=6)
    asked = request(8, "Preferred", "rack")

    assert only(nodes, asked) == {"x1": 6, "x2": 2}
    assert only(nodes, asked, gates=Gates(tas_balanced_placement=True)) == {"x1": 4, "x2": 4}
