"""The account that stops idle notebooks, on a real API server: it stops them, and does no more."""

import json
import subprocess
import time
from contextlib import suppress

import pytest

from policyd.usage.notebooks import STOPPED
from tests.charts import release
from tests.charts.release import CHART, RELEASE
from tests.controlplane.programs import API_SERVER, CONTROLLER_MANAGER, ETCD
from tests.controlplane.server import ControlPlane
from tests.live.server import definition
from tests.scenarios.api import Api, Refused, eventually
from tests.scenarios.clusters import COMMANDS
from tests.usage import recording
from tests.usage.loopback import FakePrometheus, serving

pytestmark = pytest.mark.e2e

ACCOUNT, TEAM = f"{RELEASE}-idle-notebooks", "team-a"
NOTEBOOKS = f"apis/kubeflow.org/v1/namespaces/{TEAM}/notebooks"
MERGE = "application/merge-patch+json"
LABELS = {"app": "nb"}
TEMPLATE = {
    "metadata": {"labels": LABELS},
    "spec": {"containers": [{"name": "main", "image": "example.com/notebook:1"}]},
}
VALUES = {
    "idleNotebooks__enabled": True,
    "idleNotebooks__dryRun": False,
    "idleNotebooks__namespaces": [TEAM],
    "idleNotebooks__prometheus": "http://prometheus.monitoring:9090",
}


@pytest.fixture(scope="module")
def control_plane():
    with ControlPlane(components=(ETCD, API_SERVER, CONTROLLER_MANAGER)) as found:
        api = Api(found.kubeconfig)
        found.kubectl("apply", "-f", str(CHART / "crds"))
        found.kubectl("create", "namespace", TEAM)
        api.create(definition("kubeflow.org", ["v1"], "Notebook", "notebooks"))
        release.accounts(found, port=443, **VALUES)
        eventually(lambda: found.kubectl("get", "notebooks", "-A") is not None, what="the kind")
        yield found


@pytest.fixture(scope="module")
def account(control_plane):
    """The account's kubeconfig, once the API server knows what binds it."""
    file = release.account_kubeconfig(control_plane, ACCOUNT)
    admin, bound = Api(control_plane.kubeconfig), Api(file)
    make_notebook(admin, "probe")

    def is_bound():
        try:
            bound.call(
                "PATCH",
                f"{NOTEBOOKS}/probe",
                {"spec": {"a": "b"}},
                content_type=MERGE,
                dryRun="All",
            )
        except Refused as refusal:
            return "ValidatingAdmissionPolicy" in refusal.message
        return False

    eventually(is_bound, what="the account is bound")
    return file


def make_notebook(api, name):
    """Make a Notebook that may be idle for a second."""
    metadata = {"name": name, "namespace": TEAM, "annotations": {"policyd.io/idle-after": "1s"}}
    made = {"apiVersion": "kubeflow.org/v1", "kind": "Notebook", "metadata": metadata}
    return api.call("POST", NOTEBOOKS, {**made, "spec": {"template": TEMPLATE}})


def owned_by(owner, name, **more):
    """Return the metadata of an object that another one controls."""
    of = {key: owner[key] for key in ("apiVersion", "kind")} | {"controller": True}
    of |= {key: owner["metadata"][key] for key in ("name", "uid")}
    return {"name": name, "ownerReferences": [of], **more}


def test_an_idle_notebook_of_kubeflow_is_stopped(control_plane, account):
    api = Api(control_plane.kubeconfig)
    notebook = make_notebook(api, "idle")
    stateful_set = {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": owned_by(notebook, "idle"),
        "spec": {
            "serviceName": "idle",
            "selector": {"matchLabels": LABELS},
            "template": TEMPLATE,
        },
    }
    made = api.call("POST", f"apis/apps/v1/namespaces/{TEAM}/statefulsets", stateful_set)
    pod = {
        **TEMPLATE,
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": owned_by(made, "idle-0", labels=LABELS),
    }
    with suppress(Refused):  # the controller may be the first
        api.call("POST", f"api/v1/namespaces/{TEAM}/pods", pod)
    begin = (int(time.time()) + 60) // 30 * 30 - (recording.END - recording.BEGIN)

    def series():
        labels = recording.gpu("i", 0, f"{TEAM}/idle-0", UUID="GPU-idle")
        yield recording.ENGINE, labels, recording.always(0.0)

    with serving(FakePrometheus(series, begin=begin)) as address:
        command = [
            COMMANDS / "policyd", "usage", "idle", "--stop", "--prometheus", address,
            "--namespace", TEAM, "--kubeconfig", account, "-o", "json", "--since", "6h",
        ]  # fmt: skip
        done = subprocess.run(command, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr
    (found,) = json.loads(done.stdout)["notebooks"]
    assert (found["notebook"], found["done"]) == ("Notebook/idle", "stopped")
    after = api.call("GET", f"{NOTEBOOKS}/idle")
    assert STOPPED in after["metadata"]["annotations"]
    assert after["spec"] == notebook["spec"]
    start = {"metadata": {"annotations": {STOPPED: None}}}
    with pytest.raises(Refused, match="may only stop them"):
        Api(account).call("PATCH", f"{NOTEBOOKS}/idle", start, content_type=MERGE)


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"spec": {"template": {"spec": {"hostPID": True}}}}, id="spec"),
        pytest.param({"metadata": {"labels": {"a": "b"}}}, id="labels"),
        pytest.param({"metadata": {"finalizers": ["example.com/a"]}}, id="finalizers"),
        pytest.param({"metadata": {"annotations": {"a": "b"}}}, id="another-annotation"),
        pytest.param({"metadata": {"annotations": None}}, id="no-annotations"),
        pytest.param({"status": {"a": "b"}}, id="status"),
    ],
)
def test_nothing_else_of_a_notebook_can_be_changed(account, change):
    stop = {"metadata": {"annotations": {STOPPED: "now"}}}
    metadata = stop["metadata"] | change.get("metadata", {})
    if isinstance(metadata["annotations"], dict):
        metadata["annotations"] = {STOPPED: "now"} | metadata["annotations"]

    Api(account).call("PATCH", f"{NOTEBOOKS}/probe", stop, content_type=MERGE, dryRun="All")
    with pytest.raises(Refused, match="may only stop them"):
        Api(account).call(
            "PATCH",
            f"{NOTEBOOKS}/probe",
            change | {"metadata": metadata},
            content_type=MERGE,
            dryRun="All",
        )


def test_others_are_not_bound(control_plane, account):
    change = {"metadata": {"labels": {"a": "b"}}}

    Api(control_plane.kubeconfig).call("PATCH", f"{NOTEBOOKS}/probe", change, content_type=MERGE)
