"""The API server's own policies do here what they do there, in its words."""

import json

import pytest
import yaml

from policyd.cel import CelError
from policyd.cel.lib.authorizer import Authorization as PermissionDecision
from policyd.engine.compile.load import load_policies
from policyd.engine.evaluate.policy_set import PolicySet
from policyd.engine.evaluate.review import refusal
from policyd.engine.model.params import ParamError, StoredParams
from policyd.engine.model.surroundings import PolicyContext
from policyd.engine.offline.requests import namespace_lookup
from policyd.patch.json_patch import apply_json_patch
from tests.engine.reviews import pod, request

PODS = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["*"], "resources": ["pods"]}
DEPLOYMENT = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {"name": "web", "namespace": "team-a"},
    "spec": {"replicas": 1},
}


def native(kind, spec, *, name="p", rules=(PODS,), version="v1"):
    constraints = {"resourceRules": list(rules), **spec.pop("matchConstraints", {})}
    return {
        "apiVersion": f"admissionregistration.k8s.io/{version}",
        "kind": kind,
        "metadata": {"name": name},
        "spec": {"matchConstraints": constraints, **spec},
    }


def validating(spec, **more):
    return native("ValidatingAdmissionPolicy", spec, **more)


def mutating(*mutations, **spec):
    more = {key: spec.pop(key) for key in ("name", "rules") if key in spec}
    written = [
        {"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": m}}
        if m.startswith("Object")
        else {"patchType": "JSONPatch", "jsonPatch": {"expression": m}}
        for m in mutations
    ]
    return native("MutatingAdmissionPolicy", {"mutations": written, **spec}, **more)


def binding(policy, **spec):
    kind = policy["kind"]
    actions = {} if kind.startswith("Mut") else {"validationActions": ["Deny"]}
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": f"{kind}Binding",
        "metadata": {"name": spec.pop("name", "b")},
        "spec": {"policyName": policy["metadata"]["name"], **actions, **spec},
    }


def policy_set(*documents, params=(), labels=None, authorize=None, param_source=None, **more):
    loaded = load_policies(yaml.safe_dump_all(documents), "policies.yaml")
    wrong = [finding for finding in loaded.findings if finding.severity == "error"]
    assert not wrong, "\n".join(map(str, wrong))
    if authorize is not None:
        more["authorize"] = authorize
    surroundings = PolicyContext(
        namespaces=namespace_lookup((), labels or {}),
        params=param_source or StoredParams(params),
        **more,
    )
    return PolicySet(loaded.policies, bindings=loaded.bindings, surroundings=surroundings)


def validated(spec, obj=None, *, bound=None, **more):
    policy = validating(spec)
    asked = policy_set(policy, binding(policy, **(bound or {})), **more)
    return asked.validate(request(obj or pod()))


def messages(decision):
    return [denial.message for denial in decision.denials]


@pytest.mark.parametrize("version", ["v1", "v1beta1", "v1alpha1"])
def test_all_versions_are_read(version):
    policy = validating({"validations": [{"expression": "false"}]}, version=version)

    assert not policy_set(policy, binding(policy)).validate(request(pod())).allowed


def test_a_policy_without_a_binding_does_nothing():
    policy = validating({"validations": [{"expression": "false"}]})

    assert policy_set(policy).validate(request(pod())).matched == ()


def test_a_refusal_begins_as_the_api_server_s_own_and_names_all_violations():
    policy = validating({"validations": [{"expression": "false"}, {"expression": "1 > 2"}]})
    asked = request(pod())
    status = refusal(asked, policy_set(policy, binding(policy)).validate(asked))

    lead = "ValidatingAdmissionPolicy 'p' with binding 'b' denied request: failed expression"
    assert status.message.splitlines() == [
        f'pods "a" is forbidden: {lead}: false',
        f"{lead}: 1 > 2",
    ]
    assert (status.code, status.reason) == (422, "Invalid")


@pytest.mark.parametrize(
    ("validation", "message"),
    [
        pytest.param({"message": " too big "}, "too big", id="static"),
        pytest.param({"messageExpression": "'name: ' + object.metadata.name"}, "name: a", id="cel"),
        pytest.param(
            {"message": "m", "messageExpression": "string(object.spec.nothing)"},
            "m",
            id="cel-fails",
        ),
        pytest.param({"message": "m", "messageExpression": "'a\\nb'"}, "m", id="two-lines"),
        pytest.param({"message": "m", "messageExpression": "' '"}, "m", id="blank"),
        pytest.param({}, "failed expression: false", id="none"),
    ],
)
def test_the_message_is_chosen_as_the_api_server_chooses_it(validation, message):
    decision = validated({"validations": [{"expression": "false", **validation}]})

    assert messages(decision) == [message]


