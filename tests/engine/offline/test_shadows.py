"""A policy in the shadow of another: what it would answer otherwise, and that nobody notices."""

import pytest

from policyd.engine.compile.load import load_policies
from policyd.engine.evaluate.policy_set import PolicySet
from policyd.engine.lint.conflicts import conflicts
from policyd.engine.model.bindings import check_bindings
from policyd.engine.offline.requests import namespace_lookup
from policyd.engine.offline.shadows import shadow_differences
from tests.engine.reviews import pod, policy, request

BINDING = """
apiVersion: policyd.io/v1alpha1
kind: PolicyBinding
metadata: {name: b}
spec: {policyName: p, matchResources: {namespaceSelector: {matchLabels: {tier: gold}}}}
"""


def both(old, new, *, more="", labels=None):
    """A policy and its shadow, with the bindings that `more` has."""
    texts = [policy(old), policy(f"shadowOf: p\n{new}", name="p2"), *([more] if more else [])]
    loaded = load_policies("---\n".join(texts), "p.yaml")
    assert not loaded.findings, loaded.findings
    lookup = namespace_lookup((), labels or {})
    return PolicySet(loaded.policies, bindings=loaded.bindings, namespaces=lookup)


def differences(asked, obj=None):
    sent = request(obj or pod())
    return list(shadow_differences(asked, sent, asked.review(sent)))


TRUE, FALSE = 'validations: [{expression: "true"}]', 'validations: [{expression: "false"}]'


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        pytest.param(TRUE, TRUE, [], id="same"),
        pytest.param(FALSE, FALSE, [], id="both-refuse"),
        pytest.param(TRUE, FALSE, [("validate", "denied")], id="refuses"),
        pytest.param(FALSE, TRUE, [("validate", "allowed")], id="refuses-no-longer"),
        pytest.param(
            FALSE.replace("}]", ", message: a}]"),
            FALSE.replace("}]", ", message: b}]"),
            [("validate", "changed")],
            id="says-it-otherwise",
        ),
        pytest.param(
            FALSE + "\nenforcement: Audit",
            FALSE + "\nenforcement: Warn",
            [("validate", "changed")],
            id="is-stricter-without-refusing",
        ),
        pytest.param("inject: {queueName: a}", "inject: {queueName: a}", [], id="sets-the-same"),
        pytest.param(
            "inject: {queueName: a}",
            "inject: {queueName: b}",
            [("mutate", "changed")],
            id="sets-something-else",
        ),
        pytest.param(
            "inject: {queueName: a}",
            "inject: {queueName: {expression: object.spec.nothing}}",
            [("mutate", "denied")],
            id="cannot-be-evaluated",
        ),
        pytest.param(
            "inject: {priorityClassName: a}",
            "inject: {priorityClassName: b}\n"
            "validations: [{expression: \"object.spec.priorityClassName in ['a', 'b']\"}]",
            [("mutate", "changed")],
            id="sees-its-own-changes-when-it-validates",
        ),
    ],
)
def test_the_differences_between_answers(old, new, expected):
    found = differences(both(old, new))

    assert [(each.phase, each.outcome) for each in found] == expected


def test_a_difference_says_what_it_is_about():
    [objection] = differences(both(TRUE, FALSE.replace("}]", ", message: not so}]")))
    [change] = differences(both("inject: {queueName: a}", "inject: {queueName: b}"))

    assert str(objection) == "p2, shadow of p, would deny: Deny: not so"
    label = "/metadata/labels/kueue.x-k8s.io~1queue-name"
    assert str(change) == f"p2, shadow of p, would differ: replace {label}"


def test_a_shadow_has_no_say():
    asked = both("inject: {queueName: a}", f"{FALSE}\ninject: {{queueName: b}}")

    decision = asked.review(request(pod()))

    assert decision.allowed
    assert decision.matched == ("p",)
    assert [p.name for p in asked.policies] == ["p"]
    assert [p.name for p in asked.shadows] == ["p2"]


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        pytest.param({"tier": "gold"}, ["denied"], id="bound"),
        pytest.param({"tier": "iron"}, [], id="not-bound"),
    ],
)
def test_a_shadow_has_the_bindings_of_the_policy_it_may_replace(labels, expected):
    asked = both(TRUE, FALSE, more=BINDING, labels=labels)

    assert [each.outcome for each in differences(asked)] == expected


def test_a_shadow_of_nothing_is_compared_with_nothing():
    loaded = load_policies(policy(f"shadowOf: p\n{FALSE}"), "p.yaml")
    asked = PolicySet(loaded.policies, namespaces=namespace_lookup((), {}))

    assert [each.outcome for each in differences(asked)] == ["denied"]
    assert check_bindings(loaded.policies, ()) == []


def test_a_shadow_of_what_is_not_here_is_doubtful():
    text = policy(TRUE, name="cap-gpus") + "---\n" + policy(f"shadowOf: cap-gpu\n{TRUE}", name="n")
    loaded = load_policies(text, "p.yaml")

    [doubt] = check_bindings(loaded.policies, ())

    assert doubt.message == "`n` is a shadow of `cap-gpu`, which is not here"
    assert doubt.hint == "did you mean `cap-gpus`?"


def test_a_shadow_is_in_no_conflict_with_what_it_may_replace():
    asked = both("inject: {queueName: a}", "inject: {queueName: b}")

    assert list(conflicts([*asked.policies, *asked.shadows])) == []


def test_a_roll_out_counts_in_the_shadow_too():
    asked = both(FALSE, f"{FALSE}\nrollout: [{{enforcement: Warn}}]")

    assert [each.outcome for each in differences(asked)] == ["allowed"]
