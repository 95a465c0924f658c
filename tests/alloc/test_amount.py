"""Amounts: how they are limited and added."""

import pytest

from policyd.alloc.amount import (
    MOST_PODS,
    UNLIMITED,
    add,
    pods_within,
    quota_amount,
    request_amount,
    subtract,
)

E = 10**18


@pytest.mark.parametrize(
    ("resource", "value", "expected"),
    [
        pytest.param("cpu", 500, 500, id="part-of-a-core"),
        pytest.param("cpu", 1_000 * 10**15, 1_000 * 10**15, id="a-quadrillion-cores"),
        pytest.param("cpu", 1_000 * 10**16, UNLIMITED, id="ten-quadrillion-cores"),
        pytest.param("cpu", UNLIMITED - UNLIMITED % 1_000, UNLIMITED, id="cores-fill-an-int64"),
        pytest.param("memory", E, E, id="an-exabyte"),
        pytest.param("memory", 10 * E, UNLIMITED, id="ten-exabytes"),
        pytest.param("example.com/gpu", 8, 8, id="devices"),
    ],
)
def test_quota_beyond_measure_is_unlimited(resource, value, expected):
    assert quota_amount(resource, value) == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        pytest.param(7, 7, id="small"),
        pytest.param(2**70, UNLIMITED, id="too-large"),
        pytest.param(-(2**70), -(2**63), id="too-small"),
    ],
)
def test_requests_stay_within_an_int64(value, expected):
    assert request_amount(value) == expected


@pytest.mark.parametrize(
    ("left", "right", "sum_", "difference"),
    [
        pytest.param(5, 3, 8, 2, id="bounded"),
        pytest.param(3, 5, 8, -2, id="below-zero"),
        pytest.param(UNLIMITED, 5, UNLIMITED, UNLIMITED, id="unlimited-stays"),
        pytest.param(UNLIMITED, UNLIMITED, UNLIMITED, 0, id="both-unlimited"),
        pytest.param(UNLIMITED - 1, 5, UNLIMITED, UNLIMITED - 6, id="sum-saturates"),
        pytest.param(-(2**63), 5, 5 - 2**63, -(2**63), id="difference-saturates"),
    ],
)
def test_sums_and_differences_saturate(left, right, sum_, difference):
    assert (add(left, right), subtract(left, right)) == (sum_, difference)


@pytest.mark.parametrize(
    ("requests", "capacity", "expected"),
    [
        pytest.param({"cpu": 5, "gpu": 1}, {"cpu": 12, "gpu": 8}, (2, "cpu"), id="scarcest"),
        pytest.param({"cpu": 1, "gpu": 1}, {"cpu": 0, "gpu": 0}, (0, "cpu"), id="first-by-name"),
        pytest.param({"gpu": 1}, {}, (0, "gpu"), id="there-is-none"),
        pytest.param({"gpu": 1}, {"gpu": -3}, (0, "gpu"), id="less-than-none"),
        pytest.param({"gpu": 0}, {}, (MOST_PODS, ""), id="asks-nothing"),
        pytest.param({"gpu": 1}, {"gpu": 2**40}, (MOST_PODS, "gpu"), id="more-than-any"),
    ],
)
def test_as_many_pods_go_into_a_capacity_as_the_scarcest_resource_allows(
    requests, capacity, expected
):
    assert pods_within(requests, capacity) == expected
