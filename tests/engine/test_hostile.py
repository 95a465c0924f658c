"""Whatever an object is, policies of all kinds answer, and the next review is unharmed."""

from functools import cache

import msgspec
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from policyd.dialects.registry import EVERY_FORMAT
from policyd.engine.compile.load import load_policies
from policyd.engine.evaluate.policy_set import PolicySet
from policyd.engine.evaluate.review import respond
from policyd.engine.model.surroundings import PolicyContext
from policyd.engine.offline.requests import namespace_lookup
from tests.engine.reviews import pod, raw_request, request

EVERYTHING = {
    "resourceRules": [
        {key: ["*"] for key in ("apiGroups", "apiVersions", "operations", "resources")}
    ]
}
PODS = {
    "resourceRules": [
        {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["*"], "resources": ["pods"]}
    ]
}


def written(group, kind, name, **spec):
    return {"apiVersion": group, "kind": kind, "metadata": {"name": name}, "spec": spec}


def documents():
    native, kyverno = "admissionregistration.k8s.io/v1", "policies.kyverno.io/v1"
    patch = "[JSONPatch{op: 'add', path: '/metadata/labels/a', value: object.spec}]"
    apply = "Object{spec: Object.spec{containers: object.spec.containers}}"
    mutations = [
        {"patchType": "JSONPatch", "jsonPatch": {"expression": patch}},
        {"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": apply}},
    ]
    validations = [{"expression": "object.spec.containers.all(c, c.image != oldObject.x)"}]
    yield written(
        native,
        "ValidatingAdmissionPolicy",
        "v",
        matchConstraints=EVERYTHING,
        validations=validations,
    )
    yield written(
        native, "ValidatingAdmissionPolicyBinding", "v", policyName="v", validationActions=["Deny"]
    )
    yield written(
        native, "MutatingAdmissionPolicy", "m", matchConstraints=EVERYTHING, mutations=mutations
    )
    yield written(native, "MutatingAdmissionPolicyBinding", "m", policyName="m")
    yield written(kyverno, "ValidatingPolicy", "k", matchConstraints=PODS, validations=validations)
    yield written(kyverno, "MutatingPolicy", "l", matchConstraints=PODS, mutations=mutations)
    yield written(
        "policyd.io/v1alpha1",
        "Policy",
        "o",
        matchConstraints=EVERYTHING,
        mutations=mutations,
        validations=validations,
        exceptions=[{"reason": "r", "containers": ["a"]}],
    )


@cache
def every_kind():
    loaded = load_policies(yaml.safe_dump_all(documents()), "p.yaml", EVERY_FORMAT)
    assert not [f for f in loaded.findings if f.severity == "error"], loaded.findings
    surroundings = PolicyContext(namespaces=namespace_lookup((), {}), written=True)
    return PolicySet(loaded.policies, bindings=loaded.bindings, surroundings=surroundings)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["name", "a", "image", "namespace"]), inner, max_size=3)
    ),
    max_leaves=8,
)
OBJECTS = st.fixed_dictionaries(
    {},
    optional={
        "apiVersion": st.sampled_from(["v1", "batch/v1", "apps/v1", 1, None]),
        "kind": st.sampled_from(["Pod", "Job", "Deployment", "CronJob", 1, None]),
        "metadata": JSON,
        "spec": JSON
        | st.fixed_dictionaries(
            {},
            optional={
                "containers": JSON,
                "template": JSON | st.fixed_dictionaries({"spec": JSON, "metadata": JSON}),
                "jobTemplate": JSON,
            },
        ),
    },
)


@settings(deadline=None)
@given(OBJECTS | JSON)
def test_every_object_is_answered(obj):
    policies = every_kind()
    asked = raw_request(msgspec.json.encode(obj))

    for decision in (policies.mutate(asked), policies.validate(asked), policies.review(asked)):
        assert respond(asked, decision).allowed is decision.allowed
        assert all(str(denial) for denial in decision.denials)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(b'{"metadata": ' + b"[" * 400 + b"]" * 400 + b"}", id="deep"),
        pytest.param(b'{"spec": {"containers": null}}', id="null"),
        pytest.param(b'{"metadata": {"name": "\xff"}}', id="not-utf-8"),
        pytest.param(b'{"spec": {"replicas": 123456789012345678901234567890}}', id="long-number"),
        pytest.param(b'{"a": 1, "a": {"b": 2}}', id="duplicate-keys"),
        pytest.param(b"not json", id="no-json"),
    ],
)
def test_hostile_text_is_refused_with_a_reason_and_harms_no_other(text):
    policies = every_kind()
    asked = raw_request(text)
    decision = policies.review(asked)

    assert not decision.allowed
    assert respond(asked, decision).status.message
    again = policies.review(request(pod()))
    assert again == policies.review(request(pod()))
