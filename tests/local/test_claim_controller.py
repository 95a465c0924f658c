"""What the embedded controller of claims does about a pod."""

import msgspec
import pytest

from policyd.kube.changes import Added
from policyd.kube.resources import PODS, RESOURCE_CLAIM_TEMPLATES, RESOURCE_CLAIMS
from policyd.local.claim_controller import POD_CLAIM, ClaimController
from policyd.local.objects import LocalPod
from policyd.local.steps import RETRY_SECONDS
from policyd.testing import FakeClient

pytestmark = pytest.mark.anyio

ASKED = {"devices": {"requests": [{"name": "gpus", "exactly": {"deviceClassName": "gpu"}}]}}
TEMPLATE = {"metadata": {"labels": {"team": "a"}, "annotations": {"a": "b"}}, "spec": ASKED}
NOW = 1767225600.0


@pytest.fixture
async def client():
    made = FakeClient()
    await created(made, RESOURCE_CLAIM_TEMPLATES, "one", TEMPLATE)
    return made


async def created(client, resource, name, spec):
    body = {"metadata": {"name": name, "namespace": "ns"}, "spec": spec}
    return await client.create(resource, body, namespace="ns", into=dict)


async def pod_of(client, *claims, name="p"):
    given = [{"name": each, "resourceClaimTemplateName": of} for each, of in claims]
    gates = [{"name": "kueue.x-k8s.io/admission"}]
    return await created(client, PODS, name, {"resourceClaims": given, "schedulingGates": gates})


async def stepped(client, pod, times=1):
    controller, wait = ClaimController(client), None
    for _ in range(times):
        controller.pods.take(Added(msgspec.convert(pod, LocalPod)))
        wait = await controller.step(NOW)
    return wait


def claims(client):
    return client.store.select(RESOURCE_CLAIMS, {})


def statuses(client, name="p"):
    status = client.store.get(PODS, "ns", name).get("status", {})
    return {e["name"]: e["resourceClaimName"] for e in status.get("resourceClaimStatuses", ())}


async def test_a_pod_that_is_held_has_its_claims_made(client):
    pod = await pod_of(client, ("gpu", "one"), ("more", "one"))
    await stepped(client, pod)

    made = {each["metadata"]["annotations"][POD_CLAIM]: each for each in claims(client)}
    assert statuses(client) == {name: each["metadata"]["name"] for name, each in made.items()}
    assert made.keys() == {"gpu", "more"}
    metadata = made["gpu"]["metadata"]
    assert (metadata["labels"], metadata["annotations"]["a"]) == ({"team": "a"}, "b")
    assert made["gpu"]["spec"] == ASKED
    (owner,) = metadata["ownerReferences"]
    assert (owner["uid"], owner["controller"]) == (pod["metadata"]["uid"], True)


async def test_a_claim_is_made_once_though_the_pod_does_not_show_it_yet(client):
    pod = await pod_of(client, ("gpu", "one"))
    await stepped(client, pod, times=2)

    assert len(claims(client)) == 1


async def test_a_template_is_waited_for(client):
    pod = await pod_of(client, ("gpu", "late"))

    assert await stepped(client, pod) == RETRY_SECONDS
    await created(client, RESOURCE_CLAIM_TEMPLATES, "late", TEMPLATE)
    await stepped(client, pod)
    assert statuses(client).keys() == {"gpu"}


async def test_the_longest_name_of_a_pod_makes_a_name_of_a_claim(client):
    name = "a" * 240 + "." + "b" * 12
    await stepped(client, await pod_of(client, ("gpu", "one"), name=name))

    (made,) = claims(client)
    assert len(made["metadata"]["name"]) <= 253


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"status": {"phase": "Succeeded"}}, id="has-ended"),
        pytest.param({"spec": {}}, id="claims-nothing"),
        pytest.param(
            {"spec": {"resourceClaims": [{"name": "a", "resourceClaimName": "b"}]}}, id="shares"
        ),
    ],
)
async def test_other_pods_have_none(client, change):
    pod = await pod_of(client, ("gpu", "one"))
    await stepped(client, pod | change)

    assert claims(client) == []
