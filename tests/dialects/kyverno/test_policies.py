"""Kyverno's CEL policies are read as they are; what is not CEL is refused in a sentence."""

import pytest
import yaml

from policyd.dialects.kyverno.environments import kyverno_values
from policyd.dialects.registry import dialect_of
from policyd.engine.compile.load import load_policies
from policyd.engine.evaluate.policy_set import PolicySet
from policyd.engine.lint.policy_warnings import lint
from policyd.engine.model.dialects import Volatile
from policyd.engine.model.surroundings import PolicyContext
from policyd.engine.offline.requests import namespace_lookup
from policyd.patch.json_patch import apply_json_patch
from tests.engine.reviews import job, pod, request, template

RULE = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
NAMED = "object.spec.containers.all(c, c.name == 'sidecar')"
CRON_JOB = {
    "apiVersion": "batch/v1",
    "kind": "CronJob",
    "metadata": {"name": "nightly", "namespace": "team-a"},
    "spec": {"jobTemplate": {"spec": {"template": template()}}},
}


def kyverno(kind="ValidatingPolicy", *, rules=(RULE,), group="policies.kyverno.io/v1", **spec):
    metadata = {"name": "p", **spec.pop("metadata", {})}
    constraints = {"resourceRules": list(rules), **spec.pop("matchConstraints", {})}
    spec = {"matchConstraints": constraints, **spec}
    return {"apiVersion": group, "kind": kind, "metadata": metadata, "spec": spec}


def cluster_policy(*expressions, match=None, exclude=None, metadata=None, **rule):
    written = {
        "name": "r",
        "match": match or {"any": [{"resources": {"kinds": ["Pod"]}}]},
        "validate": {"cel": {"expressions": [{"expression": e} for e in expressions]}},
        **({"exclude": exclude} if exclude else {}),
        **rule,
    }
    return {
        "apiVersion": "kyverno.io/v1",
        "kind": "ClusterPolicy",
        "metadata": {"name": "p", **(metadata or {})},
        "spec": {"validationFailureAction": "Enforce", "rules": [written]},
    }


def load(*documents, **dialect):
    return load_policies(yaml.safe_dump_all(documents), "p.yaml", dialect_of(**dialect))


def decide(obj, *documents, extra=None, user="someone", now=None, **dialect):
    loaded = load(*documents, **dialect)
    assert not loaded.findings, "\n".join(map(str, loaded.findings))
    more = {} if extra is None else {"extra": extra}
    surroundings = PolicyContext(namespaces=namespace_lookup((), {}), typed=False, now=now, **more)
    asked = PolicySet(loaded.policies, exceptions=loaded.exceptions, surroundings=surroundings)
    return asked.review(request(obj, user=user))


@pytest.mark.parametrize(
    ("obj", "denied"),
    [
        pytest.param(pod(), True, id="pod"),
        pytest.param(job(), True, id="job"),
        pytest.param(CRON_JOB, True, id="cron-job"),
        pytest.param({"apiVersion": "v1", "kind": "Service", "metadata": {}}, False, id="service"),
    ],
)
def test_a_policy_for_pods_stands_for_templates_too(obj, denied):
    decision = decide(obj, kyverno(validations=[{"expression": NAMED, "message": "no"}]))

    assert bool(decision.denials) is denied
    assert all(str(d) == "ValidatingPolicy 'p' denied request: no" for d in decision.denials)


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"autogen": {"podControllers": {"controllers": []}}}, id="none-is-wanted"),
        pytest.param(
            {"autogen": {"podControllers": {"controllers": ["deployments"]}}}, id="another-is"
        ),
        pytest.param(
            {"matchConstraints": {"objectSelector": {"matchLabels": {"a": "b"}}}},
            id="pods-are-selected",
        ),
        pytest.param({"rules": [RULE, RULE]}, id="several-rules"),
        pytest.param({"rules": [RULE | {"apiVersions": ["*"]}]}, id="any-version"),
    ],
)
def test_it_does_not_where_kyverno_would_not(changes):
    policy = kyverno(validations=[{"expression": "false"}], **changes)

    assert decide(job(), policy).allowed


def job_set(*names):
    templates = ({"spec": {"containers": [{"name": name, "image": "a"}]}} for name in names)
    jobs = [{"template": {"spec": {"template": each}}} for each in templates]
    version = "jobset.x-k8s.io/v1alpha2"
    metadata = {"name": "j", "namespace": "team-a"}
    return {
        "apiVersion": version,
        "kind": "JobSet",
        "metadata": metadata,
        "spec": {"replicatedJobs": jobs},
    }


