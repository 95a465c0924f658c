"""A policy's way from a note to a refusal on a real control plane, with reports of what exists."""

from contextlib import ExitStack

import pytest

from policyd.engine.offline.report import APIS
from tests.controlplane.server import ControlPlane
from tests.live.server import definition
from tests.report_kinds import definitions
from tests.scenarios.api import PATHS, Api, Refused, condition, eventually
from tests.scenarios.clusters import (
    Process,
    accounts_on,
    controller_command,
    install,
    webhooks_are_ready,
    webhooks_command,
)
from tests.scenarios.objects import pod

pytestmark = pytest.mark.e2e

WORKING_GROUP = APIS[1]
SOON = 90.0
"""Seconds within which a scan follows a change: it lets policies settle first."""

META = {"apiVersion": "policyd.io/v1alpha1"}
PODS = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}


KYVERNO = definition(
    "policies.kyverno.io", ["v1"], "ValidatingPolicy", "validatingpolicies", namespaced=False
)
"""A kind of Kyverno's, whose policies stay when it goes."""
KYVERNO["spec"]["versions"][0]["subresources"] = {"status": {}}


@pytest.fixture(scope="module")
def api(tmp_path_factory):
    """A real control plane with policyd's processes, and the Working Group's kinds of reports."""
    folder = tmp_path_factory.mktemp("rollout")
    PATHS["ValidatingPolicy"] = "apis/policies.kyverno.io/v1/validatingpolicies"
    PATHS["PolicyReport"] = "apis/wgpolicyk8s.io/v1alpha2/namespaces/{namespace}/policyreports"
    with ControlPlane() as control_plane, ExitStack() as stack:
        found = Api(control_plane.kubeconfig)
        for kind in (*definitions(WORKING_GROUP), KYVERNO):
            found.create(kind)
        install(found)
        options, values = ("--reports", "--kyverno"), {"reports__enabled": True}
        accounts = accounts_on(control_plane, webhooks__kyverno=True, **values)
        webhooks = Process([*webhooks_command(accounts), *options], folder / "webhooks.log")
        controller = Process([*controller_command(accounts), *options], folder / "controller.log")
        for process in (webhooks, controller):
            process.start()
            stack.callback(process.stop)
        eventually(
            lambda: webhooks_are_ready(found, (webhooks, controller)), what="the webhook is open"
        )
        found.webhooks = webhooks
        yield found


def policy(name, expression, **spec):
    constraints = {"resourceRules": [PODS]}
    validations = [{"name": "v", "expression": expression, "message": f"{name} says no"}]
    body = {"matchConstraints": constraints, "validations": validations, **spec}
    return META | {"kind": "Policy", "metadata": {"name": name}, "spec": body}


def plain(name):
    return pod(name, gpus=0)


def results(api, policy_name, namespace="team-a"):
    """Return what the report of a namespace says of a policy, by result."""
    if not api.exists("PolicyReport", "policyd", namespace):
        return {}
    report = api.get("PolicyReport", "policyd", namespace)
    return {
        each["result"]: each["properties"]
        for each in report["results"]
        if each["policy"] == policy_name
    }


def test_existing_objects_are_reported_and_a_policy_goes_from_audit_to_deny(api):
    api.create(plain("early"))
    rule = "!object.metadata.name.startsWith('early') && !object.metadata.name.startsWith('late')"
    api.create(policy("names", rule, enforcement="Audit"))

    found = eventually(
        lambda: results(api, "names").get("fail"), within=SOON, what="the pod is reported"
    )
    assert found["count"] == "1"
    assert found["enforcement"] == "Audit"

    api.create(plain("late-1"))
    assert not api.warnings

    warn = [{"enforcement": "Warn", "namespaces": ["team-a"]}]
    api.patch("Policy", "names", {"spec": {"rollout": warn}})
    eventually(lambda: warned(api), what="team-a is warned")

    deny = [{"enforcement": "Deny", "percent": 100, "namespaces": ["team-a"]}]
    api.patch("Policy", "names", {"spec": {"rollout": deny}})
    eventually(lambda: refused(api, "late-2"), what="team-a is refused")
    found = eventually(
        lambda: (
            results(api, "names").get("fail", {}).get("enforcement") == "Deny"
            and results(api, "names")["fail"]
        ),
        within=SOON,
        what="the report follows",
    )
    assert found["count"] == "2"
    api.delete("Policy", "names", "")


def warned(api):
    api.create(plain("late-dry"), dry_run=True)
    return any("names says no" in warning for warning in api.warnings)


def refused(api, name):
    try:
        api.create(plain(name), dry_run=True)
    except Refused as refusal:
        return "names says no" in refusal.message
    return False


def test_admitted_violations_are_counted_in_the_report(api):
    api.create(policy("noted", "false", enforcement="Audit"))
    eventually(
        lambda: results(api, "noted").get("pass") or results(api, "noted").get("fail"),
        within=SOON,
        what="the policy is scanned with",
    )
    for number in range(3):
        api.create(plain(f"counted-{number}"))

    found = eventually(
        lambda: results(api, "noted").get("fail", {}).get("admitted"),
        within=SOON,
        what="what was let through is counted",
    )

    assert int(found) >= 3
    api.delete("Policy", "noted", "")


