"""Policies of the API server in memory: their text, within limits, whatever is written there."""

import asyncio
import json
from contextlib import asynccontextmanager

import msgspec
import pytest
from prometheus_client import CollectorRegistry

from policyd.api.admission import parse_review
from policyd.kube.namespace_limits import POLICIES_AT_A_TIME
from policyd.kube.resources import POLICIES, POLICY_BINDINGS, Resource
from policyd.testing import FakeClient, FakeClock
from tests.webhooks.policies import rule, stored
from tests.webhooks.reviews import POD, review
from webhooks.metrics import WebhookMetrics
from webhooks.namespaces import without_cluster
from webhooks.policies.in_force import PoliciesInForce
from webhooks.policies.sources import KyvernoPolicies, OwnPolicies
from webhooks.policies.stored import PolicyLimits

pytestmark = pytest.mark.anyio

KYVERNO = "policies.kyverno.io"
OF_NAMESPACES = Resource(
    KYVERNO, "v1", "namespacedvalidatingpolicies", "NamespacedValidatingPolicy"
)
PADDING = "x" * 10_000


def spec(expression="true", **more):
    return {
        "matchConstraints": {"resourceRules": [rule("pods")]},
        "validations": [{"expression": expression, "message": PADDING}],
        **more,
    }


class Case:
    """Policies that are read from an API server, within limits."""

    def __init__(self, *limits):
        self.client = FakeClient(resources=[OF_NAMESPACES, POLICIES, POLICY_BINDINGS])
        self.clock = FakeClock()
        self.policies = PoliciesInForce(
            namespaces=without_cluster,
            metrics=WebhookMetrics(CollectorRegistry()),
            limits=PolicyLimits(*limits),
        )
        self.tasks = []
        self.noted = []
        given = (self.client, self.policies, self.note)
        pace = self.clock.pace()
        self.sources = [OwnPolicies(*given, pace=pace), KyvernoPolicies(*given, pace=pace)]

    def note(self, key, load):
        self.noted.append(key)
        load()

    def start(self, work):
        self.tasks.append(asyncio.ensure_future(work))

    def create(self, name, resource=POLICIES, namespace="", annotations=None, **given):
        metadata = {"name": name, "annotations": annotations or {}}
        if namespace:
            metadata["namespace"] = namespace
        self.client.store.create(resource, {"metadata": metadata, "spec": spec(**given)})

    def delete(self, name, resource=POLICIES, namespace=""):
        store = self.client.store
        store.delete(resource, store.get(resource, namespace, name), dry_run=False)

    @property
    def bytes(self):
        """How much of what the API server sent is kept in memory."""
        own, kyverno = self.sources
        informers = [*own.informers, *kyverno.informers.values()]
        kept = [policy for informer in informers for policy in informer.store.values()]
        return sum(len(memoryview(each.spec)) + len(str(each.metadata)) for each in kept)

    def denials(self, namespace="team-a", version="v1", resource="pods", kind="Pod"):
        metadata = {**POD["metadata"], "namespace": namespace}
        obj = {**POD, "apiVersion": version, "kind": kind, "metadata": metadata}
        request = parse_review(review(obj, resource=resource))
        return {each.policy for each in self.policies.validate(request).denials}


@asynccontextmanager
async def watching(case):
    for source in case.sources:
        case.start(source.read(case.start))
    await case.clock.advance(0)
    try:
        yield case
    finally:
        for task in case.tasks:
            task.cancel()
        await asyncio.gather(*case.tasks, return_exceptions=True)


@pytest.mark.parametrize(
    "flood",
    [
        pytest.param({"expression": f"'{'y' * 50_000}' != ''"}, id="specs"),
        pytest.param({"annotations": {"note": "y" * 50_000}}, id="annotations"),
    ],
)
async def test_a_flood_of_policies_takes_no_more_memory_than_the_limits(flood):
    case = Case(10, 200_000)
    for number in range(100):
        case.create(f"p{number}", OF_NAMESPACES, "team-b", **flood)

    async with watching(case):
        assert case.bytes <= 2 * 200_000 + 100 * 1_000
        assert len(case.policies.loaded) <= 2 * 10 + 1


async def test_policies_that_grow_one_after_the_other_take_no_more_than_the_limits():
    case = Case(2, 40_000)
    async with watching(case):
        for number in range(10):
            case.create(f"p{number}")
            await case.clock.advance(0)
            old = case.client.store.get(POLICIES, "", f"p{number}")
            grown = {**old, "spec": spec(f"'{'y' * 45_000}' != ''")}
            case.client.store.replace(POLICIES, old, grown)
            await case.clock.advance(0)

        assert len([p for p in case.policies.loaded if not p.unusable]) <= 2
        assert case.bytes <= 2 * 40_000 + 10 * 1_000


async def test_pages_of_policies_are_small():
    asked = []

    class Recording(FakeClient):
        async def page(self, resource, *, into, **options):
            asked.append((resource.plural, options.get("limit")))
            return await super().page(resource, into=into, **options)

    case = Case()
    recording = Recording(resources=case.client.resources)
    pace = case.clock.pace()
    case.sources = [KyvernoPolicies(recording, case.policies, case.note, pace=pace)]
    async with watching(case):
        assert asked == [(OF_NAMESPACES.plural, POLICIES_AT_A_TIME)]


async def test_a_policy_kept_by_name_only_denies_all_that_it_may_match():
    case = Case(1)
    for number in range(3):
        case.create(f"p{number}", OF_NAMESPACES, "team-b")

    async with watching(case):
        guard = "policies of namespace team-b"
        assert case.denials("team-b") == {"p1", guard}
        assert case.denials("team-b", "apps/v1", "deployments", "Deployment") == {guard}
        assert (
            case.denials(
                "team-b", OF_NAMESPACES.api_version, OF_NAMESPACES.plural, OF_NAMESPACES.kind
            )
            == set()
        )
        assert case.denials("team-a") == set()

        case.delete("p2", OF_NAMESPACES, "team-b")
        await case.clock.advance(0)
        assert case.denials("team-b") == {"p1"}


async def test_one_that_may_be_ignored_denies_nothing_when_only_its_name_is_kept():
    case = Case(1)
    for number in range(3):
        case.create(f"p{number}", failurePolicy="Ignore")

    async with watching(case):
        assert case.denials() == set()


async def test_a_change_of_status_alone_is_no_change():
    case = Case()
    case.create("p")

    async with watching(case):
        before = len(case.noted)
        old = case.client.store.get(POLICIES, "", "p")
        case.client.store.replace(POLICIES, old, {**old, "status": {"observedGeneration": 1}})
        await case.clock.advance(0)
        assert len(case.noted) == before


def test_limits_are_not_given_by_what_is_stored():
    given = {"metadata": {"name": "p"}, "spec": {}, "nameOnly": True, "unusable": "no"}
    policy = msgspec.json.decode(json.dumps(given), type=type(stored("p", {})))
    kept = PolicyLimits().keep(policy, POLICIES)

    assert (kept.name_only, kept.unusable) == (False, "")
