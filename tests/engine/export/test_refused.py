"""What the API server does not take of its own kinds is an error of `policyd check`."""

import pytest

from policyd.engine.compile.load import load_document
from policyd.engine.documents.reading import Document
from policyd.engine.export.refused import refused, refused_annotations
from tests.live.refused import REFUSED, TAKEN, validating


def refusals(obj):
    document = Document(obj, "p.yaml")
    findings = [*refused(document)]
    for policy in load_document(document).policies:
        findings += refused_annotations(policy)
    return [finding.message for finding in findings]


@pytest.mark.parametrize("obj", [pytest.param(o, id=name) for name, o in REFUSED.items()])
def test_refusals_of_the_api_server_are_reported(obj):
    (message,) = refusals(obj)

    assert message.startswith("the API server refuses it: ")


def test_a_version_that_it_has_not_is_reported():
    obj = {**validating(), "apiVersion": "admissionregistration.k8s.io/v9"}

    assert refusals(obj) == [
        "the API server refuses it: `admissionregistration.k8s.io/v9` not found"
    ]


@pytest.mark.parametrize("odd", [5, "a", True, [5], [None], [[]], {}, {"a": []}])
@pytest.mark.parametrize("obj", [pytest.param(o, id=name) for name, o in TAKEN.items()])
def test_misshapen_values_are_left_to_their_readers(obj, odd):
    for field in obj["spec"]:
        list(refused(Document({**obj, "spec": {**obj["spec"], field: odd}}, "p.yaml")))
    list(refused(Document({**obj, "kind": odd}, "p.yaml")))


@pytest.mark.parametrize("obj", [pytest.param(o, id=name) for name, o in TAKEN.items()])
def test_accepted_values_are_valid(obj):
    assert refusals(obj) == []


@pytest.mark.parametrize("kind", ["ValidatingPolicy", "MutatingPolicy", "GeneratingPolicy"])
@pytest.mark.parametrize(
    ("rule", "wrong"),
    [
        ({"operations": ["Create"]}, "`Create` is none of the operations"),
        ({"resources": []}, "field `resources` is missing"),
        ({"resources": ["*", "configmaps"]}, "`*` includes all other `resources`"),
    ],
)
def test_rules_that_webhooks_cannot_have_are_reported_of_kyverno(kind, rule, wrong):
    whole = {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}
    spec = {"matchConstraints": {"resourceRules": [whole | rule]}}
    obj = {"apiVersion": "policies.kyverno.io/v1", "kind": kind, "spec": spec}

    (finding,) = refused(Document({**obj, "metadata": {"name": "a"}}, "p.yaml"))

    assert finding.message.startswith(f"the API server takes no such rule: {wrong}")


@pytest.mark.parametrize(
    ("version", "kind"),
    [
        ("policies.kyverno.io/v1", "ValidatingPolicy"),
        ("policyd.io/v1alpha1", "Policy"),
        ("policyd.io/v1alpha1", "PolicyBinding"),
    ],
)
@pytest.mark.parametrize(
    "metadata",
    [{"labels": {"a b": "c"}}, {"annotations": {"a b": "c"}}, {"finalizers": ["a b"]}],
    ids=str,
)
def test_metadata_is_looked_at_in_each_kind(version, kind, metadata):
    obj = {"apiVersion": version, "kind": kind, "metadata": {"name": "a", **metadata}}

    (finding,) = refused(Document(obj, "p.yaml"))

    assert finding.message.startswith("the API server refuses it: `a b` is not a valid ")


def deleting(**rule):
    """Return what is found in a policy that deletes on a schedule."""
    whole = {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"], **rule}
    spec = {"matchConstraints": {"resourceRules": [whole]}}
    obj = {"apiVersion": "policies.kyverno.io/v1", "kind": "DeletingPolicy", "spec": spec}
    return [finding.message for finding in refused(Document(obj, "p.yaml"))]


@pytest.mark.parametrize("rule", [{"operations": ["Create"]}, {"resources": ["*", "configmaps"]}])
def test_rules_of_policies_that_delete_are_in_no_webhook(rule):
    """Their operations decide nothing, and the definition of the kind takes any texts."""
    assert deleting(**rule) == []


def test_a_policy_that_deletes_no_objects_is_reported():
    assert deleting(resources=[]) == ["the rule concerns no objects: field `resources` is missing"]


def test_kyverno_completes_rules_without_operations():
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}
    spec = {"matchConstraints": {"resourceRules": [rule]}}
    obj = {"apiVersion": "policies.kyverno.io/v1", "kind": "ValidatingPolicy", "spec": spec}

    assert not list(refused(Document(obj, "p.yaml")))
