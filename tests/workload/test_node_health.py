"""Which pods can be scheduled nowhere, as their node is not, or no longer, their place."""

from datetime import UTC, datetime

import pytest

from policyd.api.kueue.names import ADMISSION_GATE, TOPOLOGY_GATE
from policyd.api.kueue.topology_assignment import HOSTNAME
from policyd.api.meta import ObjectMeta
from policyd.api.pods import PodSpec, SchedulingGate
from policyd.jobs.pods import QueuedPod, QueuedPodStatus
from policyd.workload.node_health import hopeless


def pod(*, gates=(), phase="Pending", node="", deleted=False, at="n1"):
    return QueuedPod(
        metadata=ObjectMeta(
            name="p", deletion_timestamp=datetime(2026, 1, 1, tzinfo=UTC) if deleted else None
        ),
        spec=PodSpec(
            node_name=node,
            node_selector={HOSTNAME: at},
            scheduling_gates=tuple(SchedulingGate(name=each) for each in gates),
        ),
        status=QueuedPodStatus(phase=phase),
    )


@pytest.mark.parametrize(
    ("given", "ends"),
    [
        pytest.param(pod(), True, id="waits-for-that-node"),
        pytest.param(pod(at="n2"), False, id="waits-for-another"),
        pytest.param(pod(node="n1"), False, id="is-there"),
        pytest.param(pod(phase="Failed"), False, id="has-ended"),
        pytest.param(pod(deleted=True), False, id="is-to-go-anyway"),
        pytest.param(pod(gates=[TOPOLOGY_GATE]), False, id="waits-for-its-place"),
        pytest.param(pod(gates=[ADMISSION_GATE]), False, id="waits-for-quota"),
        pytest.param(pod(gates=["example.com/other"]), False, id="waits-for-somebody-else"),
    ],
)
def test_pods_that_wait_for_a_failed_node_end(given, ends):
    assert hopeless([given], "n1") == ([given] if ends else [])
