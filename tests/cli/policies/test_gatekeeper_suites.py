"""`policyd test` runs Gatekeeper's suites for templates that are written in CEL."""

import json

import pytest
from click.testing import CliRunner

from policyd.cli import main

TEMPLATE = """\
apiVersion: templates.gatekeeper.sh/v1
kind: ConstraintTemplate
metadata: {name: k8smost}
spec:
  crd:
    spec:
      names: {kind: K8sMost}
      validation:
        openAPIV3Schema:
          type: object
          required: [most]
          properties: {most: {type: integer}}
  targets:
  - target: admission.k8s.gatekeeper.sh
    code:
    - engine: Rego
      source: {rego: package k8smost}
    - engine: K8sNativeValidation
      source:
        variables:
        - {name: containers, expression: "variables.anyObject.spec.containers"}
        validations:
        - expression: size(variables.containers) <= variables.params.most
          messageExpression: "'at most ' + string(variables.params.most) + ' containers'"
"""
REGO = """\
apiVersion: templates.gatekeeper.sh/v1
kind: ConstraintTemplate
metadata: {name: k8smost}
spec:
  crd: {spec: {names: {kind: K8sMost}}}
  targets: [{target: admission.k8s.gatekeeper.sh, rego: package k8smost}]
"""
CONSTRAINT = """\
apiVersion: constraints.gatekeeper.sh/v1beta1
kind: K8sMost
metadata: {name: one-container}
spec:
  match: {kinds: [{apiGroups: [""], kinds: [Pod]}]%s}
  parameters: {most: %s}
"""
SUITE = """\
apiVersion: test.gatekeeper.sh/v1alpha1
kind: Suite
tests:
- name: containers
  template: template.yaml
  constraint: constraint.yaml
  cases:
  - name: a pod
    object: pod.yaml
    assertions: [%s]
"""
POD = """\
apiVersion: v1
kind: Pod
metadata: {name: a, namespace: team-a, labels: {app: web}}
spec: {containers: [{name: one, image: a}, {name: two, image: a}]}
"""


@pytest.fixture
def folder(tmp_path):
    def write(
        *, template=TEMPLATE, match="", most="1", assertion="violations: yes", obj=POD, suite=SUITE
    ):
        (tmp_path / "template.yaml").write_text(template)
        (tmp_path / "constraint.yaml").write_text(CONSTRAINT % (match, most))
        (tmp_path / "suite.yaml").write_text(suite % f"{{{assertion}}}" if "%s" in suite else suite)
        (tmp_path / "pod.yaml").write_text(obj)
        return tmp_path

    return write


def run(path, *options):
    return CliRunner().invoke(main, ["test", *options, str(path)])


@pytest.mark.parametrize(
    "assertion",
    [
        pytest.param("violations: yes", id="any"),
        pytest.param("violations: 1", id="so-many"),
        pytest.param("message: at most 1", id="with-a-message"),
        pytest.param("violations: no, message: at most 2", id="none-with-a-message"),
    ],
)
def test_a_case_passes_if_there_are_as_many_violations_as_it_says(assertion, folder):
    result = run(folder(assertion=assertion))

    assert result.exit_code == 0, result.output
    assert "1 case passed" in result.output


@pytest.mark.parametrize(
    ("assertion", "message"),
    [
        pytest.param("violations: no", "1 violations, expected none: at most 1", id="none"),
        pytest.param("violations: 2", "1 violations, expected 2", id="another-number"),
        pytest.param("message: nothing", "0 violations with `nothing`", id="another-message"),
        pytest.param("message: '('", "`(` is not a pattern", id="no-pattern"),
    ],
)
def test_a_case_fails_if_there_are_not(assertion, message, folder):
    result = run(folder(assertion=assertion))

    assert result.exit_code == 1
    assert message in result.output


