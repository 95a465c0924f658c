"""A new workload is told a start only while that holds, and only if what is known tells it."""

import pytest

from policyd.snapshot.new_workloads import OLD_SECONDS, NewWorkloadStarts, stamps_of, start_of
from policyd.snapshot.values import NewWorkloadStart, StartRow
from tests.alloc.builders import put, queue, state, workload
from tests.snapshot.test_dry_run import at_rest

NOW = 1_000.0
GPU = "nvidia.com/gpu"


def start(median, low=None, high=None):
    return StartRow(median, median if low is None else low, median if high is None else high, "x")


def row(gpus, when, *, cpu=0, priority=0, ahead=3):
    return NewWorkloadStart(priority, ahead, {GPU: gpus} | ({"cpu": cpu} if cpu else {}), when)


ROWS = (
    row(1, start(1_100, 1_010, 1_400)),
    row(4, start(5_000, 3_000, 9_000)),
    row(8, start(5_100, 3_100, 9_900)),
    row(8, start(5_200, 3_200, 9_950), cpu=64),
    row(8, start(2_000), priority=7, ahead=0),
    row(16, start(90_000, 10_000, 99_000)),
)


@pytest.mark.parametrize(
    ("requests", "expected"),
    [
        pytest.param({GPU: 4}, start(5_000, 3_000, 9_000), id="the-same"),
        pytest.param({GPU: 4, "cpu": 0}, start(5_000, 3_000, 9_000), id="nothing-of-another"),
        pytest.param({GPU: 6}, start(5_100, 3_000, 9_900), id="between-two-that-start-alike"),
        pytest.param({GPU: 8, "cpu": 32}, start(5_200, 3_100, 9_950), id="with-a-part-of-the-rest"),
        pytest.param({GPU: 12}, None, id="between-two-that-do-not"),
        pytest.param({GPU: 32}, None, id="more-than-any"),
        pytest.param({GPU: 8, "cpu": 65}, None, id="more-of-the-rest-than-any-alike"),
        pytest.param({GPU: 1, "memory": 1}, None, id="what-no-other-requests"),
    ],
)
def test_a_request_gets_the_start_of_those_around_it(requests, expected):
    assert start_of(ROWS, requests, priority=0, ahead=3, now=NOW) == expected


@pytest.mark.parametrize(
    ("of", "known"),
    [
        pytest.param({}, True, id="as-it-was"),
        pytest.param({"ahead": 4}, False, id="one-more-ahead"),
        pytest.param({"priority": 3}, False, id="of-another-priority"),
        pytest.param({"now": 9_000.0}, False, id="it-should-have-started"),
        pytest.param({"priority": 7, "ahead": 0}, False, id="smaller-ones-of-its-priority"),
    ],
)
def test_a_start_holds_at_its_position_only(of, known):
    found = start_of(ROWS, {GPU: 4}, **{"priority": 0, "ahead": 3, "now": NOW, **of})

    assert (found is not None) is known


def test_of_many_ahead_some_may_come_or_go_where_it_is_not_certain():
    rows = [row(4, start(5_000, 3_000, 9_000), ahead=100), row(8, start(5_000), ahead=100)]

    def has_start(gpus, ahead):
        return start_of(rows, {GPU: gpus}, priority=0, ahead=ahead, now=NOW) is not None

    assert [has_start(4, n) for n in (94, 95, 105, 106)] == [False, True, True, False]
    assert [has_start(8, n) for n in (99, 100, 101)] == [False, True, False]


def queues(*waiting):
    """A queue where one runs, and others wait."""
    of = state(queue("q", gpu=4), queue("other", gpu=4))
    for name in ("runs", *waiting):
        put(of, workload(name, "q", gpu=4))
    at_rest(of)
    return of


def kept(of, *, certain=True):
    rows = (row(4, start(5_000) if certain else start(5_000, 3_000, 9_000)),)
    new_starts = NewWorkloadStarts()
    new_starts.put({"q": rows, "gone": rows}, stamps_of(of), at=NOW)
    return new_starts


def test_forecasts_hold_until_their_queues_change():
    of = queues("a")
    new_starts = kept(of)

    assert list(new_starts.current(of, now=NOW + OLD_SECONDS)) == ["q"]
    assert new_starts.current(of, now=NOW + OLD_SECONDS + 1) == {}
    put(of, workload("elsewhere", "other", gpu=4))
    at_rest(of)
    assert len(new_starts.current(of, now=NOW)["q"]) == 1
    put(of, workload("b", "q", gpu=4))
    assert new_starts.current(of, now=NOW) == {"q": ()}


def test_uncertain_starts_hold_while_little_changes():
    of = queues(*(f"w{n}" for n in range(40)))
    new_starts = kept(of, certain=False)
    for n in range(2):
        put(of, workload(f"new{n}", "q", gpu=4))

    assert len(new_starts.current(of, now=NOW)["q"]) == 1
    put(of, workload("one-more", "q", gpu=4))
    assert new_starts.current(of, now=NOW) == {"q": ()}


def test_the_version_grows_with_each_change_of_starts():
    new_starts = NewWorkloadStarts()
    new_starts.put({}, {}, at=NOW)
    assert new_starts.version == 0
    new_starts.put({"q": ROWS}, {}, at=NOW)
    new_starts.put({}, {}, at=NOW)
    new_starts.put({}, {}, at=NOW)

    assert new_starts.version == 2