@pytest.mark.parametrize("name", ["jobsets.v1alpha2.jobset.x-k8s.io", "jobsets"])
def test_it_stands_for_the_templates_of_a_custom_controller_that_it_names(name):
    policy = kyverno(
        validations=[{"expression": "object.spec.containers.all(c, c.name != 'b')"}],
        autogen={"podControllers": {"controllers": [name]}},
    )

    assert decide(job_set("a", "b"), policy).denials
    assert decide(job_set("a", "a"), policy).allowed
    assert decide(job_set("b"), kyverno(validations=[{"expression": "false"}])).allowed


@pytest.mark.parametrize("name", ["deployment", "things.v1.example.com", "jobsets.v1.example.com"])
def test_a_controller_whose_pods_are_not_known_is_named(name):
    controllers = ["jobs", name]
    policy = kyverno(
        validations=[{"expression": "false"}],
        autogen={"podControllers": {"controllers": controllers}},
    )
    (finding,) = load(policy).findings

    assert finding.severity == "warning"
    assert f"where `{name}` has pods" in finding.message


@pytest.mark.parametrize(
    "metadata",
    [
        pytest.param({"labels": {}}, id="of-labels"),
        pytest.param({"name": "other", "namespace": "other"}, id="of-another-name"),
    ],
)
def test_a_template_goes_by_the_name_of_its_object_which_keeps_its_kind(metadata):
    name, namespace = job()["metadata"]["name"], "team-a"
    expression = f"object.metadata.namespace == '{namespace}' && object.kind == 'Job'"
    expression += f" && object.metadata.name == '{name}'"
    obj = job()
    obj["spec"]["template"]["metadata"] = metadata

    assert decide(obj, kyverno(validations=[{"expression": expression}])).allowed


@pytest.mark.parametrize(
    ("metadata", "expected"),
    [
        pytest.param({"labels": {"b": "c"}}, {"labels": {"b": "c", "x": "y"}}, id="of-labels"),
        pytest.param({"name": "own"}, {"name": "own", "labels": {"x": "y"}}, id="with-a-name"),
        pytest.param(None, {"labels": {"x": "y"}}, id="without"),
    ],
)
def test_a_changed_template_does_not_get_the_name_of_its_object(metadata, expected):
    expression = "Object{metadata: Object.metadata{labels: {'x': 'y'}}}"
    mutation = {
        "patchType": "ApplyConfiguration",
        "applyConfiguration": {"expression": expression},
    }
    obj = job()
    obj["spec"]["template"].pop("metadata", None)
    obj["spec"]["template"] |= {} if metadata is None else {"metadata": metadata}
    decision = decide(obj, kyverno("MutatingPolicy", mutations=[mutation]))

    result = apply_json_patch(obj, decision.operations)
    assert result["spec"]["template"]["metadata"] == expected


def test_an_error_in_a_template_says_the_expression_as_it_is_written():
    decision = decide(job(), kyverno(validations=[{"expression": "object.spec.nothing == 1"}]))

    wanted = "expression 'object.spec.nothing == 1' resulted in error: no such key: nothing"
    assert decision.denials[0].message == wanted


APPLY = "Object{spec: Object.spec{containers: object.spec.containers.map(c,"
APPLY += " Object.spec.containers{name: c.name, image: 'x'})}}"


@pytest.mark.parametrize(
    "mutation",
    [
        pytest.param(
            {"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": APPLY}},
            id="apply",
        ),
        pytest.param(
            {
                "patchType": "JSONPatch",
                "jsonPatch": {
                    "expression": "[JSONPatch{op: 'add', path: '/spec/containers/0/image',"
                    " value: 'x'}]"
                },
            },
            id="json-patch",
        ),
    ],
)
def test_a_mutation_of_pods_changes_templates(mutation):
    policy = kyverno("MutatingPolicy", mutations=[mutation])
    decision = decide(CRON_JOB, policy)
    result = apply_json_patch(CRON_JOB, decision.operations)

    (container,) = result["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"]
    assert container == {"name": "main", "image": "x"}
    assert [o.path.rpartition("/")[2] for o in decision.operations] == ["image"]


def labelled_by(name, label, **constraints):
    expression = f"Object{{metadata: Object.metadata{{labels: {{'{label}': 'yes'}}}}}}"
    mutation = {
        "patchType": "ApplyConfiguration",
        "applyConfiguration": {"expression": expression},
    }
    more = {"metadata": {"name": name}, "matchConstraints": constraints}
    return kyverno("MutatingPolicy", mutations=[mutation], **more)


