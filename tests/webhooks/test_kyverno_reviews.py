"""Kyverno's policies that Kyverno would refuse are refused; others are warned of."""

import pytest
from prometheus_client import CollectorRegistry

from policyd.api.admission import parse_review
from tests.webhooks.reviews import review
from tests.webhooks.test_kyverno import CLUSTER_POLICIES, NEW, RULE, spec
from webhooks.metrics import WebhookMetrics
from webhooks.namespaces import without_cluster
from webhooks.policies.in_force import PoliciesInForce
from webhooks.policies.kyverno_reviews import KYVERNO_CALL

BAD = spec("object.spec.containers.all(c, d)")
MUTATION = {"patchType": "JSONPatch", "jsonPatch": {"expression": "[]"}}
CONSTRAINTS = spec()["matchConstraints"]


def policy(given, kind="ValidatingPolicy", group="policies.kyverno.io/v1", **metadata):
    return {"apiVersion": group, "kind": kind, "metadata": {"name": "p", **metadata}, "spec": given}


def decide(obj, *, old=None, kyverno=True, **more):
    operation = more.pop("operation", "UPDATE" if old else "CREATE")
    resource = CLUSTER_POLICIES if obj["kind"] == "ClusterPolicy" else NEW
    asked = review(obj, operation=operation, old=old, resource=resource.plural, **more)
    metrics = WebhookMetrics(CollectorRegistry())
    policies = PoliciesInForce(namespaces=without_cluster, metrics=metrics, kyverno=kyverno)
    return policies.validate(parse_review(asked))


def rule(expression):
    cel = {"expressions": [{"expression": expression}]}
    return policy({"rules": [{**RULE, "validate": {"cel": cel}}]}, "ClusterPolicy", "kyverno.io/v1")


@pytest.mark.parametrize(
    ("obj", "path", "words"),
    [
        pytest.param(
            policy(BAD), "spec.validations[0].expression", "undeclared reference", id="cel"
        ),
        pytest.param(
            policy({**spec(), "matchConstraints": {}}),
            "spec.matchConstraints",
            "Required value: a matchConstraints with at least one resource rule is required",
            id="no-rules",
        ),
        pytest.param(
            policy(
                {
                    "matchConstraints": CONSTRAINTS,
                    "mutations": [MUTATION],
                    "evaluation": {"admission": {"enabled": False}},
                },
                "MutatingPolicy",
            ),
            "spec.evaluation",
            "disabling both admission and mutateExisting is not allowed",
            id="no-mode",
        ),
        pytest.param(
            rule("object.foo("), "spec.rules[0].validate.cel.expressions[0].expression", "", id="r"
        ),
    ],
)
def test_what_kyverno_refuses_is_refused(obj, path, words):
    (denial,) = decide(obj).denials

    assert denial.path == path
    assert words in str(denial)


@pytest.mark.parametrize(
    ("obj", "warned"),
    [
        pytest.param(policy(spec()), "", id="fine"),
        pytest.param(
            policy(
                {"rules": [{**RULE, "validate": {"pattern": {}}}]}, "ClusterPolicy", "kyverno.io/v1"
            ),
            "validates by patterns",
            id="pattern",
        ),
        pytest.param(
            policy({**spec(), "evaluation": {"mode": "JSON"}}), "is for any JSON", id="json"
        ),
        pytest.param(policy({**spec(), "newField": 1}), "newField", id="field-of-a-later-version"),
        pytest.param(policy({}, "GeneratingPolicy"), "", id="another-kind"),
        pytest.param(policy(BAD, deletionTimestamp="2026-01-01T00:00:00Z"), "", id="being-deleted"),
        pytest.param({**policy(BAD), "spec": 1}, "", id="no-spec"),
    ],
)
def test_what_kyverno_stores_is_allowed(obj, warned):
    decision = decide(obj)

    assert decision.allowed
    assert warned in "\n".join(decision.warnings)
    assert bool(decision.warnings) is bool(warned)


def test_a_policy_can_be_repaired_and_left_as_it_is():
    assert decide(policy(spec()), old=policy(BAD)).allowed
    assert decide(policy(BAD, labels={"a": "b"}), old=policy(BAD)).allowed
    assert not decide(policy(BAD), old=policy(spec())).allowed
    assert decide(policy(BAD), operation="DELETE").allowed


def test_nothing_is_refused_where_kyverno_s_policies_are_not_read():
    assert decide(policy(BAD), kyverno=False).allowed


def test_the_kinds_that_are_read_are_sent():
    rules = {(each.api_groups[0], name) for each in KYVERNO_CALL.rules for name in each.resources}

    assert {
        ("policies.kyverno.io", "namespacedmutatingpolicies"),
        ("kyverno.io", "policies"),
    } < rules
    assert len(rules) == 6
