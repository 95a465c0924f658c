"""Kyverno's policies of the API server, in the versions that it has."""

import asyncio
from contextlib import asynccontextmanager

import pytest
from prometheus_client import CollectorRegistry

from policyd.api.admission import parse_review
from policyd.kube.errors import UnreachableError
from policyd.kube.resources import Resource
from policyd.testing import FakeClient, FakeClock
from tests.webhooks.reviews import POD, review
from webhooks.metrics import WebhookMetrics
from webhooks.namespaces import without_cluster
from webhooks.policies.in_force import PoliciesInForce
from webhooks.policies.sources import LOOK_SECONDS, RETRY_SECONDS, KyvernoPolicies

pytestmark = pytest.mark.anyio

GROUP = "policies.kyverno.io"
OLD, NEW = (
    Resource(GROUP, version, "validatingpolicies", "ValidatingPolicy", namespaced=False)
    for version in ("v1alpha1", "v1")
)
OF_NAMESPACES = Resource(GROUP, "v1", "namespacedvalidatingpolicies", "NamespacedValidatingPolicy")
EXCEPTIONS = Resource(GROUP, "v1", "policyexceptions", "PolicyException")
CLUSTER_POLICIES = Resource(
    "kyverno.io", "v1", "clusterpolicies", "ClusterPolicy", namespaced=False
)

PODS = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}


def spec(expression="false", message="no"):
    return {
        "validationActions": ["Deny"],
        "matchConstraints": {"resourceRules": [PODS]},
        "validations": [{"expression": expression, "message": message}],
    }


RULE = {
    "name": "r",
    "match": {"any": [{"resources": {"kinds": ["Pod"]}}]},
    "validate": {
        "failureAction": "Enforce",
        "cel": {"expressions": [{"expression": "false", "message": "no"}]},
    },
}


class Away(FakeClient):
    """An API server that does not say at first what it serves."""

    away = 0

    async def served(self, api_version):
        if self.away:
            self.away -= 1
            raise UnreachableError("nobody listens")
        return await super().served(api_version)


class Case:
    def __init__(self, *resources):
        self.client = Away(resources=resources)
        self.clock = FakeClock()
        self.metrics = WebhookMetrics(CollectorRegistry())
        self.changes = 0
        self.policies = PoliciesInForce(
            namespaces=without_cluster, metrics=self.metrics, changed=self.change
        )
        self.tasks = []
        self.kyverno = KyvernoPolicies(
            self.client, self.policies, lambda _key, load: load(), pace=self.clock.pace()
        )

    def change(self):
        self.changes += 1

    def start(self, work):
        self.tasks.append(asyncio.ensure_future(work))

    def create(self, resource, name="a", namespace="", **body):
        metadata = {"name": name, **({"namespace": namespace} if namespace else {})}
        return self.client.store.create(resource, {"metadata": metadata, **body})

    def replace(self, resource, **changes):
        old = self.client.store.get(resource, "", "a")
        self.client.store.replace(resource, old, {**old, **changes})

    @property
    def mistakes(self):
        return self.metrics.registry.get_sample_value("policyd_policy_mistakes")

    def denials(self, namespace="team-a"):
        pod = {**POD, "metadata": {**POD["metadata"], "namespace": namespace}}
        decision = self.policies.validate(parse_review(review(pod)))
        return [denial.message for denial in decision.denials]


@asynccontextmanager
async def watching(case):
    case.start(case.kyverno.read(case.start))
    await case.clock.advance(0)
    try:
        yield case
    finally:
        for task in case.tasks:
            task.cancel()
        await asyncio.gather(*case.tasks, return_exceptions=True)


@pytest.mark.parametrize(
    ("resources", "used", "body"),
    [
        pytest.param([OLD], OLD, {"spec": spec()}, id="an-older-version"),
        pytest.param([OLD, NEW], NEW, {"spec": spec()}, id="the-newer-of-two"),
        pytest.param([CLUSTER_POLICIES], CLUSTER_POLICIES, {"spec": {"rules": [RULE]}}, id="rules"),
    ],
)
async def test_policies_of_the_cluster_decide(resources, used, body):
    case = Case(*resources)
    case.create(used, **body)

    async with watching(case):
        assert case.denials() == ["no"]


async def test_a_policy_of_a_namespace_concerns_that_one_alone():
    case = Case(OF_NAMESPACES)
    case.create(OF_NAMESPACES, namespace="team-a", spec=spec())
    case.create(OF_NAMESPACES, namespace="team-b", spec=spec(message="never"))

    async with watching(case):
        assert case.denials() == ["no"]
        assert case.denials("team-b") == ["never"]


async def test_changes_count_at_once_and_broken_ones_do_not():
    case = Case(NEW)
    case.create(NEW, spec=spec())

    async with watching(case):
        case.replace(NEW, spec=spec(message="never"))
        await case.clock.advance(0)
        changed = case.denials()
        case.replace(NEW, spec=spec("1 +"))
        await case.clock.advance(0)
        broken, mistakes = case.denials(), case.mistakes
        case.client.store.delete(NEW, case.client.store.get(NEW, "", "a"), dry_run=False)
        await case.clock.advance(0)

        assert (changed, broken, mistakes) == (["never"], ["never"], 1)
        assert (case.denials(), case.mistakes) == ([], 0)


async def test_a_status_changes_nothing():
    case = Case(NEW)
    case.create(NEW, spec=spec())

    async with watching(case):
        before = case.changes
        case.replace(NEW, status={"conditionStatus": {"ready": True}})
        await case.clock.advance(0)
        after_status = case.changes
        metadata = {"name": "a", "labels": {"team": "x"}}
        case.replace(NEW, metadata=metadata)
        await case.clock.advance(0)

        assert (after_status, case.changes) == (before, before + 1)


async def test_exceptions_of_the_cluster_have_no_effect():
    case = Case(NEW, EXCEPTIONS)
    case.create(NEW, spec=spec())
    named = {"policyRefs": [{"name": "a", "kind": "ValidatingPolicy"}]}
    case.create(EXCEPTIONS, namespace="team-a", spec=named)

    async with watching(case):
        assert case.denials() == ["no"]


async def test_kinds_that_come_later_are_found():
    case = Case()

    async with watching(case):
        case.client.resources = (NEW,)
        case.create(NEW, spec=spec())
        await case.clock.advance(LOOK_SECONDS / 2)
        before = case.denials()
        await case.clock.advance(LOOK_SECONDS / 2)

        assert (before, case.denials()) == ([], ["no"])


async def test_nothing_is_decided_before_the_api_server_has_listed_its_objects():
    case = Case(NEW)
    case.create(NEW, spec=spec())
    case.client.away = 1

    async with watching(case):
        assert not case.tasks[0].done()
        await case.clock.advance(RETRY_SECONDS)

        assert case.tasks[0].done()
        assert case.denials() == ["no"]
