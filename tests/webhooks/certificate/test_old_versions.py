"""Kueue's v1beta1 in the definitions of the cluster, and the URL that converts it."""

import asyncio
import base64

import pytest

from policyd.api.crd import KINDS, definition
from policyd.api.crd_v1beta1 import OLD_VERSION, old_versions
from policyd.kube.errors import ConflictError
from policyd.kube.resources import CUSTOM_RESOURCE_DEFINITIONS
from policyd.registration.configurations import ServiceEndpoint
from policyd.testing import FakeClient
from webhooks.certificate.old_versions import OldVersions

NEW = "kueue.x-k8s.io/v1beta2"
QUEUES = "clusterqueues.kueue.x-k8s.io"
SERVICE = ServiceEndpoint(namespace="policyd", name="webhooks")


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
        "name": "webhooks",
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
