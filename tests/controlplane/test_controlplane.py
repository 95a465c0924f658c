"""The control plane of the tests is a real one, and does what the tests rely on."""

import itertools
import json
from datetime import datetime

import pytest

from tests.controlplane.nodes import RACK
from tests.controlplane.process import ControlPlaneError
from tests.controlplane.programs import API_SERVER, ETCD
from tests.controlplane.server import ControlPlane

pytestmark = pytest.mark.e2e

CONTAINER = {"name": "main", "image": "none", "resources": {"limits": {"nvidia.com/gpu": "1"}}}


def pod(name, *, run_for=None, **spec):
    annotations = {} if run_for is None else {"policyd.io/run-for": run_for}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "annotations": annotations},
        "spec": {"containers": [CONTAINER], "restartPolicy": "Never", **spec},
    }


def create(control_plane, manifest):
    control_plane.kubectl("create", "-f", "-", stdin=json.dumps(manifest))


def status_of(control_plane, name):
    return json.loads(control_plane.kubectl("get", "pod", name, "-o=json"))["status"]


def test_it_is_ready_within_a_minute_and_calls_itself_by_its_version(
    control_plane, record_property
):
    record_property("start_seconds", round(control_plane.start_seconds, 1))

    version = control_plane.get("/version")["gitVersion"]

    assert control_plane.start_seconds < 60
    assert version.startswith("v1.")


def test_nodes_carry_their_labels_and_offer_their_gpus(control_plane):
    node = control_plane.get("/api/v1/nodes/a1")

    assert node["metadata"]["labels"][RACK] == "a"
    assert node["status"]["allocatable"]["nvidia.com/gpu"] == "8"


def test_a_job_with_gpus_runs_to_completion(control_plane):
    template = {key: pod("train", run_for="1s")[key] for key in ("metadata", "spec")}
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "train"},
        "spec": {"parallelism": 2, "completions": 2, "template": template},
    }

    create(control_plane, job)

    control_plane.wait_for("job/train", condition="condition=Complete")
    assert control_plane.kubectl("get", "job/train", "-o=jsonpath={.status.succeeded}") == "2"


def test_a_gated_pod_waits_and_runs_once_its_gate_is_gone(control_plane):
    create(control_plane, pod("gated", schedulingGates=[{"name": "policyd.io/queue"}]))
    waiting = control_plane.kubectl("get", "pod/gated", "--no-headers")

    ungate = '[{"op": "remove", "path": "/spec/schedulingGates/0"}]'
    control_plane.kubectl("patch", "pod/gated", "--type=json", f"--patch={ungate}")

    assert "SchedulingGated" in waiting
    control_plane.wait_for("pod/gated", condition="jsonpath={.status.phase}=Succeeded")


@pytest.mark.parametrize(
    ("run_for", "restart_policy", "seconds"),
    [
        pytest.param("3s", "Never", 3, id="as-long-as-its-annotation-says"),
        pytest.param("0m1.5s", "OnFailure", 1, id="compound-and-fractional"),
        pytest.param("3s", "Always", 3, id="annotation-beats-restart-policy"),
        pytest.param(None, "Never", 5, id="five-seconds-by-default"),
        pytest.param("soon", "Never", 5, id="not-a-duration"),
    ],
)
def test_a_pod_runs(control_plane, request, run_for, restart_policy, seconds):
    name = f"runs-{request.node.callspec.id}"

    create(control_plane, pod(name, run_for=run_for, restartPolicy=restart_policy))

    control_plane.wait_for(f"pod/{name}", condition="jsonpath={.status.phase}=Succeeded")
    end = status_of(control_plane, name)["containerStatuses"][0]["state"]["terminated"]
    ran = datetime.fromisoformat(end["finishedAt"]) - datetime.fromisoformat(end["startedAt"])
    assert ran.total_seconds() >= seconds
    assert end["exitCode"] == 0


def test_writing_to_a_pod_does_not_prolong_its_run(control_plane):
    create(control_plane, pod("touched", run_for="4s"))
    control_plane.wait_for("pod/touched", condition="jsonpath={.status.phase}=Running")

    for number in itertools.count():
        control_plane.kubectl("annotate", "--overwrite", "pod/touched", f"written={number}")
        if status_of(control_plane, "touched")["phase"] == "Succeeded":
            break

    end = status_of(control_plane, "touched")["containerStatuses"][0]["state"]["terminated"]
    ran = datetime.fromisoformat(end["finishedAt"]) - datetime.fromisoformat(end["startedAt"])
    assert 4 <= ran.total_seconds() < 20


def test_a_service_pod_runs_until_it_is_deleted(control_plane):
    create(control_plane, pod("service", restartPolicy="Always"))
    create(control_plane, pod("later", run_for="6s"))
    control_plane.wait_for("pod/later", condition="jsonpath={.status.phase}=Succeeded")

    phase = status_of(control_plane, "service")["phase"]
    control_plane.kubectl("delete", "pod/service", "--timeout=20s")

    assert phase == "Running"


@pytest.mark.parametrize(
    "resource", ["mutatingadmissionpolicies", "mutatingadmissionpolicybindings"]
)
def test_native_mutating_policies_are_served(control_plane, resource):
    served = control_plane.get(f"/apis/admissionregistration.k8s.io/v1/{resource}")

    assert served["items"] == []


def test_a_user_may_do_only_what_rbac_grants(control_plane):
    grant = ["create", "clusterrolebinding", "research", "--clusterrole=view", "--group=research"]

    with pytest.raises(ControlPlaneError, match=r"alice.*cannot list"):
        control_plane.kubectl("get", "pods", user="alice")
    control_plane.kubectl(*grant)

    control_plane.kubectl("get", "pods", user="alice")


def test_a_paused_api_server_does_not_answer_until_it_is_resumed(control_plane):
    control_plane.pause(API_SERVER)
    try:
        with pytest.raises(ControlPlaneError, match=r"[Tt]imeout|deadline"):
            control_plane.kubectl("get", "nodes", "--request-timeout=1s")
    finally:
        control_plane.resume(API_SERVER)

    assert "a1" in control_plane.kubectl("get", "nodes")


def test_a_restarted_api_server_has_the_same_address_and_objects():
    with ControlPlane(components=(ETCD, API_SERVER)) as control_plane:
        control_plane.kubectl("create", "configmap", "kept")

        control_plane.restart(API_SERVER)

        assert "kept" in control_plane.kubectl("get", "configmaps")


def test_a_component_that_ends_while_starting_shows_the_end_of_its_log():
    broken = ControlPlane(components=(ETCD, API_SERVER), flags={API_SERVER: ["--no-such-flag"]})

    with pytest.raises(ControlPlaneError, match=r"ended while starting.*\n.*--no-such-flag"):
        broken.__enter__()


def test_feature_gates_bring_native_gang_scheduling():
    with ControlPlane(
        components=(ETCD, API_SERVER),
        feature_gates=("GenericWorkload=true", "GangScheduling=true"),
        flags={API_SERVER: ["--runtime-config=api/all=true"]},
    ) as control_plane:
        served = control_plane.get("/apis/scheduling.k8s.io/v1alpha2")

    assert "podgroups" in {resource["name"] for resource in served["resources"]}
