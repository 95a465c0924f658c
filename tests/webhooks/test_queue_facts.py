"""The webhooks give policies the facts of the latest snapshot, or none."""

import pytest
from prometheus_client import CollectorRegistry

from policyd.config import Settings
from policyd.snapshot.values import ClusterQueueUse, QueueSnapshot
from tests.engine.reviews import pod, policy, request
from webhooks.metrics import WebhookMetrics
from webhooks.namespaces import without_cluster
from webhooks.policies.in_force import PoliciesInForce
from webhooks.server import WebhookServer, take_snapshot

READING = "validations: [{expression: \"'a' in cluster.clusterQueues\", message: no queue a}]"
OTHER = "validations: [{expression: object.kind == 'Pod'}]"


def of(*names):
    queues = tuple(ClusterQueueUse(name=name) for name in names)
    return QueueSnapshot(format=1, taken_at=5.0, cluster_queues=queues)


@pytest.fixture
def server():
    return WebhookServer(settings=Settings())


@pytest.fixture
def in_force(server, tmp_path):
    def in_force(spec):
        (tmp_path / "policy.yaml").write_text(policy(spec))
        policies = PoliciesInForce(
            namespaces=without_cluster,
            metrics=WebhookMetrics(CollectorRegistry()),
            queues=server.queue_facts.current,
        )
        policies.read_files([tmp_path])
        return policies

    return in_force


def test_policies_read_the_latest_snapshot(server, in_force):
    policies = in_force(READING)
    asked = request(pod())

    unknown = policies.validate(asked)
    server.queues.put(of("a"))
    known = policies.validate(asked)
    server.queues.put(of("b"))
    changed = policies.validate(asked)

    assert "the queues are unknown: no current snapshot" in str(unknown.failures)
    assert not unknown.allowed
    assert known.allowed
    assert [str(denial) for denial in changed.denials] == ["p: no queue a"]


@pytest.mark.parametrize(("spec", "prepared"), [(READING, True), (OTHER, False)])
def test_facts_are_prepared_only_where_policies_read_them(server, in_force, spec, prepared):
    snapshot = of("a")

    take_snapshot(server, in_force(spec), snapshot)

    assert server.queue_facts.has(snapshot) is prepared
