"""Whatever is sent, the server says what is wrong with it and goes on."""

import copy
import random

import pytest

from tests.local.apiserver.client import CONFIG_MAPS, JOBS, NAMESPACES, PODS, config_map, job, pod
from tests.local.apiserver.hooks import VALIDATING
from tests.local.apiserver.test_custom_kinds import (
    CRON_TABS,
    DEFINITIONS,
    cron_tab,
    definition,
    version,
)
from tests.local.apiserver.writing.test_patching import DEPLOYMENTS, deployment

pytestmark = pytest.mark.anyio

JUNK = (None, True, 0, -1, 1.5, 2**70, "", "x", "a/b/c", "1x", [], {}, [None], [[]], [{}],
        {"a": None}, {"": {}})  # fmt: skip

ATTEMPTS = 150

FULL_POD = pod(
    initContainers=[{"name": "init", "image": "busybox", "ports": [{"containerPort": 1}]}],
    containers=[
        {
            "name": "main",
            "image": "busybox",
            "env": [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
            "resources": {"limits": {"nvidia.com/gpu": "1"}, "requests": {"cpu": "1"}},
            "livenessProbe": {"httpGet": {"port": 80}},
        }
    ],
    tolerations=[{"key": "a", "operator": "Exists"}],
    schedulingGates=[{"name": "example.com/wait"}],
    nodeSelector={"a": "b"},
    affinity={"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}},
    topologySpreadConstraints=[{"maxSkew": 1, "topologyKey": "a"}],
    volumes=[{"name": "v", "configMap": {"name": "c"}}],
    priorityClassName="system-node-critical",
)

WEBHOOKS = {
    "metadata": {"name": "one"},
    "webhooks": [
        {
            "name": "a.b.c",
            "clientConfig": {"service": {"namespace": "a", "name": "b"}},
            "rules": [{"apiGroups": ["nowhere"], "resources": ["x"], "operations": ["*"]}],
            "namespaceSelector": {"matchExpressions": [{"key": "a", "operator": "Exists"}]},
            "matchConditions": [{"name": "a", "expression": "true"}],
            "sideEffects": "None",
        }
    ],
}

RULED = definition(
    version(
        spec={
            "type": "object",
            "x-kubernetes-validations": [{"rule": "true", "message": "no"}],
            "properties": {"a": {"type": "string", "enum": ["x"]}},
        },
        additionalPrinterColumns=[{"name": "A", "type": "string", "jsonPath": ".spec.a"}],
        subresources={
            "status": {},
            "scale": {"specReplicasPath": ".spec.a", "statusReplicasPath": ".status.a"},
        },
    )
)


NAMESPACE = {"metadata": {"name": "one"}, "spec": {"finalizers": ["a/b"]}}


def places(value, path=()):
    """Yield the paths of everything in an object."""
    children = value.items() if isinstance(value, dict) else ()
    children = enumerate(value) if isinstance(value, list) else children
    for key, child in children:
        yield (*path, key)
        yield from places(child, (*path, key))


def spoilt(value, rng):
    """Return an object with junk in one place, or without what was there."""
    changed = copy.deepcopy(value)
    *parents, last = rng.choice(list(places(changed)))
    inner = changed
    for key in parents:
        inner = inner[key]
    if rng.random() < 0.2:
        del inner[last]
    else:
        inner[last] = rng.choice(JUNK)
    return changed


@pytest.mark.parametrize(
    ("path", "body"),
    [
        pytest.param(PODS, FULL_POD, id="pod"),
        pytest.param(JOBS, job(completions=2, suspend=True, selector={}), id="job"),
        pytest.param(DEPLOYMENTS, deployment(), id="deployment"),
        pytest.param(CONFIG_MAPS, config_map(labels={"a": "b"}, a="b"), id="config-map"),
        pytest.param(
            NAMESPACES,
            {"metadata": {"name": "one"}, "spec": {"finalizers": ["a/b"]}},
            id="namespace",
        ),
        pytest.param(VALIDATING, WEBHOOKS, id="webhooks"),
        pytest.param(DEFINITIONS, RULED, id="definition"),
        pytest.param(CRON_TABS, cron_tab(steps=[{"name": "a"}], limits={"a": 1}), id="custom"),
    ],
)
async def test_junk_never_gets_the_better_of_the_server(api, path, body):
    rng = random.Random(path)
    if path == CRON_TABS:
        await api.create(DEFINITIONS, definition())
    name = body["metadata"]["name"]

    for _ in range(ATTEMPTS):
        created = await api.send("POST", path, spoilt(body, rng))
        changed = await api.patch(f"{path}/{name}", spoilt(body, rng))
        listed = await api.get(path, headers={"Accept": "application/json;as=Table"})
        await api.delete(f"{path}/{name}", gracePeriodSeconds="0")

        assert {created.code, changed.code} <= {200, 201, 400, 403, 404, 409, 422}, (
            created.body,
            changed.body,
        )
        assert listed.code in {200, 404}
    assert (await api.get(PODS)).code == 200
