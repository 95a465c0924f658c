"""What Kyverno's policies read of the cluster comes from memory, and only what is declared."""

import asyncio
import json
from contextlib import asynccontextmanager

import pytest
from prometheus_client import CollectorRegistry

from policyd.api.admission import parse_review
from policyd.errors import ConfigurationError
from policyd.kube.errors import ForbiddenError
from policyd.kube.pace import Pace
from policyd.kube.resources import CONFIG_MAPS, NODES, PODS
from policyd.testing import FakeClient
from tests.webhooks.reviews import review
from webhooks.metrics import DoorMetrics
from webhooks.namespaces import without_cluster
from webhooks.policies import Policies
from webhooks.reads import ClusterObjects

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
    metrics = DoorMetrics(CollectorRegistry())
    policies = Policies(namespaces=without_cluster, metrics=metrics, reads=objects)
    policies.read_files([folder])
    assert metrics.registry.get_sample_value("policyd_policy_mistakes_count") == 0
    decision = policies.validate(parse_review(review()))
    return "; ".join(denial.message for denial in decision.denials)


@pytest.mark.parametrize(
    ("expression", "said"),
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
async def test_declared_resources_are_read(tmp_path, expression, said):
    async with watching("v1/configmaps", "v1/nodes") as (_, objects):
        await objects.first_lists(PATIENCE)

        assert asking(tmp_path, objects, expression) == said


ENTRIES = """\
apiVersion: kyverno.io/v2alpha1
kind: GlobalContextEntry
metadata: {name: all}
spec: {kubernetesResource: {version: v1, resource: configmaps}}
---
apiVersion: kyverno.io/v2alpha1
kind: GlobalContextEntry
metadata: {name: of-ml}
spec: {kubernetesResource: {version: v1, resource: configmaps, namespace: ml}}
---
apiVersion: kyverno.io/v2alpha1
kind: GlobalContextEntry
metadata: {name: apps}
spec: {kubernetesResource: {group: apps, version: v1, resource: deployments}}
---
apiVersion: kyverno.io/v2alpha1
kind: GlobalContextEntry
metadata: {name: called}
spec: {apiCall: {urlPath: /apis}}
"""


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        pytest.param("('all', '').size()", "3", id="all"),
        pytest.param("('of-ml').size()", "2", id="of-a-namespace"),
        pytest.param("('gone') == null", "true", id="none-of-the-name"),
        pytest.param("('all', 'names').size()", "projection `names` of entry", id="projection"),
        pytest.param("('called', '').size()", "entry `called` is a call", id="call"),
        pytest.param("('apps').size()", "it takes `--reads apps/v1/deployments`", id="undeclared"),
    ],
)
async def test_entries_among_the_policies_hold_what_is_declared(tmp_path, asked, said):
    (tmp_path / "entries.yaml").write_text(ENTRIES)
    async with watching("v1/configmaps") as (_, objects):
        await objects.first_lists(PATIENCE)

        assert said in asking(tmp_path, objects, f"globalContext.Get{asked}")


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
            "policies may not read `v1/secrets` here: it takes `--reads v1/secrets`",
            id="not-declared",
        ),
        pytest.param(
            "resource.Get('v1', 'pods', 'ml', 'b').kind",
            "`v1/pods` is not known: pods is forbidden",
            id="not-allowed",
        ),
        pytest.param(
            "resource.Post('v1', 'configmaps', 'ml', {'a': 'b'}).kind",
            "nothing of `v1/configmaps` is created by a review",
            id="no-question",
        ),
    ],
)
async def test_what_cannot_be_read_fails_the_policy_with_a_word(tmp_path, expression, why):
    async with watching("v1/configmaps", "v1/pods") as (client, objects):
        client.fail(ForbiddenError("pods is forbidden"), plural="pods", times=100_000)
        await objects.first_lists(0.1)

        assert why in asking(tmp_path, objects, expression)


async def test_a_resource_without_a_version_is_refused_with_a_hint():
    with pytest.raises(ConfigurationError, match="`configmaps` names no version") as caught:
        ClusterObjects(FakeClient(), ["configmaps"], pace=Pace())

    assert caught.value.hint == "write `v1/configmaps`, or `group/version/plural`"
