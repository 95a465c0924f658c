"""What cannot be used guards what can be read of it: nothing passes for a slip of the pen."""

import json

import pytest

from policyd.api.admission import GroupVersionResource
from policyd.dialects.registry import EVERY_FORMAT
from policyd.engine.compile.load import load_policies
from policyd.engine.evaluate.policy_set import PolicySet
from tests.engine.reviews import pod, request

NATIVE = "admissionregistration.k8s.io/v1"
KYVERNO = "policies.kyverno.io/v1"
OWN = "policyd.io/v1alpha1"
POD = pod(gpus=8)
PODS = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
MATCH = {"resourceRules": [PODS]}
BROKEN = [{"expression": "nobody()"}]


def document(kind="Policy", version=OWN, namespace=None, **spec):
    metadata = {"name": "p"} | ({"namespace": namespace} if namespace else {})
    return {"apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec}


def binding(kind="ValidatingAdmissionPolicyBinding", version=NATIVE, **spec):
    return document(kind, version, policyName="p", **spec)


def policy_set(*documents):
    loaded = load_policies("\n---\n".join(map(json.dumps, documents)), "here", EVERY_FORMAT)
    assert loaded.broken
    return PolicySet(
        (*loaded.policies, *loaded.placeholders),
        namespaces=lambda name: {"metadata": {"name": name, "labels": {"name": name}}},
        bindings=(*loaded.bindings, *loaded.binding_placeholders),
        exceptions=loaded.exceptions,
    )


def validated(*documents, **about):
    return policy_set(*documents).validate(request(POD, **about))


BAD_CEL = {"matchConstraints": MATCH, "validations": BROKEN}
CHANGES = {"patchType": "JSONPatch", "jsonPatch": {"expression": "nobody()"}}
RULE = {
    "name": "r",
    "match": {"any": [{"resources": {"kinds": ["Pod"], "operations": ["CREATE"]}}]},
    "validate": {"failureAction": "Enforce", "cel": {"expressions": BROKEN}},
}
NATIVES = document("ValidatingAdmissionPolicy", NATIVE, **BAD_CEL)
MUTATES = {"matchConstraints": MATCH, "mutations": [CHANGES]}
DENIES = binding(validationActions=["Deny"])


@pytest.mark.parametrize(
    "documents",
    [
        pytest.param([document(**BAD_CEL)], id="own"),
        pytest.param([document(matchConstraints=MATCH, validation=BROKEN)], id="own-field"),
        pytest.param([document(version="policyd.io/v7", **BAD_CEL)], id="own-version"),
        pytest.param(
            [document(matchConstraints=MATCH, inject={"queue": "a"})], id="own-that-injects"
        ),
        pytest.param(
            [document(matchConstraints=MATCH, mutations=[CHANGES])], id="own-that-changes"
        ),
        pytest.param(
            [document(**BAD_CEL, failurePolicy="fail")], id="own-with-an-unknown-failure-policy"
        ),
        pytest.param([document(**BAD_CEL, enforcement="No")], id="own-with-an-unknown-enforcement"),
        pytest.param(
            [
                document(
                    matchConstraints=MATCH,
                    validations=[{"expression": "true"}],
                    exceptions=[{"reason": "a", "expression": "nobody()"}],
                )
            ],
            id="own-with-a-wrong-exception",
        ),
        pytest.param([NATIVES, DENIES], id="the-api-servers"),
        pytest.param(
            [
                document("MutatingAdmissionPolicy", NATIVE, **MUTATES, reinvocationPolicy="Never"),
                binding("MutatingAdmissionPolicyBinding"),
            ],
            id="the-api-servers-that-changes",
        ),
        pytest.param([document("ValidatingPolicy", KYVERNO, **BAD_CEL)], id="kyvernos"),
        pytest.param(
            [document("NamespacedValidatingPolicy", KYVERNO, "team-a", **BAD_CEL)],
            id="kyvernos-of-a-namespace",
        ),
        pytest.param([document("MutatingPolicy", KYVERNO, **MUTATES)], id="kyvernos-that-changes"),
        pytest.param(
            [document("NamespacedMutatingPolicy", KYVERNO, "team-a", **MUTATES)],
            id="kyvernos-of-a-namespace-that-changes",
        ),
        pytest.param([document("ClusterPolicy", "kyverno.io/v1", rules=[RULE])], id="of-rules"),
        pytest.param(
            [document("Policy", "kyverno.io/v1", "team-a", rules=[RULE])],
            id="of-rules-of-a-namespace",
        ),
    ],
)
def test_an_unusable_policy_refuses_the_requests_that_it_matches(documents):
    decision = validated(*documents)

    assert not decision.allowed
    assert "not usable as it is written" in decision.denials[0].message
    assert validated(*documents, operation="UPDATE").allowed


IGNORED = {"failurePolicy": "Ignore"}


@pytest.mark.parametrize(
    "documents",
    [
        pytest.param([document(**BAD_CEL, **IGNORED)], id="own"),
        pytest.param([document(**BAD_CEL, enforcement="Warn")], id="own-that-warns"),
        pytest.param([document(**BAD_CEL, shadowOf="q")], id="a-shadow"),
        pytest.param([document(**BAD_CEL, requiresBinding=True)], id="own-that-is-not-bound"),
        pytest.param([NATIVES], id="the-api-servers-that-is-not-bound"),
        pytest.param(
            [NATIVES, binding(validationActions=["Audit"])], id="the-api-servers-that-notes"
        ),
        pytest.param(
            [document("ValidatingPolicy", KYVERNO, **BAD_CEL, **IGNORED)], id="kyvernos-ignored"
        ),
        pytest.param(
            [document("ValidatingPolicy", KYVERNO, **BAD_CEL, validationActions=["Warn"])],
            id="kyvernos-that-warns",
        ),
        pytest.param(
            [document("NamespacedValidatingPolicy", KYVERNO, "other", **BAD_CEL)],
            id="of-another-namespace",
        ),
        pytest.param(
            [document("ValidatingPolicy", KYVERNO, **BAD_CEL, evaluation={"mode": "HTTP"})],
            id="for-other-work",
        ),
        pytest.param(
            [
                document(
                    "ValidatingPolicy",
                    KYVERNO,
                    **BAD_CEL,
                    evaluation={"admission": {"enabled": False}},
                )
            ],
            id="not-for-admission",
        ),
        pytest.param(
            [document("ClusterPolicy", "kyverno.io/v1", rules=[RULE], admission=False)],
            id="rules-not-for-admission",
        ),
        pytest.param(
            [
                document(
                    "ClusterPolicy",
                    "kyverno.io/v1",
                    rules=[{**RULE, "validate": {"pattern": {"a": 1}}}],
                )
            ],
            id="patterns-are-left-to-kyverno",
        ),
        pytest.param(
            [document("GeneratingPolicy", KYVERNO, matchConstraints=MATCH)], id="acts-by-itself"
        ),
        pytest.param(
            [document("ImageValidatingPolicy", KYVERNO, matchConstraints=MATCH)],
            id="of-kyvernos-work",
        ),
        pytest.param([document("Polisy", **BAD_CEL)], id="no-kind-that-is-known"),
        pytest.param([document(validations=BROKEN)], id="nothing-says-what-it-guards"),
        pytest.param(
            [document(matchConstraints={"resourceRules": "pods"}, validations=BROKEN)],
            id="rules-that-cannot-be-read",
        ),
        pytest.param(
            [document(matchConstraints={"resourceRules": [{"resources": ["*"]}]})],
            id="everything-of-no-group",
        ),
    ],
)
def test_policies_that_refuse_nothing_stay_so(documents):
    assert validated(*documents).allowed


@pytest.mark.parametrize(
    ("constraints", "passing"),
    [
        pytest.param({**MATCH, "namespaceSelector": {"matchLabels": {"name": "x"}}}, True, id="ns"),
        pytest.param(
            {**MATCH, "objectSelector": {"matchLabels": {"name": "x"}}}, True, id="labels"
        ),
        pytest.param(
            {
                **MATCH,
                "namespaceSelector": {"matchExpressions": [{"key": "a", "operator": "Is"}]},
            },
            False,
            id="a-selector-that-cannot-be-read-selects-all",
        ),
        pytest.param({**MATCH, "excludeResourceRules": [PODS]}, True, id="left-out"),
        pytest.param(
            {**MATCH, "excludeResourceRules": [{"resources": 1}]}, False, id="left-out-unreadable"
        ),
        pytest.param({"resourceRules": [{"resources": ["pods"]}]}, False, id="of-any-group"),
        pytest.param(
            {"resourceRules": [{**PODS, "operations": ["MAKE"]}]}, False, id="of-no-operation"
        ),
        pytest.param({"resourceRules": [{**PODS, "resourceNames": ["x"]}]}, True, id="names"),
    ],
)
def test_readable_parts_narrow_a_placeholder(constraints, passing):
    assert validated(document(matchConstraints=constraints, validations=BROKEN)).allowed is passing


def test_conditions_that_compile_are_asked():
    conditions = [
        {"name": "a", "expression": "nobody()"},
        {"name": "b", "expression": "request.operation == 'UPDATE'"},
    ]

    assert validated(document(**BAD_CEL, matchConditions=conditions)).allowed


@pytest.mark.parametrize("group", ["policyd.io", "kyverno.io", NATIVE.partition("/")[0]])
def test_policies_can_be_fixed_despite_broken_ones(group):
    everything = {"apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*"], "operations": ["*"]}
    policies = policy_set(
        document(matchConstraints={"resourceRules": [everything]}, validations=BROKEN)
    )
    resource = GroupVersionResource(group=group, version="v1", resource="policies")

    assert policies.validate(request(POD, resource=resource)).allowed
    assert not policies.validate(request(POD)).allowed


