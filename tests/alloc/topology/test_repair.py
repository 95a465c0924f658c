"""What becomes of pods when their node fails, or when there are to be more or fewer of them."""

import pytest

from policyd.alloc.settings import Gates
from policyd.alloc.topology.values import HOSTNAME
from tests.alloc.topology.builders import assignment, holding, hosts, only, placed, request


def held(**pods):
    return {"held": assignment(**pods)}


class TestFailedNode:
    @pytest.mark.parametrize(
        ("asked", "expected"),
        [
            pytest.param(
                request(4, "Required", "rack", **held(x1=2, gone=2)),
                {"x1": 4},
                id="required-near-the-rest",
            ),
            pytest.param(
                request(2, "Required", "rack", **held(gone=2)), {"x3": 2}, id="nothing-left-of-it"
            ),
            pytest.param(
                request(4, **held(x1=2, gone=2)), {"x1": 4}, id="unconstrained-where-little-room-is"
            ),
            pytest.param(
                request(4, slices=[("rack", 4)], **held(x1=3, gone=1)),
                {"x1": 4},
                id="with-the-rest-of-its-slice",
            ),
            pytest.param(
                request(4, slices=[("rack", 2)], **held(x1=2, gone=2)),
                {"x1": 2, "x4": 2},
                id="whole-slices-anywhere",
            ),
            pytest.param(
                request(8, slices=[("block", 8), (HOSTNAME, 2)], **held(x1=2, x3=4, gone=2)),
                {"x1": 2, "x3": 6},
                id="whole-slices-within-one",
            ),
            pytest.param(request(2, **held(x1=2)), {"x1": 2}, id="not-on-that-node"),
        ],
    )
    def test_lost_pods_get_another_place(self, asked, expected):
        nodes = hosts(b1_r1_x1=4, b1_r1_x2=4, b1_r2_x3=6, b2_r3_x4=9)
        own = asked.held.domains
        nodes.hold("ns/own", [holding(**{v[0]: n for v, n in own if v[0] != "gone"})])

        assert only(nodes, asked, failed_node="gone") == expected

    def test_the_reason_counts_what_is_outside_the_domain(self):
        nodes = hosts(b1_r1_x1=1, b1_r2_x2=5)
        nodes.hold("ns/own", [holding(x1=1)])
        asked = request(2, "Required", "rack", **held(x1=1, gone=1))

        assert only(nodes, asked, failed_node="gone") == (
            'topology "racks" doesn\'t allow to fit any of 1 pod(s). Total nodes: 2; excluded:'
            ' resource "gpu": 1, topologyDomain: 1'
        )

    def test_another_node_that_is_gone_too_ends_it(self):
        asked = request(3, **held(lost=1, gone=1, x1=1))

        assert only(hosts(b1_r1_x1=9), asked, failed_node="gone") == (
            "Cannot replace the node, because the existing topologyAssignment is invalid, as it"
            " contains the stale domain lost"
        )

    @pytest.mark.gate("SkipReassignmentForPodOwnedWorkloads")
    def test_the_workload_of_a_pod_that_exists_keeps_its_place(self):
        asked = request(1, pinned=True, **held(gone=1))
        nodes = hosts(b1_r1_x1=9)

        assert only(nodes, asked, failed_node="gone") == {"gone": 1}
        assert only(
            nodes, asked, failed_node="gone",
            gates=Gates(skip_reassignment_for_pod_owned_workloads=False),
        ) == {"x1": 1}  # fmt: skip

    def test_pod_sets_that_hold_nothing_are_left_out(self):
        found = placed(hosts(b1_r1_x1=9), request(1), failed_node="gone")

        assert found == {}

    def test_pod_sets_of_a_group_are_repaired_one_after_the_other(self):
        nodes = hosts(b1_r1_x1=2, b1_r1_x2=1)
        members = [
            request(1, pod_set=name, group="g", **held(gone=1)) for name in ("leader", "workers")
        ]

        assert placed(nodes, *members, failed_node="gone") == {
            "leader": {"x2": 1},
            "workers": {"x1": 1},
        }


class TestElastic:
    @pytest.mark.parametrize(
        ("asked", "expected"),
        [
            pytest.param(request(5, **held(x2=2, x1=1)), {"x1": 3, "x2": 2}, id="grows-around-it"),
            pytest.param(request(3, **held(x2=2, x1=1)), {"x2": 2, "x1": 1}, id="stays"),
            pytest.param(request(2, **held(x2=2, x1=1)), {"x2": 2}, id="shrinks-from-the-end"),
            pytest.param(request(3, **held(gone=2)), {"x1": 3}, id="starts-over-if-stale"),
            pytest.param(
                request(4, slices=[(HOSTNAME, 2)], **held(x2=1)),
                {"x1": 2, "x2": 2},
                id="starts-over-with-broken-slices",
            ),
        ],
    )
    def test_places_are_kept(self, asked, expected):
        nodes = hosts(b1_r1_x1=4, b1_r1_x2=2, b1_r2_x3=6)

        assert only(nodes, asked) == expected

    def test_a_leader_stays_while_workers_grow(self):
        nodes = hosts(b1_r1_x1=2, b1_r1_x2=2)
        leader = request(1, pod_set="leader", group="g", **held(x2=1))
        workers = request(3, pod_set="workers", group="g", **held(x1=1))

        assert placed(nodes, leader, workers) == {
            "leader": {"x2": 1},
            "workers": {"x1": 2, "x2": 1},
        }

    def test_a_leader_that_holds_nothing_gets_a_place_while_workers_grow(self):
        nodes = hosts(b1_r1_x1=2, b1_r1_x2=2)
        leader = request(1, pod_set="leader", group="g")
        workers = request(2, pod_set="workers", group="g", **held(x1=1))

        found = placed(nodes, leader, workers)

        assert sum(found["leader"].values()) == 1
        assert sum(found["workers"].values()) == 2

    def test_workers_that_do_not_shrink_start_over_with_a_leader_that_holds_nothing(self):
        nodes = hosts(b1_r1_x1=2, b1_r1_x2=3)
        leader = request(1, pod_set="leader", group="g")
        workers = request(2, pod_set="workers", group="g", **held(x1=2))

        found = placed(nodes, leader, workers)

        assert found == {"leader": {"x2": 1}, "workers": {"x2": 2}}

    def test_growth_that_does_not_fit_is_refused(self):
        asked = request(9, **held(x1=2))

        assert only(hosts(b1_r1_x1=4), asked) == (
            'topology "racks" allows to fit only 2 out of 7 pod(s)'
        )
