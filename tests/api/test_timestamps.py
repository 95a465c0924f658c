"""Moments as the API writes them."""

import pytest

from policyd.api.meta import rfc3339


@pytest.mark.parametrize(
    ("seconds", "written"),
    [
        pytest.param(0, "1970-01-01T00:00:00Z", id="epoch"),
        pytest.param(1_764_150_000.9, "2025-11-26T09:40:00Z", id="fractions-are-cut"),
        pytest.param(-1.5, "1969-12-31T23:59:59Z", id="before"),
        pytest.param(253_402_300_799, "9999-12-31T23:59:59Z", id="last"),
    ],
)
def test_a_moment_has_whole_seconds_of_utc(seconds, written):
    assert rfc3339(seconds) == written
