"""JSON merge patches."""

import copy

import pytest
from hypothesis import given

from policyd.patch.merge_patch import apply_merge_patch
from tests.patch.strategies import OBJECTS, VALUES


@pytest.mark.parametrize(
    ("obj", "patch", "expected"),
    [
        pytest.param({"a": "b"}, {"a": "c"}, {"a": "c"}, id="replaces"),
        pytest.param({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}, id="adds"),
        pytest.param({"a": "b"}, {"a": None}, {}, id="null-removes"),
        pytest.param({"a": ["b"]}, {"a": "c"}, {"a": "c"}, id="a-list-is-a-value"),
        pytest.param({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}, id="becomes-a-list"),
        pytest.param({"a": {"b": 1}}, {"a": {"c": 2}}, {"a": {"b": 1, "c": 2}}, id="goes-deep"),
        pytest.param({"a": [1]}, {"a": {"b": None}}, {"a": {}}, id="a-list-becomes-an-object"),
        pytest.param({}, {"a": {"b": {"c": None}}}, {"a": {"b": {}}}, id="null-of-nothing"),
        pytest.param({}, {"a": [{"b": None}]}, {"a": [{}]}, id="nulls-in-lists-go"),
        pytest.param({"e": None}, {"a": 1}, {"e": None, "a": 1}, id="null-of-the-object-stays"),
        pytest.param([1, 2], {"a": "b"}, {"a": "b"}, id="the-whole-becomes-an-object"),
        pytest.param({"a": 1}, ["c"], ["c"], id="the-whole-is-replaced"),
    ],
)
def test_the_cases_of_the_rfc_and_of_the_api_server(obj, patch, expected):
    given = copy.deepcopy((obj, patch))

    assert apply_merge_patch(obj, patch) == expected
    assert (obj, patch) == given


@given(OBJECTS)
def test_an_empty_patch_gives_the_object_itself(obj):
    assert apply_merge_patch(obj, {}) is obj


@given(OBJECTS, OBJECTS)
def test_applying_twice_is_applying_once(obj, patch):
    once = apply_merge_patch(obj, patch)

    assert apply_merge_patch(once, patch) == once


@given(VALUES, VALUES)
def test_neither_the_object_nor_the_patch_is_touched(obj, patch):
    given = copy.deepcopy((obj, patch))

    apply_merge_patch(obj, patch)

    assert repr((obj, patch)) == repr(given)
