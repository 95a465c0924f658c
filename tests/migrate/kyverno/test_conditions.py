"""Conditions of `deny`, `preconditions` and `foreach` mean what Kyverno means by them."""

import pytest

from tests.migrate.kyverno.deciding import answer, in_template, legacy, pod, rule, validating


def when(key, operator, value):
    return {"key": key, "operator": operator, "value": value}


def denied(*conditions, of=None, how="all"):
    policy = validating(deny={"conditions": {how: list(conditions)}})
    return answer(policy, of or pod(labels={"n": "5", "t": "2h", "w": "ab"})) == "fail"


LABEL = "{{{{ request.object.metadata.labels.{} || '' }}}}"
N, T, W = (LABEL.format(name) for name in "ntw")
CONTAINERS = "{{ request.object.spec.containers[].name }}"
LENGTH = "{{ length(request.object.spec.containers) }}"


@pytest.mark.parametrize(
    ("key", "operator", "value", "expected"),
    [
        (W, "Equals", "ab", True),
        (W, "Equals", "a*", True),
        (W, "NotEquals", "ab", False),
        (W, "NotEquals", "b*", True),
        (W, "In", ["ab", "c"], True),
        (W, "AnyIn", ["a*", "c"], True),
        (W, "AnyNotIn", ["ab", "c"], False),
        (W, "NotIn", ["c"], True),
        (W, "AllNotIn", ["c"], True),
        (CONTAINERS, "AnyIn", ["c"], True),
        (CONTAINERS, "AllIn", ["c", "d"], True),
        (CONTAINERS, "AnyNotIn", ["c"], False),
        (CONTAINERS, "AllNotIn", ["d*"], True),
        ("c", "AnyIn", CONTAINERS, True),
        ("x*", "AnyNotIn", CONTAINERS, True),
        (["c", "x"], "AnyIn", CONTAINERS, True),
        (["c", "x"], "AllIn", CONTAINERS, False),
        (LENGTH, "GreaterThan", 0, True),
        (LENGTH, "GreaterThanOrEquals", "1", True),
        (LENGTH, "LessThan", 1, False),
        (LENGTH, "LessThanOrEquals", 1, True),
        (LENGTH, "Equals", 1, True),
        (N, "GreaterThan", "4", True),
        (N, "LessThan", "1k", True),
        (T, "DurationGreaterThan", "1h", True),
        (T, "DurationLessThanOrEquals", "119m", False),
        (T, "GreaterThan", "1h", True),
        ("{{ contains(request.object.spec.containers[].name, 'c') }}", "Equals", True, True),
    ],
    ids=str,
)
def test_an_operator_decides_as_in_kyverno(key, operator, value, expected):
    assert denied(when(key, operator, value)) is expected


def test_any_and_all_are_combined():
    yes, no = when(W, "Equals", "ab"), when(W, "Equals", "x")

    assert denied(yes, no, how="any")
    assert not denied(yes, no, how="all")
    block = {"any": [no, yes], "all": [yes]}
    assert answer(validating(deny={"conditions": block}), pod(labels={"w": "ab"})) == "fail"


def test_a_list_is_of_conditions_that_all_must_hold():
    conditions = [when(W, "Equals", "ab"), when(N, "Equals", "x")]

    assert answer(validating(deny={"conditions": conditions}), pod(labels={"w": "ab"})) == "pass"


def test_a_precondition_is_one_of_the_match():
    policy = legacy(
        rule(
            preconditions={"all": [when(W, "Equals", "ab")]}, validate={"deny": {}, "message": "m"}
        )
    )

    assert answer(policy, pod()) == "skip"
    assert answer(policy, pod(labels={"w": "ab"})) == "fail"


@pytest.mark.parametrize(
    "key", ["{{request.operation}}", "{{ request.operation || 'BACKGROUND' }}"]
)
@pytest.mark.parametrize(
    ("operator", "value", "concerned"),
    [
        ("Equals", "UPDATE", {"UPDATE"}),
        ("NotEquals", "UPDATE", {"CREATE"}),
        ("AnyIn", ["CREATE", "UPDATE"], {"CREATE", "UPDATE"}),
        ("AnyNotIn", ["CREATE"], {"UPDATE"}),
    ],
)
def test_a_condition_on_the_operation_is_a_list_of_operations(key, operator, value, concerned):
    policy = legacy(
        rule(
            preconditions={"all": [when(key, operator, value)]},
            validate={"pattern": {"metadata": {"labels": {"a": "b"}}}},
        )
    )

    for operation in ("CREATE", "UPDATE"):
        result = answer(policy, pod(), operation=operation)
        assert result == ("fail" if operation in concerned else "skip")


