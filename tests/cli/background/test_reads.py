"""What a pass reads of policies and objects, whatever their authors wrote."""

import pytest

from policyd.cli.background.reads import created_at, moment


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1970-01-01T01:00:00+01:00", 0.0),
        ("2026-11-26T16:00:00Z", 1795708800.0),
        pytest.param("0001-01-01T00:00:00+23:59", 0.0, id="before-the-first-year"),
        pytest.param("9999-12-31T23:59:59-23:59", 0.0, id="after-the-last-year"),
        ("never", 0.0),
        (None, 0.0),
        ({"a": 1}, 0.0),
    ],
)
def test_a_moment_is_read_or_none(text, seconds):
    assert moment(text) == seconds
    assert created_at({"metadata": {"creationTimestamp": text}}) == seconds
