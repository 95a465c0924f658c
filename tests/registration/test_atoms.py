"""Sets of atoms that share no request, and how much work it is to find them."""

from hypothesis import given
from hypothesis import strategies as st

from policyd.api.admission import Rule
from policyd.registration.atoms import (
    RuleAtom,
    atoms_of,
    coarser,
    combinations,
    connected,
    uncovered,
)

ATOMS = st.builds(
    RuleAtom,
    st.sampled_from(["", "a", "*"]),
    st.sampled_from(["v1", "v2", "*"]),
    st.sampled_from(["*", "Namespaced", "Cluster"]),
    st.sampled_from(["p", "q", "p/s", "q/t", "p/*", "*/s", "*", "*/*"]),
    st.sampled_from(["CREATE", "UPDATE"]),
)


@given(st.frozensets(ATOMS, max_size=8))
def test_atoms_are_in_one_set_if_a_chain_of_shared_requests_leads_from_one_to_the_other(atoms):
    sets = connected(atoms)
    reached = {atom: {atom} for atom in atoms}
    for _ in atoms:
        for atom in atoms:
            reached[atom] |= {o for each in reached[atom] for o in atoms if each.overlaps(o)}

    assert {frozenset(each) for each in reached.values()} == set(sets)
    assert sum(map(len, sets)) == len(atoms)


@given(st.frozensets(ATOMS, max_size=6), st.frozensets(ATOMS, max_size=6))
def test_atoms_are_uncovered_if_no_other_covers_them(atoms, others):
    assert uncovered(atoms, others) == {
        atom for atom in atoms if not any(other.covers(atom) for other in others)
    }


def test_atoms_of_other_names_are_not_compared(monkeypatch):
    compared = []
    overlaps = RuleAtom.overlaps
    monkeypatch.setattr(
        RuleAtom, "overlaps", lambda self, other: compared.append(other) or overlaps(self, other)
    )
    atoms = [RuleAtom("g", "v1", "*", f"r{number}", "CREATE") for number in range(200)]

    assert len(connected(atoms)) == 200
    assert not compared


def rule(groups, resources, versions=("v1",)):
    return Rule(
        api_groups=groups, api_versions=versions, operations=("CREATE",), resources=resources
    )


NAMES = tuple(f"r{number}" for number in range(40))


def test_only_the_rules_with_the_most_combinations_are_widened():
    small = [rule(("a",), NAMES[:5]), rule(("b",), NAMES[:9])]

    kept = coarser([*small, rule(("c", "d"), NAMES)], 60)

    assert kept == (*small, rule(("c", "d"), ("*",), ("*",)))


def test_rules_that_fit_stay_as_they_are():
    rules = (rule(("a", "b"), NAMES), rule(("c",), NAMES))

    assert coarser(rules, combinations(rules)) == rules


def test_many_rules_become_few():
    rules = [rule((f"g{number}",), (NAMES[number % 40],)) for number in range(500)]

    assert combinations(coarser(rules, 256)) <= 256


@given(
    st.lists(
        st.builds(
            rule,
            st.lists(st.sampled_from("abc"), min_size=1).map(tuple),
            st.lists(st.sampled_from(NAMES), min_size=1).map(tuple),
            st.lists(st.sampled_from(["v1", "v2"]), min_size=1).map(tuple),
        )
    ),
    st.integers(0, 100),
)
def test_wider_rules_have_all_combinations_of_those_that_were_given(rules, most):
    atoms = [atom for each in rules for atom in atoms_of(each)]

    wider = [atom for each in coarser(rules, most) for atom in atoms_of(each)]

    assert not uncovered(atoms, wider)
