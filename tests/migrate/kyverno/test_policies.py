"""What a policy becomes: one policy for rules alike, others for others, and nothing is lost."""

import json

import pytest

from policyd.errors import PolicydError
from policyd.migrate.kyverno.policies import comments_of, convert, is_legacy
from tests.migrate.kyverno.deciding import (
    PODS,
    THINGS,
    answer,
    decide,
    in_template,
    legacy,
    pod,
    rule,
)

LABELED = {"pattern": {"metadata": {"labels": {"a": "?*"}}}}
GENERATE = rule(name="g", generate={"kind": "ConfigMap", "data": {}})


def test_rules_that_concern_the_same_become_one_policy():
    other = {"any": [{"resources": {"kinds": ["Service"]}}]}
    conversion = convert(
        legacy(
            rule(name="one", validate=LABELED),
            rule(name="two", validate={"deny": {}}, match=other),
            rule(name="three", validate=LABELED),
        )
    )

    names = [policy["metadata"]["name"] for policy in conversion.policies]
    first = conversion.policies[0]["spec"]["validations"]
    assert names == ["p-one", "p-two"]
    assert [validation["name"] for validation in first] == ["one", "three"]
    assert conversion.places == ((0, 2), (1,))


def test_a_validation_of_kyverno_s_has_the_fields_that_its_definition_has():
    """kubectl refuses any other field."""
    given = legacy(rule(name="one", validate=LABELED), rule(name="two", validate=LABELED))

    (made,) = convert(given, kyverno=True).policies

    known = {"expression", "message", "messageExpression", "reason"}
    assert all(each.keys() <= known for each in made["spec"]["validations"])


def labelling(name, **labels):
    services = {"any": [{"resources": {"kinds": ["Service"]}}]}
    overlay = {"patchStrategicMerge": {"metadata": {"labels": labels}}}
    return rule(name=name, mutate=overlay, match=services)


@pytest.mark.parametrize(
    ("rules", "kyverno", "names"),
    [
        pytest.param(("a", "b"), True, ["p-a", "p-b"], id="in-order"),
        pytest.param(("b", "a"), True, ["p-1-b", "p-2-a"], id="numbered"),
        pytest.param(("b", "a"), False, ["p-b", "p-a"], id="by-priority"),
    ],
)
def test_rules_mutate_in_their_order(rules, kyverno, names):
    """Kyverno's kinds mutate in the order of their names; policyd's have a priority."""
    given = legacy(*(labelling(each, **{each: "x"}) for each in rules))

    made = convert(given, kyverno=kyverno).policies

    assert [each["metadata"]["name"] for each in made] == names
    assert [each["spec"].get("priority") for each in made] == ([None] * 2 if kyverno else [2, 1])


def test_the_action_is_the_enforcement_and_overrides_are_steps():
    policy = legacy(rule(validate=LABELED), failurePolicy="Ignore")
    policy["spec"]["validationFailureActionOverrides"] = [
        {"action": "Audit", "namespaces": ["team-a"]}
    ]

    (made,) = convert(policy).policies

    assert made["spec"]["enforcement"] == "Deny"
    assert made["spec"]["rollout"] == [{"enforcement": "Audit", "namespaces": ["team-a"]}]
    assert made["spec"]["failurePolicy"] == "Ignore"


