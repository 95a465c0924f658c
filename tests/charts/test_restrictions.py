"""What binds policyd's accounts, on a real API server: what they do passes, nothing else does."""

import pytest
import yaml

from policyd.jobs.kinds.registry import KINDS
from tests.charts import release
from tests.charts.illegal import illegal
from tests.charts.legal import legal
from tests.charts.release import CHART, CONTROLLER, NAMESPACE, RELEASE, WEBHOOKS
from tests.charts.writes import SENT, prepare, status_of
from tests.controlplane.programs import API_SERVER, CONTROLLER_MANAGER, ETCD
from tests.controlplane.server import ControlPlane
from tests.scenarios.api import Api, eventually

pytestmark = pytest.mark.e2e

LEGAL, ILLEGAL = list(legal()), list(illegal())
OF_POLICIES = [write for write in ILLEGAL if not write.by_roles]
WITHOUT_PODS = (ETCD, API_SERVER, CONTROLLER_MANAGER)
KEEPING = {CONTROLLER_MANAGER: ["--controllers=*,-garbage-collector-controller"]}
"""What has an owner stays, though nobody has made that."""

VALUES = {"webhooks__serveV1beta1": True}


def by_id(those):
    return [pytest.param(write, id=write.id) for write in those]


@pytest.fixture(scope="module")
def control_plane():
    with ControlPlane(components=WITHOUT_PODS, flags=KEEPING) as found:
        found.kubectl("apply", "-f", str(CHART / "crds"))
        release.accounts(found, port=443, **VALUES)
        prepare(Api(found.kubeconfig))
        yield found


@pytest.fixture(scope="module")
def accounts(control_plane):
    """The API by the name of each account, with all that the chart gives and forbids."""
    found = {
        name: Api(release.account_kubeconfig(control_plane, name))
        for name in (CONTROLLER, WEBHOOKS)
    }
    eventually(lambda: not taken(found), what="the API server knows roles and policies")
    return found


def taken(apis, those=LEGAL):
    return [write.id for write in those if write.refusal(apis[write.account]) is not None]


@pytest.fixture
def powerful(control_plane, accounts):
    """The same accounts, after somebody has let them do everything."""
    name = "everything"
    subjects = [f"--serviceaccount={NAMESPACE}:{account}" for account in accounts]
    role = "--clusterrole=cluster-admin"
    control_plane.kubectl("create", "clusterrolebinding", name, role, *subjects)
    eventually(lambda: accounts[CONTROLLER].find("Secret", NAMESPACE), what="they may do all")
    yield accounts
    control_plane.kubectl("delete", "clusterrolebinding", name)


@pytest.mark.parametrize("write", by_id(LEGAL))
def test_supported_values_are_accepted(accounts, write):
    assert write.refusal(accounts[write.account]) is None


@pytest.mark.parametrize("write", by_id(ILLEGAL))
def test_unsupported_values_are_refused(accounts, write):
    refusal = write.refusal(accounts[write.account])

    assert refusal is not None
    assert refusal.code == 403


def test_it_is_refused_if_the_accounts_may_do_everything(powerful):
    refusals = {write.id: write.refusal(powerful[write.account]) for write in OF_POLICIES}

    assert {name for name, refusal in refusals.items() if refusal is None} == set()
    unlike = {
        name: str(refusal)
        for name, refusal in refusals.items()
        if "ValidatingAdmissionPolicy" not in refusal.message
    }
    assert unlike == {}


@pytest.fixture
def sending(control_plane):
    """The chart sends jobs to other clusters."""
    values = {name.replace("__", "."): value for name, value in VALUES.items()}
    given = (values | {"controller.multiKueue.enabled": True}, values)
    both = [release.rendered(each) for each in given]
    kinds = ("ValidatingAdmissionPolicy", "ClusterRole", "Role")
    texts = [yaml.safe_dump_all([each for each in r if each["kind"] in kinds]) for r in both]
    control_plane.kubectl("apply", "-f", "-", stdin=texts[0])
    yield
    control_plane.kubectl("apply", "-f", "-", stdin=texts[1])


def test_only_the_status_of_jobs_that_are_managed_by_multikueue_is_written(sending, powerful):
    api = powerful[CONTROLLER]
    sent = [status_of(kind, f"{kind.lower()}-sent") for kind in ("Job", *SENT)]
    others = [status_of(kind, kind.lower()) for kind in ("Job", *SENT, "SparkApplication")]

    def refused():
        return [write.id for write in sent if write.refusal(api) is not None]

    eventually(lambda: not refused(), what="statuses that come back are written")
    assert [write.id for write in others if write.refusal(api) is None] == []


