"""Kyverno's policies are reported to be in force once the API server asks about their requests."""

import asyncio

import pytest

from policyd.dialects.registry import EVERY_FORMAT
from policyd.engine.compile.load import load_document
from policyd.kube.errors import ForbiddenError, UnreachableError
from policyd.kube.resources import VALIDATING_WEBHOOK_CONFIGURATIONS
from policyd.testing import FakeClient, FakeClock
from tests.webhooks.test_kyverno import CLUSTER_POLICIES, NEW, OF_NAMESPACES, RULE, spec
from tests.webhooks.test_server import running, until, webhooks
from webhooks.policies.kyverno_statuses import RETRY_SECONDS, KyvernoStatuses
from webhooks.policies.stored import PolicyLimits, StoredPolicy

pytestmark = pytest.mark.anyio


def body(name="a", **given):
    return {"metadata": {"name": name}, "spec": given or spec()}


async def status(client, resource, name="a", namespace=""):
    found = await client.get(resource, name, into=dict, namespace=namespace)
    return found.get("status", {})


async def test_a_policy_is_reported_ready_when_its_requests_come():
    client = FakeClient(resources=[NEW, OF_NAMESPACES, CLUSTER_POLICIES])
    client.store.create(NEW, body())
    client.store.create(NEW, body("broken", **spec("object.foo(")))
    in_team = {**body(), "metadata": {"name": "a", "namespace": "team-a"}}
    client.store.create(OF_NAMESPACES, in_team)
    client.store.create(CLUSTER_POLICIES, body(rules=[RULE]))

    async with running(client, kyverno=True, from_cluster=False):

        async def all_written():
            return all(
                [
                    await status(client, NEW),
                    await status(client, NEW, "broken"),
                    await status(client, OF_NAMESPACES, namespace="team-a"),
                    await status(client, CLUSTER_POLICIES),
                ]
            )

        await until(all_written)
        called = [
            resource
            for webhook in await webhooks(client, VALIDATING_WEBHOOK_CONFIGURATIONS)
            for rule in webhook["rules"]
            for resource in rule["resources"]
        ]
        good, bad = await status(client, NEW), await status(client, NEW, "broken")

    assert {"pods", "validatingpolicies"} <= set(called)
    assert good["conditionStatus"]["ready"] is True
    assert "defaults" in good["autogen"]["configs"]
    assert bad["conditionStatus"]["ready"] is False
    assert "spec.validations[0].expression" in bad["conditionStatus"]["message"]


class Failing(FakeClient):
    """An API server that may refuse writes."""

    error = None
    tried = 0

    async def patch(self, *arguments, **options):
        self.tried += 1
        if self.error is not None:
            raise self.error
        return await super().patch(*arguments, **options)


class Case:
    """The writer of statuses, and a policy to write about."""

    def __init__(self):
        self.client = Failing(resources=[NEW])
        self.clock = FakeClock()
        self.statuses = KyvernoStatuses(self.client, pace=self.clock.pace())
        self.limits = PolicyLimits()
        self.loads = 0
        self.client.store.create(NEW, body())

    async def judge(self, **changes):
        """Load the policy as it is stored, with other fields."""
        old = self.client.store.get(NEW, "", "a")
        if changes:
            self.client.store.replace(NEW, old, {**old, **changes})
        stored = await self.client.get(NEW, "a", into=StoredPolicy)
        policy = self.limits.keep(stored, NEW)
        self.loads += 1
        loaded = load_document(policy.document, EVERY_FORMAT)
        self.statuses.judge(policy, loaded, self.loads)

    async def written(self):
        return (await status(self.client, NEW)).get("conditionStatus")


@pytest.fixture
async def case():
    made = Case()
    task = asyncio.ensure_future(made.statuses.run())
    yield made
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_nothing_is_reported_before_the_webhooks_are_registered(case):
    await case.judge()
    case.statuses.registered(0)
    await case.clock.advance(60)
    assert await case.written() is None

    case.statuses.registered(1)
    await case.clock.advance(1)
    assert (await case.written())["ready"] is True


async def test_a_change_replaces_the_whole_status_and_keeps_times(case):
    await case.judge()
    case.statuses.registered(1)
    await case.clock.advance(10)
    first = await case.written()

    await case.judge(spec={**spec("object.foo("), "matchConstraints": {"resourceRules": []}})
    case.statuses.registered(2)
    await case.clock.advance(10)

    second = await case.written()
    assert second["ready"] is False
    assert (await status(case.client, NEW))["autogen"] == {}
    times = [[c["lastTransitionTime"] for c in each["conditions"]] for each in (first, second)]
    assert times[0][0] != times[1][0]
    assert times[0][1] == times[1][1]


async def test_a_status_that_another_client_changes_is_left_alone(case):
    await case.judge()
    case.statuses.registered(1)
    await case.clock.advance(10)
    await case.client.patch(NEW, "a", {"status": None}, into=dict, subresource="status")
    case.statuses.registered(1)
    await case.clock.advance(60)

    assert await case.written() is None


@pytest.mark.parametrize(
    ("error", "tried"), [(UnreachableError("away"), 2), (ForbiddenError("no"), 1)]
)
async def test_a_write_that_fails_is_tried_again_if_that_may_help(case, error, tried):
    case.client.error = error
    await case.judge()
    case.statuses.registered(1)
    await case.clock.advance(RETRY_SECONDS + 1)

    assert case.client.tried == tried


async def test_a_policy_that_is_created_again_does_not_get_the_old_status(case):
    await case.judge()
    await case.client.delete(NEW, "a")
    case.client.store.create(NEW, body())
    case.statuses.registered(1)
    await case.clock.advance(10)

    assert await case.written() is None
