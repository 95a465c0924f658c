"""Expressions evaluate on decoded JSON as it is, and say where they fail."""

import weakref

import pytest

from policyd.cel import (
    Budget,
    CelCostError,
    CelError,
    CelInternalError,
    LazyVariables,
    admission_environment,
    compile_expression,
)
from policyd.cel.functions import function, method
from policyd.cel.types import DYN, INT, STRING

POD = {
    "metadata": {"name": "web", "labels": {"app": "web", "zero": ""}},
    "spec": {
        "containers": [
            {"name": "a", "image": "r/a:1", "resources": {"limits": {"memory": "1Gi"}}},
            {"name": "b", "image": "r/b", "ports": [{"port": 80}, {"port": 443}]},
        ],
        "replicas": 3,
        "nothing": None,
    },
}
CALLS = []


def _count(value):
    CALLS.append(value)
    return value


ENVIRONMENT = admission_environment(
    mutation=True, extra=[function("count", DYN, returns=DYN, run=_count)]
)


def evaluate(source, variables=None, budget=None, environment=ENVIRONMENT):
    activation = {"object": POD, "oldObject": None, "request": {"name": "web"}}
    program = compile_expression(source, environment)
    return program.evaluate({**activation, **(variables or {})}, budget or Budget())


@pytest.mark.parametrize(
    ("source", "value"),
    [
        pytest.param("object.metadata.name == 'web'", True, id="select"),
        pytest.param("object.spec.containers.map(c, c.name)", ["a", "b"], id="map"),
        pytest.param("object.spec.containers[1].ports.size()", 2, id="index"),
        pytest.param("object.spec.containers.filter(c, has(c.ports)).size()", 1, id="filter"),
        pytest.param("object.?spec.?missing.orValue(7)", 7, id="optional-chain"),
        pytest.param("object.spec.nothing == null", True, id="null"),
        pytest.param("has(object.spec.nothing)", True, id="null-is-present"),
        pytest.param("object.spec.replicas / 2", 1, id="integer-division"),
        pytest.param("-7 / 2", -3, id="division-towards-zero"),
        pytest.param("-7 % 2", -1, id="remainder-of-a-negative"),
        pytest.param("dyn(1) == 1.0 && dyn(1u) == 1", True, id="numbers-across-types"),
        pytest.param("{dyn(1): 'a', dyn(true): 'b'}[true]", "b", id="true-is-not-one"),
        pytest.param("'é'.size()", 1, id="size-in-code-points"),
        pytest.param("[1, 2].exists_one(x, x > 1)", True, id="exists-one"),
        pytest.param("object.metadata.labels.exists(k, k == 'app')", True, id="keys"),
        pytest.param("object.metadata.labels.all(k, v, k != v)", True, id="keys-and-values"),
        pytest.param("'a' in object.metadata.labels", False, id="in-map"),
        pytest.param("object.spec == object.spec", True, id="deep-equality"),
        pytest.param(
            "Object{spec: Object.spec{a: 1, ?b: optional.none()}}", {"spec": {"a": 1}}, id="struct"
        ),
    ],
)
def test_expressions_have_values(source, value):
    assert evaluate(source) == value


@pytest.mark.parametrize(
    ("source", "column", "message"),
    [
        pytest.param("object.spec.missing", 12, "no such key: missing", id="key"),
        pytest.param("object.spec.nothing.more", 20, "null_type has no field 'more'", id="null"),
        pytest.param("object.spec.replicas.more", 21, "int has no field 'more'", id="scalar"),
        pytest.param("object.spec.containers.more", 23, "index type 'string' in list", id="list"),
        pytest.param("object.spec.containers[2]", 23, "index out of bounds: 2", id="index"),
        pytest.param("object.spec.containers[-1]", 23, "index out of bounds: -1", id="negative"),
        pytest.param("object[request.name]", 7, "no such key: web", id="computed-key"),
        pytest.param("object.spec.replicas + 'a'", 22, "no such overload", id="operator"),
        pytest.param("object.spec.replicas && true", 12, "expected bool, found int", id="no-bool"),
        pytest.param("1 / (object.spec.replicas - 3)", 3, "division by zero", id="division"),
        pytest.param(
            "9223372036854775807 + object.spec.replicas", 21, "integer overflow", id="int"
        ),
        pytest.param("object.metadata.name.matches('(' + '')", 29, "error parsing", id="regex"),
        pytest.param("optional.none().value()", 22, "optional.none() dereference", id="none"),
        pytest.param("object.spec.replicas.startsWith('a')", 32, "no such overload", id="method"),
        pytest.param("true &&\n object.spec.missing == 1", 13, "no such key", id="second-line"),
        pytest.param("int('x')", 4, "type conversion error", id="conversion"),
    ],
)
def test_errors_say_where(source, column, message):
    with pytest.raises(CelError) as caught:
        evaluate(source)

    assert message in caught.value.message
    assert caught.value.column == column
    assert caught.value.line == 1 + source.count("\n")


