"""Sizes of values are found by fast walks: here by slow and obvious ones, shared parts included."""

from hypothesis import given
from hypothesis import strategies as st

from policyd.cel.cost import Weight, deep_size, extent, weigh
from policyd.cel.values import NONE, CelMap, Duration, MadeList, MadeMap, Optional, Struct, UInt
from policyd.engine.evaluate.patches import to_json
from policyd.patch.operations import same_json

TEXTS = st.sampled_from(["", "a", "é" * 60, "key", "x" * 99, "y" * 250, "\U0001f600" * 5])
SCALARS = st.one_of(
    TEXTS,
    st.sampled_from([None, True, 1, 2**60, 1.0, 0.5, UInt(3), b"b" * 120, Duration(5), NONE]),
)


@st.composite
def values(draw):
    """Values whose parts are drawn from those made before, each as often as it comes."""
    made = draw(st.lists(SCALARS, min_size=1, max_size=4))
    for _ in range(draw(st.integers(0, 6))):
        parts = draw(st.lists(st.sampled_from(made), max_size=4))
        names = draw(st.lists(TEXTS, min_size=len(parts), max_size=len(parts)))
        fields = dict(zip(names, parts, strict=True))
        made.append(
            draw(
                st.sampled_from(
                    [
                        parts,
                        fields,
                        MadeList(parts),
                        MadeMap(fields),
                        Struct("Object.spec", fields),
                        CelMap({**fields, 1: parts}),
                        Optional(parts),
                    ]
                )
            )
        )
    return made[-1]


def inside(value):
    """The keys and the parts of a value."""
    if isinstance(value, dict):
        return list(dict.keys(value)), list(dict.values(value))
    if isinstance(value, list):
        return [], value
    return [], [value.value] if type(value) is Optional else []


def walked(value):
    """The deep size of a value, part by part: 2 for a container, 1 for all others."""
    if type(value) in (str, bytes):
        return 1 + len(value) // 100
    keys, parts = inside(value)
    if type(value) in (dict, Struct):
        return 2 + sum(len(key) // 100 for key in keys) + sum(map(walked, parts))
    return 1 + isinstance(value, dict | list) + sum(map(walked, (*keys, *parts)))


def tenths(value):
    """The API server's cost of looking at a value, part by part."""
    if type(value) is str:
        return len(value.encode()) // 10
    if type(value) is bytes:
        return len(value) // 10
    keys, parts = inside(value)
    if isinstance(value, dict | list):
        return sum(map(tenths, (*keys, *parts)))
    return 1


def is_plain(value):
    keys, parts = inside(value)
    kinds = (dict, list, str, bool, type(None))
    return type(value) in kinds and all(map(is_plain, (*keys, *parts)))


@given(values())
def test_a_size_is_that_of_a_walk_through_all_parts(value):
    assert deep_size(value) == walked(value)
    assert extent(value) == (walked(value), is_plain(value))


@given(values())
def test_a_weight_is_that_of_a_walk_through_all_parts(value):
    weight = weigh(value)

    assert isinstance(weight, Weight)
    assert weight.cost == tenths(value)
    assert weight.elements >= walked(value) - weight.cost


MANY = st.lists(
    st.dictionaries(TEXTS, TEXTS) | st.dictionaries(TEXTS, SCALARS | st.lists(SCALARS, max_size=2)),
    min_size=1,
    max_size=3,
)


@given(MANY, st.sampled_from([list, MadeList]))
def test_long_lists_of_maps_are_walked_as_short_ones_are(some, made):
    value = {"many": made(some * 300)}

    assert extent(value) == (walked(value), is_plain(value))
    assert weigh(value).cost == tenths(value)


@given(values())
def test_plain_values_are_their_own_json(value):
    if is_plain(value):
        assert same_json(to_json(value), value)
