"""Kyverno's objects that Kyverno would refuse are refused; others are warned of."""

import pytest
from prometheus_client import CollectorRegistry

from policyd.api.admission import parse_review
from tests.webhooks.reviews import review
from tests.webhooks.test_kyverno import CLUSTER_POLICIES, NEW, PODS, RULE, spec
from webhooks.metrics import WebhookMetrics
from webhooks.namespaces import without_cluster
from webhooks.policies.in_force import PoliciesInForce
from webhooks.policies.kyverno_reviews import KYVERNO_CALL

BAD = spec("object.spec.containers.all(c, d)")
PATCH = "[JSONPatch{op: 'test', path: '/a', value: 'b'}]"
MUTATION = {"patchType": "JSONPatch", "jsonPatch": {"expression": PATCH}}
CONSTRAINTS = spec()["matchConstraints"]


def policy(given, kind="ValidatingPolicy", group="policies.kyverno.io/v1", **metadata):
    return {"apiVersion": group, "kind": kind, "metadata": {"name": "p", **metadata}, "spec": given}


def of_namespace(given, kind):
    return policy(given, kind, namespace="team-a")


def generating(expression, kind="GeneratingPolicy"):
    given = {"matchConstraints": CONSTRAINTS, "generate": [{"expression": expression}]}
    return of_namespace(given, kind) if kind.startswith("Namespaced") else policy(given, kind)


def deleting(expression="true", schedule="@daily", **more):
    conditions = [{"name": "a", "expression": expression}]
    given = {"matchConstraints": CONSTRAINTS, "schedule": schedule, "conditions": conditions}
    return policy({**given, **more}, "DeletingPolicy")


def exception(expression="true", **more):
    conditions = [{"name": "a", "expression": expression}]
    refs = [{"name": "p", "kind": "ValidatingPolicy"}]
    return of_namespace({"policyRefs": refs, "matchConditions": conditions, **more}, EXCEPTION)


def entry(*, projections=(), **given):
    spec = {**given, "projections": list(projections)}
    return policy(spec, "GlobalContextEntry", "kyverno.io/v2beta1")


EXCEPTION = "PolicyException"
CALL = {"urlPath": "/api/v1/namespaces"}
SERVICE = {"service": {"url": "https://inventory.example"}}
MAPS = {"group": "", "version": "v1", "resource": "configmaps"}