@pytest.mark.parametrize(
    ("parts", "reason"),
    [
        pytest.param({"verifyImages": [{}]}, "signatures", id="images"),
        pytest.param({"generate": {"kind": "A"}}, "needs one of", id="generate"),
        pytest.param({"mutate": {"targets": [{}]}}, "`targets` has no `kind`", id="existing"),
        pytest.param({"validate": {"podSecurity": {"level": "odd"}}}, "podSecurity", id="pss"),
        pytest.param({"validate": {"pattern": {"a": "{{ nothing.b }}"}}}, "nothing", id="variable"),
        pytest.param({"validate": {"pattern": {"a": "{{ b"}}}, "no `}}`", id="open-variable"),
        pytest.param({"validate": {"pattern": {"+(a)": "b"}}}, "`mutate`", id="anchor"),
        pytest.param({"validate": {}}, "no pattern", id="nothing-asked"),
        pytest.param({}, "none of", id="no-work"),
        pytest.param({"validate": LABELED, "match": {}}, "no `match`", id="no-match"),
        pytest.param({"validate": {"pattern": 5}}, "not a map", id="number"),
        pytest.param({"mutate": {"patchesJson6902": "{"}}, "YAML", id="patch"),
        pytest.param(
            {
                "mutate": {
                    "patchStrategicMerge": {
                        "metadata": {
                            "labels": {"a": "{{ add(request.object.metadata.labels.a, '1') }}"}
                        }
                    }
                }
            },
            "CEL cannot write a quantity as a text",
            id="quantity",
        ),
        pytest.param(
            {
                "mutate": {
                    "foreach": [
                        {
                            "list": "request.object.spec.volumes",
                            "patchesJson6902": (
                                '- {op: remove, path: "/spec/volumes/{{elementIndex}}"}'
                            ),
                        }
                    ]
                }
            },
            "move the others",
            id="removal-from-first-to-last",
        ),
        pytest.param(
            {
                "mutate": {
                    "patchStrategicMerge": {
                        "spec": {
                            "volumes": [{"name": "a", "hostPath": {"(path)": "/b", "type": "c"}}]
                        }
                    }
                }
            },
            "is set, and another part of it is asked",
            id="an-element-that-is-set-and-asked",
        ),
        pytest.param(
            {"validate": LABELED, "exclude": {"any": [{"clusterRoles": ["dev"]}]}},
            "role",
            id="role",
        ),
        pytest.param(
            {
                "validate": LABELED,
                "preconditions": {"all": [{"key": "a", "operator": "Like", "value": "b"}]},
            },
            "no operator",
            id="operator",
        ),
        pytest.param(
            {
                "validate": LABELED,
                "context": [
                    {"name": "a", "variable": {"jmesPath": "b"}},
                    {"name": "b", "variable": {"jmesPath": "a"}},
                ],
            },
            "comes after it",
            id="circle",
        ),
        pytest.param(
            {"validate": LABELED, "context": [{"name": "a", "variable": {"jmesPath": "a.b"}}]},
            "needs itself",
            id="own-circle",
        ),
    ],
)
def test_what_has_no_counterpart_is_refused_with_its_place(parts, reason):
    conversion = convert(legacy({"name": "bad", "match": PODS, **parts}, rule(validate=LABELED)))

    (refusal,) = conversion.refusals
    assert not conversion.whole
    assert len(conversion.policies) == 1
    assert refusal.path[:3] == ("spec", "rules", 0)
    assert refusal.rule == "bad"
    assert reason in refusal.reason


@pytest.mark.parametrize(
    "wrong", [{}, {"metadata": {"name": "a"}}, {"metadata": {"name": "a"}, "spec": {"rules": []}}]
)
def test_half_a_policy_is_an_error(wrong):
    with pytest.raises(PolicydError, match="the policy has no"):
        convert({"kind": "ClusterPolicy", "apiVersion": "kyverno.io/v1", **wrong})


def test_lists_in_lists_end():
    pattern = "a"
    for _ in range(200):
        pattern = [{"(a)": pattern}]
    conversion = convert(legacy(rule(validate={"pattern": {"spec": pattern}})))

    assert "too deeply" in conversion.refusals[0].reason


@pytest.mark.parametrize(
    ("kind", "version", "legacy_one"),
    [
        ("ClusterPolicy", "kyverno.io/v1", True),
        ("Policy", "kyverno.io/v2beta1", True),
        ("Policy", "policyd.io/v1alpha1", False),
        ("ValidatingPolicy", "policies.kyverno.io/v1", False),
    ],
)
def test_legacy_policies_are_recognized(kind, version, legacy_one):
    assert is_legacy({"kind": kind, "apiVersion": version}) is legacy_one


READS = [{"name": "settings", "configMap": {"name": "s", "namespace": "n"}}]


