"""What objects take is bounded for each namespace, whoever writes them."""

import pytest

from policyd.kube.namespace_limits import NamespaceLimits


def test_policies_beyond_the_room_are_left_out_and_named():
    limits = NamespaceLimits(2, 1000)

    assert [limits.put("a", name, 2) for name in ("x", "y", "z")] == [True, True, False]
    assert (limits.left_out("a"), limits.left_out("a", "z")) == ("z", "z")
    assert limits.left_out("a", "x") is None


def test_another_namespace_has_as_much():
    limits = NamespaceLimits(1, 1000)
    limits.put("a", "x", 2)
    limits.put("a", "y", 2)

    assert limits.put("b", "x", 2)
    assert limits.left_out("b") is None


def test_bytes_are_bounded_as_well():
    limits = NamespaceLimits(100, 20)

    assert [limits.put("a", number, 10) for number in range(3)] == [True, True, False]
    assert limits.put("a", 0, 10)
    assert not limits.put("a", 0, 11)
    assert limits.put("a", 2, 8)


def test_room_comes_back():
    limits = NamespaceLimits(1, 1000)
    limits.put("a", "x", 2)
    limits.put("a", "y", 2)
    limits.drop("a", "x")
    assert limits.left_out("a") == "y"

    assert limits.put("a", "y", 2)
    assert limits.left_out("a") is None


@pytest.mark.parametrize("most", [0, 1])
def test_of_what_is_gone_nothing_is_kept(most):
    limits = NamespaceLimits(most, 1000)
    for namespace in "abc":
        limits.put(namespace, "x", 2)
        limits.drop(namespace, "x")

    assert (limits._kept, limits._bytes, limits._left_out) == ({}, {}, {})
