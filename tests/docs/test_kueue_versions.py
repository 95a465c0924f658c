"""The page of Kueue's versions leaves out no gate and no field of policyd's."""

import pytest

from policyd.api.configuration.gates import DEFAULTS
from policyd.api.crd import KINDS
from policyd.api.kueue.names import GROUP
from tests import generate_docs
from tests.generate_versions import FIRST, LATEST, OWN, facts, ours, since, stages

KUEUES = ("Configuration", *(each.type.__name__ for each in KINDS if each.group == GROUP))


def test_the_page_is_made_from_the_code_as_it_is():
    there = (generate_docs.FOLDER / "kueue-versions.md").read_text()

    assert there == generate_docs.documents()["kueue-versions.md"]


def test_every_gate_has_a_history():
    assert DEFAULTS.keys() <= stages().keys()


def test_the_history_of_each_gate_goes_forward():
    for name, history in stages().items():
        versions = [tuple(map(int, each.version.split("."))) for each in history]
        assert versions == sorted(set(versions)), name
        assert versions[-1] <= tuple(map(int, LATEST.split("."))), name
        assert {each.default for each in history} <= {"on", "off"}, name
        assert {each.stage for each in history} <= {"alpha", "beta", "ga", "deprecated"}, name


@pytest.mark.parametrize("kind", KUEUES)
def test_every_field_has_a_version(kind):
    known = since(kind)

    assert not [path for path in ours(kind) if not accounted(path, known) and path not in OWN]


def accounted(path, known):
    """Tell whether a field is known, or is of a type that is not Kueue's own."""
    above = path.replace("[]", "").split(".")
    leaves = {each.replace("[]", "") for each in known}
    leaves -= {each.rpartition(".")[0] for each in leaves}
    return path in known or any(".".join(above[:n]) in leaves for n in range(1, len(above)))


def test_what_is_listed_as_policyds_own_is_not_kueues():
    assert not OWN & since("Configuration").keys()


def test_the_page_lists_each_field_that_came_later():
    page = generate_docs.documents()["kueue-versions.md"]

    for kind in facts()["fields"]:
        later = [path for path, version in since(kind).items() if version != FIRST]
        section = page.partition(f"### {kind}\n")[2].partition("\n### ")[0]
        assert [path for path in later if f"| `{path}` |" not in section] == []
