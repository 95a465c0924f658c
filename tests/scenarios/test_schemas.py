"""On definitions that check everything, our full ones and Kueue's own, jobs run as on slim ones."""

import pytest

from tests.full_schemas import WHY_NOT, kueue_schemas
from tests.scenarios import clusters
from tests.scenarios.api import condition, eventually
from tests.scenarios.objects import job
from tests.scenarios.test_queue import *  # noqa: F403 - the same scenarios, on other clusters
from tests.scenarios.test_queue import finished, workload_of
from tests.scenarios.test_reasons import events_of
from tests.scenarios.test_topology import *  # noqa: F403

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module", params=["full", "kueue"])
def cluster(request, tmp_path_factory):
    if request.param == "kueue" and not kueue_schemas():
        pytest.skip(WHY_NOT)
    folder = tmp_path_factory.mktemp(request.param)
    with clusters.real(folder, schemas=request.param) as running:
        yield running


def test_a_job_behind_an_admission_check_runs_when_the_check_is_ready(api):
    check = {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "AdmissionCheck",
        "metadata": {"name": "by-hand"},
        "spec": {"controllerName": "example.com/by-hand"},
    }
    api.create(check)
    ready = {"type": "Active", "status": "True", "reason": "Active", "message": "it is"}
    ready["lastTransitionTime"] = "2026-11-21T10:00:00Z"
    api.patch("AdmissionCheck", "by-hand/status", {"status": {"conditions": [ready]}})
    strategy = {"admissionChecks": [{"name": "by-hand"}]}
    api.patch("ClusterQueue", "team-a", {"spec": {"admissionChecksStrategy": strategy}})
    try:
        api.create(job("checked", run_for="1s"))
        eventually(lambda: checks(api), what="the workload has its check")
        (state,) = checks(api)
        name = workload_of(api, "checked")["metadata"]["name"]
        states = [{**state, "state": "Ready", "message": "go"}]
        status = {"status": {"admissionChecks": states}}
        api.patch("Workload", f"{name}/status", status, namespace="team-a")
        eventually(lambda: finished(api, "checked"), what="the job is complete")
        assert condition(workload_of(api, "checked"), "Admitted").get("status") == "True"
    finally:
        api.patch("ClusterQueue", "team-a", {"spec": {"admissionChecksStrategy": None}})
        api.delete("AdmissionCheck", "by-hand")


def test_a_job_that_does_not_fit_into_a_workload_says_so(api, request):
    if request.node.callspec.params["cluster"] != "kueue":
        pytest.skip("our definitions store pod templates unread")
    made = job("twice", run_for="1s")
    (container,) = made["spec"]["template"]["spec"]["containers"]
    container["ports"] = [{"containerPort": 80}, {"containerPort": 80}]
    api.create(made)

    events = eventually(
        lambda: events_of(api, "twice", "ErrWorkloadCompose"), what="the job tells it"
    )
    assert "is refused" in events
    assert "Duplicate value" in events


def checks(api):
    return (workload_of(api, "checked") or {}).get("status", {}).get("admissionChecks", [])
