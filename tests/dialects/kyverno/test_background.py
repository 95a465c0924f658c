"""Kyverno's policies that generate and delete are read, and say what they would do."""

import pytest
import yaml

from policyd.dialects.kyverno.declared import declared_values
from policyd.dialects.registry import EVERY_FORMAT
from policyd.engine.background.acting import ActingPolicies, with_exceptions
from policyd.engine.background.evaluation import scope_of
from policyd.engine.compile.load import load_policies
from policyd.engine.model.surroundings import PolicyContext
from policyd.engine.offline.requests import RequestCircumstances, namespace_lookup, request_for

NAMESPACES = {
    "apiGroups": [""],
    "apiVersions": ["v1"],
    "operations": ["CREATE", "UPDATE"],
    "resources": ["namespaces"],
}
PODS = {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}
TEAM = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team-a"}}
POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "idle", "namespace": "team-a", "labels": {"idle": "true"}},
    "spec": {"containers": [{"name": "a", "image": "a"}]},
}
SECRET = {
    "apiVersion": "v1",
    "kind": "Secret",
    "metadata": {
        "name": "pull",
        "namespace": "default",
        "uid": "1",
        "resourceVersion": "7",
        "managedFields": [{}],
        "ownerReferences": [{"kind": "Vault"}],
        "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "{}", "team": "a"},
    },
    "data": {"a": "Yg=="},
}


def policy(kind="GeneratingPolicy", *, rule=NAMESPACES, name="p", **spec):
    namespace = {"namespace": "team-a"} if kind.startswith("Namespaced") else {}
    return {
        "apiVersion": "policies.kyverno.io/v1",
        "kind": kind,
        "metadata": {"name": name, **namespace},
        "spec": {"matchConstraints": {"resourceRules": [rule]}, **spec},
    }


def generating(*expressions, **spec):
    return policy(generate=[{"expression": each} for each in expressions], **spec)


def map_in(namespace="object.metadata.name", name="'made'", **fields):
    more = "".join(f', "{key}": dyn({value})' for key, value in fields.items())
    kind = '"apiVersion": "v1", "kind": "ConfigMap"'
    made = f'{{{kind}, "metadata": {{"name": {name}}}{more}}}'
    return f"generator.Apply({namespace}, [{made}])"


def load(*documents):
    return load_policies(yaml.safe_dump_all(documents), "p.yaml", EVERY_FORMAT)


def acting(*documents, objects=(), custom=None):
    loaded = load(*documents)
    assert not loaded.findings, "\n".join(map(str, loaded.findings))
    assert not loaded.policies
    context = PolicyContext(
        namespaces=namespace_lookup((), {}), written=True, extra=declared_values(objects)
    )
    return ActingPolicies(
        with_exceptions(loaded.background, loaded.exceptions), context, scope_of(custom or {})
    )


def sent(obj, operation="CREATE"):
    return request_for(obj, RequestCircumstances(operation=operation))


def generated(obj, *documents, **given):
    (found,) = acting(*documents, **given).generated(sent(obj))
    return found.result


def deleted(obj, *documents, **given):
    (found,) = acting(*documents, **given).deleted(sent(obj))
    return found.result


def test_an_expression_generates_objects_into_the_namespace_it_names():
    result = generated(TEAM, generating(map_in(data="{'a': 'b'}")))

    assert result.outcome == "matched"
    assert result.objects == (
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "made", "namespace": "team-a"},
            "data": {"a": "b"},
        },
    )


def test_variables_loops_and_several_entries_generate_in_order():
    looping = f"variables.names.all(n, {map_in(name='n')})"
    spec = {"variables": [{"name": "names", "expression": "['a', 'b']"}]}
    result = generated(TEAM, generating(looping, map_in(name="'c'"), **spec))

    assert [obj["metadata"]["name"] for obj in result.objects] == ["a", "b", "c"]


def test_a_clone_leaves_behind_what_belongs_to_its_source():
    clone = (
        "generator.apply(object.metadata.name, [resource.Get('v1', 'secrets', 'default', 'pull')])"
    )
    result = generated(TEAM, generating(clone), objects=[SECRET])

    (made,) = result.objects
    assert made["metadata"] == {
        "name": "pull",
        "namespace": "team-a",
        "annotations": {"team": "a"},
    }
    assert made["data"] == SECRET["data"]


