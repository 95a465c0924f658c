"""A policy runs again if another changed what it looks at, and only then."""

import pytest

from policyd.engine.evaluate.mutation import meet
from policyd.engine.model.reads import EVERYTHING, reads_of
from tests.engine.reviews import mutated, pod, policies, policy


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        pytest.param(
            "object.metadata.labels['a'] == 'b'", {"metadata", "labels", "a"}, id="labels"
        ),
        pytest.param("has(object.spec.affinity)", {"spec", "affinity"}, id="has"),
        pytest.param("pod.gpus() > 0", {"annotations", "resources"}, id="method"),
        pytest.param("pod.claims() > 0", {"resourceClaims"}, id="claims"),
        pytest.param("workload.pods() > 0", set(), id="method-on-what-does-not-change"),
        pytest.param("workload.controller() in ['', 'CronJob']", set(), id="owner"),
        pytest.param("maker in ['', 'CronJob']", set(), id="maker"),
        pytest.param("pod.requests('cpu').sign() > 0", {"resources"}, id="requests"),
        pytest.param(
            "object.spec.containers.all(c, c.image != 'x')",
            {"spec", "containers", "image"},
            id="loop",
        ),
        pytest.param(
            "object.metadata.?labels[?variables.key].hasValue()",
            {"metadata", "labels", "key"},
            id="computed-key",
        ),
        pytest.param("request.userInfo.username == 'x'", {"userInfo", "username"}, id="request"),
        pytest.param("variables.x == 1", {"x"}, id="variable"),
        pytest.param("object == oldObject", EVERYTHING, id="whole-object"),
        pytest.param("size(object.spec) > 3", EVERYTHING, id="whole-spec"),
        pytest.param("object.spec[variables.field] == 1", EVERYTHING, id="any-field-of-spec"),
        pytest.param("object[variables.field] == 1", EVERYTHING, id="any-field"),
        pytest.param(
            "object.spec.containers.exists(c, c == variables.x)", EVERYTHING, id="whole-item"
        ),
        pytest.param("object.spec.containers[0] == variables.x", EVERYTHING, id="first-item"),
    ],
)
def test_the_reads_of_an_expression(source, expected):
    assert reads_of([source]) == frozenset(expected)


def test_a_change_matters_to_readers_of_it_or_of_everything():
    assert meet(frozenset({"labels"}), frozenset({"labels", "x"}))
    assert meet(frozenset({"labels"}), EVERYTHING)
    assert not meet(frozenset({"tolerations"}), frozenset({"labels"}))


def test_a_gang_is_formed_by_the_name_that_a_later_policy_gives():
    size = policy("inject: {gang: {minMember: 2}}", "a")
    name = policy("inject: {labels: {kueue.x-k8s.io/pod-group-name: run}}", "b")

    result = mutated(policies(size, name), pod())

    assert result["metadata"]["annotations"] == {"kueue.x-k8s.io/pod-group-total-count": "2"}


def test_an_object_selector_sees_the_labels_of_a_later_policy():
    selects = policy("inject: {annotations: {seen: 'yes'}}", "a").replace(
        "resourceRules", "objectSelector: {matchLabels: {late: x}}\n    resourceRules"
    )
    labels = policy("inject: {labels: {late: x}}", "b")

    assert mutated(policies(selects, labels), pod())["metadata"]["annotations"] == {"seen": "yes"}


@pytest.mark.parametrize(
    ("spec", "reads", "writes"),
    [
        pytest.param("inject: {labels: {a: b}}", set(), {"labels"}, id="labels"),
        pytest.param("inject: {nodeSelector: {a: b}}", set(), {"nodeSelector"}, id="selector"),
        pytest.param(
            """
            matchConditions: [{name: big, expression: pod.gpus() > 1}]
            inject: {queueName: {expression: "object.metadata.labels['team']"}}
            """,
            {"annotations", "resources", "metadata", "labels", "team"},
            {"labels"},
            id="conditions-and-values",
        ),
        pytest.param(
            """
            inject: {labels: {a: b}}
            validations: [{expression: object.spec.hostNetwork == true, message: never}]
            """,
            set(),
            {"labels"},
            id="not-what-validations-look-at",
        ),
    ],
)
def test_a_policy_reads_and_writes_what_its_mutations_need(spec, reads, writes):
    (compiled,) = policies(policy(spec)).policies

    assert (set(compiled.reads), set(compiled.writes)) == (reads, writes)