def test_a_failing_expression_is_reported_as_the_api_server_says_it():
    decision = validated({"validations": [{"expression": "object.spec.nothing == 1"}]})

    assert messages(decision) == [
        "expression 'object.spec.nothing == 1' resulted in error: no such key: nothing"
    ]
    assert decision.denials[0].failed


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        pytest.param("object.metadata.name + 1 == 2", "no such overload", id="on-the-right"),
        pytest.param("object.spec + 1 == 2", "no such overload: _+_", id="on-the-left"),
        pytest.param("object.metadata.name > 1", "no such overload", id="comparison"),
        pytest.param("'a' in object.metadata.name", "no such overload", id="in"),
        pytest.param("object.spec.contains('a')", "no such overload", id="contains"),
        pytest.param("object.spec.trim() == ''", "no such overload: trim(map)", id="method"),
        pytest.param(
            "int(object.metadata.name) == 1",
            "type conversion error from 'string' to 'int'",
            id="conversion",
        ),
        pytest.param(
            "duration(object.metadata.name) == duration('1s')",
            "type conversion error from 'string' to 'google.protobuf.Duration'",
            id="duration",
        ),
        pytest.param("object.metadata.name[0] == 'a'", "no such key: 0", id="index"),
        pytest.param(
            "has(variables.v)",
            'composited variable "v" fails to evaluate: no such key: nothing',
            id="variable",
        ),
    ],
)
def test_errors_on_another_type_are_in_the_api_server_s_words(expression, message):
    variables = [{"name": "v", "expression": "object.spec.nothing"}]
    decision = validated({"validations": [{"expression": expression}], "variables": variables})

    assert messages(decision) == [f"expression '{expression}' resulted in error: {message}"]


def test_match_conditions_that_fail_alike_are_reported_once():
    conditions = [{"name": name, "expression": "object.spec.no == 1"} for name in ("a", "b")]
    spec = {"matchConditions": conditions, "validations": [{"expression": "true"}]}

    assert messages(validated(spec)) == [
        "expression 'object.spec.no == 1' resulted in error: no such key: no"
    ]


def test_a_failing_expression_is_left_out_if_failures_are_ignored():
    decision = validated(
        {"failurePolicy": "Ignore", "validations": [{"expression": "object.spec.nothing == 1"}]}
    )

    assert decision.allowed
    assert decision.failures[0].ignored


@pytest.mark.parametrize(
    ("actions", "allowed", "warnings", "audited"),
    [
        pytest.param(["Deny"], False, 0, False, id="deny"),
        pytest.param(["Warn"], True, 1, False, id="warn"),
        pytest.param(["Audit"], True, 0, True, id="audit"),
        pytest.param(["Warn", "Audit"], True, 1, True, id="warn-and-audit"),
        pytest.param(["Deny", "Audit"], False, 0, True, id="deny-and-audit"),
    ],
)
def test_a_violation_leads_to_the_binding_s_actions(actions, allowed, warnings, audited):
    spec = {"validations": [{"expression": "false", "message": "no"}]}
    decision = validated(spec, bound={"validationActions": actions})

    assert decision.allowed is allowed
    lead = "Validation failed for ValidatingAdmissionPolicy 'p' with binding 'b': no"
    assert list(decision.warnings) == [lead] * warnings
    key = "validation.policy.admission.k8s.io/validation_failure"
    assert (key in decision.audit_annotations) is audited


def test_the_audit_log_names_the_validation():
    spec = {"validations": [{"expression": e} for e in ("true", "object.spec.no == 1", "false")]}
    decision = validated(spec, bound={"validationActions": ["Audit"]})
    annotation = decision.audit_annotations["validation.policy.admission.k8s.io/validation_failure"]

    assert [failure["expressionIndex"] for failure in json.loads(annotation)] == [1, 2]


def test_a_namespace_that_nobody_wrote_is_as_one_in_a_cluster():
    expression = "namespaceObject.status.phase == 'Active' && has(namespaceObject.spec.finalizers)"

    assert validated({"validations": [{"expression": expression}]}).allowed


@pytest.mark.parametrize(
    ("conditions", "outcome"),
    [
        pytest.param(["true", "false"], "skipped", id="one-is-false"),
        pytest.param(["object.spec.nothing == 1", "false"], "skipped", id="false-outweighs-error"),
        pytest.param(["object.spec.nothing == 1"], "denied", id="error"),
        pytest.param(["true"], "allowed", id="all-true"),
        pytest.param(["namespaceObject.metadata.name == 'a'"], "denied", id="no-namespace-here"),
    ],
)
def test_match_conditions_follow_the_api_server_s_rules(conditions, outcome):
    decision = validated(
        {
            "matchConditions": [
                {"name": f"c{index}", "expression": text} for index, text in enumerate(conditions)
            ],
            "validations": [{"expression": "true"}],
        }
    )

    assert decision.allowed is (outcome != "denied")
    assert bool(decision.matched) is (outcome == "allowed")


