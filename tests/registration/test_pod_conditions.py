"""Conditions on pods that the API server is asked: never false where the policy's own is true."""

from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from policyd.api.admission import Rule
from policyd.cel import Budget, admission_environment, compile_expression
from policyd.cel.syntax.parser import parse
from policyd.engine.model.functions import expression_environment
from policyd.registration.conditions import exported
from policyd.registration.pod_conditions import is_sure_of_pods, of_pod

CONTAINERS = "pod.?spec.?containers.orValue([]) + pod.?spec.?initContainers.orValue([])"

SURE = [
    "pod.?spec.?hostNetwork.orValue(false) == true",
    "!(pod.?spec.?hostNetwork.orValue(false) != true)",
    "!(pod.?spec.?priorityClassName.orValue('') in ['a', 'b'])",
    "pod.?spec.?priorityClassName.orValue('').startsWith('system-')",
    "pod.?spec.?priority.orValue(0) > 100",
    "pod.?metadata.?annotations.orValue({}).exists(k, k.startsWith('cdi.k8s.io/'))",
    "pod.?spec.?nodeSelector[?'pool'].orValue('') == 'gpu'",
    f"({CONTAINERS}).exists(c, c.?env.orValue([]).exists(e, e.?name.orValue('') == 'A'"
    " && has(e.valueFrom)))",
    f"({CONTAINERS}).filter(c, c.?image.orValue('').contains(':')).size() != 0",
    f"[{CONTAINERS}].all(l, l.size() < 3)",
    "pod.?spec.?hostPID.orValue(false) == true ? true : pod.?spec.?hostIPC.orValue(false) == true",
]


@pytest.mark.parametrize("text", SURE)
def test_a_condition_that_cannot_fail_is_asked_of_kinds_with_one_pod_as_it_is(text):
    assert exported([text], Rule(operations=("CREATE", "UPDATE"))) == (of_pod(text),)


@pytest.mark.parametrize(
    "name",
    [
        "network/host-network-for-rdma",
        "security/reserved-priority-classes",
        "security/visible-devices",
    ],
)
def test_an_outage_stops_only_what_could_break_these_policies_of_the_library(name):
    spec = yaml.safe_load(Path("policies", name, "policy.yaml").read_text())["spec"]
    assert spec["failurePolicy"] == "Fail"
    texts = [each["expression"] for each in spec["matchConditions"]]
    asked = exported(texts, Rule(operations=("CREATE",)))
    assert any(".exists(pod, " in text for text in asked), asked


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("pod.spec.hostNetwork == true", id="a-field-that-may-be-missing"),
        pytest.param("has(pod.spec.hostNetwork)", id="a-field-of-an-optional"),
        pytest.param("pod.?spec.?hostNetwork.orValue('') == ''", id="a-default-of-another-type"),
        pytest.param("pod.?spec.?hostNetwork.value()", id="a-value-that-may-be-missing"),
        pytest.param("pod.?spec.?hostNetwork == optional.none()", id="compared-as-an-optional"),
        pytest.param("pod.?spec.?unheardOf.orValue(false)", id="a-field-that-is-unknown"),
        pytest.param("pod.?spec.?priorityClassName.orValue('').matches('a')", id="a-pattern"),
        pytest.param("pod.?spec.?overhead[?'cpu'].orValue('').startsWith('1')", id="a-quantity"),
        pytest.param("pod.?spec.?containers.orValue([])[0].name == 'a'", id="an-item"),
        pytest.param("pod.?spec.?containers.orValue([]).exists(c, c.name == 'a')", id="a-loop"),
        pytest.param(".pod.?spec.?hostNetwork.orValue(false)", id="an-absolute-name"),
        pytest.param("pod.?spec.?containers.orValue([]).exists(i, c, i == 0)", id="two-variables"),
        pytest.param("variables.taking.size() == 0", id="a-variable"),
        pytest.param("namespaceObject.metadata.name == 'a'", id="the-namespace"),
        pytest.param("pod.requests('cpu') > quantity('1')", id="a-function-of-policyd"),
        pytest.param(
            "pod.?spec.?hostNetwork.orValue(false) || maker == ''", id="or-something-else"
        ),
    ],
)
def test_a_condition_that_may_fail_is_left_to_the_webhooks(text):
    assert exported([text], Rule(operations=("CREATE",))) == ()