def test_what_reads_the_cluster_becomes_one_of_kyvernos_own_kinds():
    asked = {"key": "{{ settings.data.on || 'no' }}", "operator": "Equals", "value": "yes"}
    policy = legacy(rule(context=READS, validate={"deny": {"conditions": [asked]}, "message": "m"}))

    (made,) = convert(policy).policies

    assert made["kind"] == "ValidatingPolicy"
    assert made["spec"]["variables"] == [
        {"name": "settings", "expression": "resource.Get('v1', 'configmaps', 'n', 's')"}
    ]
    assert made["spec"]["validationActions"] == ["Deny"]


@pytest.mark.parametrize(
    ("path", "expression"),
    [
        ("/api/v1/namespaces/{{request.namespace}}/pods", "'v1', 'pods', request.namespace"),
        ("/apis/apps/v1/deployments", "'apps/v1', 'deployments', ''"),
    ],
)
def test_a_list_of_the_api_server_is_read_as_a_resource(path, expression):
    call = {"name": "n", "apiCall": {"urlPath": path, "jmesPath": "items | length(@)"}}
    asked = {"key": "{{ n }}", "operator": "GreaterThan", "value": 5}
    policy = legacy(rule(context=[call], validate={"deny": {"conditions": [asked]}}))

    (made,) = convert(policy).policies

    assert made["spec"]["variables"][0]["expression"] == (
        f"resource.List({expression}).items.size()"
    )


def test_kyvernos_kinds_see_templates_as_pods():
    policy = legacy(rule(validate=LABELED))

    assert answer(policy, pod(), kyverno=True) == "fail"
    assert answer(policy, pod(labels={"a": "b"}), kyverno=True) == "pass"


def test_comments_belong_to_the_rule_below_them():
    text = (
        "# all\nspec:\n  rules:\n  # first\n  - name: a  # why\n    x: 1\n  # second\n  - name: b\n"
    )

    assert comments_of(text, [5, 8]) == (["all"], [["first", "why"], ["second"]])


def conditioned(**expressions):
    """Return a policy whose conditions Kyverno gives to the API server with its webhook."""
    given = [{"name": name, "expression": text} for name, text in expressions.items()]
    return legacy(
        rule(validate=LABELED),
        rule(name="two", validate=LABELED, match={"any": [{"resources": {"kinds": ["Service"]}}]}),
        webhookConfiguration={"failurePolicy": "Ignore", "matchConditions": given},
    )


@pytest.mark.parametrize("options", [{}, {"kyverno": True}], ids=["policyd", "vpol"])
@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("request.userInfo.username != 'bob'", "fail"),
        ("request.operation == 'DELETE'", "skip"),
    ],
)
def test_conditions_of_the_webhook_are_conditions_of_each_policy(expression, expected, options):
    policy = conditioned(mine=expression)

    made = convert(policy, **options).policies

    wanted = {"name": "mine", "expression": expression}
    assert [each["spec"]["matchConditions"] for each in made] == [[wanted], [wanted]]
    assert answer(policy, pod(), **options) == expected


def test_conditions_of_the_webhook_look_at_the_object_that_was_sent():
    """A policy of policyd sees a template as `pod`; Kyverno's own sees it as `object`."""
    policy = conditioned(mine="object.kind == 'Pod'")

    assert answer(policy, in_template(pod())) == "skip"
    assert answer(policy, pod()) == "fail"
    ((path, reason), *_) = [(r.path, r.reason) for r in convert(policy, kyverno=True).refusals]
    assert path[:3] == ("spec", "rules", 0)
    assert "`mine`" in reason


def test_a_condition_that_is_no_cel_is_refused():
    reasons = [refusal.reason for refusal in convert(conditioned(mine="request.")).refusals]

    assert len(reasons) == 2
    assert all("no valid policy" in reason for reason in reasons)


