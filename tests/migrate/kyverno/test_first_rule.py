"""`applyRules: One`: of several rules, the first applies that is about the object, and no other."""

import pytest

from policyd.migrate.kyverno.policies import convert
from tests.migrate.kyverno.deciding import answer, decide, in_template, legacy, pod, rule


def one(*rules, **spec):
    """Return a policy of which one rule is applied."""
    named = ({**each, "name": f"r{number}"} for number, each in enumerate(rules, start=1))
    return legacy(*named, applyRules="One", **spec)


def asking(label, **parts):
    """Return a rule that asks for a label."""
    pattern = {"metadata": {"labels": {label: "?*"}}}
    return rule(validate={"message": "no", "pattern": pattern}, **parts)


def label_is(value):
    """Return preconditions on the label `app`."""
    key = "{{ request.object.metadata.labels.app || '' }}"
    return {"all": [{"key": key, "operator": "Equals", "value": value}]}


def named(*namespaces, kinds=("Pod",)):
    return {"any": [{"resources": {"kinds": list(kinds), "namespaces": list(namespaces)}}]}


def labeled(**labels):
    return {"any": [{"resources": {"kinds": ["Pod"], "selector": {"matchLabels": labels}}}]}


BOTH = {"any": [{"resources": {"kinds": ["Service", "Pod"]}}]}
CONDITIONAL = {"metadata": {"labels": {"(app)": "web", "a": "?*"}}}
INNER = {"spec": {"containers": [{"(name)": "x", "image": "*:1"}]}}
PRIVILEGED = {"key": "{{ element.image }}", "operator": "Equals", "value": "bad"}
OF_ELEMENTS = {
    "list": "request.object.spec.containers",
    "preconditions": {"all": [{"key": "{{ element.name }}", "operator": "Equals", "value": "x"}]},
    "deny": {"conditions": {"any": [PRIVILEGED]}},
}
VARIABLE = [{"name": "who", "variable": {"jmesPath": "request.object.metadata.labels.app || ''"}}]
OF_VARIABLE = {"all": [{"key": "{{ who }}", "operator": "Equals", "value": "web"}]}
WEB_B = {"labels": {"app": "web", "b": "1"}}


@pytest.mark.parametrize(
    ("first", "labels", "expected"),
    [
        pytest.param(asking("a", match=named("default")), {"a": "1"}, "pass", id="namespace"),
        pytest.param(asking("a", match=named("default")), {"b": "1"}, "fail", id="first-denies"),
        pytest.param(asking("a", match=named("else")), {"a": "1"}, "fail", id="other-namespace"),
        pytest.param(asking("a", match=named("else")), {"b": "1"}, "pass", id="second-allows"),
        pytest.param(
            asking("a", preconditions=label_is("web")), {"app": "web", "a": "1"}, "pass", id="pre"
        ),
        pytest.param(asking("a", preconditions=label_is("web")), {"a": "1"}, "fail", id="no-pre"),
        pytest.param(
            asking("a", match=labeled(app="web")), {"app": "web", "a": "1"}, "pass", id="selector"
        ),
        pytest.param(asking("a", match=labeled(app="web")), {"a": "1"}, "fail", id="not-selected"),
        pytest.param(asking("a", match=BOTH), {"a": "1"}, "pass", id="other-kinds-too"),
        pytest.param(
            rule(validate={"pattern": CONDITIONAL}), {"app": "web", "a": "1"}, "pass", id="anchor"
        ),
        pytest.param(rule(validate={"pattern": CONDITIONAL}), {"a": "1"}, "fail", id="no-anchor"),
        pytest.param(rule(validate={"pattern": INNER}), {}, "fail", id="no-element-of-pattern"),
        pytest.param(
            rule(validate={"anyPattern": [CONDITIONAL, INNER]}), {}, "fail", id="no-pattern-applies"
        ),
        pytest.param(
            rule(validate={"anyPattern": [CONDITIONAL, {"metadata": {"name": "a"}}]}),
            {},
            "pass",
            id="a-pattern-applies",
        ),
        pytest.param(
            rule(validate={"foreach": [OF_ELEMENTS]}), {"a": "1"}, "fail", id="no-element"
        ),
        pytest.param(
            rule(validate={"foreach": [{**OF_ELEMENTS, "preconditions": None}]}),
            {"a": "1"},
            "pass",
            id="some-element",
        ),
        pytest.param(
            asking("a", context=VARIABLE, preconditions=OF_VARIABLE),
            {"app": "web", "a": "1"},
            "pass",
            id="variable",
        ),
        pytest.param(
            asking("a", context=VARIABLE, preconditions=OF_VARIABLE),
            {"a": "1"},
            "fail",
            id="variable-of-others",
        ),
        pytest.param(
            rule(
                validate={"podSecurity": {"level": "baseline", "version": "latest"}},
                preconditions=label_is("web"),
            ),
            {"app": "web"},
            "pass",
            id="pod-security",
        ),
    ],
)
@pytest.mark.parametrize("kyverno", [False, True], ids=["own", "of-kyverno"])
def test_the_second_rule_validates_what_the_first_is_not_about(first, labels, expected, kyverno):
    policy = one(
        first, asking("b"), annotations={"pod-policies.kyverno.io/autogen-controllers": "none"}
    )

    assert answer(policy, pod(labels=labels), kyverno=kyverno) == expected


