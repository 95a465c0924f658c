"""What Kyverno's policies read of the cluster comes from memory, and only what is declared."""

import asyncio
import json
from contextlib import asynccontextmanager

import pytest
from prometheus_client import CollectorRegistry

from policyd.admission.handler import AdmissionHandler
from policyd.api.admission import parse_review
from policyd.errors import ConfigurationError
from policyd.kube.errors import ForbiddenError
from policyd.kube.pace import Pace
from policyd.kube.resources import CONFIG_MAPS, NODES, PODS, SECRETS, SUBJECT_ACCESS_REVIEWS
from policyd.testing import FakeClient, FakeClock
from tests.webhooks.policies import stored
from tests.webhooks.reviews import response, review
from webhooks.external_data.fetching import Fetcher
from webhooks.external_data.lookups import ExternalLookups
from webhooks.external_data.permissions import Permissions
from webhooks.external_data.reads import ClusterObjects
from webhooks.external_data.web import Web
from webhooks.metrics import WebhookMetrics
from webhooks.namespaces import without_cluster
from webhooks.policies.in_force import PoliciesInForce

pytestmark = pytest.mark.anyio

RULE = {
    "apiGroups": [""],
    "apiVersions": ["v1"],
    "operations": ["CREATE"],
    "resources": ["pods"],
}
PATIENCE = 5.0
NAMES = ".items.map(i, i.metadata.name).join(',')"


async def soon(seconds):
    await asyncio.sleep(seconds if seconds >= PATIENCE else 0.002)


async def add(client, resource, name, namespace="", **more):
    metadata = {"name": name, **({"namespace": namespace} if namespace else {})}
    metadata |= {"labels": more.pop("labels")} if "labels" in more else {}
    await client.create(resource, {"metadata": metadata, **more}, into=dict)


@asynccontextmanager
async def watching(*resources):
    client = FakeClient(resources=[CONFIG_MAPS, NODES, PODS])
    await add(client, CONFIG_MAPS, "b", "ml", data={"word": "first"}, labels={"team": "x"})
    await add(client, CONFIG_MAPS, "a", "ml", labels={"team": "y"})
    await add(client, CONFIG_MAPS, "c", "hr", labels={"team": "x"})
    await add(client, NODES, "n")
    objects = ClusterObjects(client, resources, pace=Pace(sleep=soon))
    running = asyncio.create_task(objects.run())
    yield client, objects
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


def asking(folder, objects, expression):
    """Return what a policy says that is to say what an expression gives."""
    policy = {
        "apiVersion": "policies.kyverno.io/v1",
        "kind": "ValidatingPolicy",
        "metadata": {"name": "asks"},
        "spec": {
            "validationActions": ["Deny"],
            "matchConstraints": {"resourceRules": [RULE]},
            "validations": [{"expression": f"string({expression}) == ''"}],
        },
    }
    validation = policy["spec"]["validations"][0]
    validation["messageExpression"] = f"string({expression})"
    (folder / "a.yaml").write_text(json.dumps(policy))
    metrics = WebhookMetrics(CollectorRegistry())
    http = Web(Fetcher({}), ExternalLookups(clock=FakeClock()), [])
    policies = PoliciesInForce(
        namespaces=without_cluster, metrics=metrics, reads=objects, http=http
    )
    policies.read_files([folder])
    assert metrics.registry.get_sample_value("policyd_policy_mistakes") == 0
    decision = policies.validate(parse_review(review()))
    return "; ".join(denial.message for denial in decision.denials)


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        pytest.param("resource.Get('v1', 'configmaps', 'ml', 'b').data.word", "first", id="one"),
        pytest.param("resource.Get('v1', 'nodes', '', 'n').kind", "Node", id="of-no-namespace"),
        pytest.param(f"resource.List('v1', 'configmaps', 'ml'){NAMES}", "a,b", id="of-a-namespace"),
        pytest.param(f"resource.List('v1', 'configmaps', ''){NAMES}", "c,a,b", id="of-all"),
        pytest.param(
            f"resource.List('v1', 'configmaps', '', {{'team': 'x'}}){NAMES}", "c,b", id="by-labels"
        ),
        pytest.param("resource.List('v1', 'nodes', '').kind", "NodeList", id="list"),
    ],
)
async def test_declared_resources_are_read(tmp_path, expression, message):
    async with watching("v1/configmaps", "v1/nodes") as (_, objects):
        await objects.first_lists(PATIENCE)

        assert asking(tmp_path, objects, expression) == message


