"""A Kueue beside policyd is found, and what is wrong between the two."""

import pytest

from policyd.api.meta import rfc3339
from policyd.cli.doctor.kueue import CHECKS, beside
from policyd.cli.doctor.report import CheckedCluster
from policyd.cli.takeover.steps import THERE
from policyd.kube import resources as r
from policyd.kube.kueue_lease import NAME
from tests.cli.takeover.cluster import NAMESPACE, Cluster

pytestmark = pytest.mark.anyio

NOW = 1_800_000_000.0


async def messages(cluster):
    return [(each.severity, each.message) for each in beside(await cluster.look(), now=NOW)]


def put_lease(cluster, age):
    spec = {
        "holderIdentity": "kueue-1",
        "leaseDurationSeconds": 15,
        "renewTime": rfc3339(NOW - age),
    }
    cluster.put(r.LEASES, {"name": NAME, "namespace": NAMESPACE}, spec=spec)


async def test_a_kueue_that_leads_is_a_warning():
    cluster = Cluster()
    put_lease(cluster, 2)
    labels = {"app.kubernetes.io/name": "kueue", "control-plane": "controller-manager"}
    cluster.put(r.PODS, {"name": "k", "namespace": NAMESPACE, "labels": labels})

    assert await messages(cluster) == [
        ("warning", "Kueue leads: policyd stands by, and starts no job")
    ]


async def test_webhooks_that_nothing_answers_are_an_error():
    cluster = Cluster()
    put_lease(cluster, 2)

    (_, (severity, message)) = await messages(cluster)

    assert severity == "error"
    assert "the API server refuses new jobs" in message


async def test_the_lease_of_a_kueue_that_is_gone_is_an_error():
    cluster = Cluster()
    cluster.client.store.delete(
        r.DEPLOYMENTS,
        cluster.get(r.DEPLOYMENTS, "kueue-controller-manager", NAMESPACE),
        dry_run=False,
    )
    cluster.live = lambda: None
    put_lease(cluster, 3600)

    assert (
        "error",
        "no Kueue is there, and its Lease keeps policyd from leading",
    ) in await messages(cluster)


async def test_a_takeover_that_was_stopped_midway_is_an_error_until_it_is_done():
    cluster = Cluster()
    await cluster.go(THERE[:3])

    ((severity, message),) = await messages(cluster)

    assert severity == "error"
    assert message == "a takeover was stopped midway: Kueue's Deployment has 2 replicas"
    await cluster.go(THERE)
    assert await messages(cluster) == []


async def test_kueues_namespace_is_that_of_its_webhooks():
    cluster = Cluster()
    service = {"namespace": "queues", "name": "kueue-webhook-service"}
    webhooks = [{"name": "a", "clientConfig": {"service": service}}]
    name = "kueue-validating-webhook-configuration"
    cluster.put(r.VALIDATING_WEBHOOK_CONFIGURATIONS, {"name": name}, webhooks=webhooks)
    checked = CheckedCluster(cluster.client, now=NOW)

    (found,) = [each async for each in CHECKS["kueue"](checked)]

    assert found.fix == "policyd takeover start --kueue-namespace queues, or start Kueue"