def test_a_deletion_is_concerned_by_a_rule_that_does_not_read_the_object():
    policy = legacy(rule(validate={"deny": {}, "message": "no"}))

    assert answer(policy, pod(), operation="DELETE") == "fail"


@pytest.mark.parametrize(
    ("entry", "good", "bad"),
    [
        pytest.param({"pattern": {"image": "!*:latest"}}, "a:1", "a:latest", id="pattern"),
        pytest.param(
            {"deny": {"conditions": {"any": [when("{{ element.image }}", "Equals", "b*")]}}},
            "a",
            "b",
            id="deny",
        ),
        pytest.param(
            {
                "preconditions": {"all": [when("{{ element.image }}", "Equals", "a*")]},
                "pattern": {"imagePullPolicy": "Always"},
            },
            "b",
            "a",
            id="preconditions",
        ),
        pytest.param(
            {"deny": {"conditions": {"all": [when("{{ elementIndex }}", "GreaterThan", 0)]}}},
            None,
            "a",
            id="index",
        ),
        pytest.param(
            {
                "foreach": [
                    {"list": "element.ports", "pattern": {"containerPort": ">1024"}},
                ]
            },
            "a",
            None,
            id="in-a-foreach",
        ),
    ],
)
def test_every_element_is_asked(entry, good, bad):
    policy = validating(foreach=[{"list": "request.object.spec.containers", **entry}])

    if good:
        assert answer(policy, pod({"name": "a", "image": good})) == "pass"
    if bad:
        first = {"name": "b", "image": "c"}
        assert answer(policy, pod(first, {"name": "a", "image": bad})) == "fail"


def test_variables_are_named():
    context = [
        {"name": "team", "variable": {"jmesPath": "request.object.metadata.labels.team || 'none'"}},
        {"name": "both", "variable": {"value": "{{ team }}-x"}},
    ]
    asked = {"conditions": {"all": [when("{{ both }}", "Equals", "a-x")]}}
    policy = legacy(rule(context=context, validate={"deny": asked, "message": "of {{ team }}"}))

    assert answer(policy, pod(labels={"team": "a"})) == "fail"
    assert answer(policy, pod()) == "pass"


NAMESPACES = ["kube-*", "{{ request.object.metadata.labels.extra || 'none' }}", "b"]


@pytest.mark.parametrize(
    ("operator", "name", "expected"),
    [
        pytest.param("AnyIn", "kube-a", "fail", id="wildcard"),
        pytest.param("AnyIn", "x", "fail", id="variable"),
        pytest.param("AnyIn", "b", "fail", id="literal"),
        pytest.param("AnyIn", "c", "pass", id="none"),
        pytest.param("AnyNotIn", "x", "pass", id="not-variable"),
        pytest.param("AnyNotIn", "kube-a", "pass", id="not-wildcard"),
        pytest.param("AnyNotIn", "c", "fail", id="not-none"),
    ],
)
def test_lists_of_values_may_have_variables_in_them(operator, name, expected):
    condition = {"key": "{{ request.object.metadata.annotations.n }}", "operator": operator}
    policy = validating(deny={"conditions": {"any": [{**condition, "value": NAMESPACES}]}})

    assert answer(policy, pod(labels={"extra": "x"}, annotations={"n": name})) == expected


def test_maps_of_variables_may_have_variables_in_them():
    context = [
        {"name": "all", "variable": {"value": {"a": "{{ request.object.metadata.name }}", "b": 1}}}
    ]
    deny = {"conditions": {"any": [{"key": "{{ all.a }}", "operator": "Equals", "value": "a"}]}}
    policy = legacy(rule(context=context, validate={"message": "no", "deny": deny}))

    assert answer(policy, pod()) == "fail"


def variable(name, **given):
    return {"name": name, "variable": given}


