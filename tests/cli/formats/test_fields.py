"""Misspelt fields are found, and all fields of the kinds that queues have are known."""

import pytest

from policyd.api import kueue
from policyd.api.crd import KINDS
from policyd.api.kueue.names import API_VERSION
from policyd.cli.formats.changes import _POLICIES
from policyd.cli.formats.fields import mistyped_fields, unknown_fields
from policyd.dialects.kyverno.load import KINDS as KYVERNO
from policyd.engine.model.compiled import NATIVE, OWN
from tests.full_schemas import WHY_NOT, kueue_schemas


@pytest.mark.parametrize(
    "patch",
    [
        pytest.param({"metadata": {"annotations": {"policyd.io/any": "1"}}}, id="annotations"),
        pytest.param({"metadata": {"labels": None}}, id="removed"),
        pytest.param(
            {"spec": {"preemption": {"borrowWithinCohort": {"policy": "Never"}}}}, id="preemption"
        ),
        pytest.param({"spec": {"fairSharing": {"weight": "2"}}}, id="fair-sharing"),
        pytest.param({"spec": {"flavorFungibility": {"whenCanBorrow": "Borrow"}}}, id="fungible"),
        pytest.param({"spec": {"namespaceSelector": {"matchLabels": {"a": "b"}}}}, id="selector"),
        pytest.param(
            {"spec": {"resourceGroups": [{"flavors": [{"resources": [{"lendingLimit": 3}]}]}]}},
            id="quotas",
        ),
    ],
)
def test_fields_of_the_kind_are_known(patch):
    assert not list(unknown_fields(patch, kueue.ClusterQueue))


@pytest.mark.parametrize(
    ("patch", "path", "hint"),
    [
        pytest.param({"spek": {}}, ("spek",), "did you mean `spec`?", id="at-the-top"),
        pytest.param(
            {"spec": {"preemption": {"borrowWithinCohort": {"polcy": "Never"}}}},
            ("spec", "preemption", "borrowWithinCohort", "polcy"),
            "did you mean `policy`?",
            id="below-an-optional-field",
        ),
        pytest.param(
            {"spec": {"resourceGroups": [{}, {"flavours": []}]}},
            ("spec", "resourceGroups", 1, "flavours"),
            "did you mean `flavors`?",
            id="in-a-list",
        ),
    ],
)
def test_others_are_found_where_they_are(patch, path, hint):
    assert list(unknown_fields(patch, kueue.ClusterQueue)) == [(path, hint)]


def filled(schema):
    """Return an object with all fields of a schema."""
    if "properties" in schema:
        return {name: filled(below) for name, below in schema["properties"].items()}
    return [filled(schema["items"])] if isinstance(schema.get("items"), dict) else None


@pytest.mark.skipif(not kueue_schemas(), reason=WHY_NOT)
def test_all_fields_of_kueues_own_definitions_are_known():
    for plural, schema in kueue_schemas().items():
        given = {**filled(schema), "apiVersion": API_VERSION, "kind": _KINDS[plural]}
        assert list(mistyped_fields(given)) == []


_KINDS = {each.plural: each.type.__name__ for each in KINDS}


def test_kinds_of_policies_are_those_that_are_read():
    theirs = {kind for kinds in KYVERNO.values() for kind in kinds}

    assert theirs | {OWN, *NATIVE} <= _POLICIES


@pytest.mark.parametrize(
    "given",
    [
        pytest.param({"apiVersion": "v1", "kind": "Node", "spec": {"a": 1}}, id="another-kind"),
        pytest.param(
            {"apiVersion": "example.com/v1", "kind": "Cohort", "spec": {"a": 1}}, id="another-group"
        ),
        pytest.param(
            {"apiVersion": API_VERSION, "kind": "Cohort", "status": {"a": 1}}, id="status"
        ),
    ],
)
def test_other_objects_may_have_any_fields(given):
    assert list(mistyped_fields(given)) == []
