"""Leader election: one leader at a time, whatever clocks, calls and processes do."""

import asyncio
import re
from contextlib import asynccontextmanager

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policyd.kube.errors import ConflictError, InternalError
from policyd.kube.leader import LeaderElection, LeaseTerms, leave_nothing
from policyd.kube.pace import Pace
from policyd.kube.resources import LEASES
from policyd.testing import FakeClient, FakeClock, ObjectStore

pytestmark = pytest.mark.anyio


class Connection(FakeClient):
    """One candidate's way to the server, which can hang before a call is carried out, or after."""

    hangs = ""

    async def _through(self, method, *args, **options):
        if self.hangs == "before":
            await asyncio.Event().wait()
        answer = await method(self, *args, **options)
        if self.hangs == "slow":
            await self.store.clock.sleep(3)
        if self.hangs == "after":
            await asyncio.Event().wait()
        return answer

    async def get(self, *args, **options):
        return await self._through(FakeClient.get, *args, **options)

    async def create(self, *args, **options):
        return await self._through(FakeClient.create, *args, **options)

    async def patch(self, *args, **options):
        return await self._through(FakeClient.patch, *args, **options)


class Candidate:
    def __init__(self, store, identity, clock, *, pace=None, leave=leave_nothing):
        self.client = Connection(store)
        self.election = LeaderElection(
            self.client,
            "controller",
            namespace="policyd-system",
            identity=identity,
            leave=leave,
            pace=pace or clock.pace(),
        )
        self.task = asyncio.ensure_future(self.election.run())

    @property
    def leading(self):
        return self.election.leading

    async def stop(self):
        self.client.hangs = ""
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)


@asynccontextmanager
async def candidates(*identities, clock=None):
    clock = clock or FakeClock()
    store = ObjectStore(clock)
    running = [Candidate(store, identity, clock) for identity in identities]
    try:
        yield (*running, clock, store)
    finally:
        for each in running:
            await each.stop()


def lease(store):
    return store.get(LEASES, "policyd-system", "controller")["spec"]


async def test_the_first_candidate_leads_and_the_second_waits():
    async with candidates("a", "b") as (a, b, clock, store):
        await clock.advance(60)

        assert (a.leading, b.leading) == (True, False)
        assert b.election.holder == "a"
        assert lease(store)["leaseTransitions"] == 0


async def test_times_are_written_in_utc_with_microseconds():
    clock = FakeClock(start=1_700_000_000.0)
    async with candidates("a", clock=clock) as (_, _, store):
        await clock.advance(0)

        spec = lease(store)
        assert spec["renewTime"] == spec["acquireTime"] == "2023-11-14T22:13:20.000000Z"
        await clock.advance(2.5)
        assert re.fullmatch(r"2023-11-14T22:13:22\.\d{6}Z", lease(store)["renewTime"])
        assert lease(store)["acquireTime"] == "2023-11-14T22:13:20.000000Z"


async def test_a_clean_stop_hands_over_within_a_second():
    async with candidates("a", "b") as (a, b, clock, store):
        await clock.advance(30)
        await a.stop()
        released = dict(lease(store))
        await clock.advance(1)

        assert released["holderIdentity"] == ""
        assert (a.leading, b.leading) == (False, True)
        assert lease(store)["leaseTransitions"] == b.election.transitions == 1


async def test_a_stopping_leader_leaves_a_handover():
    async def leave():
        await clock.sleep(0.5)
        return "as far as 7"

    clock = FakeClock()
    store = ObjectStore(clock)
    a = Candidate(store, "a", clock, leave=leave)
    await clock.advance(1)
    b = Candidate(store, "b", clock)
    await clock.advance(1)
    a.task.cancel()
    await clock.advance(0.4)
    held = dict(lease(store))
    await clock.advance(1)

    assert held["holderIdentity"] == "a"
    assert (b.leading, b.election.handed_over) == (True, "as far as 7")
    await a.stop()
    await b.stop()


async def test_a_leader_that_lost_its_term_has_no_handover_for_the_next():
    async def leave():
        return "as far as 7"

    clock = FakeClock()
    store = ObjectStore(clock)
    a = Candidate(store, "a", clock, leave=leave)
    await clock.advance(1)
    await a.stop()
    b = Candidate(store, "b", clock)
    await clock.advance(1)
    first = b.election.handed_over
    b.client.hangs = "before"
    await clock.advance(11)
    lost = not b.leading
    b.client.hangs = ""
    await clock.advance(5)

    assert (first, lost) == ("as far as 7", True)
    assert (b.leading, b.election.handed_over) == (True, "")
    await b.stop()


async def test_a_leader_that_cannot_write_its_handover_lets_the_lease_expire():
    async def leave():
        await asyncio.Event().wait()

    clock = FakeClock()
    store = ObjectStore(clock)
    a = Candidate(store, "a", clock, leave=leave)
    b = Candidate(store, "b", clock)
    await clock.advance(1)
    a.task.cancel()
    await clock.advance(13)
    early = (a.leading, b.leading)
    await clock.advance(4)

    assert (early, b.leading) == ((False, False), True)
    await a.stop()
    await b.stop()


async def test_a_stop_in_the_middle_of_a_renewal_hands_over_all_the_same():
    async with candidates("a", "b") as (a, _, clock, store):
        await clock.advance(30)
        a.client.hangs = "after"  # the server renews, and nobody hears of it
        await clock.advance(2.5)
        a.client.hangs = ""
        await a.stop()

        assert lease(store)["holderIdentity"] == ""


async def test_a_leader_that_dies_is_followed_after_a_term():
    async with candidates("a", "b") as (a, b, clock, _):
        await clock.advance(30)
        a.client.hangs = "before"
        await clock.advance(12)
        early = b.leading
        await clock.advance(6)

        assert (early, b.leading) == (False, True)