CONFIG = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "metadata": {"name": "limits", "namespace": "team-a", "labels": {"tier": "gold"}},
    "data": {"most": "1"},
}
OTHER = CONFIG | {"metadata": {"name": "other", "namespace": "team-b"}, "data": {"most": "9"}}
LIMITED = {
    "paramKind": {"apiVersion": "v1", "kind": "ConfigMap"},
    "validations": [
        {"expression": "size(object.spec.containers) > int(params.data.most)", "message": "few"}
    ],
}


@pytest.mark.parametrize(
    ("ref", "expected"),
    [
        pytest.param({"name": "limits"}, ["few"], id="of-the-request's-namespace"),
        pytest.param({"name": "other", "namespace": "team-b"}, ["few"], id="of-another"),
        pytest.param({"selector": {"matchLabels": {"tier": "gold"}}}, ["few"], id="selected"),
        pytest.param({"selector": {}}, ["few"], id="all-of-the-namespace"),
        pytest.param(
            {"name": "other"},
            [
                "failed to configure binding: "
                "no params found for policy binding with `Deny` parameterNotFoundAction"
            ],
            id="not-found",
        ),
    ],
)
def test_params_are_found_as_the_binding_names_them(ref, expected):
    bound = {"paramRef": {"parameterNotFoundAction": "Deny", **ref}}

    assert messages(validated(dict(LIMITED), bound=bound, params=[CONFIG, OTHER])) == expected


def test_params_that_are_not_there_may_be_allowed_to_be_missing():
    bound = {"paramRef": {"name": "none", "parameterNotFoundAction": "Allow"}}
    decision = validated(dict(LIMITED), bound=bound, params=[CONFIG])

    assert decision.matched == ()


@pytest.mark.parametrize("namespace", [{}, {"namespace": "team-b"}], ids=["none", "named"])
def test_so_may_those_of_a_kind_of_which_there_are_none(namespace):
    spec = LIMITED | {"paramKind": {"apiVersion": "example.com/v1", "kind": "Limit"}}
    ref = {"name": "none", "parameterNotFoundAction": "Allow", **namespace}

    assert validated(spec, bound={"paramRef": ref}).matched == ()


def test_a_policy_is_asked_once_for_each_param():
    policy = validating(dict(LIMITED))
    low = CONFIG | {"metadata": CONFIG["metadata"] | {"name": "low"}, "data": {"most": "0"}}
    bound = binding(policy, paramRef={"selector": {}, "parameterNotFoundAction": "Deny"})
    decision = policy_set(policy, bound, params=[CONFIG, low]).validate(request(pod()))

    assert messages(decision) == ["few"]


def test_a_wrong_configuration_refuses_whatever_the_actions_are():
    bound = {
        "validationActions": ["Audit"],
        "paramRef": {"name": "none", "parameterNotFoundAction": "Deny"},
    }

    assert not validated(dict(LIMITED), bound=bound).allowed


def test_params_for_a_namespace_are_looked_for_in_it():
    spec = LIMITED | {"validations": [{"expression": "params.data.most == '9'"}]}
    policy = validating(spec, rules=[rule("", "v1", "namespaces")])
    bound = binding(policy, paramRef={"selector": {}, "parameterNotFoundAction": "Deny"})
    asked = policy_set(policy, bound, params=[CONFIG, OTHER])
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team-b"}}

    assert asked.validate(request(namespace)).allowed


@pytest.mark.parametrize(
    ("narrowed", "concerned"),
    [
        pytest.param({}, True, id="not-at-all"),
        pytest.param({"namespaceSelector": {"matchLabels": {"env": "prod"}}}, True, id="namespace"),
        pytest.param(
            {"namespaceSelector": {"matchLabels": {"env": "dev"}}}, False, id="other-namespace"
        ),
        pytest.param({"objectSelector": {"matchLabels": {"a": "b"}}}, False, id="object"),
        pytest.param(
            {"resourceRules": [PODS | {"resourceNames": ["a"]}]}, True, id="name-of-the-object"
        ),
        pytest.param({"excludeResourceRules": [PODS]}, False, id="excluded"),
    ],
)
def test_a_binding_narrows_its_policy(narrowed, concerned):
    spec = {"validations": [{"expression": "false"}]}
    decision = validated(spec, bound={"matchResources": narrowed}, labels={"env": "prod"})

    assert decision.allowed is not concerned


def rule(group, version, plural):
    return PODS | {"apiGroups": [group], "apiVersions": [version], "resources": [plural]}


JOB_SET = {
    "apiVersion": "jobset.x-k8s.io/v1alpha2",
    "kind": "JobSet",
    "metadata": {"name": "train", "namespace": "team-a"},
}


