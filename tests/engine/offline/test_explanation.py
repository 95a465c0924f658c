"""What is said of why a policy concerns a request or not, and of what it makes of it."""

import pytest

from policyd.engine.compile.load import load_policies
from policyd.engine.offline.explanation import explain_policies
from policyd.engine.offline.requests import namespace_lookup, offline_set
from tests.engine.reviews import pod, policies, policy, request

PODS = """\
apiVersion: policyd.io/v1alpha1
kind: Policy
metadata: {name: p}
spec:
  matchConstraints:
    resourceRules:
    - {apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]%s}
    %s
  validations: [{name: v, expression: "false", message: wrong}]
"""

NATIVE = """\
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: n}
spec:
  matchConstraints:
    resourceRules:
    - {apiGroups: ["*"], apiVersions: ["*"], operations: ["*"], resources: ["*"]}
  matchConditions: [{name: c, expression: "namespaceObject == null"}]
  validations: [{expression: "object.metadata.name == 'b'"}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: here}
spec: {policyName: n, validationActions: [Deny]}
"""


def explained(text, obj=None, *, labels=None, **circumstances):
    asked = request(pod() if obj is None else obj, **circumstances)
    return list(explain_policies(policies(text, labels=labels), asked))


@pytest.mark.parametrize(
    ("rule", "selectors", "operation", "reason"),
    [
        pytest.param("", "", "UPDATE", "operations `CREATE`, not `UPDATE`", id="operation"),
        pytest.param(", resourceNames: [b]", "", "CREATE", "resourceNames `b`", id="name"),
        pytest.param(", scope: Cluster", "", "CREATE", "scope is `Cluster`", id="scope"),
        pytest.param(
            "",
            "namespaceSelector: {matchLabels: {tier: gold}}",
            "CREATE",
            "namespaceSelector, by namespace `team-a`: `tier` must be `gold` and is `lead`",
            id="namespace-selector",
        ),
        pytest.param(
            "",
            "objectSelector: {matchExpressions: [{key: app, operator: Exists}]}",
            "CREATE",
            "objectSelector: `app` Exists is required, and it is missing",
            id="object-selector",
        ),
        pytest.param(
            "",
            'excludeResourceRules: [{apiGroups: ["*"], apiVersions: ["*"], operations: ["*"],'
            ' resources: ["*"]}]',
            "CREATE",
            "an exclude rule matches it",
            id="exclude-rule",
        ),
    ],
)
def test_the_message_names_what_leaves_a_request_out(rule, selectors, operation, reason):
    text = PODS % (rule, selectors)

    (one,) = explained(text, labels={"tier": "lead"}, operation=operation, old=pod())

    assert reason in one.why_not
    assert not one.matched


def test_a_rule_for_something_else_is_named():
    obj = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}

    (one,) = explained(PODS % ("", ""), obj)

    assert one.why_not == "no rule matches it: it is for resources `pods`, not `configmaps`"


def test_a_condition_that_is_not_true_is_shown_with_its_parts():
    text = policy(
        """
        matchConditions:
        - {name: several, expression: "pod.gpus() > 1"}
        validations: [{expression: "false", message: wrong}]
        """
    )

    (one,) = explained(text, pod(gpus=1))

    (seen,) = one.seen
    steps = {step.text: step.outcome.value for step in seen.conditions[0].explanation.steps}
    assert not one.matched
    assert seen.conditions[0].name == "several"
    assert steps == {"pod.gpus() > 1": False, "pod.gpus()": 1}
    assert seen.validations == ()


def test_variables_and_validations_are_shown_with_their_values():
    text = policy(
        """
        variables: [{name: most, expression: "2 + 2"}]
        validations: [{name: few, expression: "pod.gpus() <= variables.most", message: too many}]
        """
    )

    (one,) = explained(text, pod(gpus=8))

    (seen,) = one.seen
    assert seen.variables[0].explanation.outcome.value == 4
    assert not seen.validations[0].holds
    assert [o.message for o in one.decision.objections] == ["too many"]


def test_validations_see_what_mutations_made_of_the_object():
    text = policy(
        """
        inject: {labels: {team: vision}}
        validations:
        - {name: team, expression: "object.metadata.labels.team == 'vision'", message: no team}
        """
    )

    changed, demanded = explained(text)

    assert (changed.phase, demanded.phase) == ("mutate", "validate")
    assert [o.path for o in changed.decision.operations] == ["/metadata/labels"]
    assert demanded.seen[0].validations[0].holds


def test_a_mutation_sees_what_the_one_before_left():
    first = policy("inject: {labels: {a: x}}", name="one")
    second = policy(
        """
        matchConditions: [{name: c, expression: "object.metadata.?labels.?a.hasValue()"}]
        inject: {labels: {b: y}}
        """,
        name="two",
    )

    _, two = explained(f"{first}---\n{second}")

    assert two.matched


def test_a_failure_is_reported_with_its_effect():
    text = policy('validations: [{expression: "object.spec.nothing == 1", message: wrong}]')

    (one,) = explained(text)

    assert one.decision.failures
    assert one.seen[0].validations[0].explanation.outcome.error is not None


def test_the_api_servers_own_policies_are_asked_as_it_asks_them():
    loaded = load_policies(NATIVE, "n.yaml")
    policy_set = offline_set(loaded, namespace_lookup((), {}))

    (one,) = explain_policies(policy_set, request(pod()))

    assert one.seen[0].binding == "here"
    assert one.seen[0].conditions[0].holds
    assert not one.decision.allowed


def test_exempt_validations_are_marked():
    text = policy(
        """
        validations: [{name: v, expression: "false", message: wrong}]
        exceptions: [{users: [someone], validations: [v], reason: R}]
        """
    )

    (one,) = explained(text)

    assert one.seen[0].validations[0].explanation is None
    assert one.decision.allowed


def test_other_policies_take_part_though_one_is_asked_for():
    first = policy("inject: {labels: {a: x}}", name="one")
    second = policy(
        """
        validations: [{expression: "object.metadata.labels.a == 'x'", message: wrong}]
        """,
        name="two",
    )
    policy_set = policies(first, second)

    (two,) = explain_policies(policy_set, request(pod()), names=["two"])

    assert two.policy.name == "two"
    assert two.decision.allowed
