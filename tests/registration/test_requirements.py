"""Selectors taken together, and cut apart."""

from hypothesis import given
from hypothesis import strategies as st

from policyd.api.selectors import Requirement
from policyd.registration.requirements import MOST_SELECTORS, apart, common

KEYS = ("tier", "team")
values = st.lists(st.sampled_from("xyz"), min_size=1, max_size=2, unique=True).map(
    lambda given: tuple(sorted(given))
)
requirements = st.builds(
    Requirement, key=st.sampled_from(KEYS), operator=st.sampled_from(["In", "NotIn"]), values=values
) | st.builds(
    Requirement, key=st.sampled_from(KEYS), operator=st.sampled_from(["Exists", "DoesNotExist"])
)
selectors = st.lists(st.frozensets(requirements, max_size=2), min_size=1, max_size=4)
labels = st.dictionaries(st.sampled_from(KEYS), st.sampled_from("xyzw"))


def selects(selector, labels):
    return all(requirement.matches(labels) for requirement in selector)


@given(selectors, labels)
def test_selected_namespaces_are_in_one_piece_only(given, found):
    pieces = apart(given)

    all_pieces = {piece for each in pieces.values() for piece in each}
    hit = {piece for piece in all_pieces if selects(piece, found)}
    for selector in given:
        assert selects(selector, found) is any(piece in hit for piece in pieces[selector])
    assert len(hit) <= 1


@given(selectors, labels)
def test_the_union_of_separate_selections_is_the_whole(given, found):
    together = common(given)

    assert selects(together, found) or not any(selects(each, found) for each in given)


def test_too_many_are_not_cut():
    many = [
        frozenset({Requirement(key="team", operator="In", values=(f"t{number:02}",))})
        for number in range(MOST_SELECTORS + 1)
    ]

    assert apart(many) is None
    assert apart(many[1:]) is not None
