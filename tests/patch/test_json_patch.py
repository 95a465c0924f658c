"""JSON patch: the API server's dialect, and differences."""

import copy

import jsonpatch
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from policyd.patch.json_patch import MAX_OPERATIONS, apply_json_patch
from policyd.patch.operations import (
    MOST_BY_FIELD,
    Operation,
    PatchError,
    PatchTestError,
    difference,
    parse_operations,
    pointer,
)
from tests.patch.strategies import OBJECTS, VALUES, paths_of

REPLACED_BY_TRUE = {"op": "replace", "path": "/a", "value": True}
OBJECT = {"a": {"b": 1, "n": None}, "list": [1, 2, 3], "t/~x": 1}


def op(verb, path, *value, from_=None):
    operation = {"op": verb, "path": path}
    if value:
        operation["value"] = value[0]
    if from_ is not None:
        operation["from"] = from_
    return operation


def patched(obj, *operations):
    return apply_json_patch(obj, parse_operations(list(operations)))


@pytest.mark.parametrize(
    ("operation", "path", "expected"),
    [
        pytest.param(op("add", "/a/c", 1), "a", {"b": 1, "n": None, "c": 1}, id="add-field"),
        pytest.param(op("add", "/a/b", 2), "a", {"b": 2, "n": None}, id="add-replaces"),
        pytest.param(op("add", "/list/0", 0), "list", [0, 1, 2, 3], id="add-inserts"),
        pytest.param(op("add", "/list/3", 4), "list", [1, 2, 3, 4], id="add-at-the-end"),
        pytest.param(op("add", "/list/-", 4), "list", [1, 2, 3, 4], id="dash-appends"),
        pytest.param(op("add", "/list/-1", 4), "list", [1, 2, 3, 4], id="add-minus-1-is-the-end"),
        pytest.param(op("add", "/list/-4", 0), "list", [0, 1, 2, 3], id="add-from-the-end"),
        pytest.param(op("add", "/a/c"), "a", {"b": 1, "n": None, "c": None}, id="no-value-is-null"),
        pytest.param(op("remove", "/a/b"), "a", {"n": None}, id="remove-field"),
        pytest.param(op("remove", "/list/-1"), "list", [1, 2], id="remove-from-the-end"),
        pytest.param(op("replace", "/a/c", 1), "a", {"b": 1, "n": None, "c": 1}, id="replace-adds"),
        pytest.param(op("replace", "/list/-1", 9), "list", [1, 2, 9], id="replace-from-the-end"),
        pytest.param(op("replace", "/t~1~0x", 2), "t/~x", 2, id="escapes"),
        pytest.param(op("move", "/c", from_="/a/b"), "a", {"n": None}, id="move-takes"),
        pytest.param(op("move", "/list/0", from_="/list/2"), "list", [3, 1, 2], id="move-in-list"),
        pytest.param(op("copy", "/c", from_="/a"), "c", {"b": 1, "n": None}, id="copy"),
        pytest.param(op("copy", "/c", from_="/a/zz"), "c", None, id="copy-of-nothing-is-null"),
        pytest.param(op("test", "/a/b", 1), "a", {"b": 1, "n": None}, id="test-passes"),
        pytest.param(op("test", "/a/n", None), "a", {"b": 1, "n": None}, id="test-null"),
        pytest.param(op("test", "/a/zz", None), "a", {"b": 1, "n": None}, id="nothing-is-null"),
        pytest.param(op("test", "", OBJECT), "t/~x", 1, id="test-the-whole"),
    ],
)
def test_the_dialect_of_the_api_server(operation, path, expected):
    untouched = copy.deepcopy(OBJECT)

    result = patched(OBJECT, operation)

    assert result[path] == expected
    assert untouched == OBJECT