def entry(name, spec):
    meta = {"apiVersion": "kyverno.io/v2alpha1", "kind": "GlobalContextEntry"}
    return json.dumps({**meta, "metadata": {"name": name}, "spec": spec})


def resource(**more):
    return {"kubernetesResource": {"version": "v1", "resource": "configmaps", **more}}


def projected(**projections):
    given = [{"name": name, "jmesPath": path} for name, path in projections.items()]
    return {**resource(), "projections": given}


def call(path, **more):
    return {"apiCall": {"urlPath": path, **more}}


ENTRIES = {
    "all": resource(),
    "of-ml": resource(namespace="ml"),
    "apps": resource(group="apps", resource="deployments"),
    "wrong": projected(a="[", b="sum('a')", deep="!" * 5000 + "@", long="a" * 20001),
    "named": projected(names="[].metadata.name", words="[?data.word].data.word"),
    "odd": {"kubernetesResource": {"version": 1}},
    "empty": {},
    "list": call("/api/v1/configmaps"),
    "list-of-ml": call("/api/v1/namespaces/ml/configmaps"),
    "one": call("/api/v1/namespaces/ml/configmaps/b"),
    "node": call("/api/v1/nodes/n"),
    "gone": call("/api/v1/nodes/other"),
    "namespace": call("/api/v1/namespaces/ml"),
    "grouped": call("/apis/apps/v1/namespaces/ml/deployments"),
    "query": call("/api/v1/configmaps?limit=1"),
    "dots": call("/api/v1/nodes/n/proxy/x"),
    "kinds": call("/apis"),
    "post": call("/api/v1/configmaps", method="POST"),
}


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        pytest.param("('all', '').size()", "3", id="all"),
        pytest.param("('of-ml').size()", "2", id="of-a-namespace"),
        pytest.param("('none') == null", "true", id="none-of-the-name"),
        pytest.param("('list').items.size()", "3", id="a-list"),
        pytest.param("('list-of-ml').items.size()", "2", id="a-list-of-a-namespace"),
        pytest.param("('one').data.word", "first", id="an-object"),
        pytest.param("('named', 'names').size()", "3", id="projected"),
        pytest.param("('named', 'words', '[0]')", "first", id="expression-on-a-projection"),
        pytest.param("('all', '', 'length(@)')", "3", id="expression"),
        pytest.param("('all', '', '[?a]') == []", "true", id="nothing-found"),
        pytest.param("('node').kind", "Node", id="of-no-namespace"),
    ],
)
async def test_entries_among_the_policies_hold_what_is_declared(tmp_path, asked, message):
    assert await held(tmp_path, asked) == message


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        pytest.param("('all', 'a').size()", "entry `all` has no projection `a`", id="projection"),
        pytest.param("('wrong', 'a')", "`[` fails on entry `wrong`: Invalid", id="no-jmespath"),
        pytest.param("('wrong', 'b')", "`sum('a')` fails on entry `wrong`: In", id="types"),
        pytest.param("('all', '', 'f(@)')", "fails on entry `all`: Unknown function", id="unknown"),
        pytest.param("('wrong', 'deep')", "of entry `wrong` is nested too deep", id="deep"),
        pytest.param("('wrong', 'long')", "characters is too long: write 20000", id="long"),
        pytest.param("('apps').size()", "without `--reads apps/v1/deployments`", id="undeclared"),
        pytest.param("('odd').size()", "entry `odd` cannot be read: Expected `str`", id="odd"),
        pytest.param(
            "('empty').kind", "`` of entry `empty` is not a path of objects", id="nothing"
        ),
        pytest.param("('grouped').kind", "`--reads apps/v1/deployments`", id="path-undeclared"),
        pytest.param("('namespace').kind", "without `--reads v1/namespaces`", id="namespace"),
        pytest.param(
            "('gone').kind", "entry `gone` names `/api/v1/nodes/other`, which does", id="gone"
        ),
        pytest.param("('query').kind", "without a query", id="query"),
        pytest.param("('dots').kind", "entry `dots` is not a path of objects", id="subresource"),
        pytest.param("('kinds').kind", "`/apis` of entry `kinds` is not a path", id="discovery"),
        pytest.param("('post').kind", "entry `post` posts to the API server, of which", id="post"),
    ],
)
async def test_entries_that_cannot_be_answered_say_why(tmp_path, asked, why):
    assert why in await held(tmp_path, asked)