@pytest.mark.parametrize(
    ("labels", "expected"),
    [({"app": "web", "a": "1"}, "pass"), ({"a": "1"}, "fail"), ({"b": "1"}, "pass")],
)
def test_pod_templates_are_validated_like_pods(labels, expected):
    policy = one(asking("a", preconditions=label_is("web")), asking("b"))

    assert answer(policy, in_template(pod(labels=labels))) == expected


def test_of_three_rules_one_is_applied():
    policy = one(
        asking("a", preconditions=label_is("web")),
        asking("b", preconditions=label_is("db")),
        asking("c"),
    )

    answers = {
        app: [answer(policy, pod(labels={"app": app, label: "1"})) for label in "abc"]
        for app in ("web", "db", "cache")
    }
    assert answers == {
        "web": ["pass", "fail", "fail"],
        "db": ["fail", "pass", "fail"],
        "cache": ["fail", "fail", "pass"],
    }


def test_a_rule_behind_one_that_always_applies_is_left_out_with_a_note():
    conversion = convert(one(asking("a"), asking("b")))

    assert conversion.whole
    assert [each["name"] for p in conversion.policies for each in p["spec"]["validations"]] == [
        "r1"
    ]
    assert conversion.notes == ((1, "it never applies: a rule before it always does"),)


def test_more_rules_than_a_policy_has_conditions_for_are_refused():
    apps = [asking("a", preconditions=label_is(f"app-{number}")) for number in range(45)]

    conversion = convert(one(*apps))

    assert [refusal.path[2] for refusal in conversion.refusals] == [40, 41, 42, 43, 44]
    assert "more than 40 rules" in conversion.refusals[0].reason


def setting(label, value, **parts):
    """Return a rule that sets a label."""
    overlay = {"metadata": {"labels": {label: value}}}
    return rule(mutate={"patchStrategicMerge": overlay}, **parts)


def adding(label, value, **parts):
    """Return a rule that adds a label by a JSON patch."""
    patch = f"- {{op: add, path: /metadata/labels/{label}, value: '{value}'}}"
    return rule(mutate={"patchesJson6902": patch}, **parts)


ABSENT = {
    "all": [
        {
            "key": "{{ request.object.metadata.labels.a || '' }}",
            "operator": "Equals",
            "value": "",
        }
    ]
}