@pytest.mark.parametrize(
    ("operation", "message"),
    [
        pytest.param(
            op("add", "/x/y", 1),
            'add operation does not apply: doc is missing path: "/x/y": missing value',
            id="add-without-parent",
        ),
        pytest.param(
            op("add", "/a/n/y", 1),
            'add operation does not apply: doc is missing path: "/a/n/y": missing value',
            id="null-has-no-fields",
        ),
        pytest.param(
            op("add", "/a/b/c/d", 1),
            'add operation does not apply: doc is missing path: "/a/b/c/d": missing value',
            id="a-number-has-no-fields",
        ),
        pytest.param(
            op("add", "", {}),
            'add operation does not apply: doc is missing path: "": missing value',
            id="add-at-the-root",
        ),
        pytest.param(
            op("add", "/list/4", 1),
            "error in add for path: '/list/4': Unable to access invalid index: 4: "
            "invalid index referenced",
            id="add-beyond-the-end",
        ),
        pytest.param(
            op("add", "/list/x", 1),
            "error in add for path: '/list/x': value was not a proper array index: 'x': "
            'strconv.Atoi: parsing "x": invalid syntax',
            id="add-at-no-index",
        ),
        pytest.param(
            op("remove", "/a/zz"),
            "error in remove for path: '/a/zz': Unable to remove nonexistent key: zz: "
            "missing value",
            id="remove-nothing",
        ),
        pytest.param(
            op("remove", "/x/y"),
            'remove operation does not apply: doc is missing path: "/x/y": missing value',
            id="remove-without-parent",
        ),
        pytest.param(
            op("replace", "/list/3", 1),
            "replace operation does not apply: doc is missing key: /list/3: missing value",
            id="replace-beyond-the-end",
        ),
        pytest.param(
            op("replace", "", 1),
            "replace operation value must be object or array: %!w(<nil>)",
            id="replace-the-whole-by-a-number",
        ),
        pytest.param(
            op("move", "/x", from_="/x/y"),
            "move operation does not apply: doc is missing from path: /x/y: missing value",
            id="move-from-nowhere",
        ),
        pytest.param(
            op("move", "/x/y", from_="/a"),
            "move operation does not apply: doc is missing destination path: /x/y: missing value",
            id="move-to-nowhere",
        ),
        pytest.param(
            op("copy", "/x"),
            "copy operation failed to decode from: operation, missing from field: missing value",
            id="copy-from-unsaid",
        ),
        pytest.param(
            op("test", "/x/y", 1),
            "test operation does not apply: is missing path: /x/y: missing value",
            id="test-without-parent",
        ),
    ],
)
def test_inapplicable_patches_are_reported_in_the_api_servers_words(operation, message):
    with pytest.raises(PatchError) as raised:
        patched(OBJECT, operation)

    assert str(raised.value) == message
    assert not isinstance(raised.value, PatchTestError)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        pytest.param("/a/b", 2, id="another-number"),
        pytest.param("/a/b", 1.0, id="another-type-of-number"),
        pytest.param("/a/b", True, id="true-is-not-1"),
        pytest.param("/list", [1, 2], id="a-shorter-list"),
        pytest.param("/a", {"b": 1}, id="null-is-not-missing-inside"),
    ],
)
def test_a_failed_test_is_an_error_of_its_own(path, value):
    with pytest.raises(PatchTestError) as raised:
        patched(OBJECT, op("test", path, value))

    assert str(raised.value) == f"testing value {path} failed: test failed"
    assert raised.value.path == path


@pytest.mark.parametrize(
    "patch",
    [
        pytest.param({"op": "add"}, id="not-a-list"),
        pytest.param([{"op": "increase", "path": "/a"}], id="unknown-verb"),
        pytest.param([{"op": "add", "value": 1}], id="no-path"),
        pytest.param([1], id="not-an-operation"),
    ],
)
def test_invalid_patches_are_refused(patch):
    with pytest.raises(PatchError, match="not a JSON patch"):
        parse_operations(patch)


def test_too_many_operations_are_refused():
    operations = [Operation("test", "/a/b", value=1)] * (MAX_OPERATIONS + 1)

    with pytest.raises(PatchError, match="maximum operations in a JSON patch is 10000, got 10001"):
        apply_json_patch(OBJECT, operations)


def test_copies_cannot_grow_an_object_without_bound():
    doubling = [op("copy", "/x/-", from_="/x") for _ in range(30)]

    with pytest.raises(PatchError, match="accumulated size increase of copy"):
        patched({"x": ["0123456789"]}, *doubling)


def test_a_copy_and_its_original_are_changed_apart():
    result = patched(
        {"a": {"b": {}}},
        op("add", "/a/b/x", 1),
        op("copy", "/c", from_="/a"),
        op("add", "/c/b/x", 2),
        op("add", "/a/b/y", 3),
    )

    assert result == {"a": {"b": {"x": 1, "y": 3}}, "c": {"b": {"x": 2}}}


def test_values_of_a_patch_are_not_written_to():
    value = {"b": {}}

    result = patched({}, op("add", "/a", value), op("add", "/a/b/c", 1))

    assert result == {"a": {"b": {"c": 1}}}
    assert value == {"b": {}}


@st.composite
def strict_operations(draw, obj):
    """An operation that means the same to the API server and to RFC 6902."""
    paths = [path for path in paths_of(obj) if path]
    path = draw(st.sampled_from(paths)) if paths else ("a",)
    if not paths:
        return op("add", pointer(path), draw(VALUES))
    verb = draw(st.sampled_from(["add", "remove", "replace", "test", "move", "copy"]))
    if verb in {"move", "copy"}:
        # Into itself: the RFC refuses that, the API server looks again once the source is gone.
        target = draw(st.sampled_from([p for p in paths if p[: len(path)] != path] or [("a",)]))
        return op(verb, pointer(target), from_=pointer(path))
    return op(verb, pointer(path), draw(VALUES))


