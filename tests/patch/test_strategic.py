"""Strategic merge patches on built-in kinds."""

import copy

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policyd.patch.operations import PatchError
from policyd.patch.strategic import apply_strategic_merge

POD = {
    "metadata": {"labels": {"a": "1", "b": "2"}, "finalizers": ["x", "y"]},
    "spec": {
        "containers": [
            {"name": "main", "image": "one", "args": ["a", "b"]},
            {"name": "log", "image": "two"},
        ],
        "tolerations": [{"key": "gpu", "operator": "Exists"}],
        "nodeSelector": {"zone": "a"},
    },
}


def patched(patch, obj=POD, type_name="core/v1.Pod"):
    return apply_strategic_merge(obj, patch, type_name)


@pytest.mark.parametrize(
    ("patch", "place", "expected"),
    [
        pytest.param(
            {"metadata": {"labels": {"b": None, "c": "3"}}},
            ("metadata", "labels"),
            {"a": "1", "c": "3"},
            id="objects-merge-and-null-removes",
        ),
        pytest.param(
            {"spec": {"containers": [{"name": "log", "image": "three"}]}},
            ("spec", "containers"),
            [
                {"name": "main", "image": "one", "args": ["a", "b"]},
                {"name": "log", "image": "three"},
            ],
            id="items-merge-by-key",
        ),
        pytest.param(
            {"spec": {"containers": [{"name": "new", "env": None}]}},
            ("spec", "containers", 0),
            {"name": "new"},
            id="new-items-come-first-and-lose-nulls",
        ),
        pytest.param(
            {"spec": {"containers": [{"name": "main", "args": ["c"]}]}},
            ("spec", "containers", 0, "args"),
            ["c"],
            id="a-list-without-strategy-is-replaced",
        ),
        pytest.param(
            {"spec": {"tolerations": [{"key": "spot"}]}},
            ("spec", "tolerations"),
            [{"key": "spot"}],
            id="tolerations-are-replaced",
        ),
        pytest.param(
            {"spec": {"containers": [{"name": "main", "$patch": "delete"}]}},
            ("spec", "containers"),
            [{"name": "log", "image": "two"}],
            id="an-item-is-deleted",
        ),
        pytest.param(
            {"spec": {"containers": [{"name": "only"}, {"$patch": "replace"}]}},
            ("spec", "containers"),
            [{"name": "only"}],
            id="a-list-is-replaced-by-directive",
        ),
        pytest.param(
            {"spec": {"nodeSelector": {"$patch": "replace", "zone": "b"}}},
            ("spec", "nodeSelector"),
            {"zone": "b"},
            id="an-object-is-replaced",
        ),
        pytest.param(
            {"spec": {"nodeSelector": {"$patch": "delete"}}},
            ("spec", "nodeSelector"),
            {},
            id="an-object-is-emptied",
        ),
        pytest.param(
            {"metadata": {"finalizers": ["z", "x"]}},
            ("metadata", "finalizers"),
            ["z", "x", "y"],
            id="scalars-merge-as-a-set-in-the-patch's-order",
        ),
        pytest.param(
            {"metadata": {"$deleteFromPrimitiveList/finalizers": ["x", "q"]}},
            ("metadata", "finalizers"),
            ["y"],
            id="scalars-are-taken-out",
        ),
        pytest.param(
            {"spec": {"$setElementOrder/containers": [{"name": "log"}, {"name": "main"}]}},
            ("spec", "containers"),
            [
                {"name": "log", "image": "two"},
                {"name": "main", "image": "one", "args": ["a", "b"]},
            ],
            id="items-are-reordered",
        ),
        pytest.param(
            {
                "spec": {
                    "$setElementOrder/containers": [{"name": "new"}, {"name": "log"}],
                    "containers": [{"name": "new"}],
                }
            },
            ("spec", "containers"),
            [
                {"name": "new"},
                {"name": "main", "image": "one", "args": ["a", "b"]},
                {"name": "log", "image": "two"},
            ],
            id="what-the-order-does-not-name-keeps-its-place",
        ),
        pytest.param(
            {
                "metadata": {
                    "$setElementOrder/finalizers": ["z", "y"],
                    "finalizers": ["z"],
                    "$deleteFromPrimitiveList/finalizers": ["x"],
                }
            },
            ("metadata", "finalizers"),
            ["z", "y"],
            id="order-addition-and-deletion-of-scalars",
        ),
        pytest.param(
            {"spec": {"securityContext": {"runAsNonRoot": True, "runAsUser": None}}},
            ("spec", "securityContext"),
            {"runAsNonRoot": True},
            id="nulls-of-what-is-new-are-dropped",
        ),
    ],
)
def test_a_patch_of_a_pod(patch, place, expected):
    untouched, given = copy.deepcopy(POD), copy.deepcopy(patch)

    found = patched(patch)

    for step in place:
        found = found[step]
    assert found == expected
    assert (untouched, given) == (POD, patch)


