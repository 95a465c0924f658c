"""Kyverno's policies may read the objects as fields of `request`; no other kind may."""

import pytest

from policyd.dialects.registry import EVERY_FORMAT
from policyd.engine.compile.load import load_policies
from policyd.engine.evaluate.policy_set import PolicySet
from policyd.engine.model.surroundings import PolicyContext
from policyd.engine.offline.requests import namespace_lookup
from policyd.engine.remember.remembering import Remembering
from policyd.prove.questions import answer
from tests.dialects.kyverno.test_export import exported
from tests.engine.reviews import job, pod, request

VALIDATING = """
apiVersion: policies.kyverno.io/v1
kind: {kind}
metadata: {{name: p, namespace: team-a}}
spec:
  matchConstraints:
    resourceRules:
    - {{apiGroups: [""], apiVersions: [v1], operations: ["*"], resources: [pods]}}
  matchConditions: [{{name: c, expression: {condition!r}}}]
  validations: [{{expression: {expression!r}, messageExpression: {message!r}}}]
"""
MUTATING = """
apiVersion: policies.kyverno.io/v1
kind: MutatingPolicy
metadata: {name: p}
spec:
  matchConstraints:
    resourceRules:
    - {apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}
  variables: [{name: asked, expression: request.object.metadata.name}]
  mutations:
  - patchType: ApplyConfiguration
    applyConfiguration:
      expression: "Object{metadata: Object.metadata{labels: {'asked': variables.asked}}}"
"""
CLUSTER_POLICY = """
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: p}
spec:
  rules:
  - name: r
    match: {any: [{resources: {kinds: [Pod]}}]}
    validate: {cel: {expressions: [{expression: request.object != null}]}}
"""
MAIN = "request.object.spec.containers.all(c, c.name != 'main')"


def validating(expression=MAIN, condition="true", message="'no'", kind="ValidatingPolicy"):
    return VALIDATING.format(kind=kind, condition=condition, expression=expression, message=message)


def policies(text):
    loaded = load_policies(text, "p.yaml", EVERY_FORMAT)
    assert not loaded.findings, "\n".join(map(str, loaded.findings))
    surroundings = PolicyContext(namespaces=namespace_lookup((), {}), typed=False)
    return PolicySet(loaded.policies, surroundings=surroundings)


@pytest.mark.parametrize("kind", ["ValidatingPolicy", "NamespacedValidatingPolicy"])
@pytest.mark.parametrize(
    ("expression", "asked", "denied"),
    [
        pytest.param(MAIN, request(pod()), True, id="the-new-one"),
        pytest.param(MAIN, request(job()), True, id="of-a-template"),
        pytest.param("request.oldObject == null", request(pod()), False, id="no-old-one"),
        pytest.param(
            "request.oldObject.metadata.labels.a == request.object.metadata.labels.a",
            request(pod(labels={"a": "b"}), "UPDATE", old=pod(labels={"a": "c"})),
            True,
            id="both",
        ),
        pytest.param(
            "request.object == null && request.oldObject.metadata.name == 'other'",
            request(pod(), "DELETE"),
            True,
            id="deleted",
        ),
        pytest.param("has(request.object)", request(pod()), False, id="presence"),
        pytest.param("request[?'object'].hasValue()", request(pod()), False, id="by-key"),
    ],
)
def test_a_policy_reads_the_objects_of_the_request(kind, expression, asked, denied):
    if "[?" in expression:
        expression = expression.replace("request", "dyn(request)")

    decision = policies(validating(expression, kind=kind)).review(asked)

    assert bool(decision.denials) is denied


def test_conditions_and_messages_read_them_too():
    message = "'not ' + request.object.metadata.name"
    text = validating(MAIN, "request.object.metadata.name == 'a'", message)

    refused = policies(text).review(request(pod(name="a")))

    assert "not a" in refused.denials[0].message
    assert policies(text).review(request(pod(name="b"))).allowed


def test_a_mutation_reads_them():
    decision = policies(MUTATING).review(request(pod(name="web")))

    assert [each.value for each in decision.operations] == [{"asked": "web"}]


def test_a_cluster_policy_has_no_objects_there():
    loaded = load_policies(CLUSTER_POLICY, "p.yaml", EVERY_FORMAT)

    assert "undefined field 'object'" in loaded.findings[0].message


@pytest.mark.parametrize("operation", ["CREATE", "UPDATE"])
def test_pods_that_differ_there_are_not_taken_for_the_same(operation):
    expression = "request.object.spec.containers[0].name == request.?oldObject.kind.orValue('main')"
    remembering = Remembering(policies(validating(expression)), "validate")
    other = pod()
    other["spec"]["containers"][0]["name"] = "Pod"
    old = pod() if operation == "UPDATE" else None

    decisions = [
        remembering.decide(request(obj, operation, old=old)).allowed for obj in (pod(), other)
    ]

    assert decisions == ([True, False] if operation == "CREATE" else [False, True])


def test_they_are_exported_by_the_names_that_the_api_server_has():
    text = validating(f"{MAIN} || request.oldObject == null", "request . object.kind != ''")

    made = exported(text)[1].objects

    assert made[0]["spec"]["validations"][0]["expression"] == (
        "object.spec.containers.all(c, c.name != 'main') || oldObject == null"
    )
    assert made[0]["spec"]["matchConditions"][0]["expression"] == "object.kind != ''"


def test_a_proof_takes_both_names_for_one_object():
    one, other = (
        load_policies(validating(each).replace("name: p", name), "p.yaml", EVERY_FORMAT)
        for each, name in ((MAIN, "name: a"), (MAIN.replace("request.", ""), "name: b"))
    )

    assert answer("equal", (one.policies, other.policies)).verdict == "proved"
