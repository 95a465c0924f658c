"""`mutate.targets` becomes a MutatingPolicy with `mutateExisting`, and has the same targets."""

import pytest

from policyd.dialects.registry import EVERY_FORMAT
from policyd.engine.background.acting import ActingPolicies
from policyd.engine.background.evaluation import scope_of
from policyd.engine.compile.load import gather, load_document
from policyd.engine.documents.reading import Document
from policyd.engine.model.surroundings import PolicyContext
from policyd.engine.offline.requests import (
    RequestCircumstances,
    existing_requests,
    namespace_lookup,
    request_for,
)
from policyd.migrate.kyverno.policies import convert
from tests.migrate.kyverno.deciding import legacy, rule

SERVICES = {"any": [{"resources": {"kinds": ["Service"]}}]}
NAMESPACE = "{{ request.object.metadata.namespace }}"
NAME = "{{ request.object.metadata.name }}"
OVERLAY = {"patchStrategicMerge": {"data": {"by": NAME}}}


def service(name="s", namespace="a"):
    metadata = {"name": name, "namespace": namespace}
    return {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": {}}


def config_map(name, namespace="a", labels=None, **data):
    metadata = {"name": name, "namespace": namespace, "labels": labels or {}}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


def converted(*targets, spec=None, **mutate):
    targets = [{"apiVersion": "v1", "kind": "ConfigMap", **each} for each in targets]
    given = rule(match=SERVICES, mutate={"targets": targets, **(mutate or OVERLAY)})
    conversion = convert(legacy(given, **(spec or {})))
    assert conversion.whole, conversion.refusals
    return conversion


def mutated(conversion, *objects, trigger=None):
    """Return the data of the objects that policies mutate for a trigger, by their names."""
    documents = [load_document(Document(each, "p"), EVERY_FORMAT) for each in conversion.policies]
    loaded = gather(documents)
    assert not loaded.findings, "\n".join(map(str, loaded.findings))
    context = PolicyContext(namespaces=namespace_lookup((), {}), written=True)
    acting = ActingPolicies(
        loaded.background, context, scope_of({}), existing_requests(objects, {})
    )
    found = {}
    for _, result in acting.mutated(request_for(trigger or service(), RequestCircumstances())):
        assert not result.error, result.error
        found |= {each["metadata"]["name"]: each["data"] for each in result.objects}
    return found


@pytest.mark.parametrize(
    ("target", "chosen"),
    [
        pytest.param({"name": "x-1", "namespace": "a"}, {"x-1"}, id="by-name"),
        pytest.param({"name": "x-*", "namespace": "a"}, {"x-1", "x-2"}, id="by-pattern"),
        pytest.param({"name": "s", "namespace": NAMESPACE}, {"s"}, id="by-variables"),
        pytest.param({"name": NAME, "namespace": "*"}, {"s"}, id="anywhere"),
        pytest.param({"namespace": "b"}, {"b-1"}, id="all-of-a-namespace"),
        pytest.param({"selector": {"matchLabels": {"l": "1"}}}, {"x-2"}, id="by-labels"),
        pytest.param(
            {
                "preconditions": {
                    "all": [
                        {"key": "{{ target.data.ask || '' }}", "operator": "Equals", "value": "1"}
                    ]
                }
            },
            {"b-1"},
            id="by-what-it-has",
        ),
    ],
)
def test_the_same_objects_are_targets(target, chosen):
    objects = (
        config_map("x-1"),
        config_map("x-2", labels={"l": "1"}),
        config_map("s"),
        config_map("b-1", "b", ask="1"),
    )

    assert set(mutated(converted(target), *objects)) == chosen


def test_patches_see_the_target_and_the_trigger():
    patches = '[{op: add, path: "/data/both", value: "{{ target.metadata.name }}-' + NAME + '"}]'

    made = mutated(converted({}, patchesJson6902=patches), config_map("x", kept="y"))

    assert made == {"x": {"kept": "y", "both": "x-s"}}


def test_anchors_of_an_overlay_are_of_the_target():
    overlay = {"patchStrategicMerge": {"data": {"(ask)": "1", "+(by)": NAME}}}

    made = mutated(
        converted({}, **overlay), config_map("x", ask="1"), config_map("y"), config_map("z", by="0")
    )

    assert made == {"x": {"ask": "1", "by": "s"}}


def test_each_target_is_a_policy():
    conversion = converted({"name": "x"}, {"name": "y"})

    assert set(mutated(conversion, config_map("x"), config_map("y"))) == {"x", "y"}
    assert len({each["metadata"]["name"] for each in conversion.policies}) == 2


@pytest.mark.parametrize(
    ("spec", "evaluation"),
    [
        pytest.param({}, {"background": {"enabled": False}}, id="requests-alone"),
        pytest.param({"mutateExistingOnPolicyUpdate": True}, {}, id="older-objects"),
    ],
)
def test_objects_older_than_the_policy_are_triggers_if_it_says_so(spec, evaluation):
    (policy,) = converted({}, spec=spec).policies

    assert policy["spec"]["evaluation"] == {"mutateExisting": {"enabled": True}, **evaluation}


@pytest.mark.parametrize(
    ("target", "reason"),
    [
        pytest.param({"context": [{"name": "c"}]}, "a target has `context`", id="context"),
        pytest.param({"uid": "1"}, "a target has `uid`", id="uid"),
        pytest.param({"name": "x-*-" + NAME}, "has variables and `*`", id="both"),
        pytest.param({"selector": {"matchLabels": {"a": NAME}}}, "has variables", id="selector"),
        pytest.param({"kin": "x"}, "has the field `kin`", id="unknown"),
    ],
)
def test_what_has_no_counterpart_is_refused_with_its_place(target, reason):
    target = {"apiVersion": "v1", "kind": "ConfigMap", **target}

    conversion = convert(legacy(rule(match=SERVICES, mutate={"targets": [target], **OVERLAY})))

    (refusal,) = conversion.refusals
    assert reason in refusal.reason
    assert refusal.path[-3:] == ("mutate", "targets", 0)
