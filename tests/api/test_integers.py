"""Whole numbers that people write."""

import pytest

from policyd.api.integers import whole_number


@pytest.mark.parametrize(
    ("text", "number"),
    [
        pytest.param("7", 7, id="digits"),
        pytest.param("-07", -7, id="signed"),
        pytest.param("+7", 7, id="with-a-plus"),
        pytest.param("--7", None, id="two-signs"),
        pytest.param("7.0", None, id="fraction"),
        pytest.param("", None, id="nothing"),
        pytest.param(" 7", None, id="space"),
        pytest.param("\u0667", None, id="digit-of-another-script"),
        pytest.param(str(2**31 - 1), 2**31 - 1, id="largest"),
        pytest.param(str(2**31), None, id="too-large"),
        pytest.param("9" * 5000, None, id="beyond-reading"),
    ],
)
def test_whole_numbers_of_32_bits(text, number):
    assert whole_number(text, bits=32) == number