def decide(obj, *, old=None, kyverno=True, exceptions=("team-a",), **more):
    operation = more.pop("operation", "UPDATE" if old else "CREATE")
    older = obj["apiVersion"].startswith("kyverno.io/")
    resource = CLUSTER_POLICIES if older else NEW
    asked = review(obj, operation=operation, old=old, resource=resource.plural, **more)
    metrics = WebhookMetrics(CollectorRegistry())
    policies = PoliciesInForce(
        namespaces=without_cluster, metrics=metrics, kyverno=kyverno, exceptions=exceptions
    )
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
        pytest.param(
            generating("generator.Apply([1])"),
            "spec.generate[0].expression",
            "no matching overload",
            id="generate",
        ),
        pytest.param(
            generating("generator.Apply('kube-system', [])", "NamespacedGeneratingPolicy"),
            "spec.generate[0].expression",
            "no matching overload",
            id="generate-elsewhere",
        ),
        pytest.param(
            policy({"generate": [{"expression": "true"}]}, "GeneratingPolicy"),
            "spec.matchConstraints",
            "Required value",
            id="generate-for-nothing",
        ),
        pytest.param(
            deleting("request.name == ''"),
            "spec.conditions[0].expression",
            "undeclared reference",
            id="delete",
        ),
        pytest.param(
            policy(
                {
                    "matchConstraints": CONSTRAINTS,
                    "targetMatchConstraints": {"resourceRules": [PODS]},
                    "targetMatchConditions": [{"name": "a", "expression": "nothing"}],
                    "mutations": [MUTATION],
                    "evaluation": {"mutateExisting": {"enabled": True}},
                },
                "MutatingPolicy",
            ),
            "spec.targetMatchConditions[0].expression",
            "undeclared reference",
            id="target",
        ),
        pytest.param(
            of_namespace(spec("http.Get('https://a.example') == 1"), "NamespacedValidatingPolicy"),
            "kind",
            "`http` is not allowed in namespaced policies",
            id="http-of-a-namespace",
        ),
        pytest.param(
            of_namespace(spec("globalContext.Get('a', '') == 1"), "NamespacedValidatingPolicy"),
            "kind",
            "`globalContext` is not allowed in namespaced policies",
            id="entries-of-a-namespace",
        ),
        pytest.param(
            exception("object.metadata.name.endsIn('a')"),
            "spec.matchConditions[0].expression",
            "undeclared reference to 'endsIn'",
            id="exception",
        ),
        pytest.param(
            exception(policyRefs=[]),
            "spec.policyRefs",
            "must specify at least one policy ref",
            id="exception-from-nothing",
        ),
        pytest.param(
            exception(policyRefs=[{"name": "p"}]),
            "spec.policyRefs[0]",
            "must specify policy kind",
            id="exception-without-kind",
        ),
        pytest.param(entry(), "spec", "one of", id="entry-without-source"),
        pytest.param(
            entry(apiCall={**CALL, "data": [{"key": "a", "value": 1}]}),
            "spec.apiCall.method",
            "POST",
            id="entry-gets-with-data",
        ),
        pytest.param(
            entry(apiCall={**CALL, **SERVICE}), "spec.apiCall.service", "one of", id="two-addresses"
        ),
        pytest.param(
            entry(apiCall={**CALL, "refreshInterval": "0s"}),
            "spec.apiCall.refreshInterval",
            "`0s` is not longer than 0 seconds",
            id="entry-never-kept",
        ),
        pytest.param(
            entry(kubernetesResource={**MAPS, "version": "v1beta1"}),
            "spec.kubernetesResource.group",
            "name its group",
            id="entry-without-group",
        ),
        pytest.param(
            entry(kubernetesResource=MAPS, projections=[{"name": "p", "jmesPath": "a"}]),
            "spec.projections[0].name",
            "other than that of the entry",
            id="projection-named-as-its-entry",
        ),
        pytest.param(
            entry(kubernetesResource=MAPS, projections=[{"name": "b", "jmesPath": "a["}]),
            "spec.projections[0].jmesPath",
            "",
            id="projection-that-does-not-parse",
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
        pytest.param(policy({}, "ImageValidatingPolicy"), "", id="another-kind"),
        pytest.param(generating("generator.Apply('a', [])"), "", id="generate"),
        pytest.param(deleting(), "", id="delete"),
        pytest.param(deleting(schedule="0 0 0 L * ?"), "is not a schedule", id="longer-schedule"),
        pytest.param(exception(), "", id="exception"),
        pytest.param(
            of_namespace(spec("image.GetMetadata('a') == 1"), "NamespacedValidatingPolicy"),
            "`image` is not allowed in namespaced policies",
            id="image-of-a-namespace",
        ),
        pytest.param(entry(apiCall=SERVICE), "", id="entry-of-a-service"),
        pytest.param(
            entry(
                kubernetesResource=MAPS, projections=[{"name": "b", "jmesPath": "[].to_upper(a)"}]
            ),
            "",
            id="entry-of-a-resource",
        ),
        pytest.param(
            entry(
                kubernetesResource=MAPS,
                projections=[
                    *({"name": f"p{n}", "jmesPath": "a|" * 5_000 + "b"} for n in range(2)),
                    {"name": "c", "jmesPath": "a["},
                ],
            ),
            "",
            id="more-projections-than-a-review-parses",
        ),
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


@pytest.mark.parametrize("counting", [(), ("team-b",)], ids=["none", "others"])
def test_an_exception_in_a_namespace_that_does_not_count_is_warned_of(counting):
    decision = decide(exception(), exceptions=counting)

    assert decision.allowed
    assert decision.warnings == (
        "policyd: metadata.namespace: exceptions in the namespace `team-a` have no effect; use a"
        " namespace that `--exceptions` names; of the chart, `webhooks.exceptionNamespaces`",
    )


def test_nothing_is_refused_where_kyverno_s_policies_are_not_read():
    assert decide(policy(BAD), kyverno=False).allowed


def test_the_kinds_that_are_read_are_sent():
    rules = {(each.api_groups[0], name) for each in KYVERNO_CALL.rules for name in each.resources}

    assert {
        ("policies.kyverno.io", "namespacedmutatingpolicies"),
        ("policies.kyverno.io", "deletingpolicies"),
        ("policies.kyverno.io", "policyexceptions"),
        ("kyverno.io", "policies"),
        ("kyverno.io", "policyexceptions"),
        ("kyverno.io", "globalcontextentries"),
    } < rules
    assert len(rules) == 13
