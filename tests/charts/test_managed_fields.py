"""What the API server notes of Workloads, on one with a release: see ADR 18."""

import pytest
import yaml

from tests.charts import release
from tests.charts.release import CHART, RELEASE
from tests.scenarios.api import Api, Refused, eventually

pytestmark = pytest.mark.e2e

KEPT = "--set=controller.managedFields=true"
POLICIES = "mutatingadmissionpolicies,mutatingadmissionpolicybindings"


def a_workload(name):
    container = {"name": "c", "image": "registry.example/c"}
    template = {"spec": {"containers": [container], "restartPolicy": "Never"}}
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "Workload",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"podSets": [{"name": "main", "count": 1, "template": template}]},
    }


@pytest.fixture(scope="module")
def api(bare):
    release.on(bare, "install", RELEASE, CHART)
    api = Api(bare.kubeconfig)
    yield api
    for name in ("ours", "anothers", "applied"):
        api.delete("Workload", name, missing_is_fine=True)
    release.on(bare, "uninstall", RELEASE)


@pytest.fixture
def controller(bare, api):
    """The API by the name of the controller's account, once the server mutates what it makes."""
    as_controller = Api(release.account_kubeconfig(bare, f"{RELEASE}-controller"))
    eventually(lambda: mutated(as_controller), what="the server mutates Workloads")
    return as_controller


def mutated(api):
    try:
        return not noted(api.create(a_workload("probe"), dry_run=True))
    except Refused as refusal:
        if refusal.code == 503:  # the API server does not know yet how to mutate the kind
            return False
        raise


def noted(item):
    """Who is noted as having set fields of an object, and how."""
    return [(m["manager"], m["operation"]) for m in item["metadata"].get("managedFields", [])]


def status_written(api, name):
    path = f"apis/kueue.x-k8s.io/v1beta2/namespaces/default/workloads/{name}/status"
    patch = {"status": {"accumulatedPastExecutionTimeSeconds": 1}}
    return api.call("PATCH", path, patch, content_type="application/merge-patch+json")


def test_the_writer_of_the_controllers_workload_is_never_recorded(api, controller):
    created = controller.create(a_workload("ours"))
    labelled = api.patch("Workload", "ours", {"metadata": {"labels": {"a": "b"}}})
    written = status_written(controller, "ours")

    assert [noted(item) for item in (created, labelled, written)] == [[], [], []]
    assert written["status"] == {"accumulatedPastExecutionTimeSeconds": 1}


def test_the_writer_of_a_foreign_workload_is_recorded(api):
    created = api.create(a_workload("anothers"))

    assert [operation for _, operation in noted(created)] == ["Update"]


def test_an_applier_of_a_workload_keeps_its_fields(bare, api, controller):
    controller.create(a_workload("applied"))
    manifest = a_workload("applied")
    for priority in (1, 2):
        manifest["spec"]["priority"] = priority
        bare.kubectl("apply", "--server-side", "-f", "-", stdin=yaml.safe_dump(manifest))

    found = status_written(controller, "applied")

    assert ("kubectl", "Apply") in noted(found)
    assert found["spec"]["priority"] == 2


@pytest.mark.parametrize(
    ("options", "count"),
    [
        pytest.param([], 2, id="by-default"),
        pytest.param(["--set=controller.enabled=false"], 0, id="without-the-queue"),
        pytest.param([KEPT], 0, id="if-they-are-wanted"),
    ],
)
def test_the_policy_is_part_of_the_queue(bare, api, options, count):
    release.on(bare, "upgrade", RELEASE, CHART, "--reset-values", *options)

    assert len(release.objects(bare, POLICIES)) == count


def test_an_api_server_without_such_policies_is_sent_none(tmp_path):
    done = release.helm("template", RELEASE, CHART, folder=tmp_path)

    kinds = {item["kind"] for item in yaml.safe_load_all(done.out) if item}
    assert "Deployment" in kinds
    assert not {"MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding"} & kinds
