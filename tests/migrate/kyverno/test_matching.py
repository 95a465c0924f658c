"""`match` and `exclude` concern the objects that they concern in Kyverno."""

import pytest

from policyd.migrate.kyverno.policies import convert
from tests.migrate.kyverno.deciding import answer, legacy, pod, rule

DENY = {"deny": {}, "message": "no"}


def resource(**wanted):
    return {"resources": {"kinds": ["Pod"], **wanted}}


def concerned(match, of, exclude=None, **others):
    parts = {"exclude": exclude} if exclude else {}
    return answer(legacy(rule(match=match, validate=DENY, **parts)), of, **others) == "fail"


NAMESPACE = {
    "apiVersion": "v1",
    "kind": "Namespace",
    "metadata": {"name": "default", "labels": {"team": "a"}},
}

NODE = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}}


@pytest.mark.parametrize(
    ("match", "expected"),
    [
        pytest.param(resource(), True, id="kind"),
        pytest.param(resource(kinds=["v1/Pod"]), True, id="version"),
        pytest.param(resource(kinds=["apps/v1/Deployment"]), False, id="other-kind"),
        pytest.param(resource(kinds=["P*"]), True, id="kind-like"),
        pytest.param(resource(kinds=["*"]), True, id="every-kind"),
        pytest.param(resource(names=["a"]), True, id="name"),
        pytest.param(resource(name="b*"), False, id="name-unlike"),
        pytest.param(resource(namespaces=["def*"]), True, id="namespace"),
        pytest.param(resource(namespaces=["x", "y"]), False, id="other-namespaces"),
        pytest.param(resource(annotations={"k": "v*"}), True, id="annotation"),
        pytest.param(resource(selector={"matchLabels": {"app": "web"}}), True, id="labels"),
        pytest.param(resource(selector={"matchLabels": {"a*": "?*"}}), True, id="labels-like"),
        pytest.param(
            resource(selector={"matchExpressions": [{"key": "app", "operator": "DoesNotExist"}]}),
            False,
            id="requirement",
        ),
        pytest.param(
            resource(namespaceSelector={"matchLabels": {"team": "a"}}), True, id="namespace-labels"
        ),
        pytest.param(resource(operations=["UPDATE"]), False, id="operation"),
        pytest.param(
            {"any": [resource(names=["x"]), resource(namespaces=["default"])]}, True, id="any"
        ),
        pytest.param(
            {"all": [resource(names=["a"]), {"resources": {"namespaces": ["x"]}}]}, False, id="all"
        ),
        pytest.param({"any": [{"subjects": [{"kind": "User", "name": "x"}]}]}, False, id="user"),
    ],
)
def test_a_filter_picks_what_it_picks_in_kyverno(match, expected):
    of = pod(labels={"app": "web"}, annotations={"k": "v1"})

    assert concerned(match, of, namespaces=[NAMESPACE]) is expected
    if "all" not in match:
        kept = resource()
        assert concerned(kept, of, exclude=match, namespaces=[NAMESPACE]) is not expected


@pytest.mark.parametrize(
    "subject",
    [
        {"kind": "User", "name": "jo*"},
        {"kind": "Group", "name": "dev"},
        {"kind": "ServiceAccount", "name": "ci", "namespace": "team-a"},
    ],
    ids=lambda subject: subject["kind"],
)
def test_a_user_is_matched_by_a_condition(subject):
    match = {"any": [{**resource(), "subjects": [subject]}]}
    (policy,) = convert(legacy(rule(match=match, validate=DENY))).policies
    (condition,) = policy["spec"]["matchConditions"]

    wanted = {
        "User": "request.userInfo.username.startsWith('jo')",
        "Group": "'dev' in request.userInfo.groups",
        "ServiceAccount": "request.userInfo.username == 'system:serviceaccount:team-a:ci'",
    }
    assert condition == {"name": "user", "expression": wanted[subject["kind"]]}


def test_a_policy_of_a_namespace_stays_in_it():
    policy = legacy(rule(match=resource(), validate=DENY), kind="Policy")
    policy["metadata"]["namespace"] = "team-a"
    of = pod()

    assert answer(policy, of) == "skip"
    of["metadata"]["namespace"] = "team-a"
    assert answer(policy, of) == "fail"


LABELED = {"matchLabels": {"team": "a"}}
UNLABELED = {"matchExpressions": [{"key": "x", "operator": "DoesNotExist"}]}


@pytest.mark.parametrize("kyverno", [False, True])
@pytest.mark.parametrize("several", [False, True])
@pytest.mark.parametrize(
    ("selector", "of", "expected"),
    [
        pytest.param(LABELED, pod(), True, id="in-it"),
        pytest.param(LABELED, NAMESPACE, False, id="itself"),
        pytest.param(LABELED, NODE, False, id="none"),
        pytest.param(UNLABELED, pod(), True, id="in-it-without-label"),
        pytest.param(UNLABELED, NAMESPACE, False, id="itself-without-label"),
        pytest.param(UNLABELED, NODE, True, id="none-without-label"),
    ],
)
def test_labels_of_namespaces_select_objects_in_them(selector, of, expected, several, kyverno):
    selected = resource(kinds=["*"], namespaceSelector=selector)
    given = {"namespaces": [NAMESPACE], "kyverno": kyverno}
    match = {"any": [selected, resource(kinds=["Lease"])]} if several else selected

    assert concerned(match, of, **given) is expected
    assert concerned(resource(kinds=["*"]), of, exclude=match, **given) is not expected


@pytest.mark.parametrize(
    ("kind", "resource"),
    [
        ("Pod/exec", "pods/exec"),
        ("Node/proxy", "nodes/proxy"),
        ("PodExecOptions", "pods/exec"),
        ("PodAttachOptions", "pods/attach"),
        ("PodPortForwardOptions", "pods/portforward"),
    ],
)
@pytest.mark.parametrize("named", [True, False])
def test_rules_of_connections_concern_connect(kind, resource, named):
    operation = {"key": "{{ request.operation || 'BACKGROUND' }}", "operator": "Equals"}
    only = {"preconditions": {"all": [operation | {"value": "CONNECT"}]}} if named else {}
    match = {"any": [{"resources": {"kinds": [kind]}}]}

    (made,) = convert(legacy(rule(match=match, validate={"deny": {}}, **only))).policies

    (found,) = made["spec"]["matchConstraints"]["resourceRules"]
    assert found["resources"] == [resource]
    assert found["operations"] == (
        ["CONNECT"] if named else ["CREATE", "UPDATE", "DELETE", "CONNECT"]
    )
