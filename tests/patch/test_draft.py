"""Drafts: changes are recorded, and nobody else's object is touched."""

import copy

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from policyd.patch.draft import Draft
from policyd.patch.json_patch import apply_json_patch
from policyd.patch.operations import PatchError
from tests.patch.strategies import FIELDS, OBJECTS, VALUES, paths_of


def recorded(draft):
    return [tuple(operation.values()) for operation in msgspec.to_builtins(draft.operations)]


POD = {
    "metadata": {"name": "train", "labels": {"team": "vision"}, "annotations": None},
    "spec": {"containers": [{"name": "main"}, {"name": "log"}], "priority": 1},
}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        pytest.param(
            lambda d: d.set(("metadata", "labels", "kueue.x-k8s.io/queue-name"), "gpu"),
            [("add", "/metadata/labels/kueue.x-k8s.io~1queue-name", "gpu")],
            id="a-new-field-is-added-with-its-name-escaped",
        ),
        pytest.param(
            lambda d: d.set(("spec", "priority"), 2),
            [("replace", "/spec/priority", 2)],
            id="a-present-field-is-replaced",
        ),
        pytest.param(
            lambda d: d.set(("spec", "priority"), 1), [], id="the-same-value-is-not-recorded"
        ),
        pytest.param(
            lambda d: d.set(("spec", "priority"), 1.0),
            [("replace", "/spec/priority", 1.0)],
            id="an-equal-number-of-another-type-is-recorded",
        ),
        pytest.param(
            lambda d: d.set(("spec", "affinity", "nodeAffinity", "x"), 1),
            [("add", "/spec/affinity", {"nodeAffinity": {"x": 1}})],
            id="missing-parents-come-in-one-operation",
        ),
        pytest.param(
            lambda d: d.set(("metadata", "annotations", "x"), "1"),
            [("replace", "/metadata/annotations", {"x": "1"})],
            id="a-null-parent-becomes-an-object",
        ),
        pytest.param(
            lambda d: d.set(("spec", "gates", 0, "name"), "hold"),
            [("add", "/spec/gates", [{"name": "hold"}])],
            id="a-missing-list-starts-at-0",
        ),
        pytest.param(
            lambda d: (d.set(("spec", "x", "a"), 1), d.set(("spec", "x", "b"), 2)),
            [("add", "/spec/x", {"a": 1, "b": 2})],
            id="a-child-of-an-added-value-folds",
        ),
        pytest.param(
            lambda d: (d.set(("spec", "priority"), 2), d.set(("spec", "priority"), 3)),
            [("replace", "/spec/priority", 3)],
            id="the-same-path-folds",
        ),
        pytest.param(
            lambda d: (d.set(("spec", "x"), 2), d.remove(("spec", "x"))),
            [],
            id="what-was-added-and-removed-leaves-nothing",
        ),
        pytest.param(
            lambda d: (d.set(("spec", "priority"), 2), d.remove(("spec", "priority"))),
            [("remove", "/spec/priority")],
            id="what-was-replaced-and-removed-is-removed",
        ),
        pytest.param(
            lambda d: (d.append(("spec", "gates"), 1), d.append(("spec", "gates"), 2)),
            [("add", "/spec/gates", [1, 2])],
            id="appending-makes-the-list-and-folds",
        ),
        pytest.param(
            lambda d: (
                d.append(("spec", "containers"), {"name": "new"}),
                d.set(("spec", "containers", 2, "image"), "i"),
            ),
            [("add", "/spec/containers/-", {"name": "new", "image": "i"})],
            id="an-appended-item-folds",
        ),
        pytest.param(
            lambda d: (
                d.append(("spec", "containers"), {"name": "new"}),
                d.insert(("spec", "containers", 0), {"name": "first"}),
                d.set(("spec", "containers", 3, "image"), "i"),
            ),
            [
                ("add", "/spec/containers/-", {"name": "new"}),
                ("add", "/spec/containers/0", {"name": "first"}),
                ("add", "/spec/containers/3/image", "i"),
            ],
            id="an-item-that-moved-no-longer-folds",
        ),
        pytest.param(lambda d: d.remove(("spec", "x", "y")), [], id="removing-nothing-is-fine"),
    ],
)
def test_operations_are_minimal(changes, expected):
    draft = Draft(POD)

    changes(draft)

    assert recorded(draft) == expected
    assert draft.changed is bool(expected)
    assert apply_json_patch(POD, draft.operations) == draft.object