@pytest.mark.parametrize(
    ("first", "labels"),
    [
        pytest.param("a", {"first": "yes", "second": "yes"}, id="before"),
        pytest.param("c", {"first": "yes"}, id="after"),
    ],
)
def test_a_selector_sees_what_the_policies_before_have_changed(first, labels):
    selector = {"matchLabels": {"first": "yes"}}
    policies = labelled_by(first, "first"), labelled_by("b", "second", objectSelector=selector)

    decision = decide(pod(), *policies)

    assert apply_json_patch(pod(), decision.operations)["metadata"]["labels"] == labels


def test_mutations_see_empty_objects_that_the_ones_before_made():
    policy = kyverno(
        "MutatingPolicy",
        mutations=[
            {"patchType": "JSONPatch", "jsonPatch": {"expression": f"[JSONPatch{{{operation}}}]"}}
            for operation in (
                "op: 'add', path: '/metadata/annotations', value: {}",
                "op: 'add', path: '/metadata/annotations/a', value: 'b'",
            )
        ],
    )
    loaded = load(policy)
    decision = PolicySet(loaded.policies, namespaces=namespace_lookup((), {})).mutate(
        request(pod())
    )

    assert apply_json_patch(pod(), decision.operations)["metadata"]["annotations"] == {"a": "b"}


def exception(kind="ValidatingPolicy", **spec):
    return {
        "apiVersion": "policies.kyverno.io/v1",
        "kind": "PolicyException",
        "metadata": {"name": "e"},
        "spec": {"policyRefs": [{"name": "p", "kind": kind}], **spec},
    }


@pytest.mark.parametrize(
    ("now", "allowed"),
    [
        pytest.param(lambda: 1_801_440_000.0, True, id="at-its-end"),
        pytest.param(lambda: 1_801_440_000.5, False, id="after"),
        pytest.param(None, False, id="without-a-clock"),
    ],
)
def test_an_exception_expires(now, allowed):
    given = exception(expiresAt="2027-02-01T00:00:00Z", properties={"ticket": "INC-1"})
    policy = kyverno(validations=[{"expression": "false"}])

    assert decide(pod(), policy, given, now=now).allowed is allowed


@pytest.mark.parametrize(
    "condition",
    [
        pytest.param("object.metadata.name == 'nightly'", id="by-the-controller-s-name"),
        pytest.param("object.spec.containers.exists(c, c.name == 'main')", id="by-its-pods"),
    ],
)
def test_an_exception_holds_for_the_controllers_of_pods(condition):
    given = exception(matchConditions=[{"name": "c", "expression": condition}])

    assert decide(CRON_JOB, kyverno(validations=[{"expression": "false"}]), given).allowed


@pytest.mark.parametrize(
    "spec",
    [
        pytest.param({"validations": [{"expression": "false"}]}, id="validations"),
        pytest.param({"matchCondition": []}, id="misspelt"),
        pytest.param(
            {"policyRefs": [{"name": "p", "validationAction": "Audit"}]}, id="action-of-a-policy"
        ),
    ],
)
def test_an_exception_that_is_not_understood_exempts_from_nothing(spec):
    loaded = load(exception(**spec))

    assert loaded.exceptions == ()
    assert [f.severity for f in loaded.findings] == ["error"]


@pytest.mark.parametrize(
    ("condition", "allowed"),
    [
        pytest.param("object.metadata.namespace == 'team-a'", True, id="applies"),
        pytest.param("object.metadata.namespace == 'team-b'", False, id="does-not"),
    ],
)
def test_an_exception_exempts_from_the_policies_it_names(condition, allowed):
    given = exception(matchConditions=[{"name": "c", "expression": condition}])
    decision = decide(pod(), kyverno(validations=[{"expression": "false"}]), given)

    assert decision.allowed is allowed
    assert decision.audit_annotations.get("lifted-by") == ("p: e" if allowed else None)


def test_an_exception_may_hand_over_what_is_to_be_allowed():
    expression = "object.spec.containers.all(c, c.name in exceptions.allowedValues)"
    policy = kyverno(validations=[{"expression": expression}])

    assert not decide(pod(), policy).allowed
    assert decide(pod(), policy, exception(allowedValues=["main"])).allowed