def test_other_strategies_go_when_keys_are_retained():
    deployment = {"spec": {"strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1}}}}
    patch = {"spec": {"strategy": {"$retainKeys": ["type"], "type": "Recreate"}}}

    result = patched(patch, deployment, "apps/v1.Deployment")

    assert result == {"spec": {"strategy": {"type": "Recreate"}}}


def test_parts_that_a_patch_does_not_name_are_shared():
    result = patched({"metadata": {"labels": {"c": "3"}}})

    assert result["spec"] is POD["spec"]


@pytest.mark.parametrize(
    ("patch", "message"),
    [
        pytest.param([], "a strategic merge patch is an object", id="a-list"),
        pytest.param(
            {"spec": {"containers": [{"image": "x"}]}},
            "does not contain declared merge key: name",
            id="an-item-without-its-key",
        ),
        pytest.param(
            {"spec": {"containers": ["main"]}},
            "the items of a list that merges are all objects or all scalars",
            id="a-scalar-among-objects",
        ),
        pytest.param({"spec": {"$patch": "remove"}}, "unknown patch type: remove", id="directive"),
        pytest.param(
            {"spec": {"containers": [{"name": "main", "$patch": "merge"}]}},
            "unknown patch type: merge",
            id="directive-of-an-item",
        ),
        pytest.param(
            {"spec": {"$retainKeys": ["a"], "b": 1}},
            "invalid patch format of retainKeys",
            id="a-field-that-is-not-retained",
        ),
        pytest.param(
            {"metadata": {"$deleteFromPrimitiveList/finalizers": "x"}},
            "invalid patch format of primitive list",
            id="a-deletion-that-is-no-list",
        ),
        pytest.param(
            {"metadata": {"$setElementOrder/finalizers": "x"}},
            "invalid patch format of setElementOrder list",
            id="an-order-that-is-no-list",
        ),
        pytest.param(
            {
                "spec": {
                    "$setElementOrder/containers": [{"name": "log"}, {"name": "main"}],
                    "containers": [{"name": "main"}, {"name": "log"}],
                }
            },
            "doesn't match $setElementOrder list",
            id="an-order-that-contradicts-the-patch",
        ),
    ],
)
def test_invalid_strategic_merge_patches_are_refused(patch, message):
    with pytest.raises(PatchError) as raised:
        patched(patch)

    assert message in str(raised.value)


def test_a_custom_kind_has_no_strategic_merge():
    with pytest.raises(KeyError):
        patched({}, {}, "example.com/v1.Widget")


NAMES = st.sampled_from(["a", "b", "c"])
CONTAINERS = st.lists(
    st.fixed_dictionaries({"name": NAMES}, optional={"image": NAMES}),
    unique_by=lambda item: item["name"],
    max_size=3,
)
PODS = st.fixed_dictionaries(
    {},
    optional={
        "metadata": st.fixed_dictionaries(
            {},
            optional={
                "labels": st.dictionaries(NAMES, NAMES),
                "finalizers": st.lists(NAMES, unique=True),
            },
        ),
        "spec": st.fixed_dictionaries({}, optional={"containers": CONTAINERS}),
    },
)


@given(PODS, PODS)
def test_applying_twice_is_applying_once_and_nothing_given_is_touched(pod, patch):
    given = copy.deepcopy((pod, patch))

    once = patched(patch, pod)

    assert patched(patch, once) == once
    assert (pod, patch) == given
    assert patched({}, pod) == pod
