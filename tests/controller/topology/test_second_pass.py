"""Workloads with quota that must still be placed are tried again, less and less often."""

import pytest

from policyd.controller.watch.workload_values import SecondPass


@pytest.mark.parametrize(
    ("attempts", "wait"),
    [
        pytest.param(0, 1, id="at-first"),
        pytest.param(3, 8, id="doubling"),
        pytest.param(9, 30, id="at-most"),
    ],
)
def test_each_failure_doubles_the_wait(attempts, wait):
    waiting = SecondPass()

    waiting.put("a", attempts=attempts, now=10)

    assert waiting.take_ready(10 + wait - 0.1) == []
    assert waiting.take_ready(10 + wait) == ["a"]


def test_removed_keys_no_longer_wait():
    waiting = SecondPass()
    for key in "ab":
        waiting.put(key, attempts=0, now=0)

    waiting.remove("a")

    assert (waiting.take_ready(5), waiting.take_ready(5)) == (["b"], [])


def test_pending_workloads_keep_their_time():
    waiting = SecondPass()
    waiting.put("a", attempts=0, now=0)

    waiting.put("a", attempts=5, now=0.5)

    assert waiting.take_ready(1) == ["a"]


def test_every_attempt_counts_until_it_is_placed():
    waiting = SecondPass()
    waiting.put("a", now=0)

    assert waiting.next_at == 1
    assert waiting.take_ready(1) == ["a"]
    waiting.put("a", now=1)
    assert waiting.next_at == 3
    waiting.remove("a")
    assert waiting.next_at is None
    waiting.put("a", now=3)
    assert waiting.next_at == 4
