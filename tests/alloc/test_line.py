"""Ranks in order: the first is always the lowest, however they come and go."""

from hypothesis import given
from hypothesis import strategies as st

from policyd.alloc.line import Line

ranks = st.builds(lambda n: (n, 0.0, "", ""), st.integers(0, 50))
steps = st.lists(st.one_of(ranks, st.lists(ranks, max_size=40), st.none()), max_size=200)


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
            for rank in crowd:
                line.push(rank)
        assert len(line) == len(slow)
    assert sorted(line) == sorted(slow)


def test_who_left_takes_no_room():
    line = Line()
    for n in range(1_000):
        line.push((n, 0.0, "", ""))
    for _ in range(900):
        line.first()
        line.drop_first()

    assert len(line._sorted) < 200
    assert line.first() == (900, 0.0, "", "")


def test_only_what_is_kept_is_left():
    line = Line()
    line.push((1, 0.0, "", ""))
    line.first()
    line.push((2, 0.0, "", ""))

    line.keep([(3, 0.0, "", "")])

    assert list(line) == [(3, 0.0, "", "")]
