"""Matching follows the API server: rules by envelope, selectors by labels."""

import pytest

from policyd.api.admission import AdmissionRequest, GroupVersionKind, GroupVersionResource, Rule
from policyd.api.selectors import LabelSelector, Requirement
from policyd.engine.objects.equivalents import matched_kind
from policyd.engine.objects.match import (
    RequestAttributes,
    UnknownNamespaceError,
    attributes_of,
    labels_of,
    original_attributes_of,
    rules_match,
    selects_namespace,
    selects_object,
)

GPU = LabelSelector(match_labels={"gpu": "yes"})


def rule(resources, operations=("CREATE",), groups=("",), versions=("v1",), **more):
    return Rule(
        operations=tuple(operations),
        api_groups=tuple(groups),
        api_versions=tuple(versions),
        resources=tuple(resources),
        **more,
    )


def attributes(resource="pods", subresource="", **more):
    fields = {"group": "", "version": "v1", "operation": "CREATE", "namespace": "team-a"} | more
    return RequestAttributes(resource=resource, subresource=subresource, **fields)


@pytest.mark.parametrize(
    ("rules", "asked", "expected"),
    [
        pytest.param([rule(["pods"])], attributes(), True, id="exact"),
        pytest.param([rule(["*"])], attributes(), True, id="any-resource"),
        pytest.param([rule(["*"])], attributes(subresource="exec"), False, id="star-has-no-sub"),
        pytest.param([rule(["pods"])], attributes(subresource="exec"), False, id="sub-not-named"),
        pytest.param([rule(["pods/exec"])], attributes(subresource="exec"), True, id="sub-named"),
        pytest.param([rule(["pods/*"])], attributes(subresource="log"), True, id="any-sub"),
        pytest.param([rule(["pods/*"])], attributes(), True, id="any-sub-includes-none"),
        pytest.param([rule(["*/scale"])], attributes("x", "scale"), True, id="sub-of-anything"),
        pytest.param([rule(["*/*"])], attributes("x", "y"), True, id="everything"),
        pytest.param([rule(["jobs"])], attributes(), False, id="other-resource"),
        pytest.param([rule(["pods"], ["*"])], attributes(operation="DELETE"), True, id="any-op"),
        pytest.param([rule(["pods"])], attributes(operation="UPDATE"), False, id="other-operation"),
        pytest.param([rule(["pods"], groups=["apps"])], attributes(), False, id="other-group"),
        pytest.param([rule(["pods"], groups=["*"])], attributes(), True, id="any-group"),
        pytest.param([rule(["pods"], versions=["v2"])], attributes(), False, id="other-version"),
        pytest.param([rule([])], attributes(), False, id="no-resource-matches-nothing"),
        pytest.param([Rule()], attributes(), False, id="empty-rule-matches-nothing"),
        pytest.param([], attributes(), False, id="no-rule-matches-nothing"),
        pytest.param(
            [rule(["pods"], scope="Cluster")], attributes(), False, id="namespaced-is-not-cluster"
        ),
        pytest.param(
            [rule(["nodes"], scope="Cluster")],
            attributes("nodes", namespace=""),
            True,
            id="cluster-scoped",
        ),
        pytest.param(
            [rule(["namespaces"], scope="Cluster")],
            attributes("namespaces"),
            True,
            id="a-namespace-belongs-to-the-cluster",
        ),
        pytest.param(
            [rule(["namespaces"], scope="Namespaced")],
            attributes("namespaces"),
            False,
            id="a-namespace-is-not-namespaced",
        ),
        pytest.param(
            [rule(["pods"], resource_names=("a",))], attributes(name="a"), True, id="by-name"
        ),
        pytest.param(
            [rule(["pods"], resource_names=("a",))], attributes(), False, id="generated-name"
        ),
        pytest.param([rule(["jobs"]), rule(["pods"])], attributes(), True, id="any-of-the-rules"),
    ],
)
def test_rules_are_judged_by_the_envelope(rules, asked, expected):
    assert rules_match(rules, (), asked) is expected


def test_an_exclude_rule_wins():
    assert not rules_match([rule(["*"])], [rule(["pods"])], attributes())


def namespaces(name):
    return {"team-a": {"metadata": {"labels": {"gpu": "yes"}}}, "team-b": {}}.get(name)