@pytest.mark.parametrize(
    ("source", "value"),
    [
        pytest.param("object.missing.a == 1 || true", True, id="or"),
        pytest.param("true || object.missing.a == 1", True, id="or-short-circuit"),
        pytest.param("object.missing.a == 1 && false", False, id="and"),
        pytest.param("[0, 1].exists(x, 1 / x == 1)", True, id="exists"),
        pytest.param("[0, 1].all(x, 1 / x == 2)", False, id="all"),
        pytest.param("(object.a == 1 || object.b == 1) || true", True, id="nested"),
        pytest.param("cel_free(1) || true", True, id="function"),
    ],
)
def test_deciding_operands_absorb_errors(source, value):
    def fail(_value):
        raise CelError("failed")

    extra = [function("cel_free", INT, returns=DYN, run=fail)]

    assert evaluate(source, environment=admission_environment(extra=extra)) is value


def test_the_first_error_is_reported_if_nothing_decides():
    with pytest.raises(CelError, match="no such key: first"):
        evaluate("object.first == 1 || false || object.second == 1")


def test_each_operand_is_evaluated_once():
    CALLS.clear()

    evaluate("count(1) == 2 || count(2) == 3 || [1, 2].all(x, count(x + 2) > 0)")

    assert CALLS == [1, 2, 3, 4]


def test_unneeded_expressions_are_not_evaluated():
    CALLS.clear()

    evaluate("true || count(1) == 1")
    evaluate("false ? count(2) : 0")
    evaluate("optional.of(1).orValue(count(3))")

    assert CALLS == []


@pytest.mark.parametrize(
    "object_",
    [
        pytest.param(None, id="null"),
        pytest.param({}, id="empty"),
        pytest.param({"spec": []}, id="list-for-object"),
        pytest.param({"spec": {"containers": "abc"}}, id="string-for-list"),
        pytest.param({"spec": {"containers": {"name": 1}}}, id="object-for-list"),
        pytest.param({"spec": {"containers": [None, 1, "x", [], {"name": 10**400}]}}, id="mixed"),
        pytest.param({"spec": {"containers": [{"name": float("nan")}]}}, id="nan"),
        pytest.param({"spec": {"containers": [object()]}}, id="no-json"),
        pytest.param({1: 2, None: 3, ("a",): 4}, id="keys-that-are-no-strings"),
        pytest.param(10**5_000, id="huge-integer"),
        pytest.param("\ud800", id="lone-surrogate"),
    ],
)
@pytest.mark.parametrize(
    "source",
    [
        "object.spec.containers.all(c, c.name.startsWith('a') || c.name.matches('^a'))",
        "object.spec.containers.map(c, c.name + 1)",
        "object.spec.containers.map(c, double(c.name)).sum() < 10.0",
        "string(object) == 'a' || '%s'.format([object]) == 'a'",
        "object < 1.5",
        "object == oldObject && object in [object]",
        "object.matches('a') || object.size() > 1",
        "object.spec.containers.sort().distinct().join(',')",
        "quantity(object.spec.containers[0].name).isInteger()",
        "request.name.startsWith('a') && request.userInfo.groups.min() == 'a'",
        "object.exists(k, v, k == v)",
        "{object: object}[object]",
    ],
)
def test_no_object_makes_anything_but_a_cel_error_escape(object_, source):
    variables = {"object": object_, "request": {"name": object_, "userInfo": object_}}

    try:
        value = evaluate(source, variables)
    except CelError as error:
        value = error.message

    assert value is not CelError