@pytest.mark.parametrize(
    ("policy", "seen"),
    [
        pytest.param("Equivalent", "jobset.x-k8s.io/v1", id="equivalent"),
        pytest.param("Exact", None, id="exact"),
    ],
)
def test_another_version_of_a_custom_kind_is_seen_as_the_rule_names_it(policy, seen):
    spec = {
        "matchConstraints": {"matchPolicy": policy},
        "validations": [
            {
                "expression": "false",
                "messageExpression": "object.apiVersion + ' ' + request.kind.version + ' '"
                " + request.requestKind.version",
            }
        ],
    }
    written = validating(spec, rules=[rule("jobset.x-k8s.io", "v1", "jobsets")])
    decision = policy_set(written, binding(written)).validate(request(JOB_SET))

    assert messages(decision) == ([f"{seen} v1 v1alpha2"] if seen else [])


def test_a_built_in_version_whose_fields_differ_cannot_be_converted():
    claim = {
        "apiVersion": "resource.k8s.io/v1beta1",
        "kind": "ResourceClaim",
        "metadata": {"name": "a", "namespace": "team-a"},
        "spec": {},
    }
    spec = {"validations": [{"expression": "has(object.spec)"}]}
    written = validating(spec, rules=[rule("resource.k8s.io", "v1", "resourceclaims")])
    decision = policy_set(written, binding(written)).validate(request(claim))

    assert "failed to convert object version" in messages(decision)[0]


def test_the_api_server_s_own_policies_never_concern_policies():
    spec = {"validations": [{"expression": "false"}]}
    everything = {key: ["*"] for key in ("apiGroups", "apiVersions", "operations", "resources")}
    written = validating(spec, rules=[everything])
    policy = validating({"validations": [{"expression": "true"}]}, name="other")

    assert policy_set(written, binding(written)).validate(request(policy)).allowed


@pytest.mark.parametrize(
    ("group", "kind"),
    [
        pytest.param("authentication", "TokenReview", id="who-somebody-is"),
        pytest.param("authorization", "SubjectAccessReview", id="what-somebody-may-do"),
    ],
)
def test_nor_do_they_concern_questions_about_users(group, kind):
    everything = {key: ["*"] for key in ("apiGroups", "apiVersions", "operations", "resources")}
    written = validating({"validations": [{"expression": "false"}]}, rules=[everything])
    asked = {"apiVersion": f"{group}.k8s.io/v1", "kind": kind, "metadata": {}}

    assert policy_set(written, binding(written)).validate(request(asked)).matched == ()


def test_audit_annotations_are_under_the_policy_s_name():
    decision = validated(
        {
            "auditAnnotations": [
                {"key": "name", "valueExpression": "object.metadata.name"},
                {"key": "nothing", "valueExpression": "null"},
            ]
        }
    )

    assert decision.audit_annotations == {"p/name": "a"}


def test_an_audit_annotation_that_fails_refuses():
    annotations = [{"key": "k", "valueExpression": "object.spec.nothing"}]

    assert not validated({"auditAnnotations": annotations}).allowed


def test_equal_audit_annotations_of_bindings_are_listed_once():
    kind = {"apiVersion": "v1", "kind": "ConfigMap"}
    annotation = {"key": "most", "valueExpression": "string(params.data.most)"}
    policy = validating({"paramKind": kind, "auditAnnotations": [annotation]})
    bindings = [
        binding(policy, name=f"b{i}", paramRef={"selector": {}, "namespace": space})
        for i, space in enumerate(["team-a", "team-a", "team-b"])
    ]
    decision = policy_set(policy, *bindings, params=[CONFIG, OTHER]).validate(request(pod()))

    assert decision.audit_annotations == {"p/most": "1, 9"}


def allow_pods(_user, permission):
    return PermissionDecision(allowed=permission.resource == "pods", reason="because")


@pytest.mark.parametrize(
    ("expression", "allowed"),
    [
        pytest.param(
            "authorizer.group('').resource('pods').check('delete').allowed()", True, id="asked"
        ),
        pytest.param("authorizer.requestResource.check('delete').allowed()", True, id="itself"),
        pytest.param(
            "authorizer.group('').resource('secrets').check('get').allowed()", False, id="refused"
        ),
    ],
)
def test_the_authorizer_is_asked(expression, allowed):
    spec = {"validations": [{"expression": expression}]}

    assert validated(spec, authorize=allow_pods).allowed is allowed