def test_mutations_see_what_an_exception_hands_over():
    label = (
        "Object{metadata: Object.metadata{labels: {'%s': string(size(exceptions.allowedImages))}}}"
    )
    mutations = [
        {"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": label % name}}
        for name in ("first", "second")
    ]
    policy = kyverno("MutatingPolicy", mutations=mutations)
    decision = decide(pod(), policy, exception("MutatingPolicy", images=["a", "b"]))

    result = apply_json_patch(pod(), decision.operations)
    assert result["metadata"]["labels"] == {"first": "2", "second": "2"}


@pytest.mark.parametrize(
    ("value", "changed"), [pytest.param("a", True, id="true"), pytest.param("b", False, id="false")]
)
def test_match_conditions_of_kyverno_see_the_policy_s_variables(value, changed):
    label = "Object{metadata: Object.metadata{labels: {'x': variables.name}}}"
    policy = kyverno(
        "MutatingPolicy",
        variables=[
            {"name": "name", "expression": "object.metadata.name"},
            {"name": "same", "expression": f"variables.name == '{value}'"},
        ],
        matchConditions=[{"name": "c", "expression": "variables.same"}],
        mutations=[
            {"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": label}}
        ],
    )

    assert bool(decide(pod(), policy).operations) is changed


def test_a_cluster_policy_may_read_permissions_of_users():
    asked = "authorizer.group('').resource('pods').check('delete').allowed()"

    assert not decide(pod(), cluster_policy(asked)).allowed


def test_a_validation_may_have_a_name_for_reports():
    assert decide(pod(), kyverno(validations=[{"expression": "true", "identifier": "a"}])).allowed


@pytest.mark.parametrize(
    ("rules", "obj", "lifted"),
    [
        pytest.param(["r"], pod(), True, id="of-pods"),
        pytest.param(["r"], job(), False, id="not-of-their-controllers"),
        pytest.param(["autogen-r"], job(), True, id="of-controllers"),
        pytest.param(["autogen-r"], CRON_JOB, False, id="cron-jobs-have-their-own"),
        pytest.param(["*"], CRON_JOB, True, id="of-all"),
        pytest.param(["other"], pod(), False, id="another-rule"),
    ],
)
def test_an_older_exception_exempts_from_rules_of_cluster_policies(rules, obj, lifted):
    exception = {
        "apiVersion": "kyverno.io/v2",
        "kind": "PolicyException",
        "metadata": {"name": "e"},
        "spec": {
            "exceptions": [{"policyName": "p", "ruleNames": rules}],
            "match": {"any": [{"resources": {"kinds": ["Pod", "Job", "CronJob"]}}]},
        },
    }

    assert decide(obj, cluster_policy("false"), exception).allowed is lifted


@pytest.mark.parametrize("field", ["conditions", "podSecurity"])
def test_an_older_exception_that_is_not_cel_is_refused(field):
    spec = {"exceptions": [{"policyName": "p"}], "match": {}, field: {"any": []}}
    exception = {"apiVersion": "kyverno.io/v2", "kind": "PolicyException", "spec": spec}
    (finding,) = load(exception | {"metadata": {"name": "e"}}).findings

    assert finding.message == f"this PolicyException is not CEL: its `{field}` cannot be asked"


TEAM = {"metadata": {"name": "team-a", "labels": {"tier": "gold"}}}


def picked(match=None, exclude=None, obj=None):
    """Whether a ClusterPolicy refuses an object in a namespace of tier gold."""
    (policy,) = load(cluster_policy("false", match=match, exclude=exclude)).policies
    asked = PolicySet([policy], namespaces=lambda name: TEAM)
    return not asked.validate(request(obj or pod(labels={"app.io/name": "web-1"}))).allowed


@pytest.mark.parametrize(
    ("resources", "expected"),
    [
        pytest.param({"kinds": ["v1/Deployment"]}, True, id="version-of-any-group"),
        pytest.param({"kinds": ["v2/Deployment"]}, False, id="other-version"),
        pytest.param({"kinds": ["*"]}, True, id="anything"),
        pytest.param({"kinds": ["*/*"]}, True, id="anything-with-subresources"),
        pytest.param({"kinds": ["*/scale"]}, False, id="subresource-of-anything"),
        pytest.param(
            {"kinds": ["*"], "selector": {"matchLabels": {"app.io/*": "web-?"}}},
            True,
            id="labels-by-pattern",
        ),
        pytest.param(
            {"kinds": ["*"], "selector": {"matchLabels": {"app.io/*": "db-?"}}},
            False,
            id="other-labels",
        ),
        pytest.param(
            {"kinds": ["*"], "namespaceSelector": {"matchLabels": {"tier": "g*"}}},
            True,
            id="labels-of-the-namespace",
        ),
    ],
)
def test_kinds_and_labels_are_named_in_kyverno_s_ways(resources, expected):
    labels = {"app.io/name": "web-1"}
    metadata = {"name": "web", "namespace": "team-a", "labels": labels}
    obj = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata}

    assert picked({"any": [{"resources": resources}]}, obj=obj) is expected


