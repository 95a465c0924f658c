"""The account that generates and deletes for policies, on a real API server: what it may do."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.charts import release
from tests.charts.release import CHART, NAMESPACE, RELEASE
from tests.controlplane.programs import API_SERVER, ETCD
from tests.controlplane.server import ControlPlane
from tests.live.server import definition
from tests.scenarios.api import Api, Refused, eventually

pytestmark = pytest.mark.e2e

ACCOUNT, GROUP, TEAM = f"{RELEASE}-background", "policies.kyverno.io", "red-training"
QUOTAS = f"api/v1/namespaces/{TEAM}/resourcequotas"
POLICY = "policyd.io/generating-policy"
LIBRARY = CHART.parents[1] / "policies/tenants/namespace-defaults/kyverno.yaml"
MERGE = "application/merge-patch+json"
VALUES = {
    "background__enabled": True,
    "background__act": True,
    "background__generates": [
        {"apiGroup": "", "version": "v1", "resources": ["resourcequotas"]},
        {"apiGroup": "kueue.x-k8s.io", "version": "v1beta2", "resources": ["localqueues"]},
        {"apiGroup": "networking.k8s.io", "version": "v1", "resources": ["networkpolicies"]},
    ],
    "background__mutates": [{"apiGroup": "", "version": "v1", "resources": ["services"]}],
    "background__deletes": [{"apiGroup": "batch", "version": "v1", "resources": ["jobs"]}],
}


@pytest.fixture(scope="module")
def control_plane():
    with ControlPlane(components=(ETCD, API_SERVER)) as found:
        api = Api(found.kubeconfig)
        found.kubectl("apply", "-f", str(CHART / "crds"))
        found.wait_for("crd", "--all", condition="condition=Established")
        for kind, plural in (
            ("GeneratingPolicy", "generatingpolicies"),
            ("MutatingPolicy", "mutatingpolicies"),
            ("DeletingPolicy", "deletingpolicies"),
        ):
            made = definition(GROUP, ["v1"], kind, plural)
            made["spec"]["scope"] = "Cluster"
            for version in made["spec"]["versions"]:
                version["subresources"] = {"status": {}}
            api.create(made)
        release.accounts(found, port=443, **VALUES)
        found.wait_for("crd", "--all", condition="condition=Established")
        yield found


@pytest.fixture(scope="module")
def account(control_plane):
    """The account's API, once the API server knows what binds it."""
    found = Api(release.account_kubeconfig(control_plane, ACCOUNT))
    control_plane.kubectl("create", "namespace", "probe")

    def is_bound():
        try:
            found.call("POST", "api/v1/namespaces/probe/resourcequotas", quota(), dryRun="All")
        except Refused as refusal:
            return "ValidatingAdmissionPolicy" in refusal.message
        return False

    eventually(is_bound, what="the account is bound")
    return found


def may_list_secrets(api):
    try:
        return api.call("GET", f"api/v1/namespaces/{NAMESPACE}/secrets") is not None
    except Refused:
        return False


def quota(**metadata):
    metadata = {"name": "q", **metadata}
    return {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": metadata, "spec": {}}


@pytest.fixture
def process(control_plane):
    """What the pod of the Deployment runs, as its account."""
    values = {name.replace("__", "."): value for name, value in VALUES.items()}
    (deployment,) = (
        each
        for each in release.rendered(values)
        if each["kind"] == "Deployment" and each["metadata"]["name"] == ACCOUNT
    )
    container = deployment["spec"]["template"]["spec"]["containers"][0]
    program, *more = container["command"]
    arguments = [each for each in container["args"] if not each.startswith("--health")]
    kubeconfig = control_plane.site.folder / f"{ACCOUNT}.kubeconfig"
    command = [Path(sys.executable).parent / program, *more, *arguments]
    command += ["--kubeconfig", kubeconfig]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as running:
        yield running
        running.kill()


def generated(api):
    paths = (
        QUOTAS,
        f"apis/kueue.x-k8s.io/v1beta2/namespaces/{TEAM}/localqueues",
        f"apis/networking.k8s.io/v1/namespaces/{TEAM}/networkpolicies",
    )
    return [each["metadata"]["name"] for path in paths for each in api.call("GET", path)["items"]]


def marking():
    """A policy that labels the Services in the namespaces of a team, for each such namespace."""
    rule = {"apiGroups": [""], "apiVersions": ["v1"]}
    expression = "Object{metadata: Object.metadata{labels: {'team': variables.team}}}"
    of_teams = {"matchExpressions": [{"key": "policyd.io/team", "operator": "Exists"}]}
    there = {"name": "there", "expression": "object.metadata.namespace == request.name"}
    team = {"name": "team", "expression": "request.object.metadata.labels['policyd.io/team']"}
    change = {"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": expression}}
    return {
        "apiVersion": f"{GROUP}/v1",
        "kind": "MutatingPolicy",
        "metadata": {"name": "marks", "annotations": {"policyd.io/rollout": "100"}},
        "spec": {
            "evaluation": {"mutateExisting": {"enabled": True}},
            "matchConstraints": {
                "resourceRules": [{**rule, "operations": ["CREATE"], "resources": ["namespaces"]}],
                "objectSelector": of_teams,
            },
            "targetMatchConstraints": {"resourceRules": [{**rule, "resources": ["services"]}]},
            "targetMatchConditions": [there],
            "variables": [team],
            "mutations": [change],
        },
    }


