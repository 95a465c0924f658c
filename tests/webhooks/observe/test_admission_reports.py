"""What is let through although a policy objects to it is counted into reports, now and then."""

import asyncio

import pytest
from msgspec import structs

from policyd.api.admission import parse_review
from policyd.engine.offline.report import APIS
from policyd.engine.offline.shadows import ShadowDifference
from policyd.kube.errors import UnavailableError
from policyd.kube.reports import Reports, resource_of
from policyd.testing import FakeClient, FakeClock
from tests.engine.reviews import policies, policy
from tests.webhooks.reviews import review
from webhooks.observe.admission_reports import EVERY_SECONDS, MOST_ROWS, ReportedCounts

pytestmark = pytest.mark.anyio

API = APIS[1]
REPORTS = resource_of(API, namespaced=True)


class World:
    """A counts beside an API server in memory."""

    def __init__(self):
        self.client, self.clock = FakeClient(), FakeClock()
        self.client.resources = [resource_of(API, namespaced=n) for n in (True, False)]
        self.counts = ReportedCounts(Reports(self.client), pace=self.clock.pace())

    async def __aenter__(self):
        self._task = asyncio.create_task(self.counts.run())
        return self

    async def __aexit__(self, *_error):
        self._task.cancel()
        await asyncio.wait([self._task])

    def take(self, spec, namespace="team-a"):
        request = structs.replace(parse_review(review()), namespace=namespace)
        self.counts.take(request, policies(policy(spec)).validate(request))

    async def results(self, namespace="team-a"):
        found = await self.client.get(REPORTS, "policyd", namespace=namespace, into=dict)
        return {(each["policy"], each["result"]): each["properties"] for each in found["results"]}


def demand(enforcement, expression="false"):
    return f'validations: [{{expression: "{expression}", name: v}}]\nenforcement: {enforcement}'


async def test_requests_are_counted_and_written_together():
    async with World() as world:
        for _ in range(500):
            world.take(demand("Audit"))
        world.take(demand("Warn"), "team-b")
        await world.clock.advance(EVERY_SECONDS + 1)

        audited, warned = await world.results(), await world.results("team-b")
        assert audited == {("p", "fail"): {"count": "0", "enforcement": "Audit", "admitted": "500"}}
        assert warned == {("p", "fail"): {"count": "0", "enforcement": "Warn", "admitted": "1"}}
        assert len(world.client.writes) == 2


async def test_nothing_is_written_more_often_than_now_and_then():
    async with World() as world:
        for _ in range(100):
            world.take(demand("Audit"))
            await world.clock.advance(1)

        assert len(world.client.writes) <= 100 / EVERY_SECONDS


@pytest.mark.parametrize(
    "spec",
    [
        pytest.param(demand("Deny"), id="refused"),
        pytest.param(demand("Audit", "true"), id="in-order"),
    ],
)
async def test_unstored_and_correct_objects_are_not_counted(spec):
    async with World() as world:
        world.take(spec)
        await world.clock.advance(EVERY_SECONDS + 1)

        assert world.client.writes == []


async def test_unwritable_values_are_kept():
    async with World() as world:
        world.client.fail(UnavailableError("busy"), verb="create")
        world.take(demand("Audit"))
        await world.clock.advance(EVERY_SECONDS + 1)
        world.take(demand("Audit"))
        await world.clock.advance(EVERY_SECONDS + 1)

        [properties] = (await world.results()).values()
        assert properties["admitted"] == "2"


async def test_without_a_kind_of_reports_counts_are_forgotten():
    async with World() as world:
        kinds, world.client.resources = world.client.resources, []
        world.take(demand("Audit"))
        await world.clock.advance(EVERY_SECONDS + 1)
        world.client.resources = kinds
        world.take(demand("Audit"))
        await world.clock.advance(EVERY_SECONDS + 1)

        [properties] = (await world.results()).values()
        assert properties["admitted"] == "1"


async def test_parts_without_room_are_left_out():
    async with World() as world:
        found = ShadowDifference(shadow="s", of="p", phase="validate", outcome="denied")
        for number in range(MOST_ROWS + 10):
            request = structs.replace(parse_review(review()), namespace=f"n{number}")
            world.counts.take_difference(request, found)
        await world.clock.advance(EVERY_SECONDS + MOST_ROWS / 10 + 60)

        assert len(world.client.writes) == MOST_ROWS


async def test_different_verdicts_of_a_shadow_are_counted():
    async with World() as world:
        found = ShadowDifference(shadow="s", of="p", phase="validate", outcome="denied")
        world.counts.take_difference(parse_review(review()), found)
        await world.clock.advance(EVERY_SECONDS + 1)

        assert await world.results() == {
            ("s", "fail"): {"count": "0", "shadowOf": "p", "admitted": "1"}
        }


async def test_a_mistake_in_counting_stops_no_reviews():
    async with World() as world:
        world.client.fail(ZeroDivisionError("a bug"), verb="get")
        world.take(demand("Audit"))
        await world.clock.advance(EVERY_SECONDS + 1)
        world.take(demand("Audit"))
        await world.clock.advance(EVERY_SECONDS + 1)

        assert len(world.client.writes) == 1