@pytest.mark.parametrize("change", [setting, adding])
@pytest.mark.parametrize(
    ("labels", "parts", "expected"),
    [
        pytest.param({"x": "1"}, {"preconditions": ABSENT}, {"a": "1"}, id="undone-by-the-change"),
        pytest.param({"a": "0"}, {"preconditions": ABSENT}, {"b": "2"}, id="second"),
        pytest.param({"x": "1"}, {"match": named("default")}, {"a": "1"}, id="namespace"),
        pytest.param({"x": "1"}, {"match": named("else")}, {"b": "2"}, id="other-namespace"),
        pytest.param({"x": "1"}, {"match": BOTH}, {"a": "1"}, id="other-kinds-too"),
        pytest.param(
            {"app": "web"},
            {"context": VARIABLE, "preconditions": OF_VARIABLE},
            {"a": "1"},
            id="variable",
        ),
        pytest.param(
            {"app": "db"},
            {"context": VARIABLE, "preconditions": OF_VARIABLE},
            {"b": "2"},
            id="variable-of-others",
        ),
    ],
)
def test_the_second_rule_mutates_what_the_first_is_not_about(change, labels, parts, expected):
    policy = one(change("a", "1", **parts), change("b", "2"))

    _, changed = decide(policy, pod(labels=labels))

    assert changed["metadata"]["labels"] == labels | expected


@pytest.mark.parametrize(("app", "expected"), [("web", "1"), ("db", "2"), ("cache", None)])
def test_templates_are_mutated_like_pods(app, expected):
    policy = one(
        setting("a", "1", preconditions=label_is("web")),
        setting("a", "2", preconditions=label_is("db")),
    )

    _, changed = decide(policy, in_template(pod(labels={"app": app})))

    assert changed["spec"]["template"]["metadata"]["labels"].get("a") == expected


def test_a_rule_that_validates_and_one_that_mutates_are_both_applied():
    policy = one(setting("a", "1"), asking("b"))

    decision, changed = decide(policy, pod(labels={"x": "1"}))

    assert changed["metadata"]["labels"]["a"] == "1"
    assert decision.denials


ATOMIC = rule(mutate={"patchStrategicMerge": {"spec": {"imagePullSecrets": [{"name": "s"}]}}})
EXISTING = {"apiVersion": "v1", "kind": "ConfigMap", "name": "c", "namespace": "n"}
TARGETS = rule(
    mutate={"targets": [EXISTING], "patchStrategicMerge": {"metadata": {"labels": {"a": "b"}}}}
)
DEPLOYMENTS = {"any": [{"resources": {"kinds": ["Deployment"]}}]}
OTHER = [{"name": "who", "variable": {"value": "web"}}]
EXEC = {"any": [{"resources": {"kinds": ["Pod/exec"]}}]}
BROKEN = rule(validate={"pattern": {"+(a)": "b"}})


@pytest.mark.parametrize(
    ("rules", "reason", "refused"),
    [
        pytest.param(
            [setting("a", "1"), adding("b", "2")], "an overlay and patches", [1], id="mixed"
        ),
        pytest.param([setting("a", "1"), TARGETS], "existing objects", [1], id="targets"),
        pytest.param(
            [setting("a", "1"), setting("b", "2", match=DEPLOYMENTS), setting("c", "3")],
            "for controllers",
            [1, 2],
            id="controllers",
        ),
        pytest.param(
            [
                asking("a", context=VARIABLE, preconditions=OF_VARIABLE),
                asking("b", context=OTHER, preconditions=OF_VARIABLE),
                asking("c"),
            ],
            "the variable `who` is another one",
            [1, 2],
            id="variables",
        ),
        pytest.param([BROKEN, asking("b")], "a rule before this one", [0, 1], id="broken"),
        pytest.param([asking("b"), BROKEN], "for `mutate`", [1], id="broken-last"),
        pytest.param([asking("a", match=EXEC), asking("b")], "subresource", [1], id="subresource"),
    ],
)
def test_what_cannot_be_chosen_is_refused_and_the_rest_is_kept(rules, reason, refused):
    conversion = convert(one(*rules))

    assert [refusal.path[2] for refusal in conversion.refusals] == refused
    assert any(reason in refusal.reason for refusal in conversion.refusals), conversion.refusals
    assert not conversion.whole
