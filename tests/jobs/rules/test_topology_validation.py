"""What the webhook refuses of the topology that pods ask for."""

import json

import pytest

from policyd.jobs.rules.topology_validation import TopologyTemplate, topology_errors
from policyd.jobs.topology import topology_request

P = "kueue.x-k8s.io/podset-"
REQUIRED, PREFERRED, FREE = (
    f"{P}required-topology",
    f"{P}preferred-topology",
    f"{P}unconstrained-topology",
)
SLICE, SIZE, GROUP = f"{P}slice-required-topology", f"{P}slice-size", f"{P}group-name"
LAYERS = f"{P}slice-required-topology-constraints"


def layers(*pairs):
    return {LAYERS: json.dumps([{"topology": name, "size": size} for name, size in pairs])}


def wrong(*templates):
    given = [
        TopologyTemplate(f"t{i}", annotations, count)
        for i, (annotations, count) in enumerate(templates)
    ]
    return [error.message for error in topology_errors(given)]


@pytest.mark.parametrize(
    ("annotations", "detail"),
    [
        pytest.param({REQUIRED: "rack"}, None, id="required"),
        pytest.param({FREE: "false"}, None, id="unconstrained-or-not"),
        pytest.param({FREE: "perhaps"}, "true or false", id="unconstrained-perhaps"),
        pytest.param({REQUIRED: "a", PREFERRED: "b"}, "more than one", id="two-levels"),
        pytest.param({REQUIRED: "some rack"}, "must consist of", id="no-label-key"),
        pytest.param({SLICE: "rack", SIZE: "4"}, None, id="slices"),
        pytest.param({SLICE: "rack"}, "must be set when", id="slices-without-size"),
        pytest.param({SIZE: "4"}, "may not be set when", id="size-without-slices"),
        pytest.param({SLICE: "rack", SIZE: "0"}, "greater than or equal to 1", id="size-zero"),
        pytest.param({SLICE: "rack", SIZE: "x"}, "numeric", id="size-no-number"),
        pytest.param({SLICE: "rack", SIZE: "--4"}, "numeric", id="size-of-two-signs"),
        pytest.param({SLICE: "rack", SIZE: "9" * 5000}, "numeric", id="size-beyond-reading"),
        pytest.param({SLICE: "rack", SIZE: "9"}, "pod set count 8", id="size-above-count"),
        pytest.param(layers(("block", 8), ("rack", 4), ("node", 2)), None, id="three-layers"),
        pytest.param(layers(), "between 1 and 3", id="no-layer"),
        pytest.param({LAYERS: "[{"}, "must be a list", id="layers-no-json"),
        pytest.param(layers(("block", 8), ("rack", 3)), "must divide", id="layers-do-not-divide"),
        pytest.param(layers(("rack", 8), ("rack", 4)), "twice", id="layers-repeat"),
        pytest.param(layers(("rack", 16)), "pod set count 8", id="layer-above-count"),
        pytest.param(layers(("rack", 0)), "greater than or equal to 1", id="layer-of-nothing"),
        pytest.param(layers(("r", 4), ("n", 0)), "every size must be", id="inner-layer-of-nothing"),
    ],
)
def test_annotations_of_one_template(annotations, detail):
    found = wrong((annotations, 8))

    assert [detail in each for each in found] == [True] if detail else not found


@pytest.mark.parametrize(
    ("leader", "worker", "detail"),
    [
        pytest.param(({REQUIRED: "r"}, 1), ({REQUIRED: "r"}, 4), None, id="fine"),
        pytest.param(({REQUIRED: "r"}, 2), ({REQUIRED: "r"}, 4), "exactly one pod", id="no-leader"),
        pytest.param(({REQUIRED: "r"}, 1), ({REQUIRED: "q"}, 4), "consistent", id="other-level"),
        pytest.param(({}, 1), ({}, 4), "neither", id="no-level"),
    ],
)
def test_groups_of_two_pod_sets(leader, worker, detail):
    found = wrong(
        *(({**annotations, GROUP: "g"}, count) for annotations, count in (leader, worker))
    )

    assert [detail in each for each in found] == [True, True] if detail else not found


def test_a_group_is_of_two_and_its_name_is_no_number():
    found = wrong(({REQUIRED: "r", GROUP: "7"}, 1))

    assert found == [
        "must not be a number",
        "can only define groups of exactly 2 pod sets, got: 1 pod set(s)",
    ]


def test_slices_and_groups_exclude_each_other():
    found = wrong(*[({REQUIRED: "r", GROUP: "g", SLICE: "r", SIZE: "1"}, 1)] * 2)

    assert len(found) == 4
    assert all("may not be set when" in each for each in found)


def test_a_template_without_annotations_has_no_request():
    assert topology_request({}) is None
    assert topology_request({SLICE: "rack"}) is None
    assert topology_request({}, pod_index_label="i").pod_index_label == "i"


def test_a_group_without_a_level_is_left_out():
    asked = topology_request({GROUP: "g", SLICE: "rack", SIZE: "1"}, sub_group_count=2)

    assert (asked.pod_set_group_name, asked.pod_set_slice_size, asked.sub_group_count) == ("", 1, 2)
