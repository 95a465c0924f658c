"""Sets of atoms that share no request, and how much work it is to find them."""

from hypothesis import given
from hypothesis import strategies as st

from policyd.registration.atoms import RuleAtom, connected, uncovered

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