def test_annotations_that_are_none_are_not_picked():
    match = {"any": [{"resources": {"kinds": ["Pod"], "annotations": {"a": "*"}}}]}

    assert decide(pod(annotations=5), cluster_policy("false", match=match)).allowed


@pytest.mark.parametrize("kind", ["Namespace", "Node"])
def test_cluster_objects_have_no_namespace_for_a_selector(kind):
    wanted = {"kinds": [kind], "namespaceSelector": {"matchLabels": {"tier": "gold"}}}
    obj = {"apiVersion": "v1", "kind": kind, "metadata": {"name": "a", **TEAM["metadata"]}}

    assert not picked({"any": [{"resources": wanted}]}, obj=obj)


def test_a_service_account_may_be_named_by_a_pattern():
    subject = {"kind": "ServiceAccount", "name": "*", "namespace": "ci"}
    policy = cluster_policy("false", exclude={"any": [{"subjects": [subject]}]})

    assert decide(pod(), policy, user="system:serviceaccount:ci:bot").allowed
    assert not decide(pod(), policy, user="system:serviceaccount:cd:bot").allowed


FLUX = {"any": [{"resources": {"namespaces": ["team-*"]}}]}


@pytest.mark.parametrize(
    ("match", "exclude", "denied"),
    [
        pytest.param({"any": [{"resources": {"kinds": ["v1/Pod"]}}]}, None, True, id="kind"),
        pytest.param({"any": [{"resources": {"kinds": ["apps/*/Pod"]}}]}, None, False, id="group"),
        pytest.param({"any": [{"resources": {"kinds": ["P?d"]}}]}, None, True, id="pattern"),
        pytest.param({"any": [{"resources": {"kinds": ["P*"]}}]}, None, True, id="beginning"),
        pytest.param({"any": [{"resources": {"kinds": ["Job*"]}}]}, None, False, id="another"),
        pytest.param(
            {"any": [{"resources": {"kinds": ["*"]}}]},
            {"any": [{"resources": {"kinds": ["*od"]}}]},
            False,
            id="excluded-pattern",
        ),
        pytest.param(None, FLUX, False, id="excluded-namespace"),
        pytest.param(None, {"any": [{"clusterRoles": ["admin"]}]}, True, id="roles-are-not-known"),
        pytest.param(
            None,
            {"any": [{"subjects": [{"kind": "User", "name": "someone"}]}]},
            False,
            id="excluded-user",
        ),
        pytest.param(
            {"all": [{"resources": {"kinds": ["Pod"]}}, {"resources": {"names": ["b*"]}}]},
            None,
            False,
            id="all-must-match",
        ),
        pytest.param(
            {"any": [{"resources": {"kinds": ["Pod"], "names": ["?"]}}]}, None, True, id="name"
        ),
    ],
)
def test_a_cluster_policy_matches_the_objects_of_its_blocks(match, exclude, denied):
    decision = decide(pod(), cluster_policy("false", match=match, exclude=exclude))

    assert bool(decision.denials) is denied


def test_a_rule_for_those_who_have_a_role_is_not_passed_over():
    match = {"any": [{"resources": {"kinds": ["Pod"]}, "clusterRoles": ["dev"]}]}

    (finding,) = load(cluster_policy("false", match=match)).findings

    assert "matches users by their roles" in finding.message
    assert finding.severity == "error"


@pytest.mark.parametrize(
    ("annotation", "denied"),
    [
        pytest.param(None, True, id="all"),
        pytest.param("none", False, id="none"),
        pytest.param("Deployment,Job", True, id="named"),
        pytest.param("Deployment", False, id="another"),
    ],
)
def test_a_cluster_policy_says_by_annotation_which_controllers_it_is_for(annotation, denied):
    key = "pod-policies.kyverno.io/autogen-controllers"
    metadata = {} if annotation is None else {"annotations": {key: annotation}}

    assert bool(decide(job(), cluster_policy(NAMED, metadata=metadata)).denials) is denied