def test_messages_and_annotations_cannot_ask_for_permissions():
    variables = [{"name": "may", "expression": "authorizer.path('/x').check('get').allowed()"}]
    fields = {"messageExpression": "'may: ' + string(variables.may)", "message": "static"}
    spec = {"validations": [{"expression": "variables.may", **fields}], "variables": variables}
    annotation = {"key": "k", "valueExpression": "string(variables.may)"}

    assert messages(validated(dict(spec), authorize=allow_pods)) == ["static"]
    refused = validated(
        {**spec, "validations": [{"expression": "true"}], "auditAnnotations": [annotation]},
        authorize=allow_pods,
    )
    assert "no such attribute(s): authorizer" in messages(refused)[0]


class NoKinds(StoredParams):
    def namespaced(self, kind):
        raise ParamError(f"failed to find resource referenced by paramKind: '{kind.kind}'")


@pytest.mark.parametrize("make", [validating, lambda spec: mutating("Object{}", **spec)])
def test_a_policy_whose_params_are_of_no_kind_refuses_by_itself(make):
    policy = make({"paramKind": {"apiVersion": "v1", "kind": "Nope"}})
    if policy["kind"] == "ValidatingAdmissionPolicy":
        policy["spec"]["validations"] = [{"expression": "true"}]
    decision = policy_set(policy, binding(policy), param_source=NoKinds()).review(request(pod()))

    assert str(decision.denials[0]).endswith(
        "denied request: failed to configure policy:"
        " failed to find resource referenced by paramKind: 'Nope'"
    )
    assert "binding" not in str(decision.denials[0])


def test_nobody_knows_permissions_that_nobody_declared():
    spec = {"validations": [{"expression": "authorizer.path('/x').check('get').allowed()"}]}

    assert "declare them" in messages(validated(spec))[0]


def mutate(obj, *documents, **more):
    decision = policy_set(*documents, **more).mutate(request(obj))
    result = apply_json_patch(obj, decision.operations)
    return decision, result


def test_mutations_see_what_the_ones_before_made():
    policy = mutating(
        "Object{spec: Object.spec{replicas: object.spec.replicas + 100}}",
        "[JSONPatch{op: 'replace', path: '/spec/replicas', value: object.spec.replicas + 10}]",
        rules=[rule("apps", "v1", "deployments")],
    )
    decision, result = mutate(DEPLOYMENT, policy, binding(policy), typed=False)

    assert result["spec"]["replicas"] == 111
    assert decision.audit_annotations["mutated-by"] == "p"


@pytest.mark.parametrize(
    ("mutation", "message"),
    [
        pytest.param(
            "[JSONPatch{op: 'remove', path: '/spec/nothing'}]",
            "JSON Patch: error in remove",
            id="remove-what-is-not-there",
        ),
        pytest.param(
            "Object{spec: Object.spec{selector: Object.spec.selector{matchLabels: {'a': 'b'}}}}",
            "may not mutate atomic arrays, maps or structs: .spec.selector",
            id="atomic",
        ),
        pytest.param(
            "[JSONPatch{op: 'add', path: '/spec/replicas', value: object.nothing}]",
            "resulted in error: no such key: nothing",
            id="expression",
        ),
    ],
)
def test_a_mutation_that_fails_refuses_in_the_api_server_s_words(mutation, message):
    policy = mutating(mutation, rules=[rule("apps", "v1", "deployments")])
    decision, result = mutate(DEPLOYMENT, policy, binding(policy))

    assert message in messages(decision)[0]
    assert str(decision.denials[0]).startswith("policy 'p' with binding 'b' denied request: ")
    assert decision.denials[0].code == 403
    assert result == DEPLOYMENT


SPEC = "Object{spec: Object.spec{%s}}"
PATCH = "error applying patch: failed to convert patch object to typed object: "
READ = "unable to convert unstructured object to apps/v1, Kind=Deployment: "