def test_a_list_of_sources_is_cloned_one_by_one():
    second = {**SECRET, "metadata": {"name": "other", "namespace": "default"}}
    clones = "generator.apply(object.metadata.name, [resource.List('v1', 'secrets', 'default')])"
    result = generated(TEAM, generating(clones), objects=[SECRET, second])

    assert [obj["metadata"]["name"] for obj in result.objects] == ["pull", "other"]


def test_objects_of_the_cluster_lose_their_namespace():
    role = (
        "generator.Apply(object.metadata.name, [{'apiVersion': dyn('rbac.authorization.k8s.io/v1'),"
        " 'kind': dyn('ClusterRole'), 'metadata': dyn({'name': 'r'})}])"
    )

    assert generated(TEAM, generating(role)).objects[0]["metadata"] == {"name": "r"}


@pytest.mark.parametrize(
    ("expression", "error"),
    [
        pytest.param(
            "generator.Apply('x', [resource.Get('v1', 'secrets', 'default', 'none')])",
            "the source of a generated object does not exist",
            id="no-source",
        ),
        pytest.param(
            "generator.Apply('x', [{'kind': 'ConfigMap'}])", "no `apiVersion`", id="no-version"
        ),
        pytest.param(map_in(name="object.metadata.none"), "no such key: none", id="no-field"),
        pytest.param(
            f"lists.range(101).all(i, {map_in(name='string(i)')})",
            "more than 100 objects are generated for one trigger",
            id="many",
        ),
        pytest.param(
            f"true || lists.range(101).all(i, {map_in(name='string(i)')})", "", id="not-evaluated"
        ),
        pytest.param(
            f"lists.range(101).all(i, {map_in(name='string(i)')}) || true",
            "more than 100 objects are generated for one trigger",
            id="an-absorbed-error-counts",
        ),
        pytest.param(
            "generator.Apply('x', [resource.Get('v1', 'configmaps', 'default', 'huge')])",
            "more than 1,048,576 bytes",
            id="large",
        ),
    ],
)
def test_what_cannot_be_generated_is_an_error_and_generates_nothing(expression, error):
    huge = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "huge", "namespace": "default"},
        "data": {"a": "x" * 2**20},
    }
    result = generated(TEAM, generating(expression), objects=[huge])

    assert result.objects == ()
    assert error in result.error
    assert result.outcome == ("failed" if error else "matched")


TEMPLATE = """\
apiVersion: v1
kind: ConfigMap
metadata:
  name: (( object.metadata.name ))-config
  namespace: (( object.metadata.name ))
  labels: "(( {'team': object.metadata.name} ))"
data:
  sum: (( 1 + 2 )) and (( 1.5 )), (( true ))
  brackets: \\((as they are))
  text: (( ")) (" + ' (' ))
---
apiVersion: v1
kind: ConfigMap
metadata: {name: second, namespace: other}
"""


def test_a_template_is_filled_in():
    template = {"template": {"interpolate": "cel", "value": TEMPLATE}}
    first, second = generated(TEAM, policy(generate=[template])).objects

    assert first["metadata"] == {
        "name": "team-a-config",
        "namespace": "team-a",
        "labels": {"team": "team-a"},
    }
    assert first["data"] == {
        "sum": "3 and 1.5, true",
        "brackets": "((as they are))",
        "text": ")) ( (",
    }
    assert second["metadata"] == {"name": "second", "namespace": "other"}


def test_a_template_repeats_no_text_without_end():
    template = {
        "interpolate": "cel",
        "value": TEMPLATE + "data:\n  a: " + "(( object.metadata.labels.a ))" * 900,
    }
    large = {**TEAM, "metadata": {"name": "team-a", "labels": {"a": "x" * 1_000_000}}}
    filled = generated(large, policy(generate=[{"template": template}]))

    assert filled.outcome == "failed"
    assert "cost limit exceeded" in filled.error


def test_a_template_takes_no_value_that_has_itself_in_it_many_times():
    nested = [
        {"name": "a0", "expression": "['x', 'x', 'x', 'x', 'x', 'x', 'x', 'x', 'x', 'x']"},
        *(
            {"name": f"a{n}", "expression": f"[{', '.join([f'variables.a{n - 1}'] * 10)}]"}
            for n in range(1, 8)
        ),
    ]
    template = {"interpolate": "cel", "value": TEMPLATE + "data: (( variables.a7 ))"}
    filled = generated(TEAM, policy(generate=[{"template": template}], variables=nested))

    assert filled.outcome == "failed"
    assert "cost limit exceeded" in filled.error