@pytest.mark.parametrize(
    ("blocks", "denied"),
    [
        pytest.param({"exclude": {"any": [{"resources": {"namespaces": ["x"]}}]}}, True, id="yes"),
        pytest.param(
            {"match": {"any": [{"resources": {"kinds": ["Pod"], "annotations": {"a": "b"}}}]}},
            False,
            id="annotations",
        ),
        pytest.param(
            {"exclude": {"any": [{"resources": {"kinds": ["Service"]}}]}}, False, id="other-kinds"
        ),
        pytest.param({"name": "autogen-r"}, False, id="extended-by-hand"),
    ],
)
def test_a_cluster_policy_is_extended_where_kyverno_would(blocks, denied):
    assert bool(decide(job(), cluster_policy("false", **blocks)).denials) is denied


def test_one_rule_that_cannot_be_extended_keeps_the_others_from_it():
    policy = cluster_policy("false")
    named = cluster_policy("true", match={"any": [{"resources": {"kinds": ["Pod"], "name": "b"}}]})
    policy["spec"]["rules"].append(named["spec"]["rules"][0] | {"name": "other"})

    assert decide(job(), policy).allowed
    assert not decide(pod(), policy).allowed


def test_a_cluster_policy_is_extended_to_replication_controllers():
    controller = job() | {"apiVersion": "v1", "kind": "ReplicationController"}

    assert not decide(controller, cluster_policy(NAMED)).allowed
    assert decide(controller, kyverno(validations=[{"expression": NAMED}])).allowed


@pytest.mark.parametrize(
    ("override", "denied"),
    [
        pytest.param({"namespaces": ["team-*"]}, False, id="namespace"),
        pytest.param({"namespaces": ["other"]}, True, id="other-namespace"),
        pytest.param({"namespaceSelector": {"matchLabels": {"tier": "gold"}}}, False, id="labels"),
        pytest.param({"namespaces": ["other"], "namespaceSelector": {}}, True, id="both-must-hold"),
    ],
)
def test_the_effect_of_a_violation_may_depend_on_the_namespace(override, denied):
    policy = cluster_policy("false")
    policy["spec"]["validationFailureActionOverrides"] = [{"action": "Audit", **override}]
    (loaded,) = load(policy).policies
    decision = PolicySet([loaded], namespaces=lambda name: TEAM).validate(request(pod()))

    assert bool(decision.denials) is denied
    assert len(decision.objections) == 1


def test_a_policy_that_refuses_somewhere_is_one_that_refuses():
    policy = cluster_policy("false")
    override = {"action": "Enforce", "namespaces": ["other"]}
    policy["spec"] |= {
        "validationFailureAction": "Audit",
        "validationFailureActionOverrides": [override],
    }
    (loaded,) = load(policy).policies

    assert loaded.bindings[0].actions == ("Deny",)
    assert decide(pod(), policy).allowed


def test_a_violation_that_is_only_noted_may_be_a_warning_too():
    policy = cluster_policy("false")
    policy["spec"] |= {"validationFailureAction": "Audit", "emitWarning": True}
    decision = decide(pod(), policy)

    assert decision.allowed
    assert len(decision.warnings) == 1


@pytest.mark.parametrize("where", ["failurePolicy", "webhookConfiguration"])
def test_a_cluster_policy_that_fails_does_as_it_says(where):
    policy = cluster_policy("object.spec.nothing == 1")
    ignore = "Ignore" if where == "failurePolicy" else {"failurePolicy": "Ignore"}
    policy["spec"][where] = ignore

    assert decide(pod(), policy).allowed


def test_a_policy_without_a_namespace_is_of_the_default_one():
    policy = cluster_policy("false") | {"kind": "Policy"}

    assert decide(pod(), policy).allowed
    (denial,) = decide(pod(namespace="default"), policy).denials
    assert str(denial) == "kyverno.io/Policy 'p' denied request: failed expression: false"


@pytest.mark.parametrize(
    ("spec", "message", "used"),
    [
        pytest.param({"admission": False}, "the policy is not for admission", False, id="scans"),
        pytest.param({"applyRules": "One"}, "all rules are evaluated", True, id="first-rule"),
        pytest.param(
            {"webhookConfiguration": {"matchConditions": [{"name": "a", "expression": "false"}]}},
            "conditions of Kyverno's webhook are not evaluated",
            True,
            id="conditions",
        ),
    ],
)
def test_unsupported_parts_of_a_cluster_policy_are_reported(spec, message, used):
    policy = cluster_policy("true")
    policy["spec"] |= spec
    loaded = load(policy)

    assert [f.severity for f in loaded.findings] == ["warning"]
    assert message in loaded.findings[0].message
    assert bool(loaded.policies) is used