async def held(folder, asked):
    text = "\n---\n".join(entry(name, spec) for name, spec in ENTRIES.items())
    (folder / "entries.yaml").write_text(text)
    async with watching("v1/configmaps", "v1/nodes") as (_, objects):
        await objects.first_lists(PATIENCE)
        return asking(folder, objects, f"globalContext.Get{asked}")


async def test_a_change_counts_at_once(tmp_path):
    expression = "resource.Get('v1', 'configmaps', 'ml', 'b').data.word"
    async with watching("v1/configmaps") as (client, objects), asyncio.timeout(10):
        await objects.first_lists(PATIENCE)
        change = {"data": {"word": "second"}}
        await client.patch(CONFIG_MAPS, "b", change, namespace="ml", into=dict)
        while asking(tmp_path, objects, expression) != "second":  # noqa: ASYNC110
            await asyncio.sleep(0)


@pytest.mark.parametrize(
    ("expression", "why"),
    [
        pytest.param(
            "resource.Get('v1', 'secrets', 'ml', 'b').kind",
            "policies may not read `v1/secrets` without `--reads v1/secrets`",
            id="not-declared",
        ),
        pytest.param(
            "resource.Get('v1', 'pods', 'ml', 'b').kind",
            "`v1/pods` is not known: pods is forbidden",
            id="not-allowed",
        ),
        pytest.param(
            "resource.Post('v1', 'configmaps', 'ml', {'a': 'b'}).kind",
            "nothing of `v1/configmaps` is created by a review: it asks by `authorization",
            id="no-question",
        ),
        pytest.param(
            "resource.Post('authorization.k8s.io/v1', 'subjectaccessreviews', {'a': 'b'}).kind",
            "no API server can answer `authorization.k8s.io/v1/subjectaccessreviews`",
            id="nobody-to-ask",
        ),
    ],
)
async def test_unreadable_data_fails_the_policy_with_a_message(tmp_path, expression, why):
    async with watching("v1/configmaps", "v1/pods") as (client, objects):
        client.fail(ForbiddenError("pods is forbidden"), plural="pods", times=100_000)
        await objects.first_lists(0.1)

        assert why in asking(tmp_path, objects, expression)


async def test_a_resource_without_a_version_is_refused_with_a_hint():
    with pytest.raises(ConfigurationError, match="`configmaps` names no version") as caught:
        ClusterObjects(FakeClient(), ["configmaps"], pace=Pace())

    assert caught.value.hint == "write `v1/configmaps`, or `group/version/plural`"


class Everything(FakeClient):
    """An API server that lets everybody do everything, and notes what it is asked."""

    def __init__(self, **given):
        super().__init__(**given)
        self.asked = []

    async def create(self, resource, body, *, into, **options):
        if resource != SUBJECT_ACCESS_REVIEWS:
            return await super().create(resource, body, into=into, **options)
        self.asked.append(body["spec"]["resourceAttributes"]["namespace"])
        return {"status": {"allowed": True}}


