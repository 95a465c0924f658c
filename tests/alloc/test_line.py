"""Ranks in order: the first is always the lowest, however they come and go."""

from typing import NamedTuple

from hypothesis import given, settings

from policyd.alloc.pending import PendingIndex
from tests.alloc.choices import scenarios


class Member(NamedTuple):
    rank: tuple[int, float, str, str]


def member(number):
    return Member((number, 0.0, "", ""))


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
    line, slow = PendingIndex(), []
    for crowd in crowds:
        if not crowd:
            assert line.first() == min(slow, default=None)
            if slow:
                slow.remove(line.first())
                line.drop_first()
        else:
            slow += crowd
            for each in crowd:
                line.push(each)
    assert drained(line) == sorted(slow)


def drained(line):
    found = []
    while (first := line.first()) is not None:
        found.append(first)
        line.drop_first()
    return found


def test_who_left_takes_no_room():
    line = PendingIndex()
    for n in range(1_000):
        line.push(member(n))
    for _ in range(900):
        line.first()
        line.drop_first()

    assert len(line._sorted) < 200
    assert line.first() == member(900)
