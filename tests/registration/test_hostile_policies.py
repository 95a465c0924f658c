"""Policies of one namespace do not keep others from being registered, whatever they name."""

import pytest

from tests.attacks.registering import bombs, faults_of, refused


@pytest.mark.parametrize(
    ("name", "objects"), [pytest.param(n, o, id=n) for n, o in (*bombs(), *refused())]
)
def test_the_needs_of_a_namespace_are_registered(name, objects):
    assert [*faults_of(objects, name)] == []
