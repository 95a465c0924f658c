"""Amounts as they are written."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policyd.alloc.amount import UNLIMITED
from policyd.api.quantity import parse_quantity
from policyd.status.quantities import format_amount, in_units, rounded_text


@pytest.mark.parametrize(
    ("resource", "amount", "expected"),
    [
        pytest.param("cpu", 0, "0", id="nothing"),
        pytest.param("cpu", 500, "500m", id="half-a-core"),
        pytest.param("cpu", 1_500, "1500m", id="core-and-a-half"),
        pytest.param("cpu", 20_000, "20", id="cores"),
        pytest.param("cpu", 1_000_000, "1k", id="a-thousand-cores"),
        pytest.param("memory", 5 << 20, "5Mi", id="mebibytes"),
        pytest.param("memory", 1_000, "1k", id="less-than-a-kibibyte"),
        pytest.param("memory", 5_000, "5k", id="no-multiple-of-a-kibibyte"),
        pytest.param("gpu.memory", 9_984 << 20, "9984Mi", id="counted-in-mebibytes"),
        pytest.param("nvidia.com/gpu", 2_048, "2048", id="many-devices"),
        pytest.param("hugepages-2Mi", 4 << 20, "4Mi", id="huge-pages"),
        pytest.param("nvidia.com/gpu", 8, "8", id="devices"),
        pytest.param("pods", 10_000, "10k", id="many-pods"),
        pytest.param("cpu", -2_000, "-2", id="negative"),
    ],
)
def test_amounts_are_written_as_quantities(resource, amount, expected):
    assert format_amount(resource, amount) == expected


@given(st.sampled_from(["cpu", "memory", "nvidia.com/gpu"]), st.integers(1 - 2**63, 2**63 - 1))
def test_written_data_reads_back_as_equal(resource, amount):
    quantity = parse_quantity(format_amount(resource, amount))

    assert (quantity.milli() if resource == "cpu" else quantity.value()) == amount


@pytest.mark.parametrize(
    ("resource", "value", "expected"),
    [
        pytest.param("cpu", 1_500, 1.5, id="cores"),
        pytest.param("memory", 5, 5.0, id="bytes"),
        pytest.param("cpu", UNLIMITED, math.inf, id="no-limit"),
    ],
)
def test_amounts_are_counted_as_people_do(resource, value, expected):
    assert in_units(resource, value) == expected


@pytest.mark.parametrize(
    ("resource", "units", "expected"),
    [
        pytest.param("memory", 7.017e9, "6692Mi", id="bytes"),
        pytest.param("memory", 3 * 1024**3 + 0.4, "3Gi", id="of-one-unit"),
        pytest.param("memory", 4_000.0, "4000", id="less-than-one-unit"),
        pytest.param("cpu", 3.26749, "3.267", id="cores"),
        pytest.param("nvidia.com/gpu", 1.6341, "1.634", id="devices"),
    ],
)
def test_amounts_of_past_usage_are_rounded(resource, units, expected):
    assert rounded_text(resource, units) == expected
