"""Groups of pods: when they are over."""

import msgspec
import pytest

from policyd.jobs.pod_groups import PodGroup
from policyd.jobs.pods import Pod

P = "kueue.x-k8s.io/"


def pod(phase="", *, gated=False, **annotations):
    noted = {f"{P}{name.replace('_', '-')}": value for name, value in annotations.items()}
    body = {
        "metadata": {"annotations": {f"{P}pod-group-total-count": "2", **noted}},
        "spec": {"schedulingGates": [{"name": f"{P}admission"}] if gated else []},
        "status": {"phase": phase},
    }
    return msgspec.convert(body, Pod)


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
