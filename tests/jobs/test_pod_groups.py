"""Groups of pods: when they lack some, and when they are over."""

import msgspec
import pytest

from policyd.api.kueue import ReclaimablePod, Workload
from policyd.jobs.pod_groups import PodGroup
from policyd.jobs.pods import QueuedPod

P = "kueue.x-k8s.io/"


def pod(phase="", *, gated=False, **annotations):
    noted = {f"{P}{name.replace('_', '-')}": value for name, value in annotations.items()}
    metadata = {
        "labels": {f"{P}pod-group-name": "g"},
        "annotations": {f"{P}pod-group-total-count": "2", **noted},
    }
    body = {
        "metadata": metadata,
        "spec": {"schedulingGates": [{"name": f"{P}admission"}] if gated else []},
        "status": {"phase": phase},
    }
    return msgspec.convert(body, QueuedPod)


LAST = {"retriable_in_group": "false"}


@pytest.mark.parametrize(
    ("pods", "over"),
    [
        pytest.param((pod("Failed"), pod("Failed")), False, id="one-may-replace-another"),
        pytest.param((pod("Failed", **LAST), pod("Failed")), True, id="none-may"),
        pytest.param((pod("Failed", **LAST), pod("Running")), False, id="one-runs"),
        pytest.param((pod("Failed", **LAST), pod("Pending")), False, id="one-may-run"),
        pytest.param((pod("Failed", **LAST), pod(gated=True)), False, id="one-waits"),
        pytest.param((pod("Running", **LAST), pod("Failed")), False, id="the-last-runs"),
    ],
)
def test_a_group_that_replaces_no_pod_is_over_when_all_have_ended(pods, over):
    ended = PodGroup(name="g", pods=pods).outcome(())

    assert (ended is not None) is over


FAST = {"pod_group_fast_admission": "true"}


@pytest.mark.parametrize(
    ("pods", "succeeded", "expected"),
    [
        pytest.param((pod(role_hash="a"), pod(role_hash="b")), {}, False, id="all-are-there"),
        pytest.param((pod(role_hash="a"),), {}, True, id="one-is-not"),
        pytest.param((pod(role_hash="a"), pod(role_hash="a")), {}, True, id="none-of-a-pod-set"),
        pytest.param((pod(role_hash="a"), pod("Failed", role_hash="b")), {}, True, id="one-failed"),
        pytest.param((pod(role_hash="a"),), {"b": 1}, False, id="one-has-succeeded-and-is-gone"),
        pytest.param(
            (pod(role_hash="a", **FAST), pod(role_hash="b", **FAST)), {}, False, id="fast"
        ),
        pytest.param((pod(role_hash="a", **FAST),), {}, True, id="fast-but-none-of-a-pod-set"),
    ],
)
def test_pods_are_to_be_replaced_or_made_before_a_group_queues(pods, succeeded, expected):
    count = 2 if pods[0].metadata.annotations.get(f"{P}pod-group-fast-admission") else 1
    sets = [{"name": name, "count": count} for name in "ab"]
    workload = msgspec.convert({"metadata": {"name": "g"}, "spec": {"podSets": sets}}, Workload)
    gone = [ReclaimablePod(name=name, count=count) for name, count in succeeded.items()]

    assert PodGroup(name="g", pods=pods).needs_more_pods(workload, gone) is expected
