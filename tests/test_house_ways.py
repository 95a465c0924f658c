"""An object passes no more files and calls on its way than it has to."""

import asyncio

from tests.house_ways import review_way

MOST_FILES = 54
MOST_CALLS = 1_240
"""What the way of a review came to, and a little more: Python versions differ by a few calls."""


def test_a_review_does_not_travel_further_than_it_did():
    calls = asyncio.run(review_way())

    assert len(calls) <= MOST_FILES, sorted(calls)
    assert calls.total() <= MOST_CALLS, calls.most_common(20)
    assert "policyd/admission/handler.py" in calls
