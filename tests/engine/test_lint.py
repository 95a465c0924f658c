"""What is doubtful about policies that compile."""

import pytest

from policyd.engine.documents import read_documents
from policyd.engine.lint import lint, lint_document
from policyd.engine.load import load_policies

POLICY = """\
apiVersion: policyd.io/v1alpha1
kind: Policy
metadata: {{name: p}}
spec:
  {failure}
  matchConstraints:
    {selector}
    resourceRules:
    - {{apiGroups: ["{group}"], apiVersions: [v1], operations: [CREATE], resources: [{resource}]}}
  matchConditions: [{{name: c, expression: "{condition}"}}]
  validations: [{{expression: "1 == 1", message: wrong}}]
"""

NATIVE = """\
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: p}
spec:
  matchConstraints:
    resourceRules:
    - {apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}
  validations: [{expression: "true"}]
"""


def found(condition="true", *, resource="pods", group="", selector="", failure=""):
    text = POLICY.format(
        condition=condition, resource=resource, group=group, selector=selector, failure=failure
    )
    loaded = load_policies(text, "p.yaml")
    (policy,) = loaded.policies
    findings = list(lint(policy))
    assert all(finding.severity == "warning" for finding in findings)
    return [finding.message for finding in findings]


@pytest.mark.parametrize(
    ("condition", "message"),
    [
        pytest.param("1 > 2", "match condition `c` is never true", id="constant"),
        pytest.param(
            "request.operation == 'DELETE'",
            "match condition `c` is never true: no rule is for DELETE",
            id="operation-of-no-rule",
        ),
        pytest.param(
            "object.metadata.labels['team'] == 'a'",
            "for a Pod with nothing but what it must have, match condition `c` failed: "
            "no such key: labels",
            id="labels-that-may-be-missing",
        ),
        pytest.param(
            "object.spec.nodeSelector.gpu == 'yes'",
            "for a Pod with nothing but what it must have, match condition `c` failed: "
            "no such key: nodeSelector",
            id="field-that-may-be-missing",
        ),
    ],
)
def test_a_condition_is_doubtful(condition, message):
    assert [text.split(" (")[0] for text in found(condition)] == [message]


@pytest.mark.parametrize(
    "condition",
    [
        pytest.param("true", id="constant-that-holds"),
        pytest.param("request.operation == 'CREATE'", id="operation-of-a-rule"),
        pytest.param("has(object.metadata.labels) && 'a' in object.metadata.labels", id="has"),
        pytest.param("object.metadata.?labels.?team.orValue('') == 'a'", id="optional"),
        pytest.param("object.spec.restartPolicy == 'Never'", id="field-with-a-default"),
        pytest.param("pod.gpus() > 0", id="method"),
        pytest.param(
            "object.spec.containers.all(c, c.imagePullPolicy == 'Always')", id="within-a-loop"
        ),
    ],
)
def test_a_condition_that_copes_is_fine(condition):
    assert found(condition) == []


def test_a_default_of_a_deployment_is_there():
    condition = "object.spec.replicas >= 3"

    assert found(condition, resource="deployments", group="apps") == []


def test_a_policy_that_ignores_failures_may_fail():
    condition = "object.metadata.labels['team'] == 'a'"

    assert found(condition, failure="failurePolicy: Ignore") == []


@pytest.mark.parametrize("name", ["pod", "Pod"])
def test_a_kind_where_a_resource_should_be_is_doubtful(name):
    assert found(resource=name) == [f"no rule can match `{name}`: there is no such resource"]


def test_resources_that_nobody_knows_are_fine():
    assert found(resource="buildconfigs") == []
    assert found(resource="widgets", group="example.org") == []


def test_a_selector_that_contradicts_itself_is_doubtful():
    selector = (
        "objectSelector: {matchLabels: {a: b}, "
        "matchExpressions: [{key: a, operator: DoesNotExist}]}"
    )

    assert found(selector=selector) == [
        "objectSelector picks nothing: `a` cannot be all that is asked"
    ]


def test_a_policy_of_the_api_server_without_failure_policy_is_doubtful():
    ((document,), _) = read_documents(NATIVE, "p.yaml")

    (finding,) = lint_document(document)

    assert "`failurePolicy` is missing" in finding.message
    assert (finding.line, finding.severity) == (5, "warning")


def test_a_policy_of_the_api_server_with_failure_policy_is_fine():
    ((document,), _) = read_documents(NATIVE.replace("spec:", "spec:\n  failurePolicy: Fail"), "p")

    assert list(lint_document(document)) == []