def test_others_are_not_bound(control_plane, accounts):
    admin = Api(control_plane.kubeconfig)
    image = next(write for write in ILLEGAL if write.id == "image-of-a-held-pod")

    assert image.refusal(admin) is None


def test_the_api_server_finds_nothing_wrong_with_the_policies(control_plane, accounts):
    def checked():
        found = release.objects(control_plane, "validatingadmissionpolicies")
        done = all("typeChecking" in each.get("status", {}) for each in found)
        return found if done else None

    policies = eventually(checked, what="the policies are checked")

    warned = [p["metadata"]["name"] for p in policies if p["status"]["typeChecking"]]
    assert warned == []
    assert len(policies) >= 10


def test_they_are_left_out_if_that_is_asked_for():
    kinds = [item["kind"] for item in release.rendered({"selfRestriction.enabled": False})]

    assert "ValidatingAdmissionPolicy" not in kinds
    assert "ValidatingAdmissionPolicyBinding" not in kinds


def test_every_policy_refuses_what_it_cannot_judge_and_has_a_binding():
    found = release.rendered({"webhooks.serveV1beta1": True})
    policies = [item for item in found if item["kind"] == "ValidatingAdmissionPolicy"]
    bound = {
        item["spec"]["policyName"]: item["spec"]["validationActions"]
        for item in found
        if item["kind"] == "ValidatingAdmissionPolicyBinding"
    }

    assert {item["spec"]["failurePolicy"] for item in policies} == {"Fail"}
    assert bound == {item["metadata"]["name"]: ["Deny"] for item in policies}
    assert all(name.startswith(f"{RELEASE}-") for name in bound)


def test_jobs_may_be_deleted_only_where_the_configuration_says_after_how_long():
    retention = {"objectRetentionPolicies": {"workloads": {"afterDeactivatedByKueue": "1h"}}}
    without, given = (
        {
            resource
            for item in release.rendered({"controller.configuration": configuration})
            for rule in item.get("rules") or []
            if "delete" in rule["verbs"]
            for resource in rule["resources"]
        }
        for configuration in ({}, retention)
    )

    kinds = {kind.plural for kind in KINDS}
    assert without & kinds == set()
    assert given - without == kinds


def test_objects_about_devices_are_watched_only_where_their_classes_are_mapped():
    mapping = {"name": "gpus", "deviceClassNames": ["gpu.example.com"]}
    without, given, scanning = (
        {
            (resource, verb)
            for item in release.rendered(values)
            for rule in item.get("rules") or []
            if "resource.k8s.io" in rule.get("apiGroups", ())
            for resource in rule["resources"]
            for verb in rule["verbs"]
        }
        for values in (
            {},
            {"controller.configuration": {"resources": {"deviceClassMappings": [mapping]}}},
            {"reports.enabled": True},
        )
    )

    kinds = ("deviceclasses", "resourceclaims", "resourceclaimtemplates", "resourceslices")
    # The webhooks look up the claims of a pod, for policies that count their devices; a scan
    # lists all of them.
    claims = {(kind, "get") for kind in ("resourceclaims", "resourceclaimtemplates")}
    assert without == claims
    assert scanning == claims | {(kind, "list") for kind, _ in claims}
    assert given == claims | {(kind, verb) for kind in kinds for verb in ("list", "watch")}


def test_secrets_may_be_read_only_where_they_are_named():
    def readable(**multi_kueue):
        found = release.rendered({"controller.multiKueue": multi_kueue})
        return [
            rule.get("resourceNames")
            for item in found
            if item["metadata"]["name"] == CONTROLLER
            for rule in item.get("rules") or []
            if "secrets" in rule["resources"]
        ]

    assert readable(enabled=False, secrets=["east"]) == []
    assert readable(enabled=True, secrets=["east", "west"]) == [["east", "west"]]
    assert readable(enabled=True) == [None]


def test_secrets_are_sent_where_that_is_asked_for():
    def sent(values):
        found = {
            (item["kind"], item["metadata"]["name"]): item for item in release.rendered(values)
        }
        pod = found["Deployment", WEBHOOKS]["spec"]["template"]["spec"]["containers"][0]
        policy = found["ValidatingAdmissionPolicy", f"{WEBHOOKS}-registration"]
        messages = [each["message"] for each in policy["spec"]["validations"]]
        asked = {each for each in pod["args"] if each.startswith("--leave-out")}
        return asked, any("Secrets" in each for each in messages)

    assert sent({}) == ({"--leave-out=roles", "--leave-out=secrets"}, True)
    assert sent({"selfRestriction.secrets": True}) == ({"--leave-out=roles"}, False)