def test_a_request_with_data_is_posted():
    asked = {"resourceAttributes": {"namespace": "{{ request.namespace }}", "verb": "delete"}}
    call = {
        "urlPath": "/apis/authorization.k8s.io/v1/subjectaccessreviews",
        "method": "POST",
        "data": [{"key": "spec", "value": asked}],
    }
    condition = {"key": "{{ a.status.allowed }}", "operator": "NotEquals", "value": True}
    context = [{"name": "a", "apiCall": call}]
    policy = legacy(rule(context=context, validate={"deny": {"conditions": [condition]}}))

    (made,) = convert(policy).policies

    (variable,) = made["spec"]["variables"]
    assert variable["expression"].startswith(
        "resource.Post('authorization.k8s.io/v1', 'subjectaccessreviews', {'spec': "
    )


def in_cel(*expressions, match=PODS, **parts):
    """Return a policy with a rule that validates by CEL."""
    cel = {"expressions": [{"expression": each} for each in expressions]} | parts.pop("cel", {})
    return legacy(rule(match=match, validate={"message": "no", "cel": cel}, **parts))


ROOT = "!has(object.spec.hostNetwork) || !object.spec.hostNetwork"
NAMED = [{"name": "named", "expression": "object.metadata.?labels.app.hasValue()"}]


@pytest.mark.parametrize("kyverno", [False, True])
@pytest.mark.parametrize("place", [lambda each: each, in_template])
def test_a_rule_in_cel_keeps_its_expressions(place, kyverno):
    policy = in_cel(ROOT, celPreconditions=NAMED)
    labels = {"app": "a"}

    def answered(**spec):
        return answer(policy, place(pod(**spec)), kyverno=kyverno)

    assert answered(labels=labels) == "pass"
    assert answered(labels=labels, hostNetwork=True) == "fail"
    assert answered(hostNetwork=True) == "skip"


def test_a_rule_in_cel_about_the_former_pod_is_of_kyvernos_kinds():
    (made,) = convert(in_cel("oldObject == null || object.spec == oldObject.spec")).policies

    assert made["kind"] == "ValidatingPolicy"
    assert made["spec"]["matchConstraints"]["resourceRules"][0]["operations"] == [
        *("CREATE", "UPDATE", "DELETE")
    ]


PARAMS = {
    "paramKind": {"apiVersion": "v1", "kind": "ConfigMap"},
    "paramRef": {"name": "a", "namespace": "b", "parameterNotFoundAction": "Deny"},
    "variables": [{"name": "most", "expression": "int(params.data.most)"}],
    "auditAnnotations": [{"key": "k", "valueExpression": "'v'"}],
}


def test_params_of_a_rule_in_cel_are_those_of_the_policy():
    policy = in_cel("variables.most > 1", match=THINGS, cel=PARAMS)

    (made,) = convert(policy).policies
    (refusal,) = convert(policy, kyverno=True).refusals

    assert {name: made["spec"][name] for name in PARAMS} == PARAMS
    assert "have no `params`" in refusal.reason
    assert refusal.path[-1] == "paramKind"


def test_rules_with_other_params_are_other_policies():
    first, second = (in_cel("true", match=THINGS, cel=cel) for cel in (PARAMS, {}))
    first["spec"]["rules"] += second["spec"]["rules"]

    assert len(convert(first).policies) == 2


def test_a_template_may_have_no_metadata():
    policy = legacy(rule(validate={"message": "no", **LABELED}))
    deployment = in_template(pod())
    del deployment["spec"]["template"]["metadata"]

    assert answer(policy, deployment, kyverno=True) == "fail"


def test_who_made_the_request_is_written_as_an_object():
    labels = {"metadata": {"annotations": {"by": "{{ request.userInfo | to_string(@) }}"}}}
    policy = legacy(rule(mutate={"patchStrategicMerge": labels}))

    _, changed = decide(policy, pod())

    assert json.loads(changed["metadata"]["annotations"]["by"])["username"]


def test_a_message_shows_variables_in_variables():
    message = "{{ x509_decode('{{ request.object.metadata.name }}').Subject }} is there"
    (made,) = convert(legacy(rule(validate={"message": message, "deny": {}}))).policies

    (validation,) = made["spec"]["validations"]
    assert validation["message"] == (
        "<x509_decode('{{ request.object.metadata.name }}').Subject> is there"
    )