def outcome(apply, obj, patch):
    try:
        return apply(obj, patch)
    except (PatchError, jsonpatch.JsonPatchException, jsonpatch.JsonPointerException):
        return "refused"


@given(OBJECTS, st.data())
def test_the_result_is_that_of_the_jsonpatch_library(obj, data):
    untouched = copy.deepcopy(obj)
    now = obj

    for _ in range(data.draw(st.integers(1, 4))):
        operation = data.draw(strict_operations(now))
        expected = outcome(jsonpatch.apply_patch, now, [operation])
        result = outcome(lambda o, p: patched(o, *p), now, [operation])
        if operation["op"] == "test":
            # The library follows Python, where 1 == True.
            assert result in (expected, "refused")
        else:
            assert result == expected
        now = now if result == "refused" else result

    assert repr(obj) == repr(untouched)


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        pytest.param({"a": 1}, {"a": 1}, [], id="nothing"),
        pytest.param({"a": 1}, {"a": True}, [REPLACED_BY_TRUE], id="true-is-not-1"),
        pytest.param({"a": 1}, {"b": 1}, [op("remove", "/a"), op("add", "/b", 1)], id="renamed"),
        pytest.param({"a": [1, 2, 3]}, {"a": [1, 3]}, [op("remove", "/a/1")], id="item-removed"),
        pytest.param(
            {"a": [1, 3]}, {"a": [0, 1, 3]}, [op("add", "/a/0", 0)], id="item-put-in-front"
        ),
        pytest.param({"a": [1]}, {"a": [1, 2]}, [op("add", "/a/1", 2)], id="item-appended"),
        pytest.param(
            {"a": [{"b": 1, "c": 1}, 2]},
            {"a": [{"b": 2, "c": 1}, 2]},
            [op("replace", "/a/0/b", 2)],
            id="inside-an-item",
        ),
        pytest.param({"a": {}}, {"a": []}, [op("replace", "/a", [])], id="another-type"),
        pytest.param({"a": None}, {}, [op("remove", "/a")], id="null-is-not-missing"),
        pytest.param({}, [], [op("replace", "", [])], id="the-whole"),
    ],
)
def test_differences_are_minimal(old, new, expected):
    assert msgspec.to_builtins(difference(old, new)) == expected


@given(VALUES.filter(lambda v: isinstance(v, dict | list)), VALUES)
def test_the_difference_leads_from_one_to_the_other(old, new):
    new = new if isinstance(new, dict | list) else {"a": new}

    assert repr(sort(apply_json_patch(old, difference(old, new)))) == repr(sort(new))
    assert difference(old, old) == []


def test_items_of_both_lists_are_kept_at_any_position():
    first, second, third = ({"name": name} for name in "abc")
    old = {"env": [first, second, third]}
    new = {"env": [{"name": "0"}, first, {"name": "B"}, {"name": "x"}, third, {"name": "9"}]}

    assert msgspec.to_builtins(difference(old, new)) == [
        op("add", "/env/0", {"name": "0"}),
        op("replace", "/env/2/name", "B"),
        op("add", "/env/3", {"name": "x"}),
        op("add", "/env/5", {"name": "9"}),
    ]


@pytest.mark.parametrize("levels", [3, 500])
def test_the_difference_of_what_is_nested_deep_is_found_too(levels):
    old, new = [1], [2]
    for _ in range(levels):
        old, new = [old], [new]

    assert apply_json_patch(old, difference(old, new)) == new


@given(st.lists(VALUES), st.data())
def test_the_difference_leads_to_any_choice_of_the_same_items(old, data):
    new = data.draw(st.lists(st.sampled_from(old) | VALUES if old else VALUES))

    assert repr(sort(apply_json_patch(old, difference(old, new)))) == repr(sort(new))


def sort(value):
    if isinstance(value, dict):
        return {name: sort(value[name]) for name in sorted(value)}
    return [sort(item) for item in value] if isinstance(value, list) else value


@pytest.mark.parametrize("depth", [0, 1])
def test_an_object_with_many_other_fields_is_replaced(depth):
    old, new = {"a": "b"}, {f"k{number}": "v" for number in range(MOST_BY_FIELD + 1)}
    for _ in range(depth):
        old, new = {"x": old, "y": [1]}, {"x": new, "y": [2]}

    operations = difference(old, new)

    assert apply_json_patch(old, operations) == new
    assert len(operations) == (2 if depth else MOST_BY_FIELD + 2)
    assert difference(new, new) == []
