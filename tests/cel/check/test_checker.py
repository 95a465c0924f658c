"""Expressions are checked before anything evaluates them."""

import pytest

from policyd.cel import (
    Budget,
    CelCompileError,
    CelError,
    admission_environment,
    base_environment,
    compile_expression,
)
from policyd.cel.functions import method
from policyd.cel.types import BOOL, DYN, INT, STRING, Type, list_of

ENVIRONMENT = admission_environment(
    mutation=True, variables={"limit": INT, "names": list_of(STRING)}
)


def wrong_with(source, environment=ENVIRONMENT, wants="any"):
    with pytest.raises(CelCompileError) as caught:
        compile_expression(source, environment, wants=wants)
    return caught.value.issues


@pytest.mark.parametrize(
    ("source", "kind"),
    [
        pytest.param("object.spec.replicas", "dyn", id="objects-are-dynamic"),
        pytest.param("request.userInfo.groups", "list(string)", id="request"),
        pytest.param("request.kind.kind + 'x'", "string", id="nested-fields"),
        pytest.param("namespaceObject.metadata.labels", "map(string, string)", id="namespace"),
        pytest.param("variables.limit", "int", id="variable-of-the-policy"),
        pytest.param("variables.names.map(n, size(n))", "list(int)", id="macro"),
        pytest.param("variables.names.filter(n, n != '')", "list(string)", id="filter"),
        pytest.param("[1, 2].transformMap(i, v, 'x')", "map(int, string)", id="transform-map"),
        pytest.param("request.?name", "optional_type(string)", id="optional-select"),
        pytest.param("request.?name.orValue('')", "string", id="optional-value"),
        pytest.param("{'a': 1}[?'b']", "optional_type(int)", id="optional-index"),
        pytest.param("object.m[?'k'].orValue(0)", "int", id="what-stands-in-decides"),
        pytest.param("object.?m[?'k'].orValue(0)", "int", id="what-stands-in-decides-of-optionals"),
        pytest.param("object.?m.k.orValue(0)", "dyn", id="selected-fields-stay-dynamic"),
        pytest.param("optional.of(1).optMap(x, string(x))", "optional_type(string)", id="opt-map"),
        pytest.param("true ? 1 : 2", "int", id="conditional"),
        pytest.param("true ? 1 : object.a", "dyn", id="conditional-with-dyn"),
        pytest.param("timestamp(0) - timestamp(0)", "duration", id="times"),
        pytest.param("quantity('1').add(1)", "kubernetes.Quantity", id="quantity"),
        pytest.param("type(1)", "type(int)", id="type"),
        pytest.param("null", "null", id="null"),
        pytest.param("Object{spec: Object.spec{replicas: 1}}", "Object", id="object"),
        pytest.param("[JSONPatch{op: 'test', path: '/'}]", "list(JSONPatch)", id="patches"),
        pytest.param("authorizer.path('/').check('get').allowed()", "bool", id="authorizer"),
        pytest.param("authorizer.requestResource.check('get').reason()", "string", id="dotted"),
    ],
)
def test_types_are_deduced(source, kind):
    assert str(compile_expression(source, ENVIRONMENT).result_type) == kind


@pytest.mark.parametrize(
    ("source", "column", "message"),
    [
        pytest.param(
            "objct.spec", 1, "undeclared reference to 'objct' (in container '')", id="name"
        ),
        pytest.param(
            "object.foo()", 11, "undeclared reference to 'foo' (in container '')", id="function"
        ),
        pytest.param("request.nam", 8, "undefined field 'nam'", id="field"),
        pytest.param("variables.limt", 10, "undefined field 'limt'", id="variable"),
        pytest.param(
            "request.name.first", 13, "type 'string' does not support field selection", id="select"
        ),
        pytest.param(
            "1 + 'a'",
            3,
            "found no matching overload for '_+_' applied to '(int, string)'",
            id="operator",
        ),
        pytest.param(
            "request.name.startsWith(1)",
            24,
            "found no matching overload for 'startsWith' applied to 'string.(int)'",
            id="method",
        ),
        pytest.param(
            "1 && true",
            3,
            "found no matching overload for '_&&_' applied to '(int, bool)'",
            id="and",
        ),
        pytest.param(
            "1 == 'a'",
            3,
            "found no matching overload for '_==_' applied to '(int, string)'",
            id="equality",
        ),
        pytest.param(
            "request.name.all(c, true)",
            8,
            "expression of type 'string' cannot be range of a comprehension "
            "(must be list, map, or dynamic)",
            id="range",
        ),
        pytest.param("[1].all(x, x)", 12, "expected type 'bool' but found 'int'", id="predicate"),
        pytest.param("[1, 'a']", 5, "expected type 'int' but found 'string'", id="mixed-list"),
        pytest.param(
            "JSONPatch{op: 1, path: ''}",
            13,
            "expected type of field 'op' is 'string' but provided type is 'int'",
            id="patch-field",
        ),
        pytest.param("duration('1d')", 10, "invalid duration argument", id="duration"),
        pytest.param("timestamp('2024')", 11, "invalid timestamp argument", id="timestamp"),
        pytest.param("request.name.matches('[')", 22, "invalid matches argument", id="pattern"),
        pytest.param(
            "Pod{}", 4, "undeclared reference to 'Pod' (in container '')", id="unknown-struct"
        ),
    ],
)
def test_mistakes_are_reported_in_the_words_of_cel_go(source, column, message):
    (issue,) = wrong_with(source)

    assert (issue.line, issue.column, issue.message) == (1, column, message)


def test_all_mistakes_are_reported_at_once():
    issues = wrong_with("objct.spec && request.nam == '' && 1 + 'a' == 2")

    assert [issue.column for issue in issues] == [1, 22, 38]


