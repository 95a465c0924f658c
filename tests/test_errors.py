"""Hints at the word that was meant."""

import pytest

from policyd.errors import did_you_mean

LIBRARY = ("cap-gpus-per-pod", "cap-gpus-per-workload", "cpu-per-gpu", "is")


@pytest.mark.parametrize(
    ("word", "near"),
    [
        pytest.param("cap-gpu", "cap-gpus-per-pod", id="the-shortest-that-begins-so"),
        pytest.param("cpu-pre-gpu", "cpu-per-gpu", id="two-letters-exchanged"),
        pytest.param("ca", None, id="too-short-for-a-beginning"),
        pytest.param("network", None, id="nothing-near"),
        pytest.param("c" * 300, None, id="too-long"),
    ],
)
def test_the_nearest_word_is_suggested(word, near):
    assert did_you_mean(word, LIBRARY) == (near and f"did you mean `{near}`?")
