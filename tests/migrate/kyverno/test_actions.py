"""A rule does in each namespace what Kyverno does there, whatever kind it becomes."""

import pytest

from policyd.migrate.kyverno.policies import convert
from tests.migrate.kyverno.deciding import decide, legacy, pod, rule

LABELED = {"pattern": {"metadata": {"labels": {"a": "?*"}}}}
TEAMS = [
    {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": name, "labels": {"kubernetes.io/metadata.name": name, **labels}},
    }
    for name, labels in {"default": {}, "dev-a": {"stage": "dev"}, "dev-b": {}, "prod": {}}.items()
]
STAGE = {"matchLabels": {"stage": "d*"}}
UNSTAGED = {"matchExpressions": [{"key": "stage", "operator": "DoesNotExist"}]}


def override(action, *namespaces, selector=None):
    given = {"action": action}
    given |= {"namespaces": [*namespaces]} if namespaces else {}
    return given | ({"namespaceSelector": selector} if selector else {})


def guarding(*, of_rule=None, shared=None, action="Enforce", own=None):
    """Return a policy with the actions of a rule and of the policy."""
    validate = {"message": "no", **LABELED}
    validate |= {"failureActionOverrides": of_rule} if of_rule else {}
    validate |= {"failureAction": own} if own else {}
    spec = {"validationFailureActionOverrides": shared} if shared else {}
    return legacy(rule(validate=validate), validationFailureAction=action, **spec)


def done(policy, namespace, **options):
    """Return what the conversion does about a pod without the label."""
    wrong = pod()
    wrong["metadata"]["namespace"] = namespace
    decision, _ = decide(policy, wrong, namespaces=TEAMS, **options)
    assert len(decision.objections) == 1, decision.objections
    return "Enforce" if decision.denials else "Audit"


KINDS = [{}, {"steps": False}, {"kyverno": True}]


@pytest.mark.parametrize("options", KINDS, ids=["policyd", "vap", "vpol"])
@pytest.mark.parametrize(
    ("given", "audited"),
    [
        pytest.param({"of_rule": [override("Audit", "dev-a")]}, {"dev-a"}, id="of-the-rule"),
        pytest.param({"shared": [override("Audit", "dev-a")]}, {"dev-a"}, id="of-the-policy"),
        pytest.param({"shared": [override("audit", "dev-*")]}, {"dev-a", "dev-b"}, id="pattern"),
        pytest.param(
            {"of_rule": [override("Audit", selector=STAGE)]}, {"dev-a"}, id="label-by-a-pattern"
        ),
        pytest.param(
            {"of_rule": [override("Audit", "dev-b", "prod", selector=UNSTAGED)]},
            {"dev-b", "prod"},
            id="names-and-labels",
        ),
        pytest.param(
            {"of_rule": [override("Audit", "dev-b", selector=STAGE)]}, set(), id="never-both"
        ),
        pytest.param(
            {"of_rule": [override("Enforce", "dev-a"), override("Audit", "dev-*")]},
            {"dev-b"},
            id="the-first-decides",
        ),
        pytest.param(
            {"of_rule": [override("Audit", "prod"), override("Enforce", "prod")]},
            {"prod"},
            id="twice-the-same",
        ),
        pytest.param(
            {"action": "Audit", "shared": [override("Enforce", "prod")]},
            {"default", "dev-a", "dev-b"},
            id="stricter",
        ),
        pytest.param(
            {"of_rule": [override("Enforce", "prod"), override("Audit")]},
            {"default", "dev-a", "dev-b"},
            id="all-others",
        ),
        pytest.param(
            {"of_rule": [override("Audit")]}, {"default", "dev-a", "dev-b", "prod"}, id="all"
        ),
        pytest.param(
            {"of_rule": [override("Enforce"), override("Audit", "prod")]}, set(), id="none"
        ),
        pytest.param(
            {"own": "Enforce", "action": "Audit", "shared": [override("Audit", "prod")]},
            {"prod"},
            id="the-policy-makes-milder",
        ),
        pytest.param(
            {"own": "Audit", "shared": [override("Enforce", "prod")]},
            {"default", "dev-a", "dev-b", "prod"},
            id="the-policy-makes-no-rule-stricter-that-says-its-action",
        ),
        pytest.param(
            {
                "own": "Enforce",
                "of_rule": [override("Audit", "dev-a")],
                "shared": [override("Audit", "prod")],
            },
            {"dev-a"},
            id="the-rule-says-all-itself",
        ),
    ],
)
def test_each_namespace_has_its_action(given, audited, options):
    policy = guarding(**given)

    for namespace in ("default", "dev-a", "dev-b", "prod"):
        wanted = "Audit" if namespace in audited else "Enforce"
        assert done(policy, namespace, **options) == wanted, namespace


def test_a_policy_for_each_action_is_named_after_it():
    policies = convert(guarding(shared=[override("Audit", "dev-*")])).policies

    assert [
        (each["metadata"]["name"], each["spec"]["enforcement"], each["spec"]["matchConditions"])
        for each in policies
    ] == [
        (
            "p",
            "Deny",
            [{"name": "enforced", "expression": "!request.namespace.startsWith('dev-')"}],
        ),
        (
            "p-audited",
            "Audit",
            [{"name": "audited", "expression": "request.namespace.startsWith('dev-')"}],
        ),
    ]


def test_rules_of_other_actions_are_policies_of_their_own():
    """Only rules that do the same everywhere may be one policy."""
    first = {"message": "no", **LABELED, "failureActionOverrides": [override("Audit", "dev-a")]}
    given = legacy(rule(name="a", validate=first), rule(name="b", validate=LABELED))

    made = convert(given).policies

    assert [each["metadata"]["name"] for each in made] == ["p-a", "p-b"]
    assert ["rollout" in each["spec"] for each in made] == [True, False]


def test_an_override_without_an_action_is_refused():
    (refusal,) = convert(guarding(of_rule=[{"namespaces": ["a"]}])).refusals

    assert "`action`" in refusal.reason
