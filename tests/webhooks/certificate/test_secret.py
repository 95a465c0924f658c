"""The certificate kept in a Secret, against an API server in memory: many replicas, one truth."""

import asyncio
import base64

import pytest

from policyd.certificates import DAY, certificate_facts, split_bundle
from policyd.errors import ConfigurationError
from policyd.kube.errors import ConflictError, ForbiddenError
from policyd.kube.resources import (
    MUTATING_WEBHOOK_CONFIGURATIONS,
    SECRETS,
    VALIDATING_WEBHOOK_CONFIGURATIONS,
)
from policyd.registration.configurations import NAME, Registration, ServiceEndpoint
from policyd.registration.webhook_rules import WebhookRules
from policyd.testing import FakeClient, FakeClock
from webhooks.certificate.publication import Publication
from webhooks.certificate.secret import ROUND_SECONDS, KeptCertificate, SecretName

pytestmark = pytest.mark.anyio

WHERE = SecretName(namespace="policyd", name="webhooks")
ENDPOINT = ServiceEndpoint(namespace="policyd", name="policyd-webhooks")


@pytest.fixture
def anyio_backend():
    return "asyncio"


class Replica:
    """One admission server, as far as certificates go."""

    def __init__(self, client, clock, *, register=False):
        self.served = []
        self._certificate = KeptCertificate(
            client,
            WHERE,
            names=ENDPOINT.dns_names,
            publish=Publication(client, wanted if register else None).publish,
            use=self.served.append,
            pace=clock.pace(),
        )
        self.refresh = self._certificate.refresh
        self.run = self._certificate.run


async def wanted(ca_bundle_pem):
    return Registration(
        endpoint=ENDPOINT,
        rules=WebhookRules(),
        own_namespace="policyd",
        timeout_seconds=5,
        ca_bundle_pem=ca_bundle_pem,
    )


async def kept_in(client):
    secret = await client.get(SECRETS, "webhooks", namespace="policyd", into=dict)
    return {name: base64.b64decode(text) for name, text in secret["data"].items()}


async def with_configurations(client):
    for resource in (MUTATING_WEBHOOK_CONFIGURATIONS, VALIDATING_WEBHOOK_CONFIGURATIONS):
        webhook = {"name": "a.b.c", "clientConfig": {"service": {"name": "x", "namespace": "y"}}}
        body = {"metadata": {"name": NAME}, "webhooks": [webhook]}
        await client.create(resource, body, into=dict)


async def bundle_of(client, resource):
    configuration = await client.get(resource, NAME, into=dict)
    [webhook] = configuration["webhooks"]
    assert webhook["clientConfig"]["service"] == {"name": "x", "namespace": "y"}
    return split_bundle(base64.b64decode(webhook["clientConfig"].get("caBundle", "")))


async def test_the_first_replica_makes_the_secret_and_the_second_serves_the_same():
    client, clock = FakeClient(), FakeClock()
    first, second = Replica(client, clock), Replica(client, clock)

    await first.refresh()
    await second.refresh()

    assert first.served == second.served
    assert (await kept_in(client))["tls.crt"] == first.served[0].certificate_pem
    facts = certificate_facts(first.served[0].certificate_pem)
    assert facts.names == set(ENDPOINT.dns_names)


async def test_a_certificate_that_did_not_change_is_not_put_to_use_again():
    client, clock = FakeClient(), FakeClock()
    replica = Replica(client, clock)

    await replica.refresh()
    await replica.refresh()

    assert len(replica.served) == 1
    assert [write.verb for write in client.writes] == ["create"]


async def test_the_loser_of_a_race_reads_again_and_serves_the_kept_certificate():
    client, clock = FakeClient(), FakeClock()
    winner, loser = Replica(client, clock), Replica(client, clock)
    await winner.refresh()
    client.fail(ConflictError("it changed"), verb="patch", plural="secrets")
    clock.jump(70 * DAY)

    await loser.refresh()
    await winner.refresh()

    assert loser.served[-1] == winner.served[-1]
    assert winner.served[0] != winner.served[-1]


async def test_the_authority_is_published_before_its_certificate_is_served():
    client, clock = FakeClient(), FakeClock()
    await with_configurations(client)
    replica = Replica(client, clock)

    await replica.refresh()

    authority = (await kept_in(client))["ca.crt"]
    for resource in (MUTATING_WEBHOOK_CONFIGURATIONS, VALIDATING_WEBHOOK_CONFIGURATIONS):
        assert await bundle_of(client, resource) == (authority,)


async def test_an_authority_is_replaced_with_both_trusted_meanwhile():
    client, clock = FakeClient(), FakeClock()
    await with_configurations(client)
    replica = Replica(client, clock)
    await replica.refresh()
    old = (await kept_in(client))["ca.crt"]

    clock.jump(3000 * DAY)
    await replica.refresh()

    both = await bundle_of(client, MUTATING_WEBHOOK_CONFIGURATIONS)
    assert both[0] == old
    assert len(both) == 2
    assert (await kept_in(client))["ca.crt"] == old

    clock.jump(3600)
    await replica.refresh()

    assert (await kept_in(client))["ca.crt"] == both[1]
    assert set(await bundle_of(client, MUTATING_WEBHOOK_CONFIGURATIONS)) == set(both)

    clock.jump(2 * DAY)
    await replica.refresh()

    assert await bundle_of(client, VALIDATING_WEBHOOK_CONFIGURATIONS) == (both[1],)
    assert set(await kept_in(client)) == {"ca.crt", "ca.key", "tls.crt", "tls.key"}


async def test_other_data_of_the_secret_is_kept():
    client, clock = FakeClient(), FakeClock()
    metadata = {"name": "webhooks", "namespace": "policyd", "labels": {"by": "chart"}}
    await client.create(SECRETS, {"metadata": metadata, "type": "Opaque"}, into=dict)

    await Replica(client, clock).refresh()

    secret = await client.get(SECRETS, "webhooks", namespace="policyd", into=dict)
    assert secret["metadata"]["labels"] == {"by": "chart"}
    assert "tls.key" in secret["data"]


async def test_a_secret_with_something_else_in_it_is_not_overwritten():
    client, clock = FakeClient(), FakeClock()
    data = {"ca.crt": base64.b64encode(b"mine").decode(), "ca.key": ""}
    metadata = {"name": "webhooks", "namespace": "policyd"}
    await client.create(SECRETS, {"metadata": metadata, "data": data}, into=dict)

    with pytest.raises(ConfigurationError, match="the Secret cannot be used"):
        await Replica(client, clock).refresh()

    assert (await kept_in(client))["ca.crt"] == b"mine"


async def test_a_round_that_fails_is_logged_and_the_next_one_goes_on(capsys):
    client, clock = FakeClient(), FakeClock()
    replica = Replica(client, clock)
    client.fail(ForbiddenError("secrets is forbidden"), verb="get")
    running = asyncio.create_task(replica.run())

    await clock.advance(ROUND_SECONDS)
    assert replica.served == []
    await clock.advance(ROUND_SECONDS)
    running.cancel()

    assert len(replica.served) == 1
    output = capsys.readouterr()
    assert "secrets is forbidden" in output.out + output.err


async def test_registered_configurations_carry_the_bundle():
    client, clock = FakeClient(), FakeClock()

    await Replica(client, clock, register=True).refresh()

    made = await client.get(MUTATING_WEBHOOK_CONFIGURATIONS, NAME, into=dict)
    assert made["webhooks"] == []
