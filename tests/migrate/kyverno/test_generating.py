"""`generate` becomes a GeneratingPolicy: data, clones, lists of clones, `foreach`."""

import pytest
import yaml

from policyd.dialects.kyverno.declared import declared_values
from policyd.dialects.registry import EVERY_FORMAT
from policyd.engine.background.evaluation import generate, scope_of
from policyd.engine.compile.load import gather, load_document
from policyd.engine.documents.reading import Document
from policyd.engine.model.surroundings import PolicyContext
from policyd.engine.offline.requests import RequestCircumstances, namespace_lookup, request_for
from policyd.migrate.kyverno.policies import convert
from tests.migrate.kyverno.deciding import legacy, rule

NAMESPACES = {"any": [{"resources": {"kinds": ["Namespace"]}}]}
NAMED = "{{request.object.metadata.name}}"


def team(name="a", labels=None, **annotations):
    metadata = {"name": name, "labels": labels or {}, "annotations": annotations}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}


def secret(name, namespace="default", labels=None, **fields):
    metadata = {"name": name, "namespace": namespace, "labels": labels or {}, "uid": "1"}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, **fields}


def convert_one(*rules, **spec):
    """Return the one policy that rules become."""
    conversion = convert(legacy(*rules, **spec))
    assert conversion.whole, conversion.refusals
    (policy,) = conversion.policies
    return policy


def generating(**given):
    return rule(match=NAMESPACES, generate=given)


def configmap(name, **others):
    return {"apiVersion": "v1", "kind": "ConfigMap", "name": name, "namespace": NAMED, **others}


def made_by(policy, trigger, objects=()):
    """Return what a policy generates for an object, with what its expressions read."""
    acted = acted_by(policy, trigger, objects)
    assert not acted.error, acted.error
    return list(acted.objects)


def acted_by(policy, trigger, objects=()):
    loaded = gather([load_document(Document(policy, "p"), EVERY_FORMAT)])
    assert not loaded.findings, "\n".join(map(str, loaded.findings))
    context = PolicyContext(
        namespaces=namespace_lookup((), {}), written=True, extra=declared_values(objects)
    )
    (acting,) = loaded.background
    return generate(acting, request_for(trigger, RequestCircumstances()), context, scope_of({}))


def test_data_becomes_a_template_that_reads_as_the_object():
    data = {"metadata": {"labels": {"of": NAMED}}, "data": {"a": "x-{{request.operation}}", "b": 1}}
    policy = convert_one(generating(**configmap("team", data=data)))

    (template,) = (each["template"] for each in policy["spec"]["generate"])
    assert yaml.safe_load(template["value"])["metadata"] == {
        "name": "team",
        "namespace": "(( object.metadata.name ))",
        "labels": {"of": "(( object.metadata.name ))"},
    }
    (made,) = made_by(policy, team())
    assert made == {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "team", "namespace": "a", "labels": {"of": "a"}},
        "data": {"a": "x-CREATE", "b": 1},
    }


def test_a_value_that_is_one_variable_keeps_its_type():
    data = {"data": {"labels": "{{request.object.metadata.labels}}"}}
    policy = convert_one(generating(**configmap("team", data=data)))

    (made,) = made_by(policy, team(labels={"x": "y"}))
    assert made["data"]["labels"]["x"] == "y"


def test_brackets_of_texts_are_kept():
    policy = convert_one(generating(**configmap("team", data={"data": {"a": "((x)) {{'b'}}"}})))

    (made,) = made_by(policy, team())
    assert made["data"] == {"a": "((x)) b"}


def test_keys_with_variables_are_computed():
    data = {"data": {f"{NAMED}.txt": "x", "y": "z"}}
    policy = convert_one(generating(**configmap("team", data=data)))

    (made,) = made_by(policy, team())
    assert made["data"] == {"a.txt": "x", "y": "z"}


def test_a_clone_has_the_name_that_the_rule_gives_it():
    source = secret("pull", labels={"l": "1"}, data={"k": "dg=="}, type="Opaque")
    target = {"apiVersion": "v1", "kind": "Secret", "namespace": NAMED}
    clone = {"namespace": "default", "name": "pull"}

    for name in ("pull", "own"):
        policy = convert_one(
            rule(match=NAMESPACES, generate={**target, "name": name, "clone": clone})
        )
        (made,) = made_by(policy, team(), [source])
        metadata = {"name": name, "namespace": "a", "labels": {"l": "1"}}
        assert made == {**source, "metadata": metadata}


