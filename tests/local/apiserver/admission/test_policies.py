"""Stored ValidatingAdmissionPolicies and MutatingAdmissionPolicies act, as on a real API server."""

import pytest

from tests.local.apiserver.client import CONFIG_MAPS, NAMESPACES, PODS, pod

pytestmark = pytest.mark.anyio

ROOT = "/apis/admissionregistration.k8s.io/v1"
PODS_ONLY = {
    "resourceRules": [
        {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
    ]
}


async def install(api, kind, name, *, binding=None, **spec):
    """Store a policy with a binding; kind is `Validating` or `Mutating`."""
    meta = {"apiVersion": "admissionregistration.k8s.io/v1", "metadata": {"name": name}}
    spec = {"matchConstraints": PODS_ONLY, **spec}
    plural = f"{ROOT}/{kind.lower()}admissionpolicies"
    await api.create(plural, {**meta, "kind": f"{kind}AdmissionPolicy", "spec": spec})
    bound = {"policyName": name, **(binding or {})}
    if kind == "Validating":
        bound.setdefault("validationActions", ["Deny"])
    document = {**meta, "kind": f"{kind}AdmissionPolicyBinding", "spec": bound}
    await api.create(plural.removesuffix("ies") + "ybindings", document)


LABELLED = {
    "patchType": "ApplyConfiguration",
    "applyConfiguration": {
        "expression": "Object{metadata: Object.metadata{labels: {'by': 'policy'}}}"
    },
}
UNNAMED = {"expression": "object.metadata.name != 'one'", "message": "not one"}


async def test_a_policy_refuses_in_the_api_servers_words(api):
    await install(api, "Validating", "no-one", validations=[UNNAMED])

    refused = await api.send("POST", PODS, pod())

    assert refused.code == 422
    assert refused.message == (
        "pods \"one\" is forbidden: ValidatingAdmissionPolicy 'no-one' with binding 'no-one' "
        "denied request: not one"
    )


async def test_a_policy_without_a_binding_does_nothing(api):
    meta = {"apiVersion": "admissionregistration.k8s.io/v1", "metadata": {"name": "no-one"}}
    spec = {"matchConstraints": PODS_ONLY, "validations": [UNNAMED]}
    document = {**meta, "kind": "ValidatingAdmissionPolicy", "spec": spec}
    await api.create(f"{ROOT}/validatingadmissionpolicies", document)

    await api.create(PODS, pod())


async def test_a_policy_that_is_deleted_refuses_no_more(api):
    await install(api, "Validating", "no-one", validations=[UNNAMED])
    assert (await api.send("POST", PODS, pod())).code == 422

    await api.send("DELETE", f"{ROOT}/validatingadmissionpolicies/no-one")

    await api.create(PODS, pod())


async def test_a_policy_changes_what_is_stored_before_others_look_at_it(api):
    await install(api, "Mutating", "label", mutations=[LABELLED], reinvocationPolicy="Never")
    labelled = {"expression": "object.metadata.labels['by'] == 'policy'"}
    await install(api, "Validating", "labelled", validations=[labelled])

    created = await api.create(PODS, pod())

    assert created["metadata"]["labels"]["by"] == "policy"


async def test_a_change_that_cannot_be_made_refuses_in_the_api_servers_words(api):
    missing = {
        "patchType": "JSONPatch",
        "jsonPatch": {"expression": "[JSONPatch{op: 'remove', path: '/data/zz'}]"},
    }
    await install(api, "Mutating", "bad", mutations=[missing], reinvocationPolicy="Never")

    refused = await api.send("POST", PODS, pod())

    assert (refused.code, refused.body["reason"]) == (403, "Invalid")
    assert refused.message.startswith("policy 'bad' with binding 'bad' denied request: ")


async def test_a_warning_reaches_the_user(api):
    binding = {"validationActions": ["Warn"]}
    await install(api, "Validating", "no-one", validations=[UNNAMED], binding=binding)

    answer = await api.send("POST", PODS, pod())

    assert answer.code == 201
    assert "Validation failed for ValidatingAdmissionPolicy 'no-one'" in answer.headers["Warning"]


async def test_params_and_labels_of_the_namespace_decide(api):
    await api.send(
        "PATCH",
        f"{NAMESPACES}/default",
        {"metadata": {"labels": {"tier": "research"}}},
        content_type="application/merge-patch+json",
    )
    limit = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "limit"}}
    await api.create(CONFIG_MAPS, {**limit, "data": {"name": "one"}})
    expression = "'no ' + params.data.name + ' in ' + namespaceObject.metadata.labels['tier']"
    named = {
        "expression": "object.metadata.name != params.data['name']",
        "messageExpression": expression,
    }
    await install(
        api,
        "Validating",
        "by-params",
        paramKind={"apiVersion": "v1", "kind": "ConfigMap"},
        validations=[named],
        binding={"paramRef": {"name": "limit", "parameterNotFoundAction": "Deny"}},
    )

    refused = await api.send("POST", PODS, pod())

    assert refused.message.endswith("denied request: no one in research")