@pytest.mark.parametrize(
    ("match", "violations"),
    [
        pytest.param(", namespaces: [team-*]", 1, id="in-a-namespace"),
        pytest.param(", namespaces: ['*-b']", 0, id="in-none-of-the-namespaces"),
        pytest.param(", excludedNamespaces: ['*am-*']", 0, id="in-an-excluded-namespace"),
        pytest.param(", labelSelector: {matchLabels: {app: web}}", 1, id="labelled"),
        pytest.param(", labelSelector: {matchLabels: {app: db}}", 0, id="labelled-otherwise"),
        pytest.param(", namespaceSelector: {matchLabels: {a: b}}", 0, id="in-no-such-namespace"),
        pytest.param(", scope: Cluster", 0, id="not-of-the-cluster"),
        pytest.param(", name: a", 1, id="named"),
        pytest.param(", name: b*", 0, id="named-otherwise"),
        pytest.param(", source: Generated", 0, id="not-generated"),
    ],
)
def test_a_constraint_matches_the_objects_of_its_match_block(match, violations, folder):
    result = run(folder(match=match, assertion=f"violations: {violations}"))

    assert result.exit_code == 0, result.output


@pytest.mark.parametrize(
    ("match", "violations"),
    [
        pytest.param(", scope: Cluster", 1, id="of-the-cluster"),
        pytest.param(", scope: Namespaced", 0, id="not-namespaced"),
        pytest.param(", namespaceSelector: {matchLabels: {a: b}}", 1, id="not-filtered"),
    ],
)
def test_an_object_that_names_no_namespace_is_in_none(match, violations, folder):
    obj = POD.replace("namespace: team-a, ", "")
    result = run(folder(match=match, obj=obj, assertion=f"violations: {violations}"))

    assert result.exit_code == 0, result.output


def test_a_case_about_a_kind_that_the_constraint_does_not_name_fails(folder):
    service = POD.replace("kind: Pod", "kind: Service")
    result = run(folder(obj=service, assertion="violations: no"))

    assert result.exit_code == 1
    assert "the constraint does not match a Service" in result.output


def test_an_object_may_be_an_admission_review(folder):
    review = {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "operation": "DELETE",
            "kind": {"group": "", "version": "v1", "kind": "Pod"},
            "resource": {"group": "", "version": "v1", "resource": "pods"},
            "oldObject": {"metadata": {"name": "a"}, "spec": {"containers": [{}, {}, {}]}},
        },
    }
    result = run(folder(obj=json.dumps(review)))

    assert result.exit_code == 0, result.output


def test_parameters_that_the_template_does_not_take_fail(folder):
    result = run(folder(most="many"))

    assert result.exit_code == 1
    assert "spec.parameters.most: 'many' is not of type 'integer'" in result.output


@pytest.mark.parametrize(
    ("most", "passes"), [pytest.param("many", True, id="is"), pytest.param("1", False, id="is-not")]
)
def test_a_constraint_that_is_to_be_invalid_is(most, passes, folder):
    suite = SUITE[: SUITE.index("  cases:")] + "  invalid: true\n"
    result = run(folder(most=most, suite=suite))

    assert (result.exit_code == 0) == passes


def test_a_template_in_rego_is_refused_with_a_sentence(folder):
    result = run(folder(template=REGO))

    assert result.exit_code == 1
    assert "template.yaml" in result.stderr
    assert "template `k8smost` is written in Rego" in result.stderr


def test_parameters_without_a_schema_are_shown_in_the_template(folder):
    result = run(folder(template=TEMPLATE.replace("{type: integer}", "{type: number of them}")))

    assert result.exit_code == 1
    assert "template.yaml:12:37: error: not a schema: 'number of them'" in result.stderr


def test_a_wrong_expression_is_shown_in_the_template(folder):
    result = run(folder(template=TEMPLATE.replace("size(", "sice(")))

    assert result.exit_code == 1
    assert "template.yaml:23:27: error: undeclared reference to 'sice'" in result.stderr


@pytest.mark.parametrize(
    ("most", "assertion", "code"),
    [
        pytest.param("1", "violations: yes", 0, id="violated"),
        pytest.param("2", "violations: no", 1, id="never-violated"),
    ],
)
def test_a_validation_that_no_case_violates_is_named(most, assertion, code, folder):
    result = run(folder(most=most, assertion=assertion), "--coverage")

    assert result.exit_code == code
    assert ("no case violates" in result.stderr) is bool(code)


def test_skipped_tests_are_not_run(folder):
    suite = SUITE.replace("- name: containers", "- name: containers\n  skip: true")
    result = run(folder(suite=suite, assertion="violations: no"))

    assert "0 cases passed" in result.output