@asynccontextmanager
async def webhook_of_a_namespace():
    """What a policy of `team-a` is told at admission, where the webhooks may read everything."""
    client = Everything(resources=[CONFIG_MAPS, NODES, SECRETS])
    for namespace, word in (("team-a", "own"), ("team-b", "other")):
        await add(client, SECRETS, "s", namespace, data={"word": word})
    await add(client, NODES, "n", data={"word": "other"})
    lookups = ExternalLookups(clock=FakeClock())
    permissions = Permissions(client, lookups)
    resources = ("v1/secrets", "v1/nodes", "v1/configmaps")
    objects = ClusterObjects(client, resources, permissions, pace=Pace(sleep=soon))
    running = asyncio.create_task(objects.run())
    await objects.first_lists(PATIENCE)
    http = Web(Fetcher({}), lookups, ["https://inventory.example"])
    metrics = WebhookMetrics(CollectorRegistry())
    policies = PoliciesInForce(
        namespaces=without_cluster, metrics=metrics, reads=objects, http=http
    )
    answer = AdmissionHandler(
        phase="validate", policies=policies.validate, with_external_data=lookups.decide
    ).answer

    async def evaluate(expression):
        """Return what is refused with, and how many policies there are."""
        spec = {
            "matchConstraints": {"resourceRules": [RULE]},
            "variables": [{"name": "said", "expression": f"string({expression})"}],
            "validations": [
                {"expression": "variables.said == ''", "messageExpression": "variables.said"}
            ],
        }
        asking = stored(
            "asks",
            spec,
            kind="NamespacedValidatingPolicy",
            group="policies.kyverno.io",
            namespace="team-a",
        )
        policies.take(asking)
        body_of = response(await answer(review(), lambda: False))
        return body_of.get("status", {}).get("message", ""), len(policies.loaded)

    yield evaluate, client
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


def local_review(namespace):
    spec = f"{{'spec': {{'resourceAttributes': {{'namespace': '{namespace}', 'verb': 'get'}}}}}}"
    about = f"'authorization.k8s.io/v1', 'localsubjectaccessreviews', {spec}"
    return f"resource.Post({about}).status.allowed"


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("resource.Get('v1', 'secrets', 's').data.word", "own"),
        ("resource.List('v1', 'secrets').items.map(i, i.data.word).join(',')", "own"),
        (local_review("team-a"), "true"),
    ],
)
async def test_a_policy_of_a_namespace_reads_that(expression, expected):
    async with webhook_of_a_namespace() as (evaluate, _):
        message, _ = await evaluate(expression)

    assert message.endswith(f": {expected}")


@pytest.mark.parametrize(
    "expression",
    [
        "resource.Get('v1', 'nodes', 'n').data.word",
        "resource.List('v1', 'nodes').items[0].data.word",
        local_review("team-b"),
        local_review(""),
    ],
)
async def test_a_policy_of_a_namespace_receives_nothing_else(expression):
    async with webhook_of_a_namespace() as (evaluate, client):
        message, _ = await evaluate(expression)

    assert "a policy of namespace `team-a` cannot access" in message
    assert client.asked == []


@pytest.mark.parametrize(
    "expression",
    [
        "resource.Get('v1', 'secrets', 'team-b', 's').data.word",
        "resource.List('v1', 'secrets', '').items[0].data.word",
        "http.Get('https://inventory.example/a').word",
        "globalContext.Get('e').word",
        "image.GetMetadata('ghcr.io/a/b').word",
    ],
)
async def test_a_policy_of_a_namespace_that_asks_further_says_nothing(expression):
    async with webhook_of_a_namespace() as (evaluate, client):
        message, _ = await evaluate(expression)

    assert "other" not in message
    assert client.asked == []