def test_preconditions_and_the_message_of_the_rule_count():
    policy = cluster_policy(
        "false",
        celPreconditions=[{"name": "c", "expression": "object.metadata.name == 'a'"}],
    )
    policy["spec"]["rules"][0]["validate"]["message"] = "the rule's"

    assert [d.message for d in decide(pod(), policy).denials] == ["the rule's"]
    assert decide(pod(name="b"), policy).allowed


def test_a_finding_points_into_the_rule():
    (finding,) = load(cluster_policy("objct.x == 1")).findings

    assert finding.field == "spec.rules[0].validate.cel.expressions[0].expression"


@pytest.mark.parametrize(
    ("document", "message"),
    [
        pytest.param(
            kyverno("ClusterCleanupPolicy", group="kyverno.io/v2"), "deletes objects", id="clean-up"
        ),
        pytest.param(kyverno("ImageValidatingPolicy"), "verifies images", id="images"),
        pytest.param(
            kyverno("ValidatingPolicy", evaluation={"mode": "JSON"}), "for any JSON", id="json"
        ),
        pytest.param(
            kyverno("ValidatingPolicy", evaluation={"mode": "HTTP"}), "for HTTP requests", id="http"
        ),
        pytest.param(
            kyverno(
                "MutatingPolicy", mutations=[], targetMatchConstraints={"resourceRules": [RULE]}
            ),
            "targets are mutated only with `mutateExisting`",
            id="existing",
        ),
        pytest.param(
            cluster_policy(validate={"pattern": {"spec": {}}}), "validates by patterns", id="old"
        ),
        pytest.param(
            cluster_policy(generate={"kind": "ConfigMap"}), "generates objects", id="old-generate"
        ),
    ],
)
def test_unsupported_features_are_refused_in_a_sentence(document, message):
    loaded = load(document)

    assert loaded.policies == ()
    assert message in loaded.findings[0].message


@pytest.mark.parametrize(
    ("version", "kind", "message", "hint"),
    [
        pytest.param(
            *("policies.kyverno.io/v9", "ValidatingPolicy"),
            *("version `v9` of policies.kyverno.io not found", "v1alpha1"),
            id="version",
        ),
        pytest.param(
            *("kyverno.io/v1", "MutatingPolicy"),
            *("`MutatingPolicy` is not of kyverno.io", "policies.kyverno.io/v1"),
            id="group",
        ),
        pytest.param(
            *("policies.kyverno.io/v1", "ValidatngPolicy"),
            *("unknown kind `ValidatngPolicy`", "did you mean `ValidatingPolicy`?"),
            id="misspelt",
        ),
        pytest.param(
            *("policies.kyverno.io/v1", "Whatever", "unknown kind `Whatever`", None), id="kind"
        ),
    ],
)
def test_features_that_kyverno_lacks_are_reported(version, kind, message, hint):
    (finding,) = load({"apiVersion": version, "kind": kind, "metadata": {"name": "p"}}).findings

    assert finding.message == message
    assert (hint or "") in (finding.hint or "")


def test_other_kinds_of_kyverno_s_are_passed_over():
    entry = {"apiVersion": "kyverno.io/v2alpha1", "kind": "GlobalContextEntry", "metadata": {}}

    assert load(entry).findings == ()


def test_a_policy_that_does_nothing_is_doubtful():
    (loaded,) = load(kyverno()).policies

    assert "it has neither validations nor mutations" in next(lint(loaded)).message


@pytest.mark.parametrize("given", [{"matchConstraints": {"resourceRules": []}}, {}])
@pytest.mark.parametrize("kind", ["ValidatingPolicy", "NamespacedValidatingPolicy"])
def test_a_policy_that_matches_nothing_is_refused_and_concerns_no_request(kind, given):
    policy = kyverno(kind)
    policy["spec"] = {"validations": [{"expression": "false"}], **given}

    loaded = load(policy)

    (finding,) = loaded.findings
    assert "a matchConstraints with at least one resource rule is required" in finding.message
    assert (finding.field, finding.rule) == ("spec.matchConstraints", "refused")
    assert (loaded.policies, loaded.placeholders) == ((), ())


@pytest.mark.parametrize(
    ("evaluation", "refused"),
    [
        pytest.param({"admission": {"enabled": False}}, True, id="by-default"),
        pytest.param(
            {"admission": {"enabled": False}, "mutateExisting": {"enabled": False}}, True, id="both"
        ),
        pytest.param({"mutateExisting": {"enabled": False}}, False, id="admission"),
    ],
)
def test_a_mutation_that_is_never_evaluated_is_refused(evaluation, refused):
    expression = "[JSONPatch{op: 'test', path: '/a', value: 'b'}]"
    mutation = {"patchType": "JSONPatch", "jsonPatch": {"expression": expression}}

    findings = load(kyverno("MutatingPolicy", mutations=[mutation], evaluation=evaluation)).findings

    assert [each.rule for each in findings] == (["refused"] if refused else [])


