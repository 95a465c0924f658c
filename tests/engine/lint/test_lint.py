"""What is doubtful about policies that compile."""

import pytest

from policyd.engine.compile.load import load_policies
from policyd.engine.documents.reading import read_documents
from policyd.engine.lint.policy_warnings import lint, lint_document

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
            "match condition `c` is never true",
            id="operation-of-no-rule",
        ),
        pytest.param(
            "object.metadata.labels['team'] == 'a'",
            "for a Pod with only its required fields, match condition `c` failed: "
            "no such key: labels",
            id="labels-that-may-be-missing",
        ),
        pytest.param(
            "object.spec.nodeSelector.gpu == 'yes'",
            "for a Pod with only its required fields, match condition `c` failed: "
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


def test_unknown_resources_are_valid():
    assert found(resource="buildconfigs", group="build.openshift.io") == []
    assert found(resource="widgets", group="example.org") == []


def test_a_selector_that_contradicts_itself_is_doubtful():
    selector = (
        "objectSelector: {matchLabels: {a: b}, "
        "matchExpressions: [{key: a, operator: DoesNotExist}]}"
    )

    assert found(selector=selector) == [
        "objectSelector matches nothing: `a` cannot meet all requirements"
    ]


def test_a_policy_of_the_api_server_without_failure_policy_is_doubtful():
    ((document,), _) = read_documents(NATIVE, "p.yaml")

    (finding,) = lint_document(document)

    assert "`failurePolicy` is missing" in finding.message
    assert (finding.line, finding.severity) == (5, "warning")


def test_a_policy_of_the_api_server_with_failure_policy_is_fine():
    ((document,), _) = read_documents(NATIVE.replace("spec:", "spec:\n  failurePolicy: Fail"), "p")

    assert list(lint_document(document)) == []


VALIDATING = """\
apiVersion: policyd.io/v1alpha1
kind: Policy
metadata: {name: p}
spec:
  matchConstraints:
    resourceRules:
    - {apiGroups: [""], apiVersions: [v1], operations: [OPERATION], resources: [pods]}
  CONTENT
"""


def doubts(content, operation="CREATE"):
    text = VALIDATING.replace("CONTENT", content).replace("OPERATION", operation)
    loaded = load_policies(text, "p.yaml")
    assert loaded.policies, loaded.findings
    return [finding.message for policy in loaded.policies for finding in lint(policy)]


def validating(expression):
    return f'validations: [{{name: v, expression: "{expression}", message: wrong}}]'


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        pytest.param(
            "object.metadata.labels.a == 'b'",
            "for a Pod with only its required fields, `v` fails: no such key: labels",
            id="validation-of-what-may-be-missing",
        ),
        pytest.param(
            "object.spec.containers.all(c, !c.securityContext.privileged)",
            "for a Pod with only its required fields, `v` fails: no such key: securityContext",
            id="validation-within-a-loop",
        ),
        pytest.param(
            "queue.pending < 5",
            "for a Pod with only its required fields, `v` fails: no such key: pending",
            id="of-a-queue-that-may-not-be-named",
        ),
        pytest.param(
            "object.metadata.name.orValue('a') == 'b'",
            "under Kubernetes 1.37: `object.metadata.name.orValue` fails, as it is not an optional value",  # noqa: E501
            id="called-on-no-optional",
        ),
        pytest.param(
            "object.spec.containers.all(a, object.spec.containers.all(b, object.spec.containers"
            ".all(c, object.spec.containers.all(d, object.spec.containers.all(e, a.name != b.name"
            " && c.name != d.name && e.name != a.name)))))",
            "`v` may cost 1,255,552 where each list has 10 elements, the limit is 1,000,000",
            id="loops-in-loops",
        ),
    ],
)
def test_a_validation_is_doubtful(expression, message):
    assert [text.split(" (")[0] for text in doubts(validating(expression))] == [message]


@pytest.mark.parametrize(
    "expression",
    [
        pytest.param("object.metadata.?labels[?'a'].orValue('') == 'b'", id="optional"),
        pytest.param("queue.?pending.orValue(0) < 5 && cluster.pending < 9", id="facts-of-queues"),
        pytest.param("has(object.metadata.labels) && object.metadata.labels.a == 'b'", id="asked"),
        pytest.param(
            "object.spec.containers.all(c, object.spec.containers.all(d, c.name != d.name))",
            id="two-loops",
        ),
    ],
)
def test_a_validation_that_copes_is_fine(expression):
    assert doubts(validating(expression)) == []


def test_policies_for_updates_are_tried_with_updates():
    assert (
        "no such key: labels"
        in doubts(validating("oldObject.metadata.labels.a == 'b'"), operation="UPDATE")[0]
    )


@pytest.mark.parametrize(
    ("mutation", "expected"),
    [
        pytest.param(
            "patchType: JSONPatch, jsonPatch: {expression: "
            "\"[JSONPatch{op: 'add', path: '/metadata/labels/a', value: 'b'}]\"}",
            "doc is missing path",
            id="path-that-may-be-missing",
        ),
        pytest.param(
            "patchType: ApplyConfiguration, applyConfiguration: {expression: "
            '"Object{spec: Object.spec{contaners: []}}"}',
            "field not declared in schema",
            id="field-that-is-none",
        ),
        pytest.param(
            "patchType: ApplyConfiguration, applyConfiguration: {expression: "
            "\"Object{spec: Object.spec{tolerations: [Object.spec.tolerations{key: 'a'}]}}\"}",
            "may not mutate atomic arrays",
            id="list-that-is-atomic",
        ),
    ],
)
def test_a_mutation_that_fails_for_the_least_object_is_doubtful(mutation, expected):
    (message,) = doubts(f"mutations: [{{{mutation}}}]")

    assert expected in message


@pytest.mark.parametrize(
    ("condition", "doubtful"),
    [
        pytest.param("object.kind == 'Job'", True, id="another-kind"),
        pytest.param("request.kind.kind in ['Job', 'Service']", True, id="none-of-the-kinds"),
        pytest.param("request.resource.resource == 'jobs'", True, id="another-resource"),
        pytest.param("has(object.spec) && object.kind == 'Job'", True, id="a-part-of-it"),
        pytest.param("object.kind == 'Pod'", False, id="the-kind"),
        pytest.param("object.kind == 'Job' || true", False, id="or-else"),
    ],
)
def test_a_condition_on_fields_of_the_rules_is_tried(condition, doubtful):
    doubts = found(condition)

    assert bool(doubts) == doubtful
    assert all("match condition `c` is never true" in message for message in doubts)


def test_params_of_a_kind_that_does_not_exist_are_doubtful():
    text = NATIVE + "  failurePolicy: Fail\n  paramKind: {apiVersion: v1, kind: ConfgMap}\n"
    documents, _ = read_documents(text, "p.yaml")
    (finding,) = lint_document(documents[0])

    assert finding.message == "`ConfgMap` not found in v1"