def test_a_shadow_is_asked_and_has_no_say(api):
    api.create(policy("kept", "true"))
    api.create(policy("kept-2", "false", shadowOf="kept"))
    ready = eventually(lambda: condition(api.get("Policy", "kept-2", ""), "Ready"))
    assert ready["reason"] == "Shadow"

    def differs():
        api.create(plain("in-the-shadow"), dry_run=False)
        api.delete("Pod", "in-the-shadow", "team-a")
        eventually(lambda: not api.exists("Pod", "in-the-shadow", "team-a"), what="it is gone")
        return "shadow_differs" in api.webhooks.log.read_text()

    eventually(differs, what="the difference is logged")
    assert "kept-2, shadow of kept, would deny" in api.webhooks.log.read_text()
    found = eventually(
        lambda: results(api, "kept-2").get("fail"), within=SOON, what="the difference is reported"
    )
    assert found["shadowOf"] == "kept"
    for name in ("kept", "kept-2"):
        api.delete("Policy", name, "")


def test_a_policy_of_kyvernos_in_the_cluster_refuses_and_is_scanned_with(api):
    api.create(plain("theirs-early"))
    spec = {
        "validationActions": ["Deny"],
        "matchConstraints": {"resourceRules": [PODS]},
        "validations": [
            {
                "expression": "!object.metadata.name.startsWith('theirs')",
                "message": "names says no",
            }
        ],
    }
    made = {"apiVersion": "policies.kyverno.io/v1", "kind": "ValidatingPolicy", "spec": spec}
    api.create({**made, "metadata": {"name": "theirs"}})

    status = eventually(
        lambda: api.get("ValidatingPolicy", "theirs", "").get("status"),
        what="its status is written",
    )
    assert refused(api, "theirs-late"), "a policy that is reported ready refuses"
    assert status["conditionStatus"]["ready"] is True
    types = [each["type"] for each in status["conditionStatus"]["conditions"]]
    assert types == ["WebhookConfigured", "RBACPermissionsGranted"]
    assert set(status["autogen"]["configs"]) == {"defaults", "cronjobs"}
    found = eventually(
        lambda: results(api, "theirs").get("fail"), within=SOON, what="what exists is reported"
    )

    assert found["count"] == "1"
    api.delete("ValidatingPolicy", "theirs", "")
    eventually(lambda: not refused(api, "theirs-late"), what="it is gone")


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        pytest.param(
            {"matchConstraints": {}}, "at least one resource rule is required", id="rules"
        ),
        pytest.param(
            {
                "matchConstraints": {"resourceRules": [PODS]},
                "validations": [{"expression": "object.spec.containers.all(c, d)"}],
            },
            "spec.validations[0].expression: undeclared reference",
            id="expression",
        ),
    ],
)
def test_a_policy_that_kyverno_would_refuse_is_refused(api, spec, words):
    made = {"apiVersion": "policies.kyverno.io/v1", "kind": "ValidatingPolicy", "spec": spec}

    with pytest.raises(Refused) as refusal:
        api.create({**made, "metadata": {"name": "wrong"}})

    assert words in refusal.value.message


def test_pods_that_are_alike_are_changed_alike_until_the_policy_changes(api):
    made = policy("marks", "true", inject={"labels": {"mark": "one"}})
    api.create(made)
    eventually(lambda: marks(api, ["alike"]) == {"one"}, what="it is in force")

    assert marks(api, [f"alike-{number}" for number in range(5)]) == {"one"}
    assert marks(api, ["another"], labels={"mark": "mine"}) == {"mine"}

    api.patch("Policy", "marks", {"spec": {"inject": {"labels": {"mark": "two"}}}})
    eventually(lambda: marks(api, ["alike"]) == {"two"}, what="it is in force anew")
    api.delete("Policy", "marks", "")


def marks(api, names, **metadata):
    """The values of the label that the policy gives to pods that are tried."""
    found = set()
    for name in names:
        given = plain(name)
        given["metadata"].update(metadata)
        found.add(api.create(given, dry_run=True)["metadata"].get("labels", {}).get("mark"))
    return found


def test_a_policy_that_must_be_bound_waits_for_its_binding(api):
    api.create(policy("bound", "object.metadata.name != 'loose'", requiresBinding=True))
    waits = eventually(lambda: condition(api.get("Policy", "bound", ""), "Ready"))
    assert (waits["status"], waits["reason"]) == ("False", "Unbound")
    api.create(plain("loose"), dry_run=True)

    binding = {"kind": "PolicyBinding", "metadata": {"name": "b"}, "spec": {"policyName": "bound"}}
    api.create(META | binding)

    def is_refused():
        try:
            api.create(plain("loose"), dry_run=True)
        except Refused as refusal:
            return "bound says no" in refusal.message
        return False

    eventually(is_refused, what="the binding counts")
    eventually(
        lambda: condition(api.get("PolicyBinding", "b", ""), "Ready").get("reason") == "Bound",
        what="the binding says so",
    )
    api.patch("PolicyBinding", "b", {"spec": {"policyName": "bond"}})
    lost = eventually(
        lambda: (
            condition(api.get("PolicyBinding", "b", ""), "Ready").get("reason") == "PolicyNotFound"
            and condition(api.get("PolicyBinding", "b", ""), "Ready")
        ),
        what="the binding is for nobody",
    )
    assert "did you mean `bound`?" in lost["message"]
    api.delete("PolicyBinding", "b", "")
    api.delete("Policy", "bound", "")