@pytest.mark.parametrize(
    ("operations", "resources"),
    [
        (("DELETE",), ("pods",)),
        (("*",), ("pods",)),
        (("UPDATE",), ("deployments/scale",)),
        (("CREATE",), ("pods/binding",)),
        (("CREATE",), ("*/*",)),
    ],
)
def test_requests_without_the_whole_object_are_left_to_the_webhooks(operations, resources):
    assert exported([SURE[0]], Rule(operations=operations, resources=resources)) == ()


def test_of_several_conditions_those_are_asked_that_can_be():
    (asked,) = exported([f"maker == '' && {SURE[0]}"], Rule(operations=("CREATE",)))

    assert of_pod(SURE[0]) in asked
    assert "maker" not in asked


def test_alternatives_are_asked_only_if_all_of_them_can_be():
    parts = f"maker == 'Job' && {SURE[0]} || {SURE[2]}"

    assert exported([parts], Rule(operations=("CREATE",))) == ()
    (asked,) = exported(
        [f"{SURE[0]} || object.metadata.?labels[?'a'].orValue('') == 'b'"],
        Rule(operations=("CREATE",)),
    )
    assert asked.startswith(f"({of_pod(SURE[0])}\n) || (")


names = st.sampled_from(["A", "a", "system-x", "NVIDIA_VISIBLE_DEVICES"])
container = st.fixed_dictionaries(
    {"name": names},
    optional={
        "image": st.sampled_from(["a", "a:1"]),
        "env": st.lists(
            st.fixed_dictionaries(
                {"name": names}, optional={"value": names, "valueFrom": st.just({})}
            ),
            max_size=2,
        ),
    },
)
spec = st.fixed_dictionaries(
    {"containers": st.lists(container, max_size=2)},
    optional={
        "initContainers": st.lists(container, max_size=2),
        "hostNetwork": st.booleans(),
        "hostPID": st.booleans(),
        "priorityClassName": names,
        "priority": st.sampled_from([0, 101]),
        "nodeSelector": st.dictionaries(st.just("pool"), st.just("gpu")),
    },
)
pods = st.fixed_dictionaries(
    {},
    optional={
        "spec": spec,
        "metadata": st.fixed_dictionaries(
            {}, optional={"annotations": st.dictionaries(st.just("cdi.k8s.io/a"), names)}
        ),
    },
)
WRAPPED = {
    "/pods": lambda pod: pod,
    "/podtemplates": lambda pod: {"template": pod},
    "/replicationcontrollers": lambda pod: {"spec": {"template": pod}},
    "batch/jobs": lambda pod: {"spec": {"template": pod}},
    "batch/cronjobs": lambda pod: {"spec": {"jobTemplate": {"spec": {"template": pod}}}},
    "apps/deployments": lambda pod: {"spec": {"template": pod}},
}
OWN = {text: compile_expression(text, expression_environment(), wants="bool") for text in SURE}
ASKED = {
    text: compile_expression(of_pod(text), admission_environment(params=False), wants="bool")
    for text in SURE
}


@given(pods, st.sampled_from(sorted(WRAPPED)), st.sampled_from(SURE))
def test_the_api_server_answers_as_the_webhooks_would(pod, resource, text):
    group, _, plural = resource.partition("/")
    request = {"resource": {"group": group, "resource": plural}}

    asked = ASKED[text].evaluate({"object": WRAPPED[resource](pod), "request": request}, Budget())

    assert asked is OWN[text].evaluate({"pod": pod}, Budget())


@pytest.mark.parametrize("resource", ["jobset.x-k8s.io/jobsets", "batch.volcano.sh/jobs", "x/pods"])
def test_kinds_with_templates_elsewhere_are_sent_whatever_they_hold(resource):
    group, _, plural = resource.partition("/")
    request = {"resource": {"group": group, "resource": plural}}

    for program in ASKED.values():
        assert program.evaluate({"object": {"spec": {}}, "request": request}, Budget())


def test_what_is_no_condition_is_not_sure():
    assert not is_sure_of_pods(parse("pod.?spec.?containers.orValue([])"))
