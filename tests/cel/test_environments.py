"""Each place and version of Kubernetes has its own words, and says so of those it lacks."""

import pytest

from policyd.cel import Budget, CelCompileError, CelError, compile_expression
from policyd.cel.environments import (
    VERSIONS,
    UnknownEnvironmentError,
    environment_named,
)


def run(source, name, **variables):
    return compile_expression(source, environment_named(name)).evaluate(variables, Budget())


@pytest.mark.parametrize(
    ("place", "source"),
    [
        pytest.param("vap", "params.y == 1 || authorizer.path('/x').check('get').allowed()"),
        pytest.param("map", "Object{spec: Object.spec{replicas: 1}}"),
        pytest.param("map", "[JSONPatch{op: 'remove', path: '/' + jsonpatch.escapeKey('a/b')}]"),
        pytest.param("conditions", "authorizer.requestResource.check('get').allowed()"),
        pytest.param("message", "request.name + namespaceObject.metadata.name"),
        pytest.param("base", "quantity('1Gi').isGreaterThan(quantity('1M'))"),
    ],
)
def test_a_place_has_its_words(place, source):
    assert compile_expression(source, environment_named(place))


@pytest.mark.parametrize(
    ("place", "source"),
    [
        pytest.param("vap", "Object{}", id="no-objects-in-validations"),
        pytest.param("vap", "jsonpatch.escapeKey('a')", id="no-patches-in-validations"),
        pytest.param("conditions", "variables.x", id="no-variables-in-conditions"),
        pytest.param("conditions", "params.x", id="no-params-in-conditions-of-webhooks"),
        pytest.param("message", "authorizer.path('/')", id="no-authorizer-in-messages"),
        pytest.param("base", "object", id="no-variables-at-all"),
        pytest.param("vap", "math.abs(-1)", id="no-mathematics"),
        pytest.param("vap", "cel.bind(a, 1, a)", id="no-bind"),
        pytest.param("vap", "base64.encode(b'a')", id="no-encoders"),
        pytest.param("vap", "'a'.reverse()", id="no-reverse-of-strings"),
    ],
)
def test_a_place_has_no_others(place, source):
    with pytest.raises(CelCompileError):
        compile_expression(source, environment_named(place))


@pytest.mark.parametrize(
    ("name", "source", "hint"),
    [
        pytest.param("vap", "Object{}", "`Object` is there in mutations only", id="object"),
        pytest.param("vap", "pod", "`pod` is there in policyd's own policies only", id="pod"),
        pytest.param("vap", "md5('a')", "`md5` is there in Kyverno's policies only", id="kyverno"),
        pytest.param(
            "conditions",
            "variables.x",
            "`variables` is there in validations, mutations and messages only",
            id="variables",
        ),
        pytest.param("vap-1.33", "[1].sortBy(x, x)", "`sortBy` needs Kubernetes 1.34", id="macro"),
    ],
)
def test_the_usage_of_another_place_is_known(name, source, hint):
    with pytest.raises(CelCompileError) as caught:
        compile_expression(source, environment_named(name))

    assert hint in [issue.hint for issue in caught.value.issues]


@pytest.mark.parametrize("version", VERSIONS, ids=str)
def test_every_version_has_every_place(version):
    major, minor = version

    assert run("object.a == 1", f"vap-{major}.{minor}", object={"a": 1}) is True


@pytest.mark.parametrize(
    ("source", "value"),
    [
        pytest.param("object.a.orValue('x')", "y", id="value"),
        pytest.param("object.?a.orValue('x')", "y", id="optional"),
        pytest.param("object.?b.orValue('x')", "x", id="none"),
        pytest.param("object.a.or(object.?a)", "y", id="or"),
        pytest.param("object.?b.or(object.a)", "y", id="alternative-that-is-no-optional"),
    ],
)
def test_the_older_dialect_gives_back_what_is_no_optional(source, value):
    assert run(source, "vap-1.36", object={"a": "y"}) == value


@pytest.mark.parametrize(
    "source", ["object.?a.?b", "object.a.?b.?c", "object.a[?'b']", "object.a[?0]"]
)
@pytest.mark.parametrize("value", [None, "y", 1, True, 1.5])
def test_nothing_is_selected_optionally_from_what_has_no_fields(source, value):
    assert run(f"{source}.orValue('x')", "vap-1.36", object={"a": value}) == "x"


@pytest.mark.parametrize("name", ["vap-1.37", "vap-1.36/cel-go-0.29"])
@pytest.mark.parametrize("source", ["object.a.orValue('x')", "object.a.or(object.?b)"])
def test_the_newer_dialect_refuses_what_is_no_optional(name, source):
    with pytest.raises(CelError, match="no such overload"):
        run(source, name, object={"a": "y"})


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        pytest.param("vip-1.36", "did you mean `vap`?", id="place"),
        pytest.param("vap-1.29", "there are 1.30, 1.31", id="version"),
        pytest.param("vap-1.36/cel-go-0.28", "did you mean `cel-go-0.2", id="dialect"),
        pytest.param("nothing", "there are vap, map", id="nothing-near"),
    ],
)
def test_unknown_environments_are_named_with_what_there_is(name, hint):
    with pytest.raises(UnknownEnvironmentError) as caught:
        environment_named(name)

    assert hint in caught.value.hint
