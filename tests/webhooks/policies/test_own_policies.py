"""Policies as they are written: a mistake is told where it is made, and can always be repaired."""

import json
from functools import partial

import msgspec
import pytest
from prometheus_client import CollectorRegistry

from policyd.api.admission import GroupVersionKind, GroupVersionResource, parse_review
from policyd.api.policy import GROUP, POLICY_GROUPS
from policyd.dialects.kyverno.load import KINDS
from policyd.engine.model.decision import ALLOWED
from policyd.kube.resources import POLICIES
from tests.webhooks.policies import stored
from tests.webhooks.reviews import policy, review
from webhooks.metrics import WebhookMetrics
from webhooks.namespaces import without_cluster
from webhooks.policies.in_force import PoliciesInForce
from webhooks.policies.own_policies import OWN_CALL, validate_own
from webhooks.policies.stored import PolicyLimits

FINE = policy("fine", validations=[{"expression": "true"}])


def with_spec(**more):
    return {**FINE, "spec": {**FINE["spec"], **more}}


def binding(**spec):
    return {
        "apiVersion": "policyd.io/v1alpha1",
        "kind": "PolicyBinding",
        "metadata": {"name": "there"},
        "spec": spec,
    }


def asked(obj, old=None, **more):
    operation = more.pop("operation", "UPDATE" if old else "CREATE")
    plural = "policies" if obj["kind"] == "Policy" else "policybindings"
    return parse_review(review(obj, operation=operation, old=old, resource=plural, **more))


BAD = with_spec(validations=[{"expression": "object.foo("}])


@pytest.mark.parametrize(
    ("obj", "path", "words"),
    [
        pytest.param(BAD, "spec.validations[0].expression", "", id="expression"),
        pytest.param(
            with_spec(exceptions=[{"users": ["a"], "until": "tomorrow", "reason": "b"}]),
            "spec.exceptions[0].until",
            "tomorrow",
            id="until",
        ),
        pytest.param(with_spec(validation=[]), "spec.validation", "did you mean", id="field"),
        pytest.param(binding(policy="a"), "spec.policy", "did you mean", id="binding"),
    ],
)
def test_unusable_input_is_refused_with_its_place_and_a_hint(obj, path, words):
    denials = validate_own(asked(obj)).denials

    (found,) = [denial for denial in denials if denial.path == path]
    assert found.code == 422
    assert words in found.advice


@pytest.mark.parametrize(
    ("obj", "old", "operation"),
    [
        pytest.param(FINE, None, "CREATE", id="fine"),
        pytest.param(FINE, BAD, "UPDATE", id="repaired"),
        pytest.param({**BAD, "status": {"conditions": []}}, BAD, "UPDATE", id="as-it-was"),
        pytest.param(BAD, None, "DELETE", id="deleted"),
        pytest.param(
            {**BAD, "metadata": {"name": "a", "deletionTimestamp": "2026-11-21T10:00:00Z"}},
            FINE,
            "UPDATE",
            id="on-its-way-out",
        ),
    ],
)
def test_the_rest_passes(obj, old, operation):
    assert validate_own(asked(obj, old, operation=operation)).allowed


KYVERNO = [
    ("kyverno.io", "clusterpolicies"),
    ("kyverno.io", "policies"),
    ("kyverno.io", "policyexceptions"),
    ("policies.kyverno.io", "namespacedvalidatingpolicies"),
    ("policies.kyverno.io", "policyexceptions"),
    ("example.com", "insurancepolicy"),
]


def test_the_groups_of_policies_are_those_that_kyverno_s_dialect_reads():
    assert {GROUP, *KINDS} == POLICY_GROUPS


@pytest.mark.parametrize("phase", ["mutate", "validate"])
def test_no_policy_is_asked_about_policies_so_that_each_can_be_repaired(tmp_path, phase):
    everything = {"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"]}
    spec = {
        "matchConstraints": {"resourceRules": [{**everything, "resources": ["*"]}]},
        "validations": [{"expression": "false", "message": "no"}],
        "inject": {"annotations": {"seen": "yes"}},
    }
    (tmp_path / "all.yaml").write_text(json.dumps({**FINE, "spec": spec}))
    policies = PoliciesInForce(
        namespaces=without_cluster, metrics=WebhookMetrics(CollectorRegistry())
    )
    policies.read_files([tmp_path])
    decide = getattr(policies, phase)

    assert decide(asked(FINE)) == ALLOWED
    for group, plural in KYVERNO:
        resource = GroupVersionResource(group=group, version="v1", resource=plural)
        kind = GroupVersionKind(group=group, version="v1", kind="A")
        for operation in ("CREATE", "UPDATE", "DELETE"):
            request = msgspec.structs.replace(
                asked(FINE), kind=kind, resource=resource, operation=operation
            )
            assert (decide(request) == ALLOWED) is plural.endswith("policies")
    assert decide(parse_review(review())) is not ALLOWED


def test_nothing_is_refused_without_an_answer():
    assert OWN_CALL.failure_policy == "Ignore"


def test_a_policy_that_cannot_be_read_is_refused():
    request = asked({**FINE, "metadata": {"name": "a", "labels": 1}})

    assert "cannot be read" in json.dumps([d.message for d in validate_own(request).denials])


def test_one_that_would_not_be_kept_is_refused_when_it_is_written():
    limits = PolicyLimits(1)
    limits.keep(stored("first", FINE["spec"]), POLICIES)
    validate = partial(validate_own, no_room_reason=limits.no_room_reason)

    (denial,) = validate(asked(FINE)).denials
    assert "more policies than are kept (1 objects or 16 MiB): have fewer" in denial.message
    changed = {**with_spec(priority=1), "metadata": {"name": "first"}}
    assert validate(asked(changed, {**FINE, **changed, "spec": FINE["spec"]})).allowed
