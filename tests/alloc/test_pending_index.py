"""Ranks in order: the first is always the lowest, however they come and go."""

from typing import NamedTuple

from hypothesis import given, settings

from policyd.alloc.pending import PendingIndex
from tests.alloc.choices import scenarios


class Member(NamedTuple):
    order_key: tuple[int, float, float, str, str]


def member(number):
    return Member((number, 0.0, 0.0, "", ""))


def arrivals(choose):
    """Crowds that come one after the other, most of them small; when nobody comes, one goes."""
    found = []
    while choose.left >= 42:
        most = choose.one((0, 0, 0, 1, 1, 1, 2, 40))
        found.append([member(choose.number(0, 50)) for _ in range(most and choose.number(1, most))])
    return found


@settings(deadline=None)
@given(scenarios(arrivals, 400))
def test_the_first_is_the_lowest(crowds):
    index, slow = PendingIndex(), []
    for crowd in crowds:
        if not crowd:
            assert index.first() == min(slow, default=None)
            if slow:
                slow.remove(index.first())
                index.drop_first()
        else:
            slow += crowd
            for each in crowd:
                index.push(each)
    assert drained(index) == sorted(slow)


def drained(index):
    found = []
    while (first := index.first()) is not None:
        found.append(first)
        index.drop_first()
    return found


def test_a_removed_workload_takes_no_room():
    index = PendingIndex()
    for n in range(1_000):
        index.push(member(n))
    for _ in range(900):
        index.first()
        index.drop_first()

    assert len(index._sorted) < 200
    assert index.first() == member(900)
