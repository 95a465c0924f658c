"""Ranks in order: the first is always the lowest, however they come and go."""

from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from policyd.alloc.line import Line


class Member(NamedTuple):
    rank: tuple[int, float, str, str]


def member(number):
    return Member((number, 0.0, "", ""))


members = st.builds(member, st.integers(0, 50))
steps = st.lists(st.one_of(members, st.lists(members, max_size=40), st.none()), max_size=200)


@given(steps)
def test_the_first_is_the_lowest(plan):
    line, slow = Line(), []
    for step in plan:
        if step is None:
            assert line.first() == min(slow, default=None)
            if slow:
                slow.remove(line.first())
                line.drop_first()
        else:
            crowd = step if isinstance(step, list) else [step]
            slow += crowd
            for each in crowd:
                line.push(each)
        assert len(line) == len(slow)
    assert sorted(line) == sorted(slow)


def test_who_left_takes_no_room():
    line = Line()
    for n in range(1_000):
        line.push(member(n))
    for _ in range(900):
        line.first()
        line.drop_first()

    assert len(line._sorted) < 200
    assert line.first() == member(900)


def test_only_what_is_kept_is_left():
    line = Line()
    line.push(member(1))
    line.first()
    line.push(member(2))

    line.keep([member(3)])

    assert list(line) == [member(3)]
