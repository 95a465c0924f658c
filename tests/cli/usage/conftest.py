"""A Prometheus with recorded series, on loopback."""

import pytest

from tests.usage.loopback import FakePrometheus, serving


@pytest.fixture(scope="module")
def address():
    with serving(FakePrometheus()) as address:
        yield address
