"""Changes as they are sent: rendered once, bounded, and only as long as one may see them."""

import asyncio
import itertools
import json

import pytest

from policyd.dashboard.access import Identity
from policyd.dashboard.live import (
    APART_SECONDS,
    BEAT_SECONDS,
    MOST_CHANNELS,
    MOST_CHANNELS_OF_A_TEAM,
    MOST_CHANNELS_OF_ONE,
    MOST_VIEWERS,
    MOST_VIEWERS_OF_A_TEAM,
    MOST_VIEWERS_OF_ONE,
    MOST_WAITING,
    Hub,
    TooManyViewersError,
    Viewer,
)
from policyd.errors import PolicydError
from policyd.kube.pace import Pace
from policyd.testing import FakeClock

pytestmark = pytest.mark.anyio


class Case:
    """A hub in virtual time, and what is rendered."""

    def __init__(self):
        self.clock = FakeClock()
        self.hub = Hub(Pace(clock=self.clock, sleep=self.clock.sleep))
        self.html, self.rendered, self.may = {"a": "1", "b": "1"}, 0, True

    async def render(self):
        self.rendered += 1
        if isinstance(self.html, Exception):
            raise self.html
        return dict(self.html)

    async def still(self):
        return self.may

    def changes(self, key="k", user="ann"):
        return self.hub.changes(key, Identity(user, "token"), self.render, self.still)

    def watch(self, key="k", user="ann"):
        """Return what a browser gets, as it comes."""
        got = []

        async def take():
            async for message in self.changes(key, user):
                got.append(bytes(message).decode())  # noqa: PERF401 - they are looked at meanwhile

        return got, asyncio.create_task(take())


@pytest.fixture
async def case():
    made = Case()
    yield made
    await made.hub.close()


def events(got):
    """Return names and data of events."""
    found = []
    for each in got:
        if each.startswith("event: "):
            name, data = each.strip().split("\n")
            found.append((name.removeprefix("event: "), json.loads(data.removeprefix("data: "))))
    return found


def fragments(got):
    return [(data["id"], data["html"]) for name, data in events(got) if name == "fragment"]


async def test_only_fragments_that_changed_are_sent(case):
    got, _ = case.watch()
    await case.clock.advance(0)
    assert fragments(got) == [("a", "1"), ("b", "1")]
    case.html["b"] = "2"
    await case.clock.advance(APART_SECONDS)
    await case.clock.advance(APART_SECONDS)

    assert fragments(got) == [("a", "1"), ("b", "1"), ("b", "2")]


async def test_it_is_rendered_once_for_all_and_those_who_come_later_get_all_of_it(case):
    watched = [case.watch(user=f"user-{number}") for number in range(200)]
    await case.clock.advance(0)
    assert case.rendered == 1
    late, _ = case.watch()
    await case.clock.advance(0)

    assert case.rendered == 1
    assert fragments(late) == [("a", "1"), ("b", "1")]
    assert all(fragments(got) == fragments(late) for got, _ in watched)


async def test_channels_render_at_the_same_moments_however_they_began(case):
    moments = {}

    def watch(key):
        async def render():
            moments.setdefault(key, []).append(case.clock.monotonic())
            return {}

        async def take():
            async for _ in case.hub.changes(key, Identity("ann", "token"), render, case.still):
                pass

        return asyncio.create_task(take())

    first = watch("first")
    await case.clock.advance(0.7 * APART_SECONDS)
    second = watch("second")
    for _ in range(40):
        await case.clock.advance(APART_SECONDS / 10)

    assert moments["first"][0] != moments["second"][0]
    assert moments["first"][-2:] == moments["second"][-2:]
    first.cancel()
    second.cancel()


async def test_nothing_is_rendered_for_nobody(case):
    _, task = case.watch()
    await case.clock.advance(0)
    task.cancel()
    await case.clock.advance(APART_SECONDS)
    before = case.rendered
    await case.clock.advance(10 * APART_SECONDS)

    assert case.rendered == before
    assert case.hub.viewers == 0


async def test_a_viewer_that_takes_nothing_is_let_go():
    viewer = Viewer(Identity("ann", "token"))
    taken = [viewer.send(b"x") for _ in range(MOST_WAITING + 1)]

    assert taken == [True] * MOST_WAITING + [False]
    assert viewer.messages.get_nowait() is None
    assert viewer.messages.empty()


