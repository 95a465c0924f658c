"""Where a workload goes by the forecasts of workers."""

from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policyd.multikueue.dispatch import ROUND_SECONDS
from policyd.multikueue.forecasts import (
    LOOK_SECONDS,
    NEVER,
    PATIENCE_SECONDS,
    SOON_KNOWN,
    ExpectedStart,
    Waiting,
    choose,
)
from policyd.multikueue.settings import DEFAULTS

NOW = 1_000_000.0


def at(seconds, victims=0, width=100):
    return ExpectedStart(NOW + seconds, NOW + seconds + width, victims)


NEW, SLOW = Waiting(), Waiting(seconds=PATIENCE_SECONDS)
FAR, LATE = at(1000), ExpectedStart(NOW - 100, NOW - 1)


@pytest.mark.parametrize(
    ("waiting", "starts", "names"),
    [
        pytest.param(NEW, {"a": at(60), "b": at(30)}, ("b",), id="the-first-start"),
        pytest.param(NEW, {"a": at(0), "b": at(-50)}, ("a",), id="both-now-in-order"),
        pytest.param(NEW, {"a": at(0, victims=2), "b": at(0)}, ("b",), id="rather-no-victims"),
        pytest.param(NEW, {"a": None, "b": at(0)}, ("b",), id="now-waits-for-no-one"),
        pytest.param(NEW, {"a": None, "b": at(9)}, (), id="waits-for-a-first-forecast"),
        pytest.param(SLOW, {"a": None, "b": at(9)}, ("b",), id="but-not-for-ever"),
        pytest.param(SLOW, {"a": SOON_KNOWN, "b": at(9)}, (), id="waits-for-one-that-got-another"),
        pytest.param(SLOW, {"a": NEVER, "b": at(9)}, ("b",), id="not-where-it-never-starts"),
        pytest.param(SLOW, {"a": NEVER, "b": None}, ("b",), id="rather-where-it-is-not-known"),
        pytest.param(
            SLOW, dict.fromkeys("abcd"), ("a", "b", "c"), id="without-forecasts-some-at-a-time"
        ),
        pytest.param(
            Waiting(("a", "b", "c"), 400.0), dict.fromkeys("abcd"), tuple("abcd"), id="then-more"
        ),
        pytest.param(SLOW, {"a": NEVER, "b": NEVER}, ("a", "b"), id="never-anywhere-shows-why"),
        pytest.param(
            Waiting(("a",), 400.0, FAR), {"a": at(2000), "b": at(990)}, ("a",), id="keeps-its-place"
        ),
        pytest.param(
            Waiting(("a",), 400.0, FAR), {"a": at(2000), "b": at(50)}, ("b",), id="moves-for-much"
        ),
        pytest.param(
            Waiting(("a",), 400.0, LATE), {"a": at(90), "b": at(50)}, ("b",), id="moves-if-late"
        ),
        pytest.param(
            Waiting(("a",), 400.0, LATE), {"a": at(40), "b": at(50)}, ("a",), id="or-stays"
        ),
        pytest.param(
            Waiting(("a",), 400.0, LATE), {"a": None, "b": None}, ("a", "b"), id="late-and-unknown"
        ),
        pytest.param(Waiting(("a",), 400.0, FAR), {"b": at(5000)}, ("b",), id="its-worker-is-gone"),
        pytest.param(Waiting(("a",), 400.0, FAR), {"b": None}, ("b",), id="gone-and-none-known"),
    ],
)
def test_where_a_workload_goes(waiting, starts, names):
    found = choose(waiting, starts, DEFAULTS, now=NOW)

    assert found.names == names
    assert found.again == (ROUND_SECONDS if names else LOOK_SECONDS)


STARTS = st.one_of(
    st.none(),
    st.sampled_from([NEVER, SOON_KNOWN]),
    st.builds(at, st.integers(-500, 5000), st.integers(0, 3)),
)


@given(
    st.dictionaries(st.sampled_from("abcde"), STARTS),
    st.lists(st.sampled_from("abcde"), unique=True),
    st.one_of(st.none(), st.builds(at, st.integers(-500, 5000))),
)
def test_no_workload_is_left_where_another_worker_is_known_to_start_it_much_sooner(
    starts, nominated, promised
):
    waiting = Waiting(tuple(nominated), PATIENCE_SECONDS, promised)

    found = choose(waiting, starts, DEFAULTS, now=NOW)

    known = {name: s.median for name, s in starts.items() if s and s.median < inf}
    if len(found.names) == 1 and found.names != tuple(nominated) and known:
        assert max(known[found.names[0]], NOW) == max(min(known.values()), NOW)
    if starts and not nominated and SOON_KNOWN not in starts.values():
        assert found.names
    assert set(found.names) <= set(starts) | set(nominated)
    if not known:
        kept = tuple(name for name in nominated if name in starts)
        assert kept == tuple(name for name in found.names if name in kept)
