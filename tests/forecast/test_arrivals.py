"""What came lately comes again."""

from itertools import islice

from policyd.forecast.arrivals import ArrivalHistory, PastArrival
from tests.alloc.builders import workload
from tests.forecast.builders import TRAITS


def history(*times, **options):
    new = ArrivalHistory(**options)
    for at in times:
        each = workload(f"w{at}", "q", gpu=1)
        new.observe(PastArrival(at=at, workload=each, traits=TRAITS))
    return new


def replay(of, part, *, now, count):
    return [(at, past.at) for at, past in islice(of.replay(part, now=now), count)]


def test_the_past_comes_again_from_its_beginning():
    of = history(10, 20, 70)

    assert replay(of, 0.0, now=100, count=4) == [(110, 10), (120, 20), (170, 70), (210, 10)]


def test_it_may_begin_in_the_middle_and_begins_anew_at_its_end():
    of = history(10, 20, 70)

    found = replay(of, 0.5, now=100, count=5)

    assert found == [(120, 70), (160, 10), (170, 20), (220, 70), (260, 10)]


def test_nothing_comes_where_nothing_came():
    assert replay(history(), 0.5, now=100, count=5) == []


def test_what_came_before_the_window_does_not_come_again():
    of = history(10, 20, 70, window_seconds=60)

    assert replay(of, 0.0, now=100, count=2) == [(130, 70), (190, 70)]


def test_memory_is_bounded():
    of = history(*range(100), most=10)

    assert len(of) == 10
    assert {past for _, past in replay(of, 0.5, now=100, count=50)} == set(range(90, 100))


def test_what_came_in_the_first_minutes_is_not_expected_again():
    history = ArrivalHistory(since=0.0, least_seconds=1_000.0)
    history.observe(PastArrival(at=100.0, workload=workload("w", "q", gpu=1), traits=TRAITS))

    assert not history.expects(900.0)
    assert list(history.replay(0.5, now=900.0)) == []
    assert history.expects(1_000.0)