def is_ready(api):
    status = api.call("GET", f"apis/{GROUP}/v1/generatingpolicies/namespace-defaults").get("status")
    return bool(status and status["conditionStatus"]["ready"])


def test_the_chart_has_the_policy_of_the_library_carried_out(control_plane, account, process):
    api = Api(control_plane.kubeconfig)
    text = LIBRARY.read_text().replace('rollout: "0"', 'rollout: "100"')
    control_plane.kubectl("create", "-f", "-", stdin=text)
    namespace = {"apiVersion": "v1", "kind": "Namespace"}
    namespace["metadata"] = {"name": TEAM, "labels": {"policyd.io/team": "red"}}
    control_plane.kubectl("create", "-f", "-", stdin=json.dumps(namespace))

    made = ["of-the-platform", "default", "of-the-platform"]
    eventually(lambda: generated(api) == made, what="all is generated")
    path = f"apis/networking.k8s.io/v1/namespaces/{TEAM}/networkpolicies/of-the-platform"
    closed = api.call("GET", path)["spec"]
    api.call("PATCH", path, {"spec": {"ingress": [{}]}}, content_type=MERGE)
    eventually(lambda: api.call("GET", path)["spec"] == closed, what="it is restored")
    eventually(lambda: is_ready(api), what="the account has all rights")
    control_plane.kubectl("create", "-f", "-", stdin=json.dumps(marking()))
    control_plane.kubectl("create", "-n", TEAM, "-f", "-", stdin=json.dumps(service()))
    services = f"api/v1/namespaces/{TEAM}/services/central"
    eventually(
        lambda: api.call("GET", services)["metadata"].get("labels") == {"team": "red"},
        what="the service is mutated",
    )
    process.terminate()
    log = process.communicate(timeout=30)[1]
    assert process.returncode == 0, log
    assert "forbidden" not in log


@pytest.fixture(scope="module")
def powerful(control_plane, account):
    """The account, after somebody has let it do everything."""
    role = ("--clusterrole=cluster-admin", f"--serviceaccount={NAMESPACE}:{ACCOUNT}")
    control_plane.kubectl("create", "clusterrolebinding", "everything", *role)
    eventually(lambda: may_list_secrets(account), what="it may do all")
    yield account
    control_plane.kubectl("delete", "clusterrolebinding", "everything")


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        pytest.param("POST", "api/v1/namespaces/probe/resourcequotas", quota(), id="no-label"),
        pytest.param(
            "POST",
            "api/v1/namespaces/kube-system/resourcequotas",
            quota(labels={POLICY: "p"}),
            id="kube-system",
        ),
        pytest.param(
            "POST",
            f"api/v1/namespaces/{NAMESPACE}/resourcequotas",
            quota(labels={POLICY: "p"}),
            id="its-own-namespace",
        ),
        pytest.param(
            "POST",
            "api/v1/namespaces/probe/secrets",
            {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}},
            id="a-secret",
        ),
        pytest.param(
            "POST",
            "apis/rbac.authorization.k8s.io/v1/clusterroles",
            {
                "apiVersion": "rbac.authorization.k8s.io/v1",
                "kind": "ClusterRole",
                "metadata": {"name": "r"},
            },
            id="a-role",
        ),
        pytest.param("DELETE", "api/v1/namespaces/probe", None, id="a-namespace"),
        pytest.param(
            "POST",
            f"apis/{GROUP}/v1/generatingpolicies",
            {
                "apiVersion": f"{GROUP}/v1",
                "kind": "GeneratingPolicy",
                "metadata": {"name": "own"},
                "spec": {},
            },
            id="a-policy",
        ),
    ],
)
def test_it_may_write_nothing_else_even_if_it_may_do_everything(powerful, method, path, body):
    with pytest.raises(Refused, match="may not write this") as refused:
        powerful.call(method, path, body, dryRun="All")

    assert refused.value.code == 403


def service(**labels):
    metadata = {"name": "central", "labels": labels}
    spec = {"ports": [{"port": 80}]}
    return {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec}


def test_it_changes_what_it_mutates_and_creates_and_deletes_none_of_it(control_plane, powerful):
    path = "api/v1/namespaces/probe/services"
    made = Api(control_plane.kubeconfig).call("POST", path, service())
    made["metadata"]["labels"] = {"mutated": "yes"}

    powerful.call("PUT", f"{path}/central", made, dryRun="All")
    for method, where, body in (
        ("POST", path, {**service(), "metadata": {"name": "other"}}),
        ("DELETE", f"{path}/central", None),
    ):
        with pytest.raises(Refused, match="may not write this"):
            powerful.call(method, where, body, dryRun="All")


def test_the_legal_write_passes_and_others_are_not_bound(control_plane, powerful):
    made = quota(labels={POLICY: "p"})

    powerful.call("POST", "api/v1/namespaces/probe/resourcequotas", made, dryRun="All")
    Api(control_plane.kubeconfig).call(
        "POST", "api/v1/namespaces/probe/resourcequotas", quota(), dryRun="All"
    )