def with_context(*context, key, value="a"):
    """Return what a rule decides that refuses where a value with a context equals another."""
    deny = {"conditions": {"all": [when(key, "Equals", value)]}}
    policy = legacy(rule(context=[*context], validate={"message": "no", "deny": deny}))
    return answer(policy, pod(labels={"x": ""}))


@pytest.mark.parametrize(
    ("context", "key", "value"),
    [
        pytest.param(
            [
                variable(
                    "n", jmesPath="request.object.x", default="{{ request.object.metadata.name }}"
                )
            ],
            "{{ n }}",
            "a",
            id="default-with-a-variable",
        ),
        pytest.param(
            [variable("o", value={"x": "1"}), variable("o", value={"x": "2"})],
            "{{ o.x }}",
            "2",
            id="one-that-hides-another",
        ),
        pytest.param(
            [variable("o", value={"x": "1"})], "{{ to_string(o.y) }}", "null", id="text-of-null"
        ),
        pytest.param(
            [variable("o", value={"a": "1", "b": "2"}), variable("k", value="b")],
            "{{ o.{{k}} }}",
            "2",
            id="name-from-a-variable",
        ),
        pytest.param([variable("o", value={"x": "1"})], '{{ o.y || "" }}', "", id="empty-name"),
        pytest.param(
            [variable("o", jmesPath="request.object.metadata")],
            "{{ o.labels.x || o.labels.y || o.name }}",
            "a",
            id="another-for-an-empty-text",
        ),
    ],
)
def test_variables_of_a_context_are_as_in_kyverno(context, key, value):
    assert with_context(*context, key=key, value=value) == "fail"
    assert with_context(*context, key=key, value=f"{value}-other") == "pass"


BUDGETS = {"any": [{"resources": {"kinds": ["PodDisruptionBudget"]}}]}


def budget(least):
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "a", "namespace": "default"},
        "spec": {"minAvailable": least},
    }


@pytest.mark.parametrize(("least", "expected"), [("50%", "pass"), (2, "fail"), ("2", "fail")])
def test_a_number_in_quotes_is_a_text(least, expected):
    key = "{{ regex_match('^[0-9]+$', '{{ request.object.spec.minAvailable || ''}}') }}"
    deny = {"conditions": {"any": [{"key": key, "operator": "Equals", "value": True}]}}

    assert answer(validating(BUDGETS, deny=deny), budget(least)) == expected


@pytest.mark.parametrize(("least", "expected"), [(3, "pass"), (5, "fail"), ("5", "fail")])
def test_a_number_is_compared_with_a_number_or_text(least, expected):
    context = [variable("most", value={"n": [1, 2, 3, 4]})]
    condition = when(
        "{{ most.n | length(@) }}", "LessThan", "{{ request.object.spec.minAvailable }}"
    )
    validate = {"message": "no", "deny": {"conditions": {"all": [condition]}}}
    policy = legacy(rule(match=BUDGETS, context=context, validate=validate))

    assert answer(policy, budget(least)) == expected


def test_images_of_several_lists_are_one_list():
    key = "{{ images.[containers, initContainers][].*.registry[] }}"
    deny = {"conditions": {"any": [when(key, "AnyNotIn", ["ghcr.io"])]}}
    policy = validating(deny=deny)
    good = {"name": "a", "image": "ghcr.io/team/a:1"}

    assert answer(policy, pod(good, initContainers=[good])) == "pass"
    assert answer(policy, pod(good, initContainers=[{"name": "b", "image": "nginx"}])) == "fail"


def test_patterns_of_a_foreach_may_be_about_the_whole_object():
    mounts = [{"(name)": "{{ element.name }}", "mountPath": "/tmp/*"}]
    pattern = {"spec": {"containers": [{"name": "*", "volumeMounts": mounts}]}}
    policy = validating(
        foreach=[
            {
                "list": "request.object.spec.volumes[?contains(keys(@), 'emptyDir')]",
                "elementScope": False,
                "pattern": pattern,
            }
        ]
    )

    def mounted(path):
        container = {"name": "a", "image": "b", "volumeMounts": [{"name": "v", "mountPath": path}]}
        return pod(container, volumes=[{"name": "v", "emptyDir": {}}])

    assert answer(policy, mounted("/tmp/a")) == "pass"
    assert answer(policy, mounted("/a")) == "fail"
    assert answer(policy, in_template(mounted("/a"))) == "fail"