def test_a_template_without_interpolation_stays_as_it_is():
    template = {"template": {"value": TEMPLATE}}
    first, _ = generated(TEAM, policy(generate=[template])).objects

    assert first["metadata"]["name"] == "(( object.metadata.name ))-config"


@pytest.mark.parametrize(
    ("value", "message"),
    [
        pytest.param("a: (( nothing ))", "undeclared reference", id="unknown-variable"),
        pytest.param("a: (( 1", "does not end in `))`", id="no-end"),
        pytest.param("a: (( ))", "is empty", id="empty"),
        pytest.param("((a)): b", "placeholders are for values", id="name-of-a-field"),
        pytest.param("[1, 2]", "not an object", id="no-object"),
        pytest.param("a: [", "not YAML", id="no-yaml"),
        pytest.param("# nothing", "has no object", id="nothing"),
    ],
)
def test_a_wrong_template_is_an_error_of_its_policy(value, message):
    template = {"template": {"interpolate": "cel", "value": value}}
    loaded = load(policy(generate=[template]))

    assert loaded.background == ()
    assert message in loaded.findings[0].message
    assert loaded.findings[0].field == "spec.generate[0].template.value"


def test_an_error_in_a_template_is_shown_at_its_line():
    text = (
        "apiVersion: policies.kyverno.io/v1\nkind: GeneratingPolicy\nmetadata: {name: p}\nspec:\n"
        "  matchConstraints:\n    resourceRules:\n"
        "    - {apiGroups: [''], apiVersions: [v1], resources: [pods]}\n"
        "  generate:\n  - template:\n      interpolate: cel\n      value: |\n"
        "        kind: ConfigMap\n        metadata:\n          name: a-(( nothing ))\n"
    )
    (finding,) = load_policies(text, "p.yaml", EVERY_FORMAT).findings

    assert (finding.line, finding.column) == (14, 22)


@pytest.mark.parametrize(
    ("obj", "spec", "outcome"),
    [
        pytest.param(POD, {}, "unmatched", id="another-kind"),
        pytest.param(
            TEAM,
            {"matchConditions": [{"name": "a", "expression": "object.metadata.name != 'team-a'"}]},
            "excluded",
            id="condition",
        ),
        pytest.param(
            TEAM,
            {"matchConditions": [{"name": "a", "expression": "object.spec.none == 1"}]},
            "failed",
            id="condition-fails",
        ),
    ],
)
def test_nothing_is_generated_for_what_a_policy_does_not_match(obj, spec, outcome):
    result = generated(obj, generating(map_in(), **spec))

    assert (result.outcome, result.objects) == (outcome, ())


def test_an_exception_keeps_a_policy_from_generating_and_deleting():
    exception = {
        "apiVersion": "policies.kyverno.io/v1",
        "kind": "PolicyException",
        "metadata": {"name": "e"},
        "spec": {
            "policyRefs": [{"name": "p", "kind": kind} for kind in KINDS],
            "matchConditions": [{"name": "a", "expression": "object.metadata.name != 'other'"}],
        },
    }
    deleting = policy("DeletingPolicy", rule=PODS, schedule="* * * * *")

    assert generated(TEAM, generating(map_in()), exception).outcome == "unmatched"
    assert deleted(POD, deleting, exception).outcome == "unmatched"


KINDS = ("GeneratingPolicy", "DeletingPolicy")


IDLE = [{"name": "idle", "expression": "object.metadata.labels.idle == 'true'"}]


@pytest.mark.parametrize(
    ("obj", "kind", "outcome"),
    [
        pytest.param(POD, "DeletingPolicy", "matched", id="idle"),
        pytest.param(POD, "NamespacedDeletingPolicy", "matched", id="own-namespace"),
        pytest.param(
            {**POD, "metadata": {**POD["metadata"], "namespace": "team-b"}},
            "NamespacedDeletingPolicy",
            "unmatched",
            id="another-namespace",
        ),
        pytest.param(
            {**POD, "metadata": {**POD["metadata"], "labels": {"idle": "no"}}},
            "DeletingPolicy",
            "excluded",
            id="busy",
        ),
        pytest.param(
            {**POD, "metadata": {"name": "a", "namespace": "team-a"}},
            "DeletingPolicy",
            "failed",
            id="cannot-be-decided",
        ),
        pytest.param(TEAM, "DeletingPolicy", "unmatched", id="another-kind"),
    ],
)
def test_a_policy_deletes_what_its_conditions_say(obj, kind, outcome):
    assert (
        deleted(obj, policy(kind, rule=PODS, schedule="@hourly", conditions=IDLE)).outcome
        == outcome
    )