@pytest.mark.parametrize(
    ("mutation", "message"),
    [
        pytest.param(
            SPEC % "paused: null", f"{PATCH}.spec.paused: expected boolean", id="null-of-a-scalar"
        ),
        pytest.param(
            SPEC % "replicas: null",
            f"{PATCH}.spec.replicas: expected numeric (int or float), got structpb.NullValue",
            id="null-of-a-number",
        ),
        pytest.param(
            SPEC % "strategy: null",
            f"{PATCH}.spec.strategy: expected map, got &{{NULL_VALUE}}",
            id="null-of-a-struct",
        ),
        pytest.param(
            SPEC
            % "template: Object.spec.template{spec: Object.spec.template.spec{dnsPolicy: b'a'}}",
            f"{PATCH}.spec.template.spec.dnsPolicy: expected string, got"
            " &value.valueUnstructured{Value:[]uint8{0x61}}",
            id="bytes",
        ),
        pytest.param(
            SPEC % "replicas: 3u",
            f"{PATCH}.spec.replicas: expected numeric (int or float), got uint64",
            id="uint",
        ),
        pytest.param(
            SPEC
            % "template: Object.spec.template{spec: Object.spec.template.spec{tolerations: []}}",
            "may not mutate atomic arrays, maps or structs: .spec.template.spec.tolerations",
            id="empty-atomic-list",
        ),
        pytest.param(
            SPEC % "replicas: 1.5", f"{READ}cannot convert float64 to int32", id="fraction"
        ),
        pytest.param(
            "[JSONPatch{op: 'add', path: '/spec/a', value: Object.spec.a{type: null}}]",
            "could not marshal to JSON: proto: invalid type: structpb.NullValue",
            id="null-in-a-value",
        ),
        pytest.param(
            "Object{metadata: {'labels': {'a': 'b'}}}",
            f"{PATCH}.metadata.labels: expected map, got &{{map[a:b]}}",
            id="map-in-a-map",
        ),
        pytest.param(
            SPEC % "template: Object.spec.template{spec: Object.spec.template.spec{"
            "containers: ['c'].map(c, {'name': c})}}",
            f"{PATCH}.spec.template.spec.containers: element 0: associative list with keys may"
            " not have non-map elements",
            id="maps-in-a-list",
        ),
        pytest.param(
            "Object{metadata: Object.metadata{labels: {1: 'a'}}}",
            "map key 1 is of type int, not string",
            id="key-that-is-no-text",
        ),
        pytest.param(
            "[JSONPatch{op: 'add', path: '/spec/a', value: Object.a{b: [{'c': 'd'}]}}]",
            "could not marshal to JSON: proto: invalid type: map[ref.Val]ref.Val",
            id="map-in-a-list-of-a-value",
        ),
        pytest.param(
            "[JSONPatch{op: 'add', path: '/spec/a', value: Object.a{b: duration('5s')}}]",
            "could not marshal to JSON: proto: invalid type: time.Duration",
            id="duration-in-a-value",
        ),
        pytest.param(
            "[JSONPatch{op: 'add', path: '/spec/a', value: {'b': optional.none()}}]",
            "could not marshal to JSON: optional.none() dereference",
            id="nothing-in-a-value",
        ),
    ],
)
def test_impossible_parts_of_an_object_are_refused_in_the_api_server_s_words(mutation, message):
    policy = mutating(mutation, rules=[rule("apps", "v1", "deployments")])
    decision, _ = mutate(DEPLOYMENT, policy, binding(policy))

    assert message in messages(decision)[0]


LABELS = "Object{metadata: Object.metadata{%s}}"


@pytest.mark.parametrize(
    ("mutation", "labels"),
    [
        (LABELS % "labels: {'a': optional.of('b')}", {"a": "b"}),
        (LABELS % "labels: optional.none()", None),
        (LABELS % "labels: {?'a': optional.none(), 'b': 'c'}", {"b": "c"}),
        ("Object{metadata: {'labels': Object.metadata{a: 'b'}}}", {"a": "b"}),
        ("Object{metadata: {'labels': dyn(object.metadata.annotations)}}", {"x": "y"}),
        (LABELS % "labels: object.metadata.annotations", {"x": "y"}),
        ("[JSONPatch{op: 'add', path: '/metadata/labels', value: {'a': type(1)}}]", None),
        (
            "[JSONPatch{op: 'add', path: '/metadata/labels', value: Object.a{a: type(1)}}]",
            {"a": "int"},
        ),
    ],
)
def test_changes_that_the_api_server_accepts_are_applied(mutation, labels):
    policy = mutating(mutation)
    given = pod() | {"metadata": {"name": "a", "namespace": "ns", "annotations": {"x": "y"}}}
    _, result = mutate(given, policy, binding(policy))

    assert result["metadata"].get("labels") == labels


