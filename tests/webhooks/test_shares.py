"""What objects take is bounded for each namespace, whoever writes them."""

import pytest

from webhooks.policies.shares import Shares


def test_what_there_is_no_room_for_is_left_out_and_named():
    shares = Shares(2, 1000)

    assert [shares.put("a", name, {}) for name in ("x", "y", "z")] == [True, True, False]
    assert (shares.left_out("a"), shares.left_out("a", "z")) == ("z", "z")
    assert shares.left_out("a", "x") is None


def test_another_namespace_has_as_much():
    shares = Shares(1, 1000)
    shares.put("a", "x", {})
    shares.put("a", "y", {})

    assert shares.put("b", "x", {})
    assert shares.left_out("b") is None


def test_bytes_are_bounded_as_well():
    shares = Shares(100, 20)

    assert [shares.put("a", number, "x" * 8) for number in range(3)] == [True, True, False]
    assert shares.put("a", 0, "x" * 8)
    assert not shares.put("a", 0, "x" * 9)
    assert shares.put("a", 2, "x" * 6)


def test_room_comes_back():
    shares = Shares(1, 1000)
    shares.put("a", "x", {})
    shares.put("a", "y", {})
    shares.drop("a", "x")
    assert shares.left_out("a") == "y"

    assert shares.put("a", "y", {})
    assert shares.left_out("a") is None


@pytest.mark.parametrize("most", [0, 1])
def test_of_what_is_gone_nothing_is_kept(most):
    shares = Shares(most, 1000)
    for namespace in "abc":
        shares.put(namespace, "x", {})
        shares.drop(namespace, "x")

    assert (shares._kept, shares._bytes, shares._left_out) == ({}, {}, {})
