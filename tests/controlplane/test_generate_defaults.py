"""The defaults of built-in kinds are those of the real API server."""

import pytest

from tests.controlplane.generate_defaults import TARGET, auditor, generate


@pytest.mark.e2e
def test_the_defaults_are_up_to_date():
    with auditor() as asked:
        assert TARGET.read_text() == generate(asked), "run `make generate`"