@pytest.mark.parametrize(
    ("asked", "obj", "expected"),
    [
        pytest.param(attributes(), {}, True, id="labelled-namespace"),
        pytest.param(attributes(namespace="team-b"), {}, False, id="unlabelled-namespace"),
        pytest.param(attributes("nodes", namespace=""), {}, True, id="cluster-scope-not-filtered"),
        pytest.param(
            attributes("namespaces", namespace="team-b"),
            {"metadata": {"labels": {"gpu": "yes"}}},
            True,
            id="a-namespace-has-its-own-labels",
        ),
        pytest.param(
            attributes("namespaces", namespace="team-a", operation="DELETE"),
            None,
            True,
            id="a-deleted-namespace-is-looked-up",
        ),
    ],
)
def test_namespace_selector(asked, obj, expected):
    assert selects_namespace(GPU, asked, obj, namespaces=namespaces) is expected


def test_the_empty_namespace_selector_needs_no_namespace():
    assert selects_namespace(LabelSelector(), attributes(namespace="?"), {}, namespaces=namespaces)


def test_an_unknown_namespace_is_an_error_not_a_guess():
    with pytest.raises(UnknownNamespaceError, match="`new` is not known"):
        selects_namespace(GPU, attributes(namespace="new"), {}, namespaces=namespaces)


@pytest.mark.parametrize(
    ("obj", "old", "expected"),
    [
        pytest.param({"metadata": {"labels": {"gpu": "yes"}}}, None, True, id="object"),
        pytest.param({}, {"metadata": {"labels": {"gpu": "yes"}}}, True, id="old-object"),
        pytest.param({}, None, False, id="neither"),
        pytest.param(None, None, False, id="no-object-at-all"),
        pytest.param({"metadata": {"labels": None}}, None, False, id="labels-null"),
        pytest.param({"metadata": []}, None, False, id="metadata-of-the-wrong-type"),
    ],
)
def test_object_selector_looks_at_either_object(obj, old, expected):
    assert selects_object(GPU, obj, old) is expected


def test_the_empty_object_selector_selects_even_no_object():
    assert selects_object(LabelSelector(), None, None)


def test_absence_selectors_hold_for_misshapen_objects():
    absent = LabelSelector(match_expressions=(Requirement(key="gpu", operator="DoesNotExist"),))

    assert selects_object(absent, {"metadata": 3}, None)
    assert selects_object(absent, {"kind": "Pod"}, None)
    assert not selects_object(absent, {"kind": "PodExecOptions", "command": ["sh"]}, None)
    assert labels_of("text") == {}


def test_labels_that_are_no_texts_are_none():
    obj = {"metadata": {"labels": {"a": "b", "c": 1}}}

    assert not selects_object(LabelSelector(match_labels={"a": "b"}), obj, None)


def test_exact_matching_sees_the_resource_the_client_named():
    request = AdmissionRequest(
        uid="u",
        kind=GroupVersionKind(group="apps", version="v1", kind="Deployment"),
        resource=GroupVersionResource(group="apps", version="v1", resource="deployments"),
        request_resource=GroupVersionResource(
            group="extensions", version="v1beta1", resource="deployments"
        ),
        operation="CREATE",
        namespace="team-a",
    )

    assert attributes_of(request).group == "apps"
    assert original_attributes_of(request).group == "extensions"


@pytest.mark.parametrize(
    ("kind", "own", "matched", "expected"),
    [
        pytest.param("autoscaling/v1", "apps/v1", "apps/v1beta1", "apps/v1beta1", id="of-its-own"),
        pytest.param("apps/v1beta1", "apps/v1beta1", "apps/v1", "autoscaling/v1", id="of-all"),
        pytest.param("autoscaling/v1", "apps/v1", "apps/v1", "autoscaling/v1", id="as-it-came"),
    ],
)
def test_a_scale_is_of_the_kind_that_its_version_of_the_resource_has(kind, own, matched, expected):
    def scale(version):
        group, _, number = version.partition("/")
        return RequestAttributes(
            group=group,
            version=number,
            resource="deployments",
            subresource="scale",
            operation="UPDATE",
        )

    group, _, version = kind.partition("/")
    given = GroupVersionKind(group=group, version=version, kind="Scale")
    seen = matched_kind(given, scale(own), scale(matched))

    assert f"{seen.group}/{seen.version}" == expected