def test_nothing_is_applied_to_what_is_of_a_subresource_s_kind():
    scale = {"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "a"}}
    everything = rule("*", "*", "*")
    policy = mutating(SPEC % "replicas: 2", rules=[everything])
    decision, _ = mutate(scale | {"spec": {"replicas": 1}}, policy, binding(policy))

    assert messages(decision) == [f"{PATCH}no corresponding type for autoscaling/v1, Kind=Scale"]


def test_an_object_must_be_what_its_schema_says_if_something_is_applied():
    policy = mutating("Object{metadata: Object.metadata{labels: {'a': 'b'}}}")
    decision, _ = mutate(pod() | {"nothing": 1}, policy, binding(policy))

    assert messages(decision) == [
        "error applying patch: failed to convert original object to typed object:"
        " .nothing: field not declared in schema"
    ]


@pytest.mark.parametrize(
    ("fields", "shown"),
    [
        pytest.param(3, "<int64 Value> 3", id="int"),
        pytest.param(1.5, "<float64 Value> 5", id="double"),
        pytest.param(True, "<bool Value> 8", id="bool"),
        pytest.param("x", "x 6", id="string"),
        pytest.param([], "<[]interface {} Value> 2", id="list"),
        pytest.param({"f:spec": {"f:a": None}}, "", id="fields"),
        pytest.param(None, "", id="none"),
    ],
)
def test_managed_fields_of_a_template_are_maps_if_something_is_applied(fields, shown):
    policy = mutating(
        "Object{metadata: Object.metadata{labels: {'a': 'b'}}}", rules=[rule("apps", "v1", "*")]
    )
    template = {"metadata": {"managedFields": [{"fieldsV1": fields}]}, "spec": pod()["spec"]}
    given = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": pod()["metadata"]}
    decision, _ = mutate(given | {"spec": {"template": template}}, policy, binding(policy))

    wrong = (
        ".spec.template.metadata.managedFields[0].fieldsV1:"
        f" expected map, got &{{<nil> <nil> {shown}}}"
    )
    assert [text.partition("object: ")[2] for text in messages(decision)] == (
        [wrong] if shown else []
    )


def test_managed_fields_of_an_object_itself_are_not_looked_at_if_something_is_applied():
    policy = mutating("Object{metadata: Object.metadata{labels: {'a': 'b'}}}")
    metadata = pod()["metadata"] | {"managedFields": [{"fieldsV1": 3}]}
    decision, result = mutate(pod() | {"metadata": metadata}, policy, binding(policy))

    assert messages(decision) == []
    assert result["metadata"]["labels"] == {"a": "b"}


@pytest.mark.parametrize(
    ("value", "changed"),
    [(", value: null", False), ("", True), (", value: 'x'", False)],
    ids=["null", "none", "another"],
)
def test_a_null_to_test_for_is_never_there(value, changed):
    policy = mutating(
        f"[JSONPatch{{op: 'test', path: '/metadata/nothing'{value}}},"
        " JSONPatch{op: 'add', path: '/metadata/labels', value: {'a': 'b'}}]"
    )
    _, result = mutate(pod(), policy, binding(policy))

    assert ("labels" in result["metadata"]) is changed


@pytest.mark.parametrize("failure_policy", ["Fail", "Ignore"])
@pytest.mark.parametrize(
    ("operation", "message"),
    [
        pytest.param(
            "path: '/spec/replicaz', value: 1",
            'strict decoding error: unknown field "spec.replicaz"',
            id="field-nobody-knows",
        ),
        pytest.param(
            "path: '/spec/replicas', value: 'many'",
            "json: cannot unmarshal string into Go struct field DeploymentSpec.spec.replicas"
            " of type int32",
            id="another-type",
        ),
    ],
)
def test_an_object_that_changed_its_kind_is_an_error_of_the_api_server(
    operation, message, failure_policy
):
    policy = mutating(
        f"[JSONPatch{{op: 'add', {operation}}}]",
        rules=[rule("apps", "v1", "deployments")],
        failurePolicy=failure_policy,
    )
    decision, _ = mutate(DEPLOYMENT, policy, binding(policy))

    assert str(decision.denials[0]) == f"Internal error occurred: {message}"
    assert decision.denials[0].code == 500


def test_an_error_of_the_api_server_s_own_outweighs_that_of_a_policy():
    failing = mutating("Object{spec: object.nothing}", name="a")
    unreadable = mutating("[JSONPatch{op: 'add', path: '/nothing', value: 1}]", name="b")
    bindings = [
        binding(policy, name=policy["metadata"]["name"]) for policy in (failing, unreadable)
    ]
    decision, _ = mutate(pod(), failing, unreadable, *bindings)

    assert [denial.code for denial in decision.denials] == [500, 403]


def test_a_test_that_fails_changes_nothing():
    policy = mutating(
        "[JSONPatch{op: 'test', path: '/metadata/name', value: 'b'},"
        " JSONPatch{op: 'add', path: '/metadata/labels', value: {'a': 'b'}}]"
    )
    decision, result = mutate(pod(), policy, binding(policy))

    assert decision.allowed
    assert result == pod()


def test_fields_unknown_to_the_built_in_type_are_dropped_before_the_next_mutation():
    policy = mutating(
        "[JSONPatch{op: 'add', path: '/metadata/annotations', value: {}}]",
        "[JSONPatch{op: 'add', path: '/metadata/annotations/a', value: 'b'}]",
    )

    assert mutate(pod(), policy, binding(policy), typed=False)[0].allowed
    refused, _ = mutate(pod(), policy, binding(policy), typed=True)
    assert "doc is missing path" in messages(refused)[0]


LABEL = "Object{metadata: Object.metadata{labels: {'seen': string(size(object.metadata.?labels"


@pytest.mark.parametrize(
    ("reinvocation", "seen"),
    [pytest.param("Never", "0", id="never"), pytest.param("IfNeeded", "2", id="if-needed")],
)
def test_a_policy_runs_again_if_others_changed_the_object_and_it_wants_to(reinvocation, seen):
    counting = mutating(f"{LABEL}.orValue({{}})))}}}}}}", name="a", reinvocationPolicy=reinvocation)
    later = mutating("Object{metadata: Object.metadata{labels: {'b': 'c'}}}", name="b")
    _, result = mutate(pod(), counting, binding(counting), later, binding(later, name="c"))

    assert result["metadata"]["labels"] == {"seen": seen, "b": "c"}


@pytest.mark.parametrize(("written", "refused"), [(True, True), (False, False)])
def test_written_objects_are_mutated_as_the_api_server_would_send_them(written, refused):
    policy = mutating("[JSONPatch{op: 'add', path: '/metadata/labels/a', value: 'b'}]")
    decision, _ = mutate(pod(labels={}), policy, binding(policy), written=written)

    assert bool(decision.denials) is refused


def test_mutations_see_what_is_written_as_the_api_server_would_send_it():
    seen = "string(has(object.spec.hostNetwork))"
    policy = mutating(f"Object{{metadata: Object.metadata{{labels: {{'seen': {seen}}}}}}}")
    written = pod()
    written["spec"]["hostNetwork"] = False
    _, result = mutate(written, policy, binding(policy), written=True)

    assert result["metadata"]["labels"] == {"seen": "false"}
    assert result["spec"] == written["spec"]


@pytest.mark.parametrize(
    ("others", "seen"),
    [
        pytest.param((), "1", id="it-alone"),
        pytest.param(("a",), "2", id="one-before"),
        pytest.param(("a", "z"), "3", id="one-after"),
    ],
)
def test_a_policy_runs_again_after_any_change_of_the_object(others, seen):
    counting = mutating(f"{LABEL}.orValue({{}})))}}}}}}", name="m", reinvocationPolicy="IfNeeded")
    label = "Object{metadata: Object.metadata{labels: {'%s': 'x'}}}"
    policies = [counting, *(mutating(label % name, name=name) for name in others)]
    bindings = [binding(policy, name=policy["metadata"]["name"]) for policy in policies]
    _, result = mutate(pod(), *policies, *bindings)

    assert result["metadata"]["labels"] == {"seen": seen, **dict.fromkeys(others, "x")}


def test_a_policy_runs_again_only_if_it_still_concerns_the_object():
    chosen = {"objectSelector": {"matchLabels": {"stage": "new"}}}
    policy = mutating(
        f"{LABEL}.orValue({{}}))), 'stage': 'old'}}}}}}",
        reinvocationPolicy="IfNeeded",
        matchConstraints=chosen,
    )
    _, result = mutate(pod(labels={"stage": "new"}), policy, binding(policy))

    assert result["metadata"]["labels"] == {"seen": "1", "stage": "old"}


def test_deleted_objects_are_not_changed_nor_evaluated():
    conditions = [{"name": "c", "expression": "object.metadata.name == 'a'"}]
    policy = mutating("Object{}", matchConditions=conditions)
    decision = policy_set(policy, binding(policy)).mutate(request(pod(), "DELETE"))

    assert (decision.denials, decision.matched) == ((), ())


def test_a_bad_expression_quarantines_its_policy_alone():
    good = validating({"validations": [{"expression": "false"}]}, name="good")
    bad = validating({"validations": [{"expression": "objct.x == 1"}]}, name="bad")
    loaded = load_policies(yaml.safe_dump_all([bad, good]), "p.yaml")

    assert [policy.name for policy in loaded.policies] == ["good"]
    assert loaded.findings[0].field == "spec.validations[0].expression"
    assert "objct" in loaded.findings[0].message


@pytest.mark.parametrize(
    ("change", "message", "severity"),
    [
        pytest.param({"valdations": []}, "unknown field `valdations`", "warning", id="field"),
        pytest.param(
            {"failurePolicy": "Maybe"}, "`Maybe` is not one of `Fail`, `Ignore`", "error", id="word"
        ),
    ],
)
def test_dropped_fields_are_doubtful_and_refused_ones_are_errors(change, message, severity):
    policy = validating({"validations": [{"expression": "true"}], **change})
    loaded = load_policies(yaml.safe_dump(policy), "p.yaml")

    assert [(f.message, f.severity) for f in loaded.findings] == [(message, severity)]
    assert bool(loaded.policies) is (severity == "warning")


def test_an_error_of_the_outside_is_one_of_the_expression():
    def fail(_user, _permission):
        raise CelError("the authorizer does not answer")

    spec = {"validations": [{"expression": "authorizer.path('/x').check('get').allowed()"}]}

    assert "does not answer" in messages(validated(spec, authorize=fail))[0]