@pytest.mark.parametrize(
    ("change", "message"),
    [
        pytest.param(
            lambda d: d.set(("metadata", "name", "x"), 1),
            "`/metadata/name` is a string where the change needs an object",
            id="a-field-of-a-string",
        ),
        pytest.param(
            lambda d: d.set(("spec", "containers", "main"), 1),
            "`/spec/containers` is a list where the change needs an object",
            id="a-field-of-a-list",
        ),
        pytest.param(
            lambda d: d.set(("spec", 0), 1),
            "`/spec` is an object where the change needs a list",
            id="an-index-of-an-object",
        ),
        pytest.param(
            lambda d: d.set(("spec", "containers", 2), 1),
            "`/spec/containers/2` is not in its list, which has 2 items",
            id="an-index-beyond-the-end",
        ),
        pytest.param(
            lambda d: d.insert(("spec", "containers", 3), 1),
            "`/spec/containers/3` is not in its list, which has 2 items",
            id="an-insertion-beyond-the-end",
        ),
        pytest.param(
            lambda d: d.append(("spec", "priority"), 1),
            "`/spec/priority` is a number where the change needs a list",
            id="an-append-to-a-number",
        ),
        pytest.param(
            lambda d: d.set((), {}), "the whole object cannot be replaced", id="the-root-is-fixed"
        ),
        pytest.param(
            lambda d: d.remove(()), "the whole object cannot be removed", id="the-root-stays"
        ),
    ],
)
def test_invalid_values_are_reported_with_their_place(change, message):
    draft = Draft(POD)

    with pytest.raises(PatchError) as raised:
        change(draft)

    assert str(raised.value) == message
    assert draft.operations == []
    assert draft.object == POD


def test_unchanged_parts_are_shared():
    draft = Draft(POD)

    draft.set(("metadata", "labels", "x"), "1")

    assert draft.object["spec"] is POD["spec"]


def test_a_draft_that_changed_nothing_is_the_object_itself():
    draft = Draft(POD)

    draft.set(("spec", "priority"), 1)

    assert draft.object is POD


def test_an_object_handed_out_keeps_its_state_under_later_writes():
    draft = Draft(POD)
    draft.set(("spec", "x"), {"a": 1})
    before, operations = draft.object, draft.operations

    draft.set(("spec", "x", "a"), 2)

    assert before["spec"]["x"] == {"a": 1}
    assert operations[0].value == {"a": 1}


@st.composite
def changes(draw, obj):
    """One change that fits `obj`, as a method's name and arguments."""
    path = draw(st.sampled_from(list(paths_of(obj))))
    node = Draft(obj).get(path)
    if isinstance(node, list):
        verb = draw(st.sampled_from(["append", "insert", "remove", "set"]))
        if verb == "append":
            return verb, path, draw(VALUES)
        if verb == "insert":
            return verb, (*path, draw(st.integers(0, len(node)))), draw(VALUES)
    if isinstance(node, dict):
        tail = draw(st.lists(FIELDS, min_size=1, max_size=2))
        if len(tail) > 1 and not isinstance(node.get(tail[0]), dict | None):
            tail = tail[:1]
        return "set", (*path, *tail), draw(VALUES)
    if not path:
        return "set", ("a",), draw(VALUES)
    return (*draw(st.sampled_from([("remove", path), ("set", path)])), draw(VALUES))


@given(OBJECTS, st.data())
def test_the_operations_lead_from_the_object_to_the_drafts_object(obj, data):
    untouched = copy.deepcopy(obj)
    draft = Draft(obj)
    values = []

    for _ in range(data.draw(st.integers(1, 6))):
        verb, path, value = data.draw(changes(draft.object))
        values.append((value, copy.deepcopy(value)))
        arguments = (path,) if verb == "remove" else (path, value)
        getattr(draft, verb)(*arguments)

    assert repr(apply_json_patch(obj, draft.operations)) == repr(draft.object)
    assert repr(obj) == repr(untouched)
    assert all(repr(given) == repr(original) for given, original in values)
