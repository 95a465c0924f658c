"""Misspelt fields of merge patches are found, and all fields of a ClusterQueue are known."""

import pytest

from policyd.api import kueue
from policyd.cli.planning.virtual_clusters import unknown_fields


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
