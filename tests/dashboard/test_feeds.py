"""Snapshots that are old, missing or damaged: a sentence each, and never a wrong number."""

import pytest

from policyd.dashboard.feeds import KEPT_SECONDS, MOST_KEPT, UNUSED_SECONDS, Feeds
from policyd.kube.errors import ForbiddenError, UnreachableError
from policyd.questions.snapshots import OF_CLUSTER
from policyd.testing import FakeClient, FakeClock
from tests.alloc.builders import queue
from tests.dashboard.looking import Looking
from tests.status.test_pending_reasons import settled


@pytest.fixture
def looking():
    made = Looking()
    made.api.serve(settled(queue("q", gpu=8)), at=made.clock.now())
    made.enter()
    return made


def test_a_fresh_snapshot_needs_no_notice(looking):
    assert "Not current" not in looking.get("/").text


def test_an_old_snapshot_says_how_old_it_is(looking):
    looking.api.serve(settled(queue("q", gpu=8)), at=looking.clock.now() - 300)

    page = looking.get("/")
    assert page.status_code == 200
    assert "The snapshot of the queues is 5m old" in page.text


def test_without_snapshots_the_page_says_how_to_get_them():
    looking = Looking()
    looking.enter()
    page = looking.get("/")

    assert page.status_code == 503
    assert "the cluster serves no queue snapshots" in page.text
    assert "controller.visibility.enabled=true" in page.text
    assert 'class="figure"' not in page.text


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"format": 99}, "the snapshot has format 99"),
        ({"kind": "Other"}, "is not a QueueSnapshot"),
        ({"clusterQueues": [{"name": "q", "pending": [["a/b", "", 0, 1, 7]]}]}, "is damaged"),
        ({"clusterQueues": "many"}, "is damaged"),
    ],
)
def test_a_snapshot_that_cannot_be_understood_shows_no_number(looking, changes, message):
    looking = Looking()
    looking.api.serve(settled(queue("q", gpu=8)), **changes)
    looking.enter()
    page = looking.get("/pending")

    assert page.status_code == 503
    assert message in page.text
    assert "pending," not in page.text


def test_what_was_read_last_is_shown_for_a_while_with_the_reason(looking):
    assert looking.get("/").status_code == 200
    looking.wait(30)
    looking.api.fail(UnreachableError("cannot connect"), verb="get", times=99)

    page = looking.get("/")
    assert page.status_code == 200
    assert "The queues are shown as they were 30s ago: cannot connect" in page.text
    looking.wait(KEPT_SECONDS)
    gone = looking.get("/")
    assert gone.status_code == 503
    assert "cannot connect" in gone.text


def counted(clock=None):
    client, clock = FakeClient(), clock or FakeClock()
    return Feeds(client, clock=clock), clock


@pytest.mark.anyio
async def test_what_all_share_is_read_once_in_a_while():
    feeds, clock = counted()
    reads = []

    async def read():
        reads.append(1)
        return len(reads)

    for _ in range(5):
        assert await feeds.shared("a", read, fresh_seconds=2) == (1, None)
    await clock.skip(2)
    assert await feeds.shared("a", read, fresh_seconds=2) == (2, None)


@pytest.mark.anyio
async def test_what_one_may_not_read_is_nothing_to_the_others():
    feeds, _ = counted()

    async def refused():
        raise ForbiddenError("you may not")

    async def read():
        return "it"

    for _ in range(2):
        with pytest.raises(ForbiddenError):
            await feeds.shared("a", refused, fresh_seconds=10)
        assert await feeds.shared("a", read, fresh_seconds=10) == ("it", None)
        feeds._kept.clear()


@pytest.mark.anyio
async def test_values_that_nobody_asks_for_are_dropped_and_all_are_bounded():
    feeds, clock = counted()

    async def read():
        return object()

    for number in range(MOST_KEPT + 9):
        await feeds.shared(number, read, fresh_seconds=2)
    assert len(feeds) == MOST_KEPT
    await clock.skip(UNUSED_SECONDS + 1)
    await feeds.shared("other", read, fresh_seconds=2)
    assert len(feeds) == 1


def test_the_snapshot_of_a_namespace_is_never_that_of_another(looking):
    looking.sign_in("ann", "team-a", browser=looking.browser)

    assert looking.get("/?namespace=team-a").status_code == 503
    assert looking.api.store.get(OF_CLUSTER, "", "current")
