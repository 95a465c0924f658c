"""What the API server notes of Workloads, on one with a release: see ADR 18."""

import pytest
import yaml

from tests.charts import release
from tests.charts.release import CHART, RELEASE
from tests.scenarios.api import Api, Refused, eventually

pytestmark = pytest.mark.e2e

OFF = "--set=controller.managedFields=false"
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
    release.on(bare, "install", RELEASE, CHART, OFF)
    api = Api(bare.kubeconfig)
    eventually(lambda: works(api), what="it works")
    yield api
    for name in ("created", "applied"):
        api.delete("Workload", name, missing_is_fine=True)
    release.on(bare, "uninstall", RELEASE)


def works(api):
    try:
        return not noted(api.create(a_workload("probe"), dry_run=True))
    except Refused as refusal:
        if refusal.code == 503:  # the API server does not know the kind yet
            return False
        raise


def noted(item):
    """Who is noted as having set fields of an object, and how."""
    return [(m["manager"], m["operation"]) for m in item["metadata"].get("managedFields", [])]


def status_written(api, name):
    path = f"apis/kueue.x-k8s.io/v1beta2/namespaces/default/workloads/{name}/status"
    patch = {"status": {"accumulatedPastExecutionTimeSeconds": 1}}
    return api.call("PATCH", path, patch, content_type="application/merge-patch+json")


def test_who_wrote_a_created_workload_is_never_noted(api):
    created = api.create(a_workload("created"))
    labelled = api.patch("Workload", "created", {"metadata": {"labels": {"a": "b"}}})
    written = status_written(api, "created")

    assert [noted(item) for item in (created, labelled, written)] == [[], [], []]
    assert written["status"] == {"accumulatedPastExecutionTimeSeconds": 1}


def test_who_applies_a_workload_keeps_its_fields(bare, api):
    manifest = a_workload("applied")
    for priority in (1, 2):
        manifest["spec"]["priority"] = priority
        bare.kubectl("apply", "--server-side", "-f", "-", stdin=yaml.safe_dump(manifest))

    found = status_written(api, "applied")

    assert ("kubectl", "Apply") in noted(found)
    assert len(noted(found)) == 2
    assert found["spec"]["priority"] == 2


@pytest.mark.parametrize(
    ("options", "count"),
    [
        pytest.param([OFF], 2, id="if-they-are-not-wanted"),
        pytest.param([OFF, "--set=controller.enabled=false"], 0, id="without-the-queue"),
        pytest.param([], 0, id="by-default"),
    ],
)
def test_the_policy_is_part_of_the_queue_on_request(bare, api, options, count):
    release.on(bare, "upgrade", RELEASE, CHART, "--reset-values", *options)

    assert len(release.objects(bare, POLICIES)) == count


def test_an_api_server_without_such_policies_is_sent_none(tmp_path):
    done = release.helm("template", RELEASE, CHART, OFF, folder=tmp_path)

    kinds = {item["kind"] for item in yaml.safe_load_all(done.out) if item}
    assert "Deployment" in kinds
    assert not {"MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding"} & kinds
