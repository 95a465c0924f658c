"""Quantities are read, computed with and written as the API server does."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policyd.api.quantity import Quantity, QuantityError, parse_quantity


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        pytest.param("0", "0", id="zero"),
        pytest.param("0.0Gi", "0", id="zero-loses-its-suffix"),
        pytest.param("1", "1", id="one"),
        pytest.param("+5", "5", id="plus-is-dropped"),
        pytest.param("-5", "-5", id="minus-is-kept"),
        pytest.param("007", "7", id="leading-zeros"),
        pytest.param("1.5", "1500m", id="fractions-become-milli"),
        pytest.param(".5", "500m", id="no-digit-before-the-point"),
        pytest.param("1.", "1", id="no-digit-after-the-point"),
        pytest.param("1000m", "1", id="milli-become-units"),
        pytest.param("1000", "1k", id="thousand"),
        pytest.param("1500", "1500", id="no-fraction-of-a-suffix"),
        pytest.param("10000", "10k", id="ten-thousand"),
        pytest.param("100k", "100k", id="hundred-thousand"),
        pytest.param("1024Ki", "1Mi", id="binary-grows"),
        pytest.param("1.5Gi", "1536Mi", id="binary-without-fraction"),
        pytest.param("1Ki", "1Ki", id="kibi"),
        pytest.param("0.5Ki", "512", id="below-a-kibi-is-decimal"),
        pytest.param("0.1Ki", "102400m", id="fractional-binary-is-decimal"),
        pytest.param("1e3", "1e3", id="exponent-is-kept"),
        pytest.param("12E2", "1200", id="exponents-are-multiples-of-three"),
        pytest.param("1e4", "10e3", id="exponent-rounded-down-to-a-multiple-of-three"),
        pytest.param("1e-1", "100e-3", id="negative-exponent"),
        pytest.param("1E", "1E", id="capital-e-is-exa"),
        pytest.param("1Ei", "1Ei", id="exbi"),
        pytest.param("8Ei", "9223372036854775807", id="binary-is-capped-at-int64"),
        pytest.param("1000E", "1e21", id="above-exa-is-an-exponent"),
        pytest.param("1n", "1n", id="nano"),
        pytest.param("0.9n", "1n", id="finer-than-nano-is-rounded-up"),
        pytest.param("-0.9n", "-1n", id="finer-than-nano-is-rounded-away-from-zero"),
        pytest.param("1e-500", "1e-9", id="tiny-exponent-is-rounded-up"),
        pytest.param("1.2345", "1234500u", id="micro"),
        pytest.param("Mi", "0", id="no-number-is-zero"),
    ],
)
def test_quantity_is_written_in_canonical_form(text, canonical):
    assert str(parse_quantity(text)) == canonical


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        pytest.param("", "must match", id="empty"),
        pytest.param(" 1", "must match", id="leading-space"),
        pytest.param("1 ", "must match", id="trailing-space"),
        pytest.param("1\n", "must match", id="trailing-newline"),
        pytest.param("10Mo", "must match", id="letter-of-no-suffix"),
        pytest.param("1.1.M", "must match", id="two-points"),
        pytest.param("\u0661", "must match", id="digits-of-another-script"),
        pytest.param("1i", "suffix", id="i-alone"),
        pytest.param("0.1mi", "suffix", id="small-mi"),
        pytest.param("1K", "suffix", id="capital-k"),
        pytest.param("1e", "suffix", id="exponent-without-digits"),
        pytest.param("1e-", "suffix", id="exponent-with-sign-only"),
        pytest.param("1e1001", "too large", id="huge-exponent"),
        pytest.param("1" * 1_001, "must match", id="huge-text"),
        pytest.param(True, "string or a number", id="bool"),
        pytest.param(None, "string or a number", id="null"),
        pytest.param(float("nan"), "must match", id="not-a-number"),
    ],
)
def test_invalid_quantities_are_refused(text, wrong):
    with pytest.raises(QuantityError, match=wrong):
        parse_quantity(text)


@pytest.mark.parametrize(
    ("text", "value", "milli"),
    [
        pytest.param("2", 2, 2_000, id="whole"),
        pytest.param("1m", 1, 1, id="milli-rounds-up-to-one"),
        pytest.param("1u", 1, 1, id="micro-rounds-up-to-one-milli"),
        pytest.param("-1u", -1, -1, id="negative-rounds-away-from-zero"),
        pytest.param("1Gi", 2**30, 1_000 * 2**30, id="binary"),
        pytest.param("1001m", 2, 1_001, id="just-above-one"),
    ],
)
def test_integers_are_rounded_away_from_zero(text, value, milli):
    quantity = parse_quantity(text)

    assert (quantity.value(), quantity.milli()) == (value, milli)


@pytest.mark.parametrize(
    ("text", "integer"),
    [
        pytest.param("50k", 50_000, id="thousands"),
        pytest.param("50Gi", 50 * 2**30, id="binary"),
        pytest.param("1000m", None, id="kept-in-thousandths"),
        pytest.param("1.0", None, id="written-with-a-point"),
        pytest.param("99999999999999999999", None, id="too-large"),
        pytest.param("1e30", None, id="power-of-ten-too-large"),
    ],
)
def test_int64_is_what_the_api_server_keeps_in_one(text, integer):
    assert parse_quantity(text).as_int64() == integer


def test_json_numbers_are_quantities():
    assert parse_quantity(1) == parse_quantity("1")
    assert parse_quantity(0.5) == parse_quantity("500m")


def test_a_sum_keeps_the_suffix_of_its_first_part():
    assert str(parse_quantity("1Gi") + parse_quantity("1024M")) == "2048576Ki"
    assert str(parse_quantity("1Gi") + parse_quantity("1Gi")) == "2Gi"
    assert str(parse_quantity("0") + parse_quantity("1Gi")) == "1Gi"
    assert str(parse_quantity("1") - parse_quantity("100m")) == "900m"


def test_quantities_compare_by_value():
    assert parse_quantity("1000m") == parse_quantity("1")
    assert hash(parse_quantity("1000m")) == hash(parse_quantity("1"))
    assert parse_quantity("999m") < parse_quantity("1") < parse_quantity("1Ki")


def test_a_float_too_large_is_infinite():
    assert float(parse_quantity("-1e500")) == float("-inf")
    assert float(parse_quantity("1500m")) == 1.5


@given(
    st.integers(-(10**20), 10**20),
    st.sampled_from(["n", "u", "m", "", "k", "M", "G", "Ki", "Mi", "Gi", "e3", "E-4"]),
)
def test_canonical_form_reads_back_as_the_same_value(number, suffix):
    quantity = parse_quantity(f"{number}{suffix}")

    assert parse_quantity(str(quantity)) == quantity


@given(st.integers(-(10**25), 10**25), st.integers(-(10**25), 10**25))
def test_arithmetic_is_that_of_fractions(a, b):
    total = Quantity(a) + Quantity(b)
    difference = Quantity(a) - Quantity(b)

    assert Fraction(total.nano, 10**9) == Fraction(a, 10**9) + Fraction(b, 10**9)
    assert Fraction(difference.nano, 10**9) == Fraction(a, 10**9) - Fraction(b, 10**9)