VALID = {"matchConstraints": MATCH, "validations": [{"expression": "true"}]}


@pytest.mark.parametrize(
    ("documents", "allowed"),
    [
        pytest.param(
            [
                document("ValidatingAdmissionPolicy", NATIVE, **VALID),
                binding(validationActions=["Deny"], paramRef={"name": "a", "selector": {}}),
            ],
            False,
            id="the-api-servers",
        ),
        pytest.param(
            [
                document("ValidatingAdmissionPolicy", NATIVE, **VALID),
                binding(validationActions=["Refuse"]),
            ],
            False,
            id="unknown-action",
        ),
        pytest.param(
            [
                document("ValidatingAdmissionPolicy", NATIVE, **VALID, failurePolicy="Ignore"),
                binding(validationActions=["Refuse"]),
            ],
            True,
            id="of-a-policy-that-may-be-left-out",
        ),
        pytest.param(
            [
                document("ValidatingAdmissionPolicy", NATIVE, **VALID),
                binding(
                    validationActions=["Deny"],
                    matchResources={"namespaceSelector": {"matchLabels": {"name": "other"}}},
                    paramRef=1,
                ),
            ],
            True,
            id="for-another-namespace",
        ),
        pytest.param(
            [document(**VALID, requiresBinding=True), binding("PolicyBinding", OWN, enforcement=7)],
            False,
            id="own",
        ),
        pytest.param(
            [
                document(**VALID, requiresBinding=True),
                binding("PolicyBinding", OWN, enforcement="Warn", paramRef=1),
            ],
            True,
            id="own-that-warns",
        ),
    ],
)
def test_an_unusable_binding_refuses_the_requests_of_its_policy(documents, allowed):
    assert validated(*documents).allowed is allowed


def test_off_line_nothing_stands_in():
    loaded = load_policies(json.dumps(document(**BAD_CEL)), "here")

    assert not loaded.policies
    assert [policy.unusable for policy in loaded.placeholders] == [
        "it is not usable as it is written: `spec.validations[0].expression`:"
        " undeclared reference to 'nobody' (in container '')"
    ]
