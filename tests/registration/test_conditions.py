"""What the API server is asked to decide: only what it decides as the webhooks would."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policyd.api.admission import Rule
from policyd.api.selectors import LabelSelector, Requirement
from policyd.cel import Budget, admission_environment, compile_expression
from policyd.engine.objects.match import selects_object
from policyd.engine.objects.pods import claims, gpus
from policyd.registration.conditions import (
    MAY_ASK_FOR_DEVICES,
    all_of,
    any_of,
    exported,
    label_condition,
    name_condition,
)

ENVIRONMENT = admission_environment(params=False)


def holds(expression, **variables):
    program = compile_expression(expression, ENVIRONMENT, wants="bool")
    known = {"object": None, "oldObject": None, "request": {}} | variables
    return program.evaluate(known, Budget())


@pytest.mark.parametrize(
    "expression",
    [
        "request.operation != 'DELETE'",
        "request.operation in ['CREATE', 'UPDATE']",
        "request.userInfo.username == 'alice'",
        "!request.userInfo.username.startsWith('system:node:')",
        "!('system:masters' in request.userInfo.?groups.orValue([]))",
        "has(request.userInfo.groups) && 'ops' in request.userInfo.groups",
        "!has(request.userInfo.groups) || !('ops' in request.userInfo.groups)",
        "has(request.namespace) && request.namespace.startsWith('team-')",
        "object != null && has(object.spec) && has(object.spec.a) && object.spec.a == 1",
        "has(object.metadata.labels) && 'a' in object.metadata.labels"
        " && object.metadata.labels['a'] == 'b'",
        "object.metadata.?labels[?'a'].orValue('') == 'b'",
        "'a' in object.metadata.?labels.orValue({})",
        "!(!has(object.metadata.labels) || false) && 'a' in object.metadata.labels",
        "true",
    ],
)
def test_conditions_that_cannot_fail_are_handed_over(expression):
    assert exported([expression], Rule(operations=("CREATE",))) == (expression,)


@pytest.mark.parametrize(
    ("expression", "operations"),
    [
        pytest.param("object.spec.suspend == true", "CREATE", id="a-field-that-may-be-missing"),
        pytest.param("has(object.spec.suspend)", "CREATE", id="within-what-may-be-missing"),
        pytest.param("object.metadata.name == 'a'", "CREATE", id="a-name-that-is-made-up-later"),
        pytest.param("has(object.metadata.labels)", "DELETE", id="no-object-to-look-at"),
        pytest.param("has(object.metadata.labels)", "*", id="perhaps-no-object"),
        pytest.param("object != null && has(object.metadata)", "CONNECT", id="no-stored-object"),
        pytest.param("request.name == 'a'", "CREATE", id="a-name-that-may-be-missing"),
        pytest.param("object.metadata.labels['a'] == 'b'", "CREATE", id="a-label-never-asked-for"),
        pytest.param(
            "has(object.metadata.labels) || 'a' in object.metadata.labels",
            "CREATE",
            id="asked-for-the-wrong-way-round",
        ),
        pytest.param("pod.gpus() == 0", "CREATE", id="a-word-of-policyd"),
        pytest.param("pod.gpus() > -1", "CREATE", id="true-without-a-gpu"),
        pytest.param("workload.gpus() > 0", "DELETE", id="gpus-of-what-is-gone"),
        pytest.param("namespaceObject.metadata.name == 'a'", "CREATE", id="the-namespace"),
        pytest.param("object.spec.containers.all(c, true)", "CREATE", id="a-loop"),
        pytest.param("request.userInfo.username.matches('a+')", "CREATE", id="a-pattern"),
        pytest.param("request.userInfo.username < 'b'", "CREATE", id="an-order"),
        pytest.param("object.metadata.?labels['a'] == 'b'", "CREATE", id="an-optional-as-it-is"),
    ],
)
def test_conditions_that_may_fail_or_loop_are_evaluated_by_the_webhooks(expression, operations):
    assert exported([expression], Rule(operations=(operations,))) == ()


@pytest.mark.parametrize(
    "expression",
    [
        "pod.gpus() > 0",
        "workload.gpus() > 1",
        "pod.claims() > 0",
        "workload.gpus() > 0 || workload.claims() > 0 || object.kind == 'TrainJob'",
        "workload.gpus() > 0 || object.kind in ['AppWrapper', 'TrainJob']",
    ],
)
def test_in_the_place_of_gpus_the_api_server_asks_whether_there_may_be_any(expression):
    assert exported([expression], Rule(operations=("CREATE", "UPDATE"))) == (MAY_ASK_FOR_DEVICES,)


@pytest.mark.parametrize(
    "expression",
    [
        "workload.gpus() > 0 || object.kind == 'Job'",
        "workload.gpus() > 0 || object.kind in ['TrainJob', 'Job']",
        "workload.gpus() > 0 || object.kind in ['TrainJob', object.metadata.name]",
        "workload.gpus() > 0 || maker == ''",
        "pod.gpus() >= 0",
        "pod.claims() >= 0",
    ],
)
def test_conditions_that_may_hold_without_gpus_are_sent_whole(expression):
    assert exported([expression], Rule(operations=("CREATE", "UPDATE"))) == ()


PODS = {"resource": {"group": "", "resource": "pods"}}
UNLESS_SCALED = "workload.gpus() > 0 || request.?subResource.orValue('') == 'scale'"


@pytest.mark.parametrize("resource", ["pods", "statefulsets/status", "*"])
def test_a_subresource_that_a_rule_does_not_name_is_no_reason_to_ask_about_all_objects(resource):
    rule = Rule(operations=("UPDATE",), resources=(resource,))

    assert exported([UNLESS_SCALED], rule) == (MAY_ASK_FOR_DEVICES,)


@pytest.mark.parametrize("resource", ["statefulsets/scale", "statefulsets/*", "*/*", "*/scale"])
def test_requests_to_a_subresource_that_a_rule_names_are_sent(resource):
    rule = Rule(operations=("UPDATE",), resources=("pods", resource))

    (asked,) = exported([UNLESS_SCALED], rule)

    scaled = {"resource": {"group": "apps", "resource": "statefulsets"}, "subResource": "scale"}
    assert holds(asked, request=scaled, object={"spec": {"replicas": 9}})
    assert not holds(asked, request=PODS, object={"spec": {"containers": [{"name": "c"}]}})


CLASS = "deviceclass.resource.kubernetes.io/h100"
amounts = st.dictionaries(
    st.sampled_from(
        ["cpu", "nvidia.com/gpu", "nvidia.com/mig-1g.5gb", CLASS, "nvidia.com/gpu.memory"]
    ),
    st.sampled_from(["0", "1", 2]),
)
resources = st.fixed_dictionaries({}, optional={"limits": amounts, "requests": amounts})
containers = st.lists(
    st.fixed_dictionaries({"name": st.just("c")}, optional={"resources": resources})
)
specs = st.fixed_dictionaries(
    {"containers": containers},
    optional={
        "initContainers": containers,
        "resources": resources,
        "resourceClaims": st.lists(st.fixed_dictionaries({"name": st.just("gpu")})),
    },
)
UNKNOWN = {"resource": {"group": "x", "resource": "pods"}}
MAY_ASK = compile_expression(MAY_ASK_FOR_DEVICES, ENVIRONMENT, wants="bool")


@given(
    specs,
    st.sampled_from([("", "v1", "Pod"), ("batch", "v1", "Job"), ("apps", "v1", "Deployment")]),
)
def test_every_object_with_gpus_may_have_them(spec, kind):
    group, version, name = kind
    held = spec if name == "Pod" else {"template": {"spec": spec}}
    obj = {"apiVersion": f"{group}/{version}".lstrip("/"), "kind": name, "spec": held}
    asked = {"resource": {"group": group, "resource": f"{name.lower()}s"}}

    may = MAY_ASK.evaluate({"object": obj, "request": asked}, Budget())

    assert may or gpus(obj) == claims(obj) == 0
    assert MAY_ASK.evaluate({"object": obj, "request": UNKNOWN}, Budget())


labels = st.none() | st.dictionaries(st.sampled_from("ab"), st.sampled_from(["x", "y", "it's"]))
metadata = labels.map(lambda given: {"name": "n"} | ({} if given is None else {"labels": given}))
objects = st.none() | metadata.map(lambda given: {"metadata": given})
requirements = st.builds(
    Requirement,
    key=st.sampled_from("ab"),
    operator=st.sampled_from(["In", "NotIn", "Exists", "DoesNotExist"]),
    values=st.sampled_from([("x",), ("x", "it's")]),
)


@given(st.lists(requirements, min_size=1, max_size=3), objects, objects)
def test_a_selector_says_the_same_in_cel(tests, obj, old):
    selector = LabelSelector(match_expressions=tuple(tests))

    selected = holds(label_condition(tests), object=obj, oldObject=old)

    assert selected is selects_object(selector, obj, old)


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        pytest.param({"name": "a"}, True, id="one-of-them"),
        pytest.param({"name": "c"}, False, id="another"),
        pytest.param({}, False, id="none-yet"),
    ],
)
def test_names_say_the_same_in_cel(request_, expected):
    assert holds(name_condition(["a", "b"]), request=request_) is expected


def test_a_comment_does_not_swallow_what_follows():
    joined = any_of([all_of(["false // never", "true"]), "true // always"])

    assert holds(joined) is True