@pytest.mark.parametrize("metadata", [{}, {"labels": {"l": "1"}}, {"annotations": {"a": "b"}}])
def test_a_renamed_clone_keeps_the_labels_and_annotations_that_there_are(metadata):
    source = {"apiVersion": "v1", "kind": "Secret", "type": "Opaque"}
    own = {"name": "pull", "namespace": "default", "uid": "1", "finalizers": ["x/y"]}
    target = {"apiVersion": "v1", "kind": "Secret", "namespace": NAMED, "name": f"of-{NAMED}"}
    clone = {"namespace": "default", "name": "pull"}
    policy = convert_one(rule(match=NAMESPACES, generate={**target, "clone": clone}))

    (made,) = made_by(policy, team(), [{**source, "metadata": {**own, **metadata}}])

    assert made == {**source, "metadata": {"name": "of-a", "namespace": "a", **metadata}}


@pytest.mark.parametrize("name", ["pull", "own"])
def test_a_clone_ends_with_its_source_whatever_its_name(name):
    target = {"apiVersion": "v1", "kind": "Secret", "namespace": NAMED, "name": name}
    clone = {"namespace": "default", "name": "pull"}
    policy = convert_one(rule(match=NAMESPACES, generate={**target, "clone": clone}))

    acted = acted_by(policy, team())

    assert acted.error == "the source of a generated object does not exist"
    assert acted.others == ()


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        pytest.param(None, ["x", "y", "z"], id="all"),
        pytest.param({"matchLabels": {"copy": "yes"}}, ["x", "y"], id="labels"),
        pytest.param(
            {"matchExpressions": [{"key": "of", "operator": "In", "values": ["b"]}]},
            ["y"],
            id="expressions",
        ),
        pytest.param(
            {
                "matchLabels": {"copy": "yes"},
                "matchExpressions": [{"key": "of", "operator": "DoesNotExist"}],
            },
            ["x"],
            id="both",
        ),
    ],
)
def test_a_list_of_clones_has_what_its_selector_picks(selector, expected):
    sources = [
        secret("x", labels={"copy": "yes"}),
        secret("y", labels={"copy": "yes", "of": "b"}),
        secret("z"),
        secret("elsewhere", namespace="b", labels={"copy": "yes", "of": "b"}),
    ]
    listed = {"namespace": "default", "kinds": ["v1/Secret"], "selector": selector}
    policy = convert_one(generating(namespace=NAMED, cloneList=listed))

    found = made_by(policy, team(), sources)
    assert [(each["kind"], each["metadata"]["name"]) for each in found] == [
        ("Secret", name) for name in expected
    ]
    assert {each["metadata"]["namespace"] for each in found} == {"a"}


def test_foreach_generates_for_each_element_that_is_chosen():
    each = {
        "list": "request.object.metadata.annotations.names | split(@, ',')",
        "preconditions": {"all": [{"key": "{{element}}", "operator": "NotEquals", "value": "no"}]},
        **configmap("of-{{element}}-{{elementIndex}}", data={"data": {"name": "{{element}}"}}),
    }
    policy = convert_one(generating(foreach=[each]))

    found = made_by(policy, team(names="x,no,y"))
    assert [o["metadata"]["name"] for o in found] == ["of-x-0", "of-y-2"]
    assert [o["data"] for o in found] == [{"name": "x"}, {"name": "y"}]


def test_foreach_clones_where_its_list_says():
    each = {
        "list": "['x', 'y']",
        "apiVersion": "v1",
        "kind": "Secret",
        "name": "pull",
        "namespace": "{{element}}",
        "clone": {"name": "pull", "namespace": "default"},
    }
    policy = convert_one(generating(foreach=[each]))

    found = made_by(policy, team(), [secret("pull")])
    assert [o["metadata"]["namespace"] for o in found] == ["x", "y"]


DATA = configmap("team", data={"data": {}})
CLONE = {**configmap("x"), "clone": {"name": "x", "namespace": "b"}}
CLONES = {"namespace": "a", "cloneList": {"namespace": "b", "kinds": ["v1/ConfigMap"]}}


@pytest.mark.parametrize(
    ("given", "spec", "expected"),
    [
        pytest.param(DATA, {}, None, id="none"),
        pytest.param({**DATA, "synchronize": True}, {}, ["synchronize"], id="synchronize"),
        pytest.param(
            {**DATA, "synchronize": True, "orphanDownstreamOnPolicyDelete": True},
            {},
            ["orphanDownstreamOnPolicyDelete", "synchronize"],
            id="orphan",
        ),
        pytest.param(DATA, {"generateExisting": True}, ["generateExisting"], id="of-the-policy"),
        pytest.param(
            {**DATA, "generateExisting": False}, {"generateExisting": True}, None, id="of-the-rule"
        ),
        pytest.param(
            {**CLONE, "synchronize": True},
            {},
            ["orphanDownstreamOnPolicyDelete", "synchronize"],
            id="clones-stay",
        ),
        pytest.param({**CLONES, "synchronize": True}, {}, ["synchronize"], id="lists-of-clones-go"),
        pytest.param(
            {**CLONES, "synchronize": True, "orphanDownstreamOnPolicyDelete": True},
            {},
            ["orphanDownstreamOnPolicyDelete", "synchronize"],
            id="lists-of-clones-stay",
        ),
    ],
)
def test_the_evaluation_is_that_of_the_rule(given, spec, expected):
    policy = convert_one(generating(**given), **spec)

    found = policy["spec"].get("evaluation")
    assert (found and sorted(found)) == expected