def test_a_bug_in_a_function_is_no_error_of_the_expression():
    broken = method("broken", DYN, returns=DYN, run=lambda pod: pod["missing"])
    environment = admission_environment(extra=[broken])

    with pytest.raises(CelInternalError, match="internal error: KeyError: 'missing'"):
        evaluate("object.broken() == 1 || true", environment=environment)


def test_a_variable_nobody_gave_is_an_error():
    with pytest.raises(CelError, match="no such key: params"):
        evaluate("params.a == 1")


# --- lazy variables


def lazy(sources, variables, budget):
    environment = ENVIRONMENT
    programs = {}
    for name, source in sources.items():
        known = {known: program.result_type for known, program in programs.items()}
        environment = admission_environment(
            variables=known, extra=[function("count", STRING, returns=STRING, run=_count)]
        )
        programs[name] = compile_expression(source, environment)
    return LazyVariables(programs, variables, budget)


def test_variables_are_evaluated_once_and_only_if_used():
    CALLS.clear()
    budget = Budget()
    variables = lazy({"a": "count('a')", "b": "variables.a + count('b')"}, {}, budget)

    assert variables["b"] == "ab"
    assert variables["b"] == "ab"
    assert CALLS == ["a", "b"]


def test_variables_given_anew_see_each_other_and_charge_their_own_budget():
    sources, budgets = {"a": "object.n + 1", "b": "variables.a + 1"}, [Budget(), Budget()]
    before = lazy(sources, {"object": {"n": 1}}, budgets[0])
    anew = lazy(sources, {"object": {"n": 2}, "variables": before}, budgets[1])

    assert anew["b"] == 4
    assert [budget.spent > 0 for budget in budgets] == [False, True]


def test_errors_of_variables_are_remembered_and_name_the_variable():
    variables = lazy({"a": "object.missing"}, {"object": {}}, Budget())
    message = 'composited variable "a" fails to evaluate: no such key: missing'

    for _ in range(2):
        with pytest.raises(CelError) as caught:
            variables["a"]
        assert caught.value.message == message


def test_errors_of_variables_are_absorbed_where_they_are_used():
    environment = admission_environment(variables={"a": DYN})
    variables = lazy({"a": "object.missing"}, {"object": {}}, Budget())

    value = evaluate("variables.a == 1 || true", {"variables": variables}, None, environment)

    assert value is True


def test_variables_keep_nothing_once_nobody_uses_them():
    class Seen(dict):
        pass

    seen = Seen(b=1)
    watched = weakref.ref(seen)
    given = {"object": {"a": seen}}
    given["variables"] = lazy({"a": "object.a", "b": "variables.a.b"}, given, Budget())
    assert given["variables"]["b"] == 1

    del seen, given

    assert watched() is None


def test_variables_are_charged_to_the_policys_budget():
    budget = Budget()
    lazy({"a": "object.a.b"}, {"object": {"a": {"b": 1}}}, budget)["a"]

    assert budget.spent == 3


def test_running_out_of_budget_is_not_absorbed():
    with pytest.raises(CelCostError):
        evaluate("object.spec.containers.all(c, c.name == 'a') || true", budget=Budget(5))


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        pytest.param(
            "Object{a: [Object.a.item{x: 1}]}",
            {"a": [{"x": 1}]},
            id="names-are-checked-by-whoever-applies-it",
        ),
        pytest.param("Object{a: 1}.b", None, id="what-is-not-given-is-null"),
        pytest.param(
            "has(Object{a: 1}.b) || Object{a: 1}.?b.hasValue()", False, id="but-not-there"
        ),
        pytest.param("dyn(Object{a: 1}) == {'a': 1}", False, id="no-object-is-a-map"),
        pytest.param("[{'a': 1}] == [dyn(Object{a: 1})]", False, id="nor-a-map-an-object"),
        pytest.param("Object{a: [1]} == Object{a: [1]}", True, id="equal-objects"),
        pytest.param("dyn(Object.a{}) == dyn(Object.b{})", False, id="objects-of-other-places"),
    ],
)
def test_objects_of_mutations(source, expected):
    environment = admission_environment(mutation=True)

    assert compile_expression(source, environment).evaluate({}, Budget()) == expected