@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_leader_whose_calls_hang_stops_leading_by_itself_before_another_begins(when):
    async with candidates("a", "b") as (a, b, clock, _):
        await clock.advance(30)
        a.client.hangs = when
        history = []
        for _ in range(400):
            await clock.advance(0.1)
            history.append((a.leading, b.leading))

        assert (True, True) not in history
        assert history[80] == (True, False)
        assert (False, False) in history
        assert history[-1] == (False, True)


async def test_leading_is_counted_from_when_a_renewal_was_sent():
    async with candidates("a") as (a, clock, store):
        await clock.advance(1)
        a.client.hangs = "slow"
        await clock.advance(3)  # sent at 2, carried out, and answered at 5
        a.client.hangs = "before"
        await clock.advance(7.9)
        early = a.leading
        await clock.advance(0.2)

        assert lease(store)["renewTime"].endswith("13:22.000000Z")
        assert (early, a.leading) == (True, False)


async def test_the_end_of_leading_is_reported_while_a_call_hangs():
    async with candidates("a") as (a, clock, _):
        await clock.advance(1)
        await a.election.wait_elected()
        lost = asyncio.ensure_future(a.election.wait_lost())
        a.client.hangs = "before"
        await clock.advance(8.9)
        early = lost.done()
        await clock.advance(0.2)

        assert (early, lost.done()) == (False, True)


async def test_a_leader_frozen_past_its_term_does_not_lead_when_it_wakes():
    clock = FakeClock()
    store = ObjectStore(clock)
    frozen = FakeClock()
    sleeper = Candidate(
        store, "a", clock, pace=Pace(clock=clock, sleep=frozen.sleep, jitter=lambda: 0.0)
    )
    await frozen.advance(0)
    before = sleeper.leading
    await clock.advance(60)  # its own sleeps never end: nothing of it runs

    assert (before, sleeper.leading) == (True, False)
    await sleeper.stop()


@pytest.mark.parametrize("jump", [pytest.param(3600, id="ahead"), pytest.param(-3600, id="back")])
async def test_wall_clocks_decide_nothing(jump):
    async with candidates("a", "b") as (a, b, clock, _):
        await clock.advance(5)
        clock.jump(jump)
        await clock.advance(30)

        assert (a.leading, b.leading) == (True, False)


async def test_a_candidate_whose_clock_runs_elsewhere_waits_as_long():
    clock, other = FakeClock(), FakeClock(start=4_000_000_000.0)
    store = ObjectStore(clock)
    a = Candidate(store, "a", clock)
    await clock.advance(1)
    b = Candidate(store, "b", other)
    for _ in range(30):
        await clock.advance(1)
        await other.advance(1)

    assert (a.leading, b.leading) == (True, False)
    await a.stop()
    await b.stop()


async def test_a_lease_deleted_by_hand_is_made_anew():
    async with candidates("a") as (a, clock, store):
        await clock.advance(1)
        name = "controller"
        store.delete(LEASES, store.get(LEASES, "policyd-system", name), dry_run=False)
        await clock.advance(5)

        assert a.leading
        assert lease(store)["holderIdentity"] == "a"


async def test_a_lease_taken_by_hand_is_lost():
    async with candidates("a") as (a, clock, store):
        await clock.advance(1)
        old = store.get(LEASES, "policyd-system", "controller")
        taken = old["spec"] | {"holderIdentity": "somebody", "leaseDurationSeconds": 100}
        store.replace(LEASES, old, old | {"spec": taken})
        await clock.advance(20)

        assert (a.leading, a.election.holder) == (False, "somebody")


async def test_errors_of_the_server_are_survived_within_the_term():
    async with candidates("a", "b") as (a, b, clock, _):
        await clock.advance(5)
        a.client.fail(InternalError("failed"), verb="patch", times=3)
        await clock.advance(30)

        assert (a.leading, b.leading) == (True, False)


async def test_a_renewal_whose_answer_was_lost_is_made_up_for():
    async with candidates("a", "b") as (a, b, clock, store):
        await clock.advance(5)
        a.client.hangs = "after"
        await clock.advance(5)
        a.client.hangs = ""
        await clock.advance(30)

        assert (a.leading, b.leading) == (True, False)
        assert lease(store)["leaseTransitions"] == 0


async def test_a_conflict_leads_to_another_look():
    async with candidates("a") as (a, clock, _):
        a.client.fail(ConflictError("changed"), verb="patch")
        await clock.advance(20)

        assert a.leading


async def test_a_term_shorter_than_its_renewal_is_refused():
    with pytest.raises(ValueError, match="must be shorter"):
        LeaseTerms(lease_seconds=5, renew_seconds=10)


EVENTS = st.tuples(
    st.integers(0, 2),
    st.sampled_from(["", "", "before", "after", "slow", "restart", "fail"]),
    st.floats(0.1, 12),
)


@settings(max_examples=60, deadline=None)
@given(st.lists(EVENTS, max_size=12))
def test_there_are_never_two_leaders_and_in_the_end_there_is_one(events):
    async def scenario():
        async with candidates("a", "b", "c") as (*running, clock, store):
            for number, (index, what, seconds) in enumerate(events):
                each = running[index]
                if what == "restart":
                    await each.stop()
                    each.__init__(store, f"{each.election.identity}{number}", clock)
                elif what == "fail":
                    each.client.fail(InternalError("failed"), times=3)
                else:
                    each.client.hangs = what
                for _ in range(4):
                    await clock.advance(seconds / 4)
                    assert sum(other.leading for other in running) <= 1
            for each in running:
                each.client.hangs = ""
            await clock.advance(40)

            assert sum(each.leading for each in running) == 1

    asyncio.run(scenario())
