"""Who waits at which place, asked of a real API server that passes it on to the controller."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from policyd.snapshot.reading import read, read_newer
from tests.charts import release
from tests.charts.conftest import CONTROLLER, WEBHOOKS, process
from tests.charts.release import CHART, NAMESPACE, RELEASE
from tests.controlplane.credentials import User
from tests.controlplane.process import ControlPlaneError
from tests.controlplane.programs import API_SERVER, ETCD, free_ports
from tests.controlplane.server import ControlPlane
from tests.scenarios.api import eventually

pytestmark = pytest.mark.e2e

GROUP = "/apis/visibility.kueue.x-k8s.io"
OF_CLUSTER_QUEUE = f"{GROUP}/v1beta2/clusterqueues/cq/pendingworkloads"
OF_LOCAL_QUEUE = f"{GROUP}/v1beta2/namespaces/team/localqueues/lq/pendingworkloads"
OWN = "/apis/visibility.policyd.io/v1alpha1"
OF_TEAM = f"{OWN}/namespaces/team/queuesnapshots/current"
OF_ALL = f"{OWN}/clusterqueuesnapshots/current"
FOR_WEBHOOKS = f"{OWN}/admissionsnapshots/current"
VIEWER, STRANGER = User(name="viewer"), User(name="stranger")
OBJECTS = [
    {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}},
    {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "ClusterQueue",
        "metadata": {"name": "cq"},
        "spec": {"namespaceSelector": {}},
    },
    {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "LocalQueue",
        "metadata": {"name": "lq", "namespace": "team"},
        "spec": {"clusterQueue": "cq"},
    },
    *(
        {
            "apiVersion": "kueue.x-k8s.io/v1beta2",
            "kind": "Workload",
            "metadata": {"name": name, "namespace": "team"},
            "spec": {
                "queueName": "lq",
                "priority": priority,
                "podSets": [
                    {
                        "name": "main",
                        "count": 1,
                        "template": {
                            "spec": {
                                "containers": [
                                    {"name": "c", "resources": {"requests": {"cpu": "1"}}}
                                ]
                            }
                        },
                    }
                ],
            },
        }
        for name, priority in (("later", 1), ("sooner", 2))
    ),
    {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": {"name": "view", "namespace": "team"},
        "roleRef": {
            "apiGroup": "rbac.authorization.k8s.io",
            "kind": "ClusterRole",
            "name": f"{RELEASE}-view",
        },
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "viewer"}],
    },
]


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """The chart installed with positions; the Service means a controller on this machine."""
    folder = tmp_path_factory.mktemp("visibility")
    flags = {API_SERVER: release.front_proxy(folder)}
    options = {"components": (ETCD, API_SERVER), "flags": flags, "users": (VIEWER, STRANGER)}
    with ControlPlane(**options) as control_plane:
        control_plane.kubectl("create", "namespace", NAMESPACE)
        ports = free_ports(["health", "visibility"])
        values = {
            "controller.healthPort": ports["health"],
            "controller.visibility.port": ports["visibility"],
        }
        release.on(control_plane, "install", RELEASE, CHART, *release.set_values(values))
        release.lead_visibility_to_this_machine(control_plane, ports["visibility"])
        for each in OBJECTS:
            control_plane.kubectl("create", "-f", "-", stdin=json.dumps(each))
        controller = process(control_plane, CONTROLLER, folder)
        controller.start()
        try:
            for name in release.VISIBILITY_APIS:
                control_plane.wait_for("apiservice", name, condition="condition=Available")
            eventually(lambda: len(asked(control_plane, OF_CLUSTER_QUEUE)) == 2, what="both wait")
            yield control_plane
        finally:
            controller.stop()


def asked(control_plane, path, user="admin"):
    return json.loads(control_plane.kubectl("get", "--raw", path, user=user))["items"]


@pytest.mark.parametrize("path", [OF_CLUSTER_QUEUE, OF_LOCAL_QUEUE], ids=["cluster", "local"])
def test_the_api_server_lists_pending_workloads(served, path):
    items = asked(served, path)

    assert [(each["metadata"]["name"], each["positionInLocalQueue"]) for each in items] == [
        ("sooner", 0),
        ("later", 1),
    ]


def test_kubectl_finds_the_resources(served):
    found = served.kubectl("get", "--raw", f"{GROUP}/v1beta2")
    with pytest.raises(ControlPlaneError, match="NotFound"):  # it is served on request
        served.kubectl("get", "--raw", f"{GROUP}/v1beta1")

    assert {each["name"] for each in json.loads(found)["resources"]} == {
        "clusterqueues/pendingworkloads",
        "localqueues/pendingworkloads",
    }


def test_a_viewer_of_a_namespace_may_read_its_queues(served):
    assert len(asked(served, OF_LOCAL_QUEUE, user="viewer")) == 2
    with pytest.raises(ControlPlaneError, match="forbidden"):
        asked(served, OF_CLUSTER_QUEUE, user="viewer")


def test_nobody_else_may(served):
    with pytest.raises(ControlPlaneError, match="forbidden"):
        asked(served, OF_LOCAL_QUEUE, user="stranger")


@pytest.mark.parametrize(
    ("path", "user"),
    [
        pytest.param(OF_TEAM, "viewer", id="of-a-namespace"),
        pytest.param(OF_ALL, "admin", id="of-the-cluster"),
    ],
)
def test_who_may_read_a_snapshot_gets_it_through_the_api_server(served, path, user):
    found = read(served.kubectl("get", "--raw", path, user=user).encode(), path)

    (queue,) = found.cluster_queues
    assert [row.key for row in queue.pending] == ["team/sooner", "team/later"]


@pytest.mark.parametrize(
    ("path", "user"),
    [
        pytest.param(OF_ALL, "viewer", id="of-the-cluster"),
        pytest.param(OF_TEAM, "stranger", id="of-a-namespace"),
    ],
)
def test_nobody_else_gets_a_snapshot(served, path, user):
    with pytest.raises(ControlPlaneError, match="forbidden"):
        served.kubectl("get", "--raw", path, user=user)


def test_the_account_of_the_webhooks_gets_the_snapshot_for_admission_and_no_other(served):
    account = f"system:serviceaccount:{NAMESPACE}:{WEBHOOKS}"

    def asks(path):
        return served.kubectl("get", "--raw", path, f"--as={account}").encode()

    found = read(asks(FOR_WEBHOOKS), FOR_WEBHOOKS)

    assert [each.name for each in found.rules.local_queues] == ["lq"]
    assert read_newer(asks(f"{FOR_WEBHOOKS}?unless={found.version}"), FOR_WEBHOOKS) is None
    with pytest.raises(ControlPlaneError, match="forbidden"):
        asks(OF_ALL)
    with pytest.raises(ControlPlaneError, match="forbidden"):
        served.kubectl("get", "--raw", FOR_WEBHOOKS, user="viewer")


def test_the_plugin_of_kubectl_asks_with_the_rights_of_its_user(served):
    program, snapshots = Path(sys.executable).with_name("policyd"), ["-n", "team", "-o", "json"]

    def run(user, *words):
        kubeconfig = ["--kubeconfig", served.kubeconfig, "--context", user]
        command = [program, *words, *snapshots, *kubeconfig]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    asked, refused = run("viewer", "queue"), run("stranger", "queue")
    everything = run("viewer", "queue", "-A")
    answer = json.loads(run("viewer", "why", "workload/later").stdout)

    assert [each["workload"] for each in json.loads(asked.stdout)] == ["sooner", "later"]
    assert (refused.returncode, everything.returncode) == (2, 2)
    assert "`get` on `queuesnapshots.visibility.policyd.io` in namespace team" in refused.stderr
    assert "without -A" in everything.stderr
    assert (answer["ahead"], answer["clusterQueue"]) == (1, "cq")
