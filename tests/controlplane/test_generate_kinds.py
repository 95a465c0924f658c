"""The table of built-in kinds is what the real API server says."""

import pytest

from policyd.api import kinds
from tests.controlplane.generate_kinds import TARGET, generate


@pytest.mark.e2e
def test_the_table_is_up_to_date(control_plane):
    assert TARGET.read_text() == generate(control_plane), "run `make generate`"


@pytest.mark.e2e
def test_every_listed_resource_can_be_read_as_the_table_says(control_plane):
    for resource in kinds.resources():
        root = "/apis" if resource.group else "/api"
        if "list" in resource.verbs:
            served = control_plane.get(f"{root}/{resource.api_version}/{resource.plural}")
            assert served["kind"] == f"{resource.kind}List"