def test_a_value_of_another_type_is_used_as_the_assumed_type_and_fails():
    program = compile_expression("string(object.m[?'k'].orValue(0))", ENVIRONMENT)

    assert program.evaluate({"object": {"m": {"k": 5}}}, Budget()) == "5"
    with pytest.raises(CelError, match="no such overload"):
        program.evaluate({"object": {"m": {"k": "5"}}}, Budget())


@pytest.mark.parametrize(
    "source",
    [
        "string(object.?l.optFlatMap(q, q[?0]).value())",
        "object.?l.optFlatMap(q, q[?0]).optMap(x, string(x)).orValue('')",
        "object.l.distinct().map(x, string(x))[0]",
        "object.l.slice(0, 1).map(x, string(x))[0]",
        "object.l.reverse().map(x, string(x))[0]",
        "object.l.first().optMap(x, string(x)).orValue('')",
    ],
)
def test_a_value_of_no_known_type_is_taken_for_what_the_first_overload_takes(source):
    """As a real API server of 1.36 decides, which answers the same error to each of these."""
    with pytest.raises(CelError, match=r"no such overload: string applied to '\(int\)'"):
        compile_expression(source, ENVIRONMENT).evaluate({"object": {"l": [1]}}, Budget())
    free = source.replace("string(x)", "string(dyn(x))").replace(
        "string(object", "string(dyn(object"
    )
    free = free.replace(".value())", ".value()))")
    program = compile_expression(free, ENVIRONMENT)
    assert program.evaluate({"object": {"l": [1]}}, Budget()) == "1"


@pytest.mark.parametrize(
    ("source", "hint"),
    [
        pytest.param("objct", "did you mean `object`?", id="variable"),
        pytest.param("request.nam", "did you mean `name`?", id="field"),
        pytest.param("object.startWith('a')", "did you mean `startsWith`?", id="function"),
        pytest.param("[1].includes(1)", "`includes` needs Kubernetes 1.37", id="later-version"),
    ],
)
def test_hints_name_what_was_meant(source, hint):
    (issue,) = wrong_with(source)

    assert issue.hint == hint


@pytest.mark.parametrize(
    ("source", "version", "since"),
    [
        pytest.param("format.uuid().validate('')", (1, 30), "1.31", id="format"),
        pytest.param("[1].transformList(i, v, v)", (1, 31), "1.32", id="two-variable-macros"),
        pytest.param("semver('1.2.3').major()", (1, 32), "1.33", id="semver"),
        pytest.param("[1].first()", (1, 33), "1.34", id="lists"),
        pytest.param("[1].includes(1)", (1, 36), "1.37", id="includes"),
        pytest.param("[1].all(i, v, true)", (1, 31), "1.32", id="all-with-two-variables"),
        pytest.param("lists.range(2) == []", (1, 33), "1.34", id="lists"),
    ],
)
def test_functions_exist_from_their_version_on(source, version, since):
    hints = " ".join(str(issue.hint) for issue in wrong_with(source, base_environment(version)))
    major, minor = map(int, since.split("."))

    assert f"needs Kubernetes {since}" in hints
    compile_expression(source, base_environment((major, minor)))


@pytest.mark.parametrize(
    "source",
    [
        pytest.param("math.abs(1)", id="math"),
        pytest.param("base64.encode(b'a')", id="encoders"),
        pytest.param("cel.bind(x, 1, x)", id="bind"),
        pytest.param("'abc'.reverse()", id="reverse-of-strings"),
    ],
)
def test_the_api_server_lacks_some_libraries_of_cel_go(source):
    assert wrong_with(source)


@pytest.mark.parametrize(
    ("source", "wants"),
    [
        pytest.param("request.name != ''", "bool", id="bool"),
        pytest.param("'a'", "string", id="string"),
        pytest.param("null", "string|null", id="one-of-two"),
        pytest.param("Object{}", "object", id="object"),
        pytest.param("[JSONPatch{op: 'add', path: '/a', value: 1}]", "patches", id="patches"),
    ],
)
def test_the_result_has_the_type_its_place_wants(source, wants):
    compile_expression(source, ENVIRONMENT, wants=wants)


def test_another_result_is_refused_with_its_type():
    (issue,) = wrong_with("request.name", wants="bool")

    assert issue.message == "must evaluate to bool"
    assert issue.hint == "the expression evaluates to string"


def test_a_result_of_unknown_type_is_refused_as_the_api_server_does():
    (issue,) = wrong_with("object.spec.paused", wants="bool")

    assert issue.hint == "nothing is known of its type; compare it, as in `x == true`"


def test_an_environment_can_be_given_functions():
    gpus = method("gpus", DYN, returns=INT, run=lambda pod: len(pod["gpus"]))
    environment = admission_environment(extra=[gpus])

    assert compile_expression("object.gpus() > 1", environment).result_type == BOOL


def test_programs_say_which_variables_they_use():
    source = "object.a == params.b && variables.limit > 0 && has(oldObject.a)"

    program = compile_expression(source, ENVIRONMENT)

    used = {"object", "params", "variables.limit", "oldObject"}
    assert program.variables_used == used


def test_asking_for_a_variable_of_the_policy_uses_it():
    program = compile_expression("has(variables.names)", ENVIRONMENT)

    assert program.variables_used == {"variables.names"}


def test_params_are_declared_only_if_the_policy_has_them():
    assert wrong_with("params.a", admission_environment(params=False))


def test_unknown_structs_are_opaque():
    environment = base_environment().extend(variables={"thing": Type("some.Thing")})

    (issue,) = wrong_with("thing.field", environment)

    assert issue.message == "type 'some.Thing' does not support field selection"