def test_a_validation_that_is_for_existing_objects_alone_is_not_refused():
    evaluation = {"admission": {"enabled": False}}

    (finding,) = load(kyverno(evaluation=evaluation)).findings

    assert (finding.severity, finding.rule) == ("warning", "policy")


def test_background_requests_are_a_known_setting():
    evaluation = {"skipBackgroundRequests": False, "background": {"enabled": True}}
    policy = kyverno(validations=[{"expression": "false"}], evaluation=evaluation)

    assert decide(pod(), policy).denials


@pytest.mark.parametrize(
    ("resources", "denied"),
    [
        pytest.param({"kinds": ["Pod"]}, True, id="all"),
        pytest.param({"kinds": ["Pod"], "operations": ["CREATE", "UPDATE"]}, False, id="named"),
    ],
)
def test_a_rule_without_operations_concerns_deletions(resources, denied):
    policy = cluster_policy("false", match={"any": [{"resources": resources}]})
    loaded = load(policy)
    surroundings = PolicyContext(namespaces=namespace_lookup((), {}), typed=False)

    decision = PolicySet(loaded.policies, surroundings=surroundings).review(
        request(pod(), operation="DELETE")
    )

    assert bool(decision.denials) is denied


def test_unavailable_data_is_not_a_doubt():
    expression = "Object{metadata: Object.metadata{labels: {'a': image.GetMetadata('b').c}}}"
    mutation = {"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": expression}}
    (policy,) = load(kyverno("MutatingPolicy", mutations=[mutation])).policies

    assert list(lint(policy)) == []


@pytest.mark.parametrize(
    ("kind", "used"), [("ValidatingPolicy", True), ("NamespacedValidatingPolicy", False)]
)
def test_a_policy_of_a_namespace_cannot_call_by_http(kind, used):
    expression = "http.Get('https://a').body.ok == true"
    loaded = load(kyverno(kind, validations=[{"expression": expression}]))

    assert bool(loaded.policies) is used
    assert [f.field for f in loaded.findings] == ([] if used else ["kind"])


def test_a_policy_that_is_not_for_admission_is_not_used():
    loaded = load(
        kyverno(validations=[{"expression": "true"}], evaluation={"admission": {"enabled": False}})
    )

    assert loaded.policies == ()
    assert loaded.findings[0].severity == "warning"


class Cluster:
    def get(self, api_version, resource, namespace, name):
        return {"data": {"allowed": "a"}}


READING = kyverno(
    validations=[
        {
            "expression": "object.metadata.name =="
            " resource.Get('v1', 'configmaps', 'x', 'y').data.allowed"
        }
    ]
)


def test_the_cluster_is_read_if_it_is_given_and_refused_with_a_word_if_not():
    given = kyverno_values(resources=Cluster())

    assert decide(pod(), READING, extra=given).allowed
    assert "needs a cluster to read from" in decide(pod(), READING).denials[0].message


def test_the_time_is_what_the_caller_says():
    policy = kyverno(validations=[{"expression": "time.now() > timestamp('2026-01-01T00:00:00Z')"}])
    later = Volatile(now=lambda: 1_800_000_000 * 10**9)

    assert decide(pod(), policy, volatile=later).allowed


OF_OTHER = [{"name": "c", "expression": "namespaceObject.metadata.name == 'other'"}]


@pytest.mark.parametrize(
    ("policy", "allowed"),
    [
        pytest.param(
            kyverno(validations=[{"expression": "false"}], matchConditions=OF_OTHER),
            True,
            id="by-its-own-code",
        ),
        pytest.param(
            cluster_policy("false", celPreconditions=OF_OTHER), False, id="by-the-api-server-s"
        ),
    ],
)
def test_match_conditions_see_the_namespace_where_kyverno_shows_it(policy, allowed):
    assert decide(pod(), policy).allowed is allowed


def test_a_namespaced_policy_keeps_to_its_namespace():
    def named(namespace):
        return kyverno(
            "NamespacedValidatingPolicy",
            validations=[{"expression": "false"}],
            metadata={"namespace": namespace},
        )

    assert not decide(pod(), named("team-a")).allowed
    assert decide(pod(), named("team-b")).allowed
