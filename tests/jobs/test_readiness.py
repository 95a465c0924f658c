"""Whether the pods of a workload run, told by what was told before."""

import msgspec
import pytest

from policyd.api.kueue import Workload
from policyd.jobs.readiness import readiness


def workload_with(known, *, admitted=True):
    """Return a workload whose pods are said to be so: status and reason; None for nothing."""
    states = [("PodsReady", *known)] if known else []
    states += [("Admitted", "True", "Admitted")] if admitted else []
    conditions = [
        {"type": kind, "status": status, "reason": reason, "message": "m"}
        for kind, status, reason in states
    ]
    body = {"metadata": {"name": "w"}, "status": {"conditions": conditions}}
    return msgspec.convert(body, Workload)


@pytest.mark.parametrize(
    ("before", "ready", "expected"),
    [
        pytest.param(
            workload_with(("True", "Started"), admitted=False), True, "WaitForStart", id="waits"
        ),
        pytest.param(workload_with(None), False, "WaitForStart", id="begins"),
        pytest.param(workload_with(None), True, "Started", id="all-at-once"),
        pytest.param(workload_with(("False", "WaitForStart")), True, "Started", id="all-run"),
        pytest.param(workload_with(("True", "Started")), False, "WaitForRecovery", id="one-failed"),
        pytest.param(
            workload_with(("True", "Recovered")), False, "WaitForRecovery", id="failed-again"
        ),
        pytest.param(
            workload_with(("False", "WaitForRecovery")), True, "Recovered", id="all-run-again"
        ),
        pytest.param(workload_with(("False", "WaitForStart")), False, None, id="still-begins"),
        pytest.param(workload_with(("False", "WaitForRecovery")), False, None, id="still-failed"),
        pytest.param(
            workload_with(("False", "ByOthers")), False, "WaitForStart", id="in-other-words"
        ),
        pytest.param(workload_with(("True", "Started")), True, None, id="still-run"),
        pytest.param(workload_with(("True", "Recovered")), True, None, id="still-run-again"),
    ],
)
def test_changes_of_ready_pods_are_reported(before, ready, expected):
    news = readiness(before, ready=ready)

    assert (news.reason if news else None) == expected
