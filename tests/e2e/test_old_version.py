"""Kueue's v1beta1 on a real control plane: what is written in it queues as ever."""

from contextlib import ExitStack

import pytest

from tests.controlplane.server import ControlPlane
from tests.scenarios.api import PATHS, Api, Refused, condition, eventually
from tests.scenarios.clusters import (
    Process,
    accounts_on,
    controller_command,
    install,
    webhooks_are_ready,
    webhooks_command,
)
from tests.scenarios.objects import job

pytestmark = pytest.mark.e2e

OLD = "kueue.x-k8s.io/v1beta1"


@pytest.fixture(scope="module")
def api(tmp_path_factory):
    folder = tmp_path_factory.mktemp("old-version")
    with ControlPlane() as control_plane, ExitStack() as stack:
        found = Api(control_plane.kubeconfig)
        install(found)
        accounts = accounts_on(control_plane, webhooks__serveV1beta1=True)
        webhooks = Process(
            [*webhooks_command(accounts), "--serve-v1beta1"], folder / "webhooks.log"
        )
        controller = Process(controller_command(accounts), folder / "log")
        for process in (webhooks, controller):
            process.start()
            stack.callback(process.stop)
        eventually(
            lambda: webhooks_are_ready(found, (webhooks, controller)), what="the webhook is open"
        )
        eventually(lambda: served(found), what="v1beta1 is served")
        found.webhooks = webhooks
        yield found


def served(api):
    try:
        for plural in ("clusterqueues", "localqueues", "workloads"):
            api.call("GET", f"apis/{OLD}/{plural}")
    except Refused:
        return False
    return True


def old(kind):
    return PATHS[kind].replace("v1beta2", "v1beta1").format(namespace="team-a")


def queue(name, **spec):
    quotas = [{"name": name, "nominalQuota": "4Gi"} for name in ("cpu", "memory")]
    flavor = {"name": "cpus", "resources": quotas}
    groups = [{"coveredResources": ["cpu", "memory"], "flavors": [flavor]}]
    return {
        "apiVersion": OLD,
        "kind": "ClusterQueue",
        "metadata": {"name": name},
        "spec": {"namespaceSelector": {}, "resourceGroups": groups, **spec},
    }


def test_a_queue_of_v1beta1_is_the_same_in_v1beta2(api):
    api.call("POST", old("ClusterQueue"), queue("old", cohort="everybody"))
    assert any("v1beta1 ClusterQueue is deprecated" in warning for warning in api.warnings)

    assert api.get("ClusterQueue", "old")["spec"]["cohortName"] == "everybody"
    listed = api.call("GET", old("ClusterQueue"))["items"]
    assert {"old": "everybody"}.items() <= {
        item["metadata"]["name"]: item["spec"].get("cohort") for item in listed
    }.items()
    changed = api.call(
        "PATCH",
        f"{old('ClusterQueue')}/old",
        {"spec": {"cohort": "others"}},
        content_type="application/merge-patch+json",
    )
    assert changed["spec"]["cohort"] == "others"
    assert api.get("ClusterQueue", "old")["spec"]["cohortName"] == "others"


def test_a_workload_is_admitted_through_them_and_read_in_both(api):
    flavor = {"apiVersion": OLD, "kind": "ResourceFlavor", "metadata": {"name": "cpus"}}
    api.call("POST", old("ResourceFlavor"), flavor)
    api.call("POST", old("ClusterQueue"), queue("batch"))
    local = {
        "apiVersion": OLD,
        "kind": "LocalQueue",
        "metadata": {"name": "old-batch", "namespace": "team-a"},
        "spec": {"clusterQueue": "batch"},
    }
    api.call("POST", old("LocalQueue"), local)
    asked = job("through-old", gpus=0)
    asked["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": "old-batch"}
    api.create(asked)

    def admitted():
        found = api.call("GET", old("Workload"))["items"]
        mine = [w for w in found if w["spec"].get("queueName") == "old-batch"]
        return mine and condition(mine[0], "Admitted").get("status") == "True" and mine[0]

    workload = eventually(admitted, what="the workload is admitted")
    assert workload["apiVersion"] == OLD
    assert workload["status"]["admission"]["clusterQueue"] == "batch"

    def used():
        found = api.call("GET", f"{old('LocalQueue')}/old-batch")
        return found.get("status", {}).get("flavorUsage")

    (usage,) = eventually(used, what="the usage is told under its old name")
    assert usage["name"] == "cpus"


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"cohort": 5}, "spec.cohort"),
        ({"cohortName": "of the new version"}, "unknown field"),
        ({"queueingStrategy": "Random"}, "Random"),
    ],
)
def test_fields_unknown_to_v1beta1_are_refused_by_its_schema(api, spec, message):
    with pytest.raises(Refused) as refused:
        api.call("POST", old("ClusterQueue"), queue("odd", **spec), fieldValidation="Strict")

    assert message in refused.value.message


def test_the_rules_of_queues_hold_for_both_versions(api):
    flavor = {"name": "cpus", "resources": [{"name": "memory", "nominalQuota": "1"}]}
    groups = [{"coveredResources": ["cpu"], "flavors": [flavor]}]

    with pytest.raises(Refused) as refused:
        api.call("POST", old("ClusterQueue"), queue("odd", resourceGroups=groups))

    assert "must match the name in coveredResources" in refused.value.message


def test_definitions_stay_as_they_are(api):
    name = "clusterqueues.kueue.x-k8s.io"
    written = api.webhooks.log.read_text().count("old_version_served")

    found = api.get("CustomResourceDefinition", name)

    assert written == 11
    assert found["metadata"]["generation"] == 2
    assert [v["name"] for v in found["spec"]["versions"]] == ["v1beta2", "v1beta1"]
