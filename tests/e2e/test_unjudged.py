"""What a real API server sends of the largest objects: judged, or refused; and an outage."""

import json
from pathlib import Path

import pytest
import yaml

from tests.controlplane.server import ControlPlane
from tests.scenarios.api import Api, Refused, eventually
from tests.scenarios.clusters import (
    Process,
    accounts_on,
    controller_command,
    install,
    real,
    webhooks_are_ready,
    webhooks_command,
)
from tests.scenarios.objects import pod

pytestmark = pytest.mark.e2e

QUEUE = "kueue.x-k8s.io/queue-name"
MOST_BYTES = 3 * 1024 * 1024
"""What the API server takes in a request."""


LIBRARY = Path(__file__).parents[2] / "policies"
CONCERN_ALL_PODS = (
    "security/visible-devices",
    "security/reserved-priority-classes",
    "network/host-network-for-rdma",
)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with real(tmp_path_factory.mktemp("unjudged")) as running:
        yield running


@pytest.fixture(scope="module")
def api(cluster):
    return cluster.api


def padded(obj, size, letter="x", *, template=None):
    """Write an object of so many bytes: arguments of a container may be of any length."""
    container = (template or obj)["spec"]["containers"][0]
    container["args"] = [""]
    container["args"] = [letter * (size - len(json.dumps(obj).encode()))]
    assert len(json.dumps(obj).encode()) == size
    return obj


SIZES = [
    pytest.param(3_143_996, "x", id="3,143,996-bytes"),
    pytest.param(MOST_BYTES, "<", id="as-many-as-may-be-each-of-which-is-sent-as-six"),
]


@pytest.mark.parametrize(("size", "letter"), SIZES)
def test_a_pod_of_any_size_that_a_policy_forbids_is_refused(api, size, letter):
    with pytest.raises(Refused) as refusal:
        api.create(padded(pod("big", gpus=64), size, letter), dry_run=True)

    assert "cap-gpus-per-pod" in refusal.value.message
    assert "failed calling webhook" not in refusal.value.message


@pytest.mark.parametrize(("size", "letter"), SIZES)
def test_a_pod_of_any_size_that_may_queue_is_held(api, size, letter):
    made = api.create(padded(pod("small", gpus=1), size, letter), dry_run=True)

    assert "kueue.x-k8s.io/admission" in {gate["name"] for gate in made["spec"]["schedulingGates"]}


def deployment(gpus):
    template = {"metadata": {"labels": {"app": "a"}}, "spec": pod("a", gpus=gpus)["spec"]}
    del template["spec"]["restartPolicy"]
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web", "namespace": "team-a", "labels": {QUEUE: "default"}},
        "spec": {
            "replicas": 0,
            "selector": {"matchLabels": {"app": "a"}},
            "template": template,
        },
    }


@pytest.mark.parametrize(
    "content_type",
    [
        pytest.param(None, id="replaced"),
        pytest.param("application/merge-patch+json", id="merge-patch"),
        pytest.param("application/strategic-merge-patch+json", id="strategic-merge-patch"),
        pytest.param("application/apply-patch+yaml", id="server-side-apply"),
    ],
)
@pytest.mark.parametrize("size", [1_600_000, 3_143_996])
def test_a_change_of_any_size_that_a_policy_forbids_is_refused(api, size, content_type):
    path = "apis/apps/v1/namespaces/team-a/deployments"
    if not api.exists("Deployment", "web", "team-a"):
        first = deployment(1)
        api.create(padded(first, 1_000_000, "<", template=first["spec"]["template"]))
    wanted = deployment(64)
    padded(wanted, size, "<", template=wanted["spec"]["template"])
    options = {"dryRun": "All"}
    if content_type:
        options["content_type"] = content_type
    if content_type == "application/apply-patch+yaml":
        options |= {"fieldManager": "test", "force": "true"}

    with pytest.raises(Refused) as refusal:
        api.call("PATCH" if content_type else "PUT", f"{path}/web", wanted, **options)

    assert "cap-gpus-per-pod" in refusal.value.message


def test_an_outage_stops_what_queues_or_names_a_gpu_and_nothing_else(tmp_path):

    with ControlPlane() as control_plane:
        api = Api(control_plane.kubeconfig)
        install(api)
        for folder in CONCERN_ALL_PODS:
            api.create(yaml.safe_load((LIBRARY / folder / "policy.yaml").read_text()))
        accounts = accounts_on(control_plane)
        webhooks = Process(webhooks_command(accounts), tmp_path / "webhooks.log")
        controller = Process(controller_command(accounts), tmp_path / "c.log")
        webhooks.start()
        controller.start()
        eventually(
            lambda: webhooks_are_ready(api, (webhooks, controller)), what="the webhook is open"
        )
        controller.stop()
        webhooks.kill()

        queued = pod("queued", gpus=0, labels={QUEUE: "default"})
        for stopped in (queued, pod("greedy", gpus=64), queue(), *harmful()):
            with pytest.raises(Refused, match="failed calling webhook"):
                api.create(stopped, dry_run=True)
        api.create(pod("plain", "default", gpus=0), dry_run=True)
        api.create(pod("system", "kube-system", gpus=64), dry_run=True)


def harmful():
    """Yield pods that break a policy which concerns all pods, each by one field."""
    variable = {"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}
    for field, value in (
        ("hostNetwork", True),
        ("priorityClassName", "system-node-critical"),
        ("containers", [{"name": "main", "image": "a", "env": [variable]}]),
    ):
        made = pod(field.lower(), "default", gpus=0)
        made["spec"][field] = value
        yield made
    yield pod("device", "default", gpus=0) | {
        "metadata": {
            "name": "device",
            "namespace": "default",
            "annotations": {"cdi.k8s.io/a": "nvidia.com/gpu=all"},
        }
    }


def queue():
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "LocalQueue",
        "metadata": {"name": "new", "namespace": "team-a"},
        "spec": {"clusterQueue": "research"},
    }
