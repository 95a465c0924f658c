"""What is injected joins what the author wrote: nothing twice, nothing lost, nothing moved."""

import copy
from functools import partial
from typing import get_args

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from policyd.api.inject import Inject, InjectField
from policyd.engine.inject import merging
from policyd.engine.inject.merging import Edit, InjectError, add_affinity
from policyd.patch.draft import Draft
from policyd.patch.json_patch import apply_json_patch

GPU = {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}
TEAM = {"key": "team", "operator": "Equal", "value": "a", "effect": "NoSchedule"}
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def merged(merge, obj, value, *, override=False):
    """Merge twice: the second time must change nothing, and the operations must say it all."""
    before = copy.deepcopy(obj)
    draft = Draft(obj)
    merge(Edit(draft, (), override), value)
    again = Draft(draft.object)
    merge(Edit(again, (), override), value)
    assert obj == before
    assert apply_json_patch(obj, draft.operations) == draft.object
    assert again.operations == []
    return draft.object


def spec(**fields):
    return {"spec": fields}


def metadata(**fields):
    return {"metadata": fields}


TABLE = [
    pytest.param(
        merging.set_queue_name,
        {},
        "a",
        metadata(labels={"kueue.x-k8s.io/queue-name": "a"}),
        id="queue-name-on-an-empty-object",
    ),
    pytest.param(
        merging.set_queue_name,
        metadata(labels={"kueue.x-k8s.io/queue-name": "mine"}),
        "a",
        metadata(labels={"kueue.x-k8s.io/queue-name": "mine"}),
        id="queue-name-of-the-author-stays",
    ),
    pytest.param(
        merging.set_queue_name,
        metadata(labels={"kueue.x-k8s.io/queue-name": ""}),
        "a",
        metadata(labels={"kueue.x-k8s.io/queue-name": "a"}),
        id="empty-queue-name-names-nothing",
    ),
    pytest.param(
        merging.set_labels,
        metadata(labels={"a": ""}),
        {"a": "x", "b": "y"},
        metadata(labels={"a": "", "b": "y"}),
        id="labels-each-for-itself-empty-ones-count",
    ),
    pytest.param(
        merging.set_annotations,
        metadata(annotations=None),
        {"a/b~c": "x"},
        metadata(annotations={"a/b~c": "x"}),
        id="annotations-over-null-with-odd-keys",
    ),
    pytest.param(
        merging.set_priority_class,
        spec(priority=0, preemptionPolicy="PreemptLowerPriority"),
        "high",
        spec(priorityClassName="high"),
        id="priority-number-goes-with-the-class-set",
    ),
    pytest.param(
        merging.set_priority_class,
        spec(priority=5, priorityClassName="mine"),
        "high",
        spec(priority=5, priorityClassName="mine"),
        id="priority-class-of-the-author-stays",
    ),
    pytest.param(
        merging.set_node_selector,
        spec(nodeSelector={"zone": "a"}),
        {"zone": "b", "gpu": "yes"},
        spec(nodeSelector={"zone": "a", "gpu": "yes"}),
        id="node-selector-key-by-key",
    ),
    pytest.param(
        merging.add_tolerations, {}, [GPU, GPU], spec(tolerations=[GPU]), id="toleration-once"
    ),
    pytest.param(
        merging.add_tolerations,
        spec(tolerations=[{"key": "nvidia.com/gpu", "operator": "Exists"}]),
        [GPU],
        spec(tolerations=[{"key": "nvidia.com/gpu", "operator": "Exists"}]),
        id="toleration-of-all-effects-covers",
    ),
    pytest.param(
        merging.add_tolerations,
        spec(tolerations=[{"operator": "Exists"}]),
        [GPU, TEAM],
        spec(tolerations=[{"operator": "Exists"}]),
        id="toleration-of-everything-covers",
    ),
    pytest.param(
        merging.add_tolerations,
        spec(tolerations=[{"key": "team", "value": "a", "effect": "NoSchedule"}]),
        [TEAM],
        spec(tolerations=[{"key": "team", "value": "a", "effect": "NoSchedule"}]),
        id="equal-is-the-default-operator",
    ),
    pytest.param(
        merging.add_tolerations,
        spec(tolerations=[{**TEAM, "value": "b"}]),
        [TEAM],
        spec(tolerations=[{**TEAM, "value": "b"}, TEAM]),
        id="another-value-is-another-toleration",
    ),
    pytest.param(
        merging.add_tolerations,
        spec(tolerations=[{**GPU, "effect": "NoExecute", "tolerationSeconds": 5}]),
        [{**GPU, "effect": "NoExecute", "tolerationSeconds": 9}],
        spec(tolerations=[{**GPU, "effect": "NoExecute", "tolerationSeconds": 5}]),
        id="the-authors-seconds-stay",
    ),
    pytest.param(
        partial(merging.set_named, field="schedulerName"),
        spec(schedulerName=""),
        "own",
        spec(schedulerName="own"),
        id="an-empty-name-is-none",
    ),
    pytest.param(
        partial(merging.set_named, field="schedulerName"),
        spec(schedulerName="the-authors"),
        "own",
        spec(schedulerName="the-authors"),
        id="the-authors-name-stays",
    ),
    pytest.param(
        merging.add_spread_constraints,
        spec(
            topologySpreadConstraints=[
                {"topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}
            ]
        ),
        [
            {"topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule", "maxSkew": 9},
            {"topologyKey": "rack", "whenUnsatisfiable": "DoNotSchedule", "maxSkew": 1},
        ],
        spec(
            topologySpreadConstraints=[
                {"topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"},
                {"topologyKey": "rack", "whenUnsatisfiable": "DoNotSchedule", "maxSkew": 1},
            ]
        ),
        id="spread-by-key-and-what-to-do",
    ),
    pytest.param(
        merging.add_scheduling_gates,
        spec(schedulingGates=[{"name": "a"}]),
        [{"name": "a"}, {"name": "b"}],
        spec(schedulingGates=[{"name": "a"}, {"name": "b"}]),
        id="gates-by-name",
    ),
    pytest.param(
        merging.request_topology,
        {},
        {"required": "rack"},
        metadata(annotations={"kueue.x-k8s.io/podset-required-topology": "rack"}),
        id="topology-required",
    ),
    pytest.param(
        merging.request_topology,
        {},
        {"unconstrained": True},
        metadata(annotations={"kueue.x-k8s.io/podset-unconstrained-topology": "true"}),
        id="topology-unconstrained",
    ),
    pytest.param(
        merging.request_topology,
        metadata(annotations={"kueue.x-k8s.io/podset-preferred-topology": "block"}),
        {"required": "rack"},
        metadata(annotations={"kueue.x-k8s.io/podset-preferred-topology": "block"}),
        id="topology-of-the-author-stays-whatever-its-kind",
    ),
    pytest.param(
        merging.form_gang_of_pods,
        {},
        {"minMember": 4, "name": "run"},
        metadata(
            labels={"kueue.x-k8s.io/pod-group-name": "run"},
            annotations={"kueue.x-k8s.io/pod-group-total-count": "4"},
        ),
        id="gang-of-pods",
    ),
    pytest.param(merging.form_gang_of_pods, {}, {"minMember": 4}, {}, id="no-gang-without-a-name"),
    pytest.param(
        merging.form_gang_of_pods,
        metadata(labels={"kueue.x-k8s.io/pod-group-name": "mine"}),
        {"minMember": 4, "name": "run"},
        metadata(
            labels={"kueue.x-k8s.io/pod-group-name": "mine"},
            annotations={"kueue.x-k8s.io/pod-group-total-count": "4"},
        ),
        id="gang-of-the-author-gets-its-count",
    ),
    pytest.param(
        merging.form_gang_of_job,
        spec(parallelism=8),
        {"minMember": 4},
        {
            **spec(parallelism=8),
            **metadata(annotations={"kueue.x-k8s.io/job-min-parallelism": "4"}),
        },
        id="job-starts-with-its-gang",
    ),
    pytest.param(
        merging.form_gang_of_job,
        spec(parallelism=4),
        {"minMember": 4},
        spec(parallelism=4),
        id="job-that-is-a-gang-anyway",
    ),
]


@pytest.mark.parametrize(("merge", "obj", "value", "expected"), TABLE)
def test_set_fields_join_existing_ones(merge, obj, value, expected):
    assert merged(merge, obj, value) == expected


@pytest.mark.parametrize(
    ("merge", "obj", "value", "expected"),
    [
        pytest.param(
            merging.set_labels,
            metadata(labels={"a": "x"}),
            {"a": "y"},
            metadata(labels={"a": "y"}),
            id="label",
        ),
        pytest.param(
            merging.set_priority_class,
            spec(priority=5, priorityClassName="mine"),
            "high",
            spec(priorityClassName="high"),
            id="priority-class",
        ),
        pytest.param(
            merging.add_tolerations,
            spec(tolerations=[{**TEAM, "value": "b"}, GPU]),
            [TEAM, {**TEAM, "value": "c"}],
            spec(tolerations=[GPU, TEAM, {**TEAM, "value": "c"}]),
            id="tolerations-of-the-same-taint",
        ),
        pytest.param(
            merging.request_topology,
            metadata(annotations={"kueue.x-k8s.io/podset-preferred-topology": "block", "x": "y"}),
            {"required": "rack"},
            metadata(annotations={"x": "y", "kueue.x-k8s.io/podset-required-topology": "rack"}),
            id="topology-of-another-kind",
        ),
        pytest.param(
            merging.form_gang_of_pods,
            metadata(annotations={"kueue.x-k8s.io/pod-group-name": "mine"}),
            {"minMember": 2, "name": "run"},
            metadata(
                labels={"kueue.x-k8s.io/pod-group-name": "run"},
                annotations={"kueue.x-k8s.io/pod-group-total-count": "2"},
            ),
            id="gang",
        ),
    ],
)
def test_override_replaces_what_the_author_set(merge, obj, value, expected):
    assert merged(merge, obj, value, override=True) == expected


def container(**resources):
    return {"name": "c", "resources": resources}


DEFAULTS = {"requests": {"cpu": "1", "memory": "4Gi"}, "limits": {"memory": "8Gi"}}


@pytest.mark.parametrize(
    ("given_", "expected"),
    [
        pytest.param({}, DEFAULTS, id="nothing-stated"),
        pytest.param(
            {"requests": {"cpu": "3"}},
            {"requests": {"cpu": "3", "memory": "4Gi"}, "limits": {"memory": "8Gi"}},
            id="stated-request-stays",
        ),
        pytest.param(
            {"limits": {"memory": "1Gi"}},
            {"requests": {"cpu": "1"}, "limits": {"memory": "1Gi"}},
            id="a-stated-limit-is-the-request-too",
        ),
        pytest.param(
            {"requests": {"memory": "16Gi"}},
            {"requests": {"memory": "16Gi", "cpu": "1"}, "limits": {"memory": "16Gi"}},
            id="no-limit-below-the-request",
        ),
    ],
)
def test_resource_defaults(given_, expected):
    pod = spec(containers=[container(**given_)], initContainers=[container(**given_)])

    result = merged(merging.default_resources, pod, DEFAULTS)

    assert result["spec"]["containers"][0]["resources"] == expected
    assert result["spec"]["initContainers"][0]["resources"] == expected


def test_amounts_of_the_whole_pod_need_no_default_in_containers():
    pod = spec(resources={"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"memory": "2Gi"}})
    pod["spec"]["containers"] = [{"name": "c"}]

    assert merged(merging.default_resources, pod, DEFAULTS) == pod


def term(*conditions):
    return {
        "matchExpressions": [
            {"key": key, "operator": "In", "values": list(values)} for key, values in conditions
        ]
    }


def terms(*listed):
    return spec(affinity={"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": list(listed)}}})


def affinity(*listed):
    return {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": list(listed)}}}


SPOT, DEMAND, ZONE = ("capacity", ["spot"]), ("capacity", ["demand"]), ("zone", ["a"])


@pytest.mark.parametrize(
    ("obj", "value", "override", "expected"),
    [
        pytest.param({}, [term(SPOT)], False, [term(SPOT)], id="no-terms-yet"),
        pytest.param(
            terms(term(ZONE)), [term(SPOT)], False, [term(ZONE, SPOT)], id="joins-the-term"
        ),
        pytest.param(
            terms(term(ZONE), term(DEMAND)),
            [term(SPOT)],
            False,
            [term(ZONE, SPOT), term(DEMAND)],
            id="the-authors-word-on-a-label-stays",
        ),
        pytest.param(
            terms(term(DEMAND, ZONE)),
            [term(SPOT)],
            True,
            [term(ZONE, SPOT)],
            id="override-replaces-the-condition-on-the-label",
        ),
        pytest.param(
            terms(term(ZONE)),
            [term(SPOT), term(("gpu", ["yes"]))],
            False,
            [term(ZONE, SPOT), term(ZONE, ("gpu", ["yes"]))],
            id="alternatives-multiply",
        ),
        pytest.param(
            terms(term(ZONE)), [term(("x", []))], False, [term(ZONE)], id="empty-values-ask-nothing"
        ),
    ],
)
def test_required_node_affinity(obj, value, override, expected):
    result = merged(add_affinity, obj, affinity(*value), override=override)

    found = result["spec"]["affinity"]["nodeAffinity"][REQUIRED]["nodeSelectorTerms"]
    assert found == expected


def test_preferred_node_affinity_is_added_once_and_keeps_the_authors_weight():
    own = {"weight": 5, "preference": term(SPOT)}
    pod = spec(affinity={"nodeAffinity": {PREFERRED: [own]}})
    wanted = [{"weight": 9, "preference": term(SPOT)}, {"weight": 1, "preference": term(ZONE)}]

    result = merged(add_affinity, pod, {"nodeAffinity": {PREFERRED: wanted}})

    assert result["spec"]["affinity"]["nodeAffinity"][PREFERRED] == [own, wanted[1]]


@pytest.mark.parametrize(
    ("merge", "obj", "value"),
    [
        pytest.param(merging.add_tolerations, spec(tolerations="x"), [GPU], id="text-for-a-list"),
        pytest.param(merging.add_tolerations, spec(tolerations=[1]), [GPU], id="numbers-in-a-list"),
        pytest.param(add_affinity, terms({"matchExpressions": 1}), affinity(term(SPOT)), id="term"),
        pytest.param(merging.default_resources, spec(containers={}), DEFAULTS, id="containers"),
    ],
)
def test_a_misshapen_object_is_an_error_that_names_the_field(merge, obj, value):
    with pytest.raises(InjectError, match=r"of the object"):
        merge(Edit(Draft(obj), ()), value)


keys = st.sampled_from(["", "a", "b"])
tolerations = st.lists(
    st.fixed_dictionaries(
        {"key": keys, "operator": st.sampled_from(["Exists", "Equal"])},
        optional={
            "value": keys,
            "effect": st.sampled_from(["NoSchedule", "NoExecute"]),
            "tolerationSeconds": st.integers(0, 3),
        },
    ),
    max_size=4,
)


@given(tolerations, tolerations, st.booleans())
def test_tolerations_are_idempotent_and_lose_none_without_override(own, wanted, override):
    result = merged(merging.add_tolerations, spec(tolerations=own), wanted, override=override)

    if not override:
        assert result["spec"]["tolerations"][: len(own)] == own


node_terms = st.lists(
    st.lists(
        st.tuples(st.sampled_from(["a", "b", "c"]), st.sampled_from([["x"], ["y"], ["x", "y"]])),
        min_size=1,
        max_size=3,
    ).map(lambda conditions: term(*conditions)),
    min_size=1,
    max_size=3,
)


@given(st.one_of(st.just([]), node_terms), node_terms, st.booleans())
def test_affinity_is_idempotent(own, wanted, override):
    obj = terms(*own) if own else {}

    merged(add_affinity, obj, affinity(*wanted), override=override)


def test_override_can_name_every_field_that_is_not_only_added_to():
    fields = {field.encode_name for field in msgspec.structs.fields(Inject)}

    assert set(get_args(InjectField)) == fields - {"override", "schedulingGates"}
