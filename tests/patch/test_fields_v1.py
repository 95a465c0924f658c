"""Sets of fields, and how they are written."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policyd.patch.fields_v1 import (
    EMPTY,
    FieldsError,
    decode_fields,
    encode_fields,
    field_element,
    field_set,
    key_element,
    path_text,
    value_element,
)

ELEMENTS = (
    st.sampled_from("abc").map(field_element)
    | st.sampled_from([1, "x", True]).map(value_element)
    | st.fixed_dictionaries({"name": st.sampled_from("xy"), "port": st.integers(1, 2)}).map(
        key_element
    )
)
PATHS = st.lists(ELEMENTS, min_size=1, max_size=3).map(tuple)
SETS = st.lists(PATHS, max_size=6).map(field_set)


@pytest.mark.parametrize(
    ("paths", "written"),
    [
        pytest.param([("f:a",)], {"f:a": {}}, id="a-member"),
        pytest.param([("f:a", "f:b")], {"f:a": {"f:b": {}}}, id="a-child-alone"),
        pytest.param(
            [("f:a",), ("f:a", "f:b")], {"f:a": {".": {}, "f:b": {}}}, id="a-member-with-a-child"
        ),
        pytest.param(
            [("f:ports", key_element({"protocol": "TCP", "port": 80}), "f:port")],
            {"f:ports": {'k:{"port":80,"protocol":"TCP"}': {"f:port": {}}}},
            id="a-key-is-sorted",
        ),
        pytest.param([("f:tags", value_element("<a>"))], None, id="html-is-escaped"),
        pytest.param([()], {}, id="the-whole-is-nobody's"),
    ],
)
def test_sets_are_written_as_the_api_server_does(paths, written):
    expected = {"f:tags": {r'v:"\u003ca\u003e"': {}}} if written is None else written

    assert encode_fields(field_set(paths)) == expected


def test_elements_are_sorted_by_kind_and_value():
    elements = [
        value_element("b"),
        value_element(10),
        value_element(9),
        key_element({"port": 443}),
        key_element({"port": 80}),
        field_element("z"),
        field_element("a"),
    ]

    written = list(encode_fields(field_set((element,) for element in elements)))

    assert written == ["f:a", "f:z", 'k:{"port":80}', 'k:{"port":443}', "v:9", "v:10", 'v:"b"']


def test_another_spelling_is_the_same_element():
    spaced = decode_fields({'k:{ "b": 1.0, "a": "x" }': {}})

    assert spaced == field_set([(key_element({"a": "x", "b": 1}),)])


@pytest.mark.parametrize(
    "written",
    [
        pytest.param([], id="a-list"),
        pytest.param({"a": {}}, id="no-kind"),
        pytest.param({"x:a": {}}, id="unknown-kind"),
        pytest.param({"k:{": {}}, id="a-key-that-is-no-json"),
        pytest.param({"k:1": {}}, id="a-key-that-is-no-object"),
        pytest.param({"f:a": 1}, id="a-number-below"),
    ],
)
def test_invalid_sets_are_refused(written):
    with pytest.raises(FieldsError):
        decode_fields(written)


def test_a_path_is_named_as_in_conflicts():
    path = ("f:spec", "f:ports", key_element({"port": 80, "name": "a"}), "f:tags", 'v:"x"', "i:1")

    assert path_text(path) == '.spec.ports[name="a",port=80].tags[="x"][1]'


@given(SETS)
def test_written_data_is_read_back(fields):
    assert decode_fields(encode_fields(fields)) == fields


@given(SETS, SETS, SETS)
def test_the_algebra_is_that_of_sets_of_paths(one, other, third):
    paths, others = set(one), set(other)

    assert set(one | other) == paths | others
    assert set(one & other) == paths & others
    assert set(one - other) == paths - others
    assert one | (other | third) == (one | other) | third
    assert one - (other | third) == (one - other) - third
    assert all(path in one for path in paths)
    assert bool(one) is bool(paths)


@given(SETS, SETS)
def test_leaving_out_takes_what_is_below_too(one, other):
    def stays(path):
        return not any(path[: length + 1] in other for length in range(len(path)))

    assert set(one.without(other)) == {path for path in one if stays(path)}
    assert one.without(EMPTY) == one
