"""Which pod goes to which domain."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from policyd.api.kueue import (
    Admission,
    PodSet,
    PodSetAssignment,
    TopologyRequest,
    Workload,
    WorkloadSpec,
    WorkloadStatus,
)
from policyd.api.kueue.names import POD_SET, TOPOLOGY_GATE, WORKLOAD
from policyd.api.kueue.topology_assignment import (
    HOSTNAME,
    DomainPods,
    decode_topology,
    encode_topology,
)
from policyd.api.kueue.workload import UnhealthyNode
from policyd.api.meta import ObjectMeta
from policyd.api.pods import PodSpec, SchedulingGate
from policyd.jobs.places import departures, given_up, takes_room, without_given_up
from policyd.jobs.pods import QueuedPod, QueuedPodStatus

INDEX = "index"
OFFSET = "kueue.x-k8s.io/pod-index-offset"
GATES = (SchedulingGate(name=TOPOLOGY_GATE),)


def pod(name, index=None, *, at="", phase="Pending", annotations=None):
    labels = {POD_SET: "main"} | ({} if index is None else {INDEX: str(index)})
    selector = {HOSTNAME: at} if at else {}
    return QueuedPod(
        metadata=ObjectMeta(
            name=name,
            namespace="ns",
            labels=labels,
            annotations={WORKLOAD: "wl", **(annotations or {})},
        ),
        spec=PodSpec(node_selector=selector, scheduling_gates=() if at else GATES),
        status=QueuedPodStatus(phase=phase),
    )


def workload(nodes, *, indexed=True, failed=()):
    domains = [DomainPods((name,), count) for name, count in nodes.items()]
    assigned = PodSetAssignment(
        name="main",
        count=sum(nodes.values()),
        topology_assignment=encode_topology((HOSTNAME,), domains),
    )
    asked = TopologyRequest(pod_index_label=INDEX if indexed else "")
    return Workload(
        metadata=ObjectMeta(name="wl", namespace="ns"),
        spec=WorkloadSpec(
            pod_sets=(PodSet(name="main", count=sum(nodes.values()), topology_request=asked),)
        ),
        status=WorkloadStatus(
            admission=Admission(cluster_queue="q", pod_set_assignments=(assigned,)),
            unhealthy_nodes=tuple(UnhealthyNode(name=name) for name in failed),
        ),
    )


def shrunk(nodes, count):
    """A workload whose job has fewer pods by now than there were places for."""
    whole = workload(nodes)
    pod_sets = tuple(replace(each, count=count) for each in whole.spec.pod_sets)
    return replace(whole, spec=replace(whole.spec, pod_sets=pod_sets))


@pytest.mark.parametrize(
    ("pods", "expected"),
    [
        pytest.param([pod("a", at="n2")], {"n2": 1}, id="where-a-pod-remains"),
        pytest.param([pod("a", at="n1")], {"n1": 1}, id="one-of-several-on-a-node"),
        pytest.param([], {"n1": 1}, id="the-first-while-there-are-no-pods"),
        pytest.param([pod("a", at="gone")], {"n1": 1}, id="the-first-if-a-pod-is-elsewhere"),
        pytest.param(
            [pod("a", at="n2", phase="Failed"), pod("b", at="n1")],
            {"n1": 1},
            id="those-that-have-ended-need-none",
        ),
        pytest.param(
            [pod("a", at="n2"), pod("b", at="n1")],
            {"n1": 2, "n2": 1},
            id="all-until-the-others-are-gone",
        ),
        pytest.param([pod("a", at="n2"), pod("b")], {"n2": 1}, id="one-that-waits-has-none-yet"),
    ],
)
def test_which_places_are_kept_as_a_job_becomes_smaller(pods, expected):
    before = shrunk({"n1": 2, "n2": 1}, 1)
    assert given_up(before)

    after = without_given_up(before, pods)

    (assigned,) = after.status.admission.pod_set_assignments
    kept = {name: count for (name,), count in decode_topology(assigned.topology_assignment)}
    assert kept == expected


def places(found):
    return {each.pod.metadata.name: each.node_selector[HOSTNAME] for each in found}


@pytest.mark.parametrize(
    ("pods", "expected"),
    [
        pytest.param(
            [pod("a", 2), pod("b", 0), pod("c", 1)],
            {"a": "n2", "b": "n1", "c": "n1"},
            id="by-index",
        ),
        pytest.param([pod("a", 2)], {"a": "n2"}, id="the-others-are-not-there-yet"),
        pytest.param(
            [pod("a", 0), pod("b", 0)], {"a": "n1", "b": "n1"}, id="twice-the-same-as-they-come"
        ),
        pytest.param([pod("a", 7)], {"a": "n1"}, id="beyond-the-last-as-they-come"),
        pytest.param([pod("a"), pod("b", 1)], {"a": "n1", "b": "n1"}, id="without-as-they-come"),
        pytest.param(
            [pod("a", 0, at="n2"), pod("b", 1), pod("c", 2)],
            {"b": "n1", "c": "n1"},
            id="one-is-elsewhere-as-they-come",
        ),
        pytest.param(
            [pod("a", 0, at="n1", phase="Failed"), pod("b", 0)], {"b": "n1"}, id="ended-is-ignored"
        ),
        pytest.param(
            [pod("a", 3, annotations={"kueue.x-k8s.io/pod-index-offset": "1"})],
            {"a": "n2"},
            id="offset",
        ),
    ],
)
def test_pods_go_in_the_order_of_their_indexes_if_these_make_sense(pods, expected):
    assert places(departures(workload({"n1": 2, "n2": 1}), pods)) == expected


@pytest.mark.parametrize("offset", ["", "one", "1.5"])
def test_an_offset_that_is_no_number_holds_all_pods(offset):
    pods = [pod("a", 1, annotations={OFFSET: offset}), pod("b", 2), pod("c", 0, at="n1")]

    assert departures(workload({"n1": 2, "n2": 1}), pods) == []


def test_an_offset_of_an_ended_pod_holds_no_pod():
    pods = [pod("a", 1, phase="Failed", annotations={OFFSET: "one"}), pod("b", 0)]

    assert places(departures(workload({"n1": 1}), pods)) == {"b": "n1"}


def test_no_pod_goes_to_a_failed_node():
    found = departures(workload({"n1": 1, "n2": 1}, failed=["n1"]), [pod("a", 0), pod("b", 1)])

    assert places(found) == {"b": "n2"}


def test_no_pod_is_ungated_before_an_admission_or_without_its_label():
    stranger = QueuedPod(
        metadata=ObjectMeta(name="x", namespace="ns", annotations={WORKLOAD: "wl"})
    )

    assert departures(Workload(), [pod("a", 0)]) == []
    assert departures(workload({"n1": 1}), [stranger]) == []


@given(st.lists(st.integers(1, 3), min_size=1, max_size=4), st.data())
def test_no_domain_gets_more_pods_than_it_was_assigned(counts, data):
    nodes = {f"n{number}": count for number, count in enumerate(counts)}
    indexes = data.draw(st.lists(st.none() | st.integers(0, 12), max_size=12))
    pods = [pod(f"p{number:02}", index) for number, index in enumerate(indexes)]

    found = list(places(departures(workload(nodes), pods)).values())

    assert all(found.count(name) <= nodes[name] for name in nodes)
    sensible = len(set(indexes)) == len(indexes) and None not in indexes
    if sensible or len(pods) <= sum(counts):
        assert len(found) == min(len(pods), sum(counts))


@pytest.mark.parametrize(
    ("spec", "phase", "annotations", "expected"),
    [
        pytest.param({"node_name": "n"}, "Running", {}, True, id="runs"),
        pytest.param({}, "Pending", {}, False, id="not-on-a-node"),
        pytest.param({"node_name": "n"}, "Succeeded", {}, False, id="ended"),
        pytest.param(
            {"node_name": "n"},
            "Running",
            {"kueue.x-k8s.io/podset-required-topology": "rack"},
            False,
            id="placed-by-a-topology",
        ),
    ],
)
def test_room_that_no_topology_gave(spec, phase, annotations, expected):
    found = takes_room(
        QueuedPod(
            metadata=ObjectMeta(annotations=annotations),
            spec=PodSpec(**spec),
            status=QueuedPodStatus(phase=phase),
        )
    )

    assert found is expected
