"""What the API server does not send, whichever policy is about it."""

import pytest

from policyd.api.admission import Rule
from policyd.registration.configurations import (
    Registration,
    ServiceEndpoint,
    mutating_configuration,
    validating_configuration,
)
from policyd.registration.exclusions import LEFT_OUT, leave_out, named_in_vain
from policyd.registration.webhook_rules import DerivedWebhook, WebhookRules

BOTH = ("secrets", "roles")
RBAC = "rbac.authorization.k8s.io"


def call(*resources, group="", operations=("CREATE",)):
    rule = Rule(
        api_groups=(group,), api_versions=("*",), operations=operations, resources=resources
    )
    return DerivedWebhook(failure_policy="Fail", rules=(rule,))


@pytest.mark.parametrize(
    ("given", "verb", "resources", "left_out"),
    [
        pytest.param(call("pods"), "validate", ["pods"], (), id="something-else"),
        pytest.param(call("pods", "secrets"), "validate", ["pods"], (), id="beside-others"),
        pytest.param(call("secrets"), "validate", None, (), id="nothing-else"),
        pytest.param(call("secrets/*"), "mutate", None, (), id="its-parts"),
        pytest.param(call("*"), "validate", ["*"], ("secrets",), id="every-resource"),
        pytest.param(call("*/*"), "validate", ["*/*"], ("secrets",), id="with-subresources"),
        pytest.param(call("*/status"), "validate", ["*/status"], (), id="subresources-alone"),
        pytest.param(
            call("secrets", group="*"), "validate", ["secrets"], ("secrets",), id="groups"
        ),
        pytest.param(call("*", group="*"), "mutate", ["*"], ("roles", "secrets"), id="everything"),
        pytest.param(call("*", group="*"), "validate", ["*"], ("secrets",), id="roles-are-checked"),
        pytest.param(call("*", group="apps"), "mutate", ["*"], (), id="another-group"),
        pytest.param(call("roles", group=RBAC), "mutate", None, (), id="roles"),
        pytest.param(call("roles", group=RBAC), "validate", ["roles"], (), id="roles-checked"),
    ],
)
def test_the_rest_of_a_call(given, verb, resources, left_out):
    kept = list(leave_out([given], verb, BOTH))

    assert [list(each.rules[0].resources) for each in kept] == ([resources] if resources else [])
    assert [each.left_out for each in kept] == ([left_out] if resources else [])


def test_nothing_is_left_out_unless_that_is_asked_for():
    given = [call("secrets"), call("*", group="*")]

    assert list(leave_out(given, "mutate", ())) == given


def test_unused_parts_of_a_policy_are_known():
    given = [call("secrets", "pods"), call("*", group="*")]

    assert named_in_vain(given, "validate", BOTH) == {"secrets"}
    assert named_in_vain(given[1:], "validate", BOTH) == set()


def test_a_condition_excludes_resources_from_a_wildcard():
    wide = (call("*", group="*"),)
    wanted = Registration(
        endpoint=ServiceEndpoint(namespace="queue", name="webhooks"),
        rules=WebhookRules(mutate=wide, validate=wide),
        own_namespace="queue",
        timeout_seconds=3,
        left_out=BOTH,
    )

    (mutating,) = mutating_configuration(wanted)["webhooks"]
    (validating,) = validating_configuration(wanted)["webhooks"]

    conditions = [
        [each for each in webhook["matchConditions"] if each["name"] in {"no-roles", "no-secrets"}]
        for webhook in (mutating, validating)
    ]
    secrets = {"name": "no-secrets", "expression": LEFT_OUT["secrets"].condition}
    roles = {"name": "no-roles", "expression": LEFT_OUT["roles"].condition}
    assert conditions == [[roles, secrets], [secrets]]
