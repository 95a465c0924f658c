"""Kyverno's policies of the API server, in the versions that it has."""

import asyncio
from contextlib import asynccontextmanager

import pytest
from prometheus_client import CollectorRegistry

from policyd.api.admission import parse_review
from policyd.kube.errors import ForbiddenError, UnreachableError
from policyd.kube.resources import Resource
from policyd.testing import FakeClient, FakeClock
from tests.webhooks.reviews import POD, review
from webhooks.metrics import WebhookMetrics
from webhooks.namespaces import without_cluster
from webhooks.policies.in_force import PoliciesInForce
from webhooks.policies.sources import LOOK_SECONDS, RETRY_SECONDS, KyvernoPolicies
from webhooks.policies.stored import PolicyLimits

pytestmark = pytest.mark.anyio

GROUP = "policies.kyverno.io"
OLD, NEW = (
    Resource(GROUP, version, "validatingpolicies", "ValidatingPolicy", namespaced=False)
    for version in ("v1alpha1", "v1")
)
OF_NAMESPACES = Resource(GROUP, "v1", "namespacedvalidatingpolicies", "NamespacedValidatingPolicy")
EXCEPTIONS = Resource(GROUP, "v1", "policyexceptions", "PolicyException")
ENTRIES = Resource(
    "kyverno.io", "v2alpha1", "globalcontextentries", "GlobalContextEntry", namespaced=False
)
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
    forbidden = None

    async def page(self, resource, **selection):
        if resource == self.forbidden:
            raise ForbiddenError("may not list")
        return await super().page(resource, **selection)

    async def served(self, api_version):
        if self.away:
            self.away -= 1
            raise UnreachableError("nobody listens")
        return await super().served(api_version)


class Readable:
    """A cluster whose only objects are two of each resource."""

    def list(self, *_names):
        return {"items": [{"metadata": {"name": "x"}}, {"metadata": {"name": "y"}}]}


class Case:
    def __init__(self, *resources, exceptions=()):
        self.client = Away(resources=resources)
        self.clock = FakeClock()
        self.metrics = WebhookMetrics(CollectorRegistry())
        self.changes = 0
        self.policies = PoliciesInForce(
            namespaces=without_cluster,
            metrics=self.metrics,
            changed=self.change,
            reads=Readable(),
            http=object(),
        )
        self.tasks = []
        self.kyverno = KyvernoPolicies(
            self.client,
            self.policies,
            lambda _key, load: load(),
            pace=self.clock.pace(),
            exceptions=exceptions,
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


NAMED = {"policyRefs": [{"name": "a", "kind": "ValidatingPolicy"}]}


@pytest.mark.parametrize(
    ("namespaces", "denials"),
    [
        pytest.param((), ["no"], id="none-count"),
        pytest.param(("kyverno",), ["no"], id="another-namespace"),
        pytest.param(("kyverno", "team-a"), [], id="its-namespace"),
    ],
)
async def test_exceptions_of_the_cluster_count_in_the_namespaces_that_are_named(
    namespaces, denials
):
    case = Case(NEW, EXCEPTIONS, exceptions=namespaces)
    case.create(NEW, spec=spec())
    case.create(EXCEPTIONS, namespace="team-a", spec=NAMED)

    async with watching(case):
        assert case.denials() == denials


async def test_a_policy_holds_again_when_its_exception_is_deleted_or_broken():
    case = Case(NEW, EXCEPTIONS, exceptions=("team-a",))
    case.create(NEW, spec=spec())
    for name in ("a", "b"):
        made = case.create(EXCEPTIONS, name=name, namespace="team-a", spec=NAMED)

    async with watching(case):
        broken = {**made, "spec": {**NAMED, "matchConditions": [{"name": "a", "expression": "("}]}}
        case.client.store.replace(EXCEPTIONS, made, broken)
        await case.clock.advance(0)
        with_one = case.denials()
        old = case.client.store.get(EXCEPTIONS, "team-a", "a")
        case.client.store.delete(EXCEPTIONS, old, dry_run=False)
        await case.clock.advance(0)

        assert (with_one, case.denials()) == ([], ["no"])


async def test_an_exception_beyond_the_limits_denies_nothing():
    case = Case(NEW, EXCEPTIONS, exceptions=("team-a",))
    case.policies.limits = PolicyLimits(most=1)
    case.create(NEW, spec=spec("true"))
    for number in range(4):
        case.create(EXCEPTIONS, name=f"e{number}", namespace="team-a", spec=NAMED)

    async with watching(case):
        assert case.denials() == []


async def test_entries_of_the_cluster_are_data_of_policies():
    case = Case(NEW, ENTRIES)
    case.create(NEW, spec=spec("globalContext.Get('maps', '').size() == 3"))
    resource = {"version": "v1", "resource": "configmaps"}
    case.create(ENTRIES, name="maps", spec={"kubernetesResource": resource})

    async with watching(case):
        assert case.denials() == ["no"]

        old = case.client.store.get(NEW, "", "a")
        case.client.store.replace(
            NEW, old, {**old, "spec": spec("globalContext.Get('maps', '').size() == 2")}
        )
        await case.clock.advance(0)

        assert case.denials() == []


async def test_entries_that_the_account_may_not_read_are_left_out():
    case = Case(NEW, ENTRIES)
    case.create(NEW, spec=spec())
    case.client.forbidden = ENTRIES

    async with watching(case):
        assert case.tasks[0].done()
        assert case.denials() == ["no"]
        assert [*case.kyverno.informers] == [(GROUP, "ValidatingPolicy")]


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