async def test_a_slow_viewer_holds_up_nobody(case):
    slow = case.changes()
    await anext(slow)
    fast, _ = case.watch()
    for number in range(MOST_WAITING + 5):
        case.html["a"] = str(number)
        await case.clock.advance(APART_SECONDS)

    assert len(fragments(fast)) > MOST_WAITING + 3
    assert case.hub.viewers == 1
    await slow.aclose()


async def test_a_problem_is_sent_and_what_was_shown_stays(case):
    got, _ = case.watch()
    await case.clock.advance(0)
    case.html = PolicydError("the API server does not answer")
    await case.clock.advance(APART_SECONDS)

    assert events(got)[-1] == ("problem", {"text": "the API server does not answer"})


async def test_an_error_of_our_own_ends_the_channel_and_not_the_page(case):
    got, task = case.watch()
    await case.clock.advance(0)
    case.html = ValueError("unforeseen")
    await case.clock.advance(APART_SECONDS)
    await asyncio.wait_for(task, 1)
    case.html = {"a": "again"}
    again, _ = case.watch()
    await case.clock.advance(0)

    assert "unforeseen" not in "".join(got)
    assert fragments(again) == [("a", "again")]


async def test_something_is_sent_now_and_then_in_any_case(case):
    got, _ = case.watch()
    await case.clock.advance(0)
    await case.clock.advance(BEAT_SECONDS)

    assert ": \n\n" in got


async def test_who_may_not_see_it_any_more_is_sent_nothing_more(case):
    got, task = case.watch()
    await case.clock.advance(0)
    case.may = False
    await case.clock.advance(BEAT_SECONDS)
    await asyncio.wait_for(task, 1)

    assert events(got)[-1] == ("end", {})


async def test_another_key_gets_other_renderings(case):
    case.watch("one")
    case.watch("two")
    await case.clock.advance(0)

    assert case.rendered == 2


async def test_channels_and_viewers_are_bounded(case):
    for number in range(MOST_CHANNELS):
        case.watch(number, f"user-{number}")
    await case.clock.advance(0)
    with pytest.raises(TooManyViewersError):
        case.changes("one more")
    for number in range(MOST_VIEWERS - MOST_CHANNELS):
        case.watch(0, f"user-{number}")
    await case.clock.advance(0)
    with pytest.raises(TooManyViewersError):
        case.changes(0)


async def test_one_user_takes_the_updates_of_nobody_else(case):
    for number in range(MOST_CHANNELS_OF_ONE):
        case.watch(number)
    await case.clock.advance(0)
    with pytest.raises(TooManyViewersError):
        case.changes("one more")
    for _ in range(MOST_VIEWERS_OF_ONE - MOST_CHANNELS_OF_ONE):
        case.watch(0)
    await case.clock.advance(0)
    with pytest.raises(TooManyViewersError):
        case.changes(0)

    got, _ = case.watch("one more", "another")
    await case.clock.advance(0)

    assert fragments(got) == [("a", "1"), ("b", "1")]


async def test_service_accounts_of_a_namespace_take_the_updates_of_no_others(case):
    """Whoever may create one may create many."""
    accounts = (f"system:serviceaccount:greedy:a{number}" for number in itertools.count())
    for number in range(MOST_CHANNELS_OF_A_TEAM):
        case.watch(number, next(accounts))
    await case.clock.advance(0)
    with pytest.raises(TooManyViewersError, match="different views"):
        case.changes("one more", next(accounts))
    for _ in range(MOST_VIEWERS_OF_A_TEAM - MOST_CHANNELS_OF_A_TEAM):
        case.watch(0, next(accounts))
    await case.clock.advance(0)
    with pytest.raises(TooManyViewersError, match="browsers"):
        case.changes(0, next(accounts))

    got, _ = case.watch("one more", "system:serviceaccount:modest:a0")
    await case.clock.advance(0)

    assert fragments(got) == [("a", "1"), ("b", "1")]


async def test_a_viewer_that_is_one_too_many_by_then_gets_nothing(case):
    late = [case.changes(number) for number in range(MOST_CHANNELS_OF_ONE + 1)]
    *first, last = [await anext(each, None) for each in late]

    assert set(first) == {b"retry: 3000\n\n"}
    assert last is None
    assert case.hub.viewers == MOST_CHANNELS_OF_ONE
