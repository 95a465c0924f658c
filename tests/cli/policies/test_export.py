"""`policyd export`: what is written, what is said, and how it ends."""

import pytest
import yaml
from click.testing import CliRunner

from policyd.cli import main

RULE = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
CONSTRAINTS = {"resourceRules": [RULE]}
POLICY = {
    "apiVersion": "policyd.io/v1alpha1",
    "kind": "Policy",
    "metadata": {"name": "named", "labels": {"team": "a"}},
    "spec": {
        "matchConstraints": CONSTRAINTS,
        "validations": [{"expression": "object.metadata.name != 'a'", "message": "not a"}],
    },
}
BINDING = {
    "apiVersion": "policyd.io/v1alpha1",
    "kind": "PolicyBinding",
    "metadata": {"name": "in-research"},
    "spec": {
        "policyName": "named",
        "enforcement": "Warn",
        "matchResources": {"namespaceSelector": {"matchLabels": {"tier": "research"}}},
    },
}
NEEDS_POLICYD = {
    **POLICY,
    "metadata": {"name": "needs-policyd"},
    "spec": {
        "matchConstraints": CONSTRAINTS,
        "validations": [{"expression": "pod.limits('cpu').isLessThan(quantity('2'))"}],
    },
}
NATIVE = {
    "apiVersion": "admissionregistration.k8s.io/v1alpha1",
    "kind": "ValidatingAdmissionPolicy",
    "metadata": {"name": "native"},
    "spec": {"matchConstraints": CONSTRAINTS, "validations": [{"expression": "true"}]},
    "status": {"observedGeneration": 1},
}
KYVERNO = {
    "apiVersion": "policies.kyverno.io/v1",
    "kind": "ValidatingPolicy",
    "metadata": {"name": "kyverno"},
    "spec": {"matchConstraints": CONSTRAINTS, "validations": [{"expression": "true"}]},
}
READS = {
    **KYVERNO,
    "spec": {
        "matchConstraints": CONSTRAINTS,
        "validations": [{"expression": "resource.Get('v1', 'pods', 'a', 'b') != null"}],
    },
}
LIFTED = {
    "apiVersion": "policies.kyverno.io/v1",
    "kind": "PolicyException",
    "metadata": {"name": "lifted"},
    "spec": {"policyRefs": [{"name": "kyverno", "kind": "ValidatingPolicy"}]},
}


@pytest.fixture
def export(tmp_path):
    """Return a function that exports documents with some options."""

    def run(*documents, options=()):
        file = tmp_path / "given.yaml"
        file.write_text(yaml.safe_dump_all(documents))
        return CliRunner().invoke(main, ["export", str(file), *options])

    return run


def objects(result):
    return [*yaml.safe_load_all(result.stdout)]


def test_a_policy_comes_out_with_a_binding_and_its_labels(export):
    result = export(POLICY)

    made, bound = objects(result)
    assert result.exit_code == 0
    assert made["kind"] == "ValidatingAdmissionPolicy"
    assert made["metadata"]["labels"] == {"team": "a", "policyd.io/policy": "named"}
    assert bound["spec"] == {"policyName": "named", "validationActions": ["Deny"]}


def test_its_own_bindings_are_exported_in_the_place_of_its_word(export):
    _, bound = objects(export(BINDING, POLICY))

    assert bound["metadata"]["name"] == "in-research"
    assert bound["spec"]["validationActions"] == ["Warn"]
    selector = bound["spec"]["matchResources"]["namespaceSelector"]
    assert selector == {"matchLabels": {"tier": "research"}}


def test_native_objects_pass_in_the_requested_version(export):
    (passed,) = objects(export(NATIVE, options=["--api-version", "v1beta1"]))

    assert passed["apiVersion"] == "admissionregistration.k8s.io/v1beta1"
    assert "status" not in passed


@pytest.mark.parametrize(
    ("given", "message"),
    [
        pytest.param(NEEDS_POLICYD, "`pod.limits('cpu')` has no counterpart", id="needs-policyd"),
        pytest.param(READS, "undeclared reference to 'resource'", id="needs-kyverno"),
        pytest.param(LIFTED, "the API server knows no exceptions", id="exception"),
    ],
)
@pytest.mark.parametrize(
    ("options", "code"),
    [pytest.param([], 1, id="strictly"), pytest.param(["--partial"], 0, id="partially")],
)
def test_omissions_are_reported_and_the_rest_is_printed(export, given, message, options, code):
    result = export(given, POLICY, options=options)

    assert result.exit_code == code
    assert message in result.stderr
    assert len(objects(result)) == 2


def test_it_writes_to_a_file_if_asked(export, tmp_path):
    result = export(POLICY, options=["-o", str(tmp_path / "native.yaml")])

    assert result.stdout == ""
    assert len([*yaml.safe_load_all((tmp_path / "native.yaml").read_text())]) == 2


def test_nothing_to_export_is_a_wrong_call(export):
    result = export({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}})

    assert result.exit_code == 2
    assert "no policy in" in result.stderr


def test_a_policy_of_kyvernos_becomes_one_of_the_api_servers(export):
    made, bound = objects(export(KYVERNO))[:2]

    assert (made["kind"], bound["kind"]) == (
        "ValidatingAdmissionPolicy",
        "ValidatingAdmissionPolicyBinding",
    )
    assert made["metadata"] == {"name": "kyverno", "labels": {"policyd.io/policy": "kyverno"}}
    assert bound["spec"] == {"policyName": "kyverno", "validationActions": ["Deny"]}


def test_an_exempt_policy_of_kyvernos_is_left_out(export):
    result = export(KYVERNO, LIFTED, options=["--partial"])

    assert "exception `lifted` applies to it, and the API server has no exceptions" in result.stderr
    assert objects(result) == []
