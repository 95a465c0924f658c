"""Each step may be repeated, and each way may be left after any step, and gone back."""

import json

import pytest

from policyd.cli.takeover.command import carry_out
from policyd.cli.takeover.installation import RECORD, is_kueues, skips
from policyd.cli.takeover.steps import BACK, THERE, status_of
from policyd.kube import resources as r
from policyd.kube.kueue_lease import NAME
from tests.cli.takeover.cluster import (
    CRD,
    KUEUE,
    NAMESPACE,
    OURS,
    Cluster,
    without_nulls,
)

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def without_waiting(monkeypatch):
    async def sleep(_seconds):
        pass

    monkeypatch.setattr("policyd.cli.takeover.command.asyncio.sleep", sleep)


async def test_after_all_steps_policyd_leads_and_kueue_is_stopped():
    cluster = Cluster()

    await cluster.go(THERE)

    found = await cluster.look()
    assert found.policyd_leads
    assert found.replicas == 0
    assert all(skips(each) for _, one in found.configurations for each in one["webhooks"])
    assert cluster.get(r.CUSTOM_RESOURCE_DEFINITIONS, CRD)["status"]["storedVersions"] == [
        "v1beta2"
    ]
    config = found.definitions[0]["spec"]["conversion"]["webhook"]["clientConfig"]
    assert without_nulls(config) == {
        "service": {**OURS, "path": "/convert"},
        "caBundle": "b3Vycw==",
    }
    assert found.visibility[0]["spec"]["service"]["name"] == "policyd-controller-visibility"
    assert status_of(found).done


async def test_what_is_stored_as_the_older_version_is_stored_as_the_newer_one_from_then_on():
    """As Kueue 0.15 has it, which serves both versions."""
    cluster = Cluster(stored="v1beta1")

    await cluster.go(THERE)

    definition = cluster.get(r.CUSTOM_RESOURCE_DEFINITIONS, CRD)
    stored = {each["name"]: each["storage"] for each in definition["spec"]["versions"]}
    assert stored == {"v1beta1": False, "v1beta2": True}
    assert definition["status"]["storedVersions"] == ["v1beta2"]


@pytest.mark.parametrize("done", range(len(THERE) + 1))
async def test_the_way_back_restores_all_after_any_step(done):
    cluster = Cluster()
    before = cluster.settings()
    await cluster.go(THERE[:done])

    if done < len(THERE):
        assert status_of(await cluster.look()).done is (done == 0)
    await cluster.go(BACK)

    found = await cluster.look()
    assert cluster.settings() == before
    assert found.holder.startswith("kueue")
    assert found.record is None
    assert status_of(found).done


@pytest.mark.parametrize("done", range(1, len(BACK)))
async def test_a_way_back_that_was_left_can_be_turned_round(done):
    cluster = Cluster()
    await cluster.go(THERE)
    await cluster.go(BACK[:done])

    await cluster.go(THERE)

    assert (await cluster.look()).policyd_leads
    await cluster.go(BACK)
    assert (
        cluster.get(r.DEPLOYMENTS, "kueue-controller-manager", NAMESPACE)["spec"]["replicas"] == 2
    )


async def test_what_was_before_is_recorded_once():
    cluster = Cluster()
    await cluster.go(THERE)

    await cluster.go(THERE)

    record = cluster.get(r.CONFIG_MAPS, RECORD, NAMESPACE)
    assert json.loads(record["data"]["before"])["replicas"] == 2


async def test_a_step_that_waits_too_long_says_for_what():
    cluster = Cluster()
    await cluster.go(THERE[:-1])
    cluster.live = lambda: None

    missing = await carry_out(cluster.client, THERE[-1], cluster.look, 0.01)

    assert missing == f"policyd has not yet taken Lease {NAME}"


@pytest.mark.parametrize(
    ("name", "services", "expected"),
    [
        ("kueue-validating-webhook-configuration", [KUEUE], True),
        ("my-kueue-mutating-webhook-configuration", [KUEUE, KUEUE], True),
        ("admission.policyd.io", [KUEUE], False),
        ("kueue-of-others", [{**KUEUE, "namespace": "team-a"}], False),
        ("others", [KUEUE], False),
        ("kueue-empty", [], False),
    ],
)
def test_kueues_webhooks_are_distinguished_from_others(name, services, expected):
    webhooks = [{"name": "a", "clientConfig": {"service": service}} for service in services]

    assert is_kueues({"metadata": {"name": name}, "webhooks": webhooks}, NAMESPACE) is expected
