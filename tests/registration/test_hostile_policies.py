"""Policies of one namespace do not keep others from being registered, whatever they name."""

import pytest

from tests.attacks.registering import bombs, faults_of, refused


@pytest.mark.parametrize(
    ("name", "objects"), [pytest.param(n, o, id=n) for n, o in (*bombs(), *refused())]
)
def test_what_a_namespace_asks_for_is_registered(name, objects):
    assert [*faults_of(objects, name)] == []
