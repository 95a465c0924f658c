"""The statuses of Kyverno's policies are those that Kyverno writes."""

import pytest

from policyd.dialects.kyverno.statuses import LONGEST_SPEC, conditions_in, policy_status

POD_RULE = {
    "apiGroups": [""],
    "apiVersions": ["v1"],
    "operations": ["CREATE", "UPDATE"],
    "resources": ["pods"],
}
PRIVILEGED = "object.spec.containers.all(c, !has(c.securityContext)) || oldObject.spec.a == 1"


def policy(kind="ValidatingPolicy", *, rules=(POD_RULE,), **spec):
    spec = {"matchConstraints": {"resourceRules": list(rules)}, **spec}
    return {"kind": kind, "metadata": {"name": "p"}, "spec": spec}


def status(obj, before=(), **more):
    return policy_status(obj, before, now=1_000_000_000, **more)


def conditions(made):
    return [
        (each["type"], each["status"], each["reason"], each["message"])
        for each in made["conditionStatus"]["conditions"]
    ]


def configs(obj):
    return status(obj)["autogen"].get("configs", {})


CONFIGURED = ("WebhookConfigured", "True", "Succeeded", "Webhook configured.")
MISSING = ("WebhookConfigured", "False", "Failed", "Policy is not configured in the webhook.")
GRANTED = ("RBACPermissionsGranted", "True", "Succeeded", "Policy is ready for reporting.")


@pytest.mark.parametrize(
    ("more", "ready", "expected"),
    [
        pytest.param({}, True, [CONFIGURED, GRANTED], id="in-force"),
        pytest.param({"fault": "no such field"}, False, [MISSING, GRANTED], id="faulty"),
        pytest.param({"at_admission": False}, True, [GRANTED], id="background"),
    ],
)
def test_it_reports_whether_the_policy_is_in_force(more, ready, expected):
    made = status(policy(), **more)

    assert made["conditionStatus"]["ready"] is ready
    assert made["conditionStatus"]["message"] == more.get("fault", "")
    assert conditions(made) == expected


def test_a_condition_keeps_its_time_while_it_stays_as_it_is():
    first = status(policy())
    before = [{**each, "lastTransitionTime": "T"} for each in conditions_in(first)]

    times = [
        [each["lastTransitionTime"] for each in made["conditionStatus"]["conditions"]]
        for made in (status(policy(), before), status(policy(), before, fault="x"))
    ]

    assert times == [["T", "T"], ["2001-09-09T01:46:40Z", "T"]]


@pytest.mark.parametrize(
    "odd",
    [None, [], {"conditionStatus": 1}, {"conditions": {"a": 1}}, {"conditions": [1, {"type": 2}]}],
)
def test_conditions_that_are_not_understood_are_left_out(odd):
    assert conditions_in(odd) == []


@pytest.mark.parametrize(("fault", "state"), [("", "True"), ("rule `r` is wrong", "False")])
def test_a_cluster_policy_has_one_condition(fault, state):
    made = status({"kind": "ClusterPolicy", "spec": {}}, fault=fault)

    (ready,) = made["conditions"]
    assert (ready["type"], ready["status"], made["ready"]) == ("Ready", state, not fault)
    assert ready["message"] == (fault or "Ready")


def test_a_policy_for_pods_is_shown_as_it_is_for_controllers():
    condition = {"name": "c", "expression": "has(object.metadata.labels)"}
    made = configs(policy(matchConditions=[condition], validations=[{"expression": PRIVILEGED}]))

    assert list(made) == ["defaults", "cronjobs"]
    shown = made["defaults"]["spec"]
    assert shown["matchConditions"][0] == {
        "name": "c",
        "expression": "has(object.spec.template.metadata.labels)",
    }
    assert shown["validations"][0]["expression"] == (
        "object.spec.template.spec.containers.all(c, !has(c.securityContext))"
        " || oldObject.spec.template.spec.a == 1"
    )
    assert shown["matchConstraints"]["resourceRules"] == [
        {**POD_RULE, "apiGroups": [group], "resources": resources}
        for group, resources in (
            ("apps", ["daemonsets", "deployments", "replicasets", "statefulsets"]),
            ("batch", ["jobs"]),
        )
    ]
    assert made["cronjobs"]["targets"] == [
        {"group": "batch", "version": "v1", "resource": "cronjobs", "kind": "CronJob"}
    ]
    assert (
        "object.spec.jobTemplate.spec.template.spec.containers"
        in (made["cronjobs"]["spec"]["validations"][0]["expression"])
    )


@pytest.mark.parametrize("kind", ["ValidatingPolicy", "MutatingPolicy"])
def test_the_policy_for_controllers_is_for_the_namespaces_of_the_one_for_pods(kind):
    selector = {"matchLabels": {"environment": "production"}}
    constraints = {"resourceRules": [POD_RULE], "namespaceSelector": selector}
    constraints["matchPolicy"] = "Exact"

    made = configs(policy(kind, matchConstraints=constraints))

    shown = [each["spec"]["matchConstraints"] for each in made.values()]
    assert [each["namespaceSelector"] for each in shown] == [selector, selector]
    assert not any("matchPolicy" in each for each in shown)


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        pytest.param(
            "Object{spec: Object.spec{a: object.spec.b}}",
            "Object{spec: Object.spec{template: Object.spec.template{spec:"
            " Object.spec.template.spec{a: object.spec.template.spec.b}}}}",
            id="object",
        ),
        pytest.param("x ? Object.spec{} : 1", "x ? Object.spec.template.spec{} : 1", id="other"),
        pytest.param(
            "Object{",
            "Object{spec: Object.spec{template: Object.spec.template{}}",
            id="without-an-end",
        ),
    ],
)
def test_a_mutation_is_shown_as_one_of_templates(expression, expected):
    mutation = {"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": expression}}

    made = configs(policy("MutatingPolicy", mutations=[mutation, {"patchType": "JSONPatch"}]))

    shown = made["defaults"]["spec"]["mutations"]
    assert shown[0]["applyConfiguration"]["expression"] == expected
    assert shown[1] == {"patchType": "JSONPatch"}


@pytest.mark.parametrize(
    ("named", "expected"),
    [
        pytest.param(["deployments", "cronjobs"], ["defaults", "cronjobs"], id="some"),
        pytest.param(["cronjobs"], ["cronjobs"], id="one"),
        pytest.param(["rayjobs", 1], [], id="unknown"),
        pytest.param([], [], id="none"),
    ],
)
def test_the_controllers_are_those_that_the_policy_names(named, expected):
    assert list(configs(policy(autogen={"podControllers": {"controllers": named}}))) == expected


@pytest.mark.parametrize(
    "obj",
    [
        pytest.param(policy(rules=[{**POD_RULE, "resources": ["nodes"]}]), id="not-for-pods"),
        pytest.param(policy(rules=[POD_RULE, POD_RULE]), id="two-rules"),
        pytest.param(policy(rules=[1]), id="odd-rules"),
        pytest.param({**policy(), "spec": None}, id="no-spec"),
        pytest.param(policy(variables=["a" * LONGEST_SPEC]), id="long"),
    ],
)
def test_others_are_shown_for_none(obj):
    assert status(obj)["autogen"] == {}
