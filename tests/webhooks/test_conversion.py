"""Kueue's v1beta1 beside v1beta2: what `/convert` answers, and who is told to ask."""

import asyncio
import base64
import json

import pytest

from policyd.admission.conversion import convert
from policyd.api.crd import KINDS, definition
from policyd.api.crd_v1beta1 import OLD_VERSION, old_versions
from policyd.kube.errors import ConflictError
from policyd.kube.resources import CUSTOM_RESOURCE_DEFINITIONS
from policyd.registration.configurations import ServiceEndpoint
from policyd.testing import FakeClient
from webhooks.certificate.old_versions import OldVersions

NEW, OLD = "kueue.x-k8s.io/v1beta2", "kueue.x-k8s.io/v1beta1"
QUEUES = "clusterqueues.kueue.x-k8s.io"
SERVICE = ServiceEndpoint(namespace="policyd", name="door")


async def rest():
    await asyncio.sleep(0)


def queue(version, **spec):
    return {
        "apiVersion": version,
        "kind": "ClusterQueue",
        "metadata": {"name": "gpus", "uid": "1"},
        "spec": spec,
    }


def review(*objects, to):
    request = {"uid": "u", "desiredAPIVersion": to, "objects": objects}
    envelope = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview"}
    return json.dumps({**envelope, "request": request}).encode()


def answer(*objects, to, late=False):
    answered = json.loads(asyncio.run(convert(review(*objects, to=to), lambda: late, rest=rest)))
    assert answered["kind"] == "ConversionReview"
    assert answered["response"]["uid"] == "u"
    return answered["response"]


@pytest.mark.parametrize(
    ("here", "there", "spec", "expected"),
    [
        (OLD, NEW, {"cohort": "research"}, {"cohortName": "research"}),
        (NEW, OLD, {"cohortName": "research"}, {"cohort": "research"}),
        (NEW, NEW, {"cohortName": "research"}, {"cohortName": "research"}),
    ],
)
def test_objects_are_had_in_the_version_that_is_asked_for(here, there, spec, expected):
    response = answer(queue(here, **spec), queue(here), to=there)

    assert response["result"] == {"status": "Success"}
    assert response["convertedObjects"] == [queue(there, **expected), queue(there)]


@pytest.mark.parametrize(
    ("given", "to", "said"),
    [
        (queue(OLD), "kueue.x-k8s.io/v1", "cannot convert to `kueue.x-k8s.io/v1`, only to "),
        (
            {**queue(OLD), "spec": "large"},
            NEW,
            f"ClusterQueue `gpus` cannot be had as `{NEW}`: `spec`: expected `object",
        ),
        (
            queue("kueue.x-k8s.io/v1alpha1"),
            NEW,
            "ClusterQueue `gpus` is of `kueue.x-k8s.io/v1alpha1`, not convertible to",
        ),
        (["no", "object"], NEW, "the item to convert is not an object"),
    ],
)
def test_what_cannot_be_converted_is_named(given, to, said):
    response = answer(queue(OLD), given, to=to)

    assert response["result"]["status"] == "Failure"
    assert response["result"]["message"].startswith(said)
    assert response["convertedObjects"] == []


def test_others_have_their_turn_between_the_objects_of_a_long_list():
    async def turns():
        taken = 0

        async def others():
            nonlocal taken
            while True:
                taken += 1
                await asyncio.sleep(0)

        waiting = asyncio.create_task(others())
        await convert(review(*[queue(OLD)] * 200, to=NEW), lambda: False, rest=rest)
        waiting.cancel()
        return taken

    assert asyncio.run(turns()) >= 10


EACH_ONE = {"universal": 1}


def test_a_few_words_are_not_written_out_as_a_million():
    assignment = {"levels": ["host"], "slices": [{"domainCount": 10**9, "podCounts": EACH_ONE}]}
    admission = {"podSetAssignments": [{"name": "main", "topologyAssignment": assignment}]}
    workload = {"apiVersion": NEW, "kind": "Workload", "status": {"admission": admission}}

    message = answer(workload, to=OLD)["result"]["message"]

    assert message.startswith("a topology assignment of 1000000000 domains cannot be had as")


def test_a_list_too_long_for_the_callers_patience_fails_with_what_to_do():
    response = answer(queue(OLD), to=NEW, late=True)

    assert "read the list in smaller pages" in response["result"]["message"]


@pytest.mark.parametrize("version", old_versions().values(), ids=old_versions())
def test_v1beta1_is_a_version_of_its_own(version):
    assert version["name"] == OLD_VERSION
    assert version["served"]
    assert not version["storage"]
    assert version["deprecationWarning"].endswith(f"is deprecated; use {NEW}")


def definitions(client, **changes):
    for kind in KINDS:
        made = definition(kind)
        made["spec"] |= changes.get(kind.plural, {})
        client.store.create(CUSTOM_RESOURCE_DEFINITIONS, made)


def spec_of(client, name=QUEUES):
    return client.store.get(CUSTOM_RESOURCE_DEFINITIONS, "", name)["spec"]


def test_definitions_serve_both_versions_and_are_written_once():
    client = FakeClient()
    definitions(client)
    old = OldVersions(client, SERVICE)

    configs = asyncio.run(old.publish(b"authority"))
    written = len(client.writes)
    again = asyncio.run(old.publish(b"authority"))

    spec = spec_of(client)
    assert [v["name"] for v in spec["versions"]] == ["v1beta2", "v1beta1"]
    assert spec["conversion"]["strategy"] == "Webhook"
    config = spec["conversion"]["webhook"]["clientConfig"]
    assert config["service"] == {
        "namespace": "policyd",
        "name": "door",
        "port": 443,
        "path": "/convert",
    }
    assert base64.b64decode(config["caBundle"]) == b"authority"
    assert configs == again == (config,) * len(old_versions())
    assert written == len(client.writes) == len(old_versions())


def test_another_authority_is_published():
    client = FakeClient()
    definitions(client)
    old = OldVersions(client, SERVICE)
    asyncio.run(old.publish(b"first"))

    asyncio.run(old.publish(b"second"))

    config = spec_of(client)["conversion"]["webhook"]["clientConfig"]
    assert base64.b64decode(config["caBundle"]) == b"second"


def test_a_v1beta1_of_kueues_own_keeps_its_schema():
    client = FakeClient()
    own = {"name": "v1beta1", "served": False, "storage": False, "schema": {"of": "Kueue"}}
    definitions(client, clusterqueues={"versions": [own, {"name": "v1beta2", "storage": True}]})

    asyncio.run(OldVersions(client, SERVICE).publish(b""))

    versions = spec_of(client)["versions"]
    assert versions == [{"name": "v1beta2", "storage": True}, {**own, "served": True}]


def test_kinds_that_are_not_there_are_left_alone():
    client = FakeClient()

    assert asyncio.run(OldVersions(client, SERVICE).publish(b"")) == ()
    assert client.writes == []


def test_another_replica_may_be_faster():
    client = FakeClient()
    definitions(client)
    client.fail(ConflictError("changed meanwhile"), verb="patch")

    configs = asyncio.run(OldVersions(client, SERVICE).publish(b"authority"))

    assert configs[0] == {}
    assert "conversion" not in spec_of(client, QUEUES)