def test_rules_for_the_same_objects_become_one_policy():
    policy = convert_one(
        rule(name="one", match=NAMESPACES, generate=configmap("one", data={})),
        rule(name="two", match=NAMESPACES, generate=configmap("two", data={})),
    )

    assert [o["metadata"]["name"] for o in made_by(policy, team())] == ["one", "two"]


def test_conditions_and_context_decide_whether_something_is_generated():
    parts = {
        "context": [{"name": "of", "variable": {"jmesPath": "request.object.metadata.labels.of"}}],
        "preconditions": {"all": [{"key": "{{of}}", "operator": "Equals", "value": "x"}]},
    }
    policy = convert_one(
        rule(match=NAMESPACES, generate=configmap("team", data={"data": {"of": "{{of}}"}}), **parts)
    )

    assert [o["data"] for o in made_by(policy, team(labels={"of": "x"}))] == [{"of": "x"}]
    assert made_by(policy, team(labels={"of": "y"})) == []


@pytest.mark.parametrize(
    ("match", "namespace", "condition"),
    [
        pytest.param(
            {"kinds": ["Namespace"], "namespaces": ["team-*"]},
            "object.metadata.name",
            "object.metadata.name.startsWith('team-')",
            id="namespace",
        ),
        pytest.param(
            {"kinds": ["Deployment"], "namespaces": ["a"], "names": ["b*"]},
            "object.metadata.namespace",
            "object.metadata.namespace == 'a'",
            id="namespaced",
        ),
        pytest.param(
            {"kinds": ["Deployment"], "operations": ["DELETE"], "namespaces": ["a"]},
            "request.namespace",
            "request.namespace == 'a'",
            id="deleted",
        ),
    ],
)
def test_a_trigger_needs_no_request_where_the_object_says_the_same(match, namespace, condition):
    preconditions = [{"key": "{{request.operation}}", "operator": "Equals", "value": "DELETE"}]
    parts = {"preconditions": preconditions} if "operations" in match else {}
    policy = convert_one(
        rule(
            match={"any": [{"resources": match}]},
            generate=configmap("of-{{request.namespace}}", data={"data": {}}),
            **parts,
        )
    )

    (entry,) = policy["spec"]["generate"]
    assert f"of-(( {namespace} ))" in entry["template"]["value"]
    conditions = {each["name"]: each["expression"] for each in policy["spec"]["matchConditions"]}
    assert conditions["namespace"] == condition


def test_who_is_a_cluster_admin_is_not_asked_by_policies_of_kyverno():
    parts = {"exclude": {"any": [{"clusterRoles": ["cluster-admin"]}]}}
    conversion = convert(legacy(rule(match=NAMESPACES, generate=DATA, **parts)))

    (refusal,) = conversion.refusals
    assert "who is a cluster-admin" in refusal.reason
    assert refusal.hint == "name users or groups"


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        pytest.param({"data": {}}, "has no `name`", id="no-name"),
        pytest.param({"name": "a", "data": {}}, "has no `kind`", id="no-kind"),
        pytest.param(configmap("a"), "needs one of `data`, `clone` and `cloneList`", id="nothing"),
        pytest.param(configmap("a", data=[]), "is not a map", id="data"),
        pytest.param({**DATA, **CLONE}, "needs one of `data`", id="two-sources"),
        pytest.param({"cloneList": {}}, "has no `kinds`", id="kinds"),
        pytest.param({"cloneList": {"kinds": ["Secret"]}}, "needs the version", id="version"),
        pytest.param({"foreach": {}}, "is not a list", id="foreach"),
        pytest.param({"foreach": [{}]}, "needs a `list`", id="list"),
        pytest.param(
            {
                "foreach": [{"list": "['a']", **DATA}, {"list": "['b']", **CLONE}],
                "synchronize": True,
            },
            "clones, which stay",
            id="clones-beside-others",
        ),
        pytest.param({**DATA, "sync": True}, "the field `sync`", id="field"),
        pytest.param([], "is not a map", id="shape"),
    ],
)
def test_what_cannot_be_generated_is_refused(given, reason):
    conversion = convert(legacy(rule(match=NAMESPACES, generate=given)))

    assert not conversion.policies
    assert reason in conversion.refusals[0].reason
