"""A takeover does not begin where something would be lost, unless that is accepted."""

import pytest
import yaml

from policyd.cli.migrate.kueue import losses
from policyd.cli.takeover.command import NotPossibleError, _ready_for_start
from policyd.cli.takeover.steps import THERE
from policyd.kube import resources as r
from policyd.testing import FakeClient
from tests.cli.given import KUEUE
from tests.cli.takeover.cluster import NAMESPACE, Cluster

pytestmark = pytest.mark.anyio

GATE = "resources: {excludeResourcePrefixes: [a.example/]}"


def client_of(text):
    client = FakeClient()
    known = {each.kind: each for each in vars(r).values() if isinstance(each, r.Resource)}
    for obj in yaml.safe_load_all(text):
        client.store.put(known[obj["kind"]], obj)
    return client


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(KUEUE, "", id="nothing"),
        pytest.param(
            KUEUE.replace(GATE, f"{GATE}\n    featureGates: {{NewGate: true}}"),
            "feature gate NewGate: ",
            id="gate",
        ),
        pytest.param(
            KUEUE.replace("kind: Configuration", "kind: Configuration\n    newField: 1"),
            "Configuration newField: ",
            id="field",
        ),
        pytest.param(KUEUE.split("---")[0], "no ConfigMap with", id="unknown"),
        pytest.param(KUEUE.replace("v1beta2\n    kind", "v9\n    kind"), "v9", id="unreadable"),
    ],
)
async def test_losses_are_those_of_migrate_kueue(text, expected):
    found = await losses(client_of(text), "kueue-system")

    assert found == [] if not expected else any(expected in each for each in found), found


@pytest.fixture
def cluster(monkeypatch):
    async def runs(_client):
        return None

    monkeypatch.setattr("policyd.cli.takeover.command._no_controller", runs)
    return Cluster()  # whose Configuration is not known


async def test_a_takeover_with_losses_is_refused_unless_they_are_accepted(cluster):
    found = await cluster.look()

    with pytest.raises(NotPossibleError, match="would lose something: no ConfigMap") as refused:
        await _ready_for_start(cluster.client, found)
    await _ready_for_start(cluster.client, found, accept_losses=True)

    assert "`--accept-losses`" in refused.value.hint


async def test_a_takeover_that_has_begun_goes_on(cluster):
    await cluster.go(THERE[:1])

    found = await cluster.look()
    await _ready_for_start(cluster.client, found)

    assert (found.record is not None, found.namespace) == (True, NAMESPACE)