def test_a_deleting_policy_says_when_and_how_it_deletes():
    spec = {"schedule": "0 3 * * *", "deletionPropagationPolicy": "Foreground"}
    (found,) = load(policy("DeletingPolicy", rule=PODS, **spec)).background

    assert found.action.due(0) == 3 * 3600
    assert found.action.propagation == "Foreground"


OWN = "generator.Apply([{'apiVersion': 'v1', 'kind': '%s', 'metadata': {'name': 'a'%s}}])"


def namespaced(expression):
    return policy("NamespacedGeneratingPolicy", rule=PODS, generate=[{"expression": expression}])


def test_a_namespaced_policy_generates_in_its_namespace_whatever_its_objects_say():
    (made,) = generated(
        POD, namespaced(OWN % ("ConfigMap", ", 'namespace': 'kube-system'"))
    ).objects

    assert made["metadata"]["namespace"] == "team-a"


def test_a_namespaced_policy_generates_no_object_of_the_cluster():
    result = generated(POD, namespaced(OWN % ("Namespace", "")))

    assert result.error == (
        "a policy of namespace `team-a` cannot generate a Namespace, which belongs to the cluster"
    )


def test_a_namespaced_policy_reads_the_sources_of_its_namespace_alone():
    clone = "generator.Apply([resource.Get('v1', 'secrets', 'pull')])"
    result = generated(POD, namespaced(clone), objects=[SECRET])

    assert result.error == "the source of a generated object does not exist"


@pytest.mark.parametrize(
    ("document", "message"),
    [
        pytest.param(
            namespaced(map_in("'kube-system'")),
            "no matching overload for 'Apply'",
            id="namespace-argument",
        ),
        pytest.param(namespaced("http.Get('http://x') == 1"), "`http` is not allowed", id="http"),
        pytest.param(generating("1 +"), "Syntax error", id="syntax"),
        pytest.param(policy(generate=[{}]), "one of `expression` and `template`", id="empty-entry"),
        pytest.param(policy(generate=[]), "`generate`", id="no-entry"),
        pytest.param(
            policy("DeletingPolicy", schedule="every night"), "not a schedule", id="schedule"
        ),
        pytest.param(
            policy(
                "DeletingPolicy",
                schedule="@daily",
                conditions=[{"name": "a", "expression": "request.name == ''"}],
            ),
            "undeclared reference to 'request'",
            id="request-of-a-deletion",
        ),
        pytest.param(
            {**generating(map_in()), "spec": {"generate": [{"expression": "true"}]}},
            "at least one resource rule is required",
            id="matches-nothing",
        ),
        pytest.param(
            policy(generate=[{"expression": "true"}], evaluation={"admission": {"enabled": False}}),
            "the policy is not for admission",
            id="never-used",
        ),
    ],
)
def test_a_policy_with_an_error_is_not_used(document, message):
    loaded = load(document)

    assert loaded.background == ()
    assert message in loaded.findings[0].message


def test_no_other_policy_can_generate():
    vpol = {
        "apiVersion": "policies.kyverno.io/v1",
        "kind": "NamespacedMutatingPolicy",
        "metadata": {"name": "p", "namespace": "team-a"},
        "spec": {
            "matchConstraints": {"resourceRules": [NAMESPACES]},
            "variables": [{"name": "v", "expression": map_in("'kube-system'")}],
            "mutations": [],
        },
    }

    assert any("generator" in finding.message for finding in load(vpol).findings)


def test_a_template_may_read_the_request_where_nothing_reads_the_object():
    template = {"interpolate": "cel", "value": configmap("(( request.namespace ))")}

    result = generated(POD, policy(rule=PODS, generate=[{"template": template}]))

    assert (result.error, result.objects[0]["metadata"]["name"]) == ("", "team-a")


def configmap(name):
    return f"apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}, namespace: team-a}}\n"
