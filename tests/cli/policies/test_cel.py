"""`policyd cel`: expressions as policies have them, on a terminal."""

import json

import pytest
from click.testing import CliRunner

from policyd.cli import main

DEPLOYMENT = """\
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: shop, labels: {team: a}}
spec:
  replicas: 3
  template:
    spec:
      containers:
      - {name: main, resources: {limits: {nvidia.com/gpu: 2}}}
"""
CHECK = "authorizer.path('/x').check('get').allowed()"


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "web.yaml").write_text(DEPLOYMENT)
    (tmp_path / "old.json").write_text('{"spec": {"replicas": 5}}')
    (tmp_path / "two.yaml").write_text("{}\n---\n{}\n")
    (tmp_path / "broken.yaml").write_text("a: [")
    (tmp_path / "team.yaml").write_text("metadata: {name: shop, labels: {tier: research}}")
    (tmp_path / "request.yaml").write_text("userInfo: {username: anna}")

    def call(*words, given=None):
        result = CliRunner().invoke(main, ["cel", *words], input=given)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result

    return call


def test_an_expression_has_a_value_a_type_and_a_cost(run):
    result = run("eval", "object.spec.replicas <= 5", "-f", "web.yaml")

    assert result.exit_code == 0
    assert result.stdout == "value: true\ntype:  bool\ncost:  4 (estimated: 2)\n"


def test_programs_get_json(run):
    result = run("eval", "object.metadata.labels", "-f", "web.yaml", "-o", "json")

    assert json.loads(result.stdout) == {
        "value": {"team": "a"},
        "type": "dyn",
        "cost": 3,
        "estimate": {"least": 1, "most": 1},
    }


@pytest.mark.parametrize(
    ("words", "value"),
    [
        pytest.param(["object.spec.replicas"], 3, id="object"),
        pytest.param(["oldObject.spec.replicas", "--old", "old.json"], 5, id="old-object"),
        pytest.param(["params.spec.replicas", "--params", "old.json"], 5, id="params"),
        pytest.param(["request.operation"], "CREATE", id="operation"),
        pytest.param(["request.operation", "--old", "old.json"], "UPDATE", id="update"),
        pytest.param(["request.operation", "--operation", "DELETE"], "DELETE", id="given"),
        pytest.param(["request.resource.resource"], "deployments", id="resource"),
        pytest.param(["request.namespace"], "shop", id="namespace"),
        pytest.param(["namespaceObject.metadata.name"], "shop", id="namespace-object"),
        pytest.param(
            ["namespaceObject.metadata.labels.tier", "--namespace-object", "team.yaml"],
            "research",
            id="given-namespace-object",
        ),
        pytest.param(["request.userInfo.username", "--user", "bob"], "bob", id="user"),
        pytest.param(["request.userInfo.groups", "--group", "dev"], ["dev"], id="group"),
        pytest.param(
            ["request.userInfo.username", "--request", "request.yaml"], "anna", id="request"
        ),
        pytest.param(
            ["variables.b", "--variable", "a=1 + 1", "--variable", "b=variables.a * 2"],
            4,
            id="variables",
        ),
        pytest.param(["workload.gpus()", "--env", "policy"], 6, id="policy"),
        pytest.param(["pod.gpus()", "--env", "policy"], 2, id="pod"),
        pytest.param(["Object{spec: Object.spec{a: 1}}", "--env", "map"], {"spec": {"a": 1}}),
        pytest.param(["md5('').size()", "--env", "kyverno"], 32),
        pytest.param(["time.now() > timestamp(0)", "--env", "kyverno"], True, id="clock"),
        pytest.param(["random('[ab]').size()", "--env", "kyverno"], 1, id="dice"),
        pytest.param(["quantity('1Ki')", "--env", "base"], "1Ki", id="quantity"),
        pytest.param(["duration('90s')"], "90s", id="duration"),
        pytest.param(["timestamp(0)"], "1970-01-01T00:00:00Z", id="timestamp"),
        pytest.param(["b'a'"], "YQ==", id="bytes"),
        pytest.param(["{1: 2u}"], {"1": 2}, id="keys"),
        pytest.param(["{true: type(1)}"], {"true": "int"}, id="types"),
        pytest.param(["ip('::1')"], "::1", id="address"),
        pytest.param(["cidr('10.0.0.0/8')"], "10.0.0.0/8", id="network"),
        pytest.param(["object.?a"], None, id="none"),
        pytest.param(["semver('1.2.3')"], "kubernetes.Semver", id="what-json-has-not"),
    ],
)
def test_it_sees_what_is_given(run, words, value):
    result = run("eval", *words, "-f", "web.yaml", "-o", "value")

    assert json.loads(result.stdout) == value


def test_the_expression_or_the_object_may_come_from_standard_input(run):
    assert run("eval", "-", "-o", "value", given="1 + 1").stdout == "2\n"
    assert (
        run("eval", "object.spec.a", "-f", "-", "-o", "value", given="spec: {a: 7}").stdout == "7\n"
    )


def test_without_an_object_there_is_none(run):
    assert run("eval", "object == null && request.name == ''", "-o", "value").exit_code == 1
    assert run("eval", "object == null", "-o", "value").stdout == "true\n"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        pytest.param(["object.a"], "expression:1:7: error: no such key: a", id="fails"),
        pytest.param(["1 +"], "Syntax error", id="syntax"),
        pytest.param(["request.nam == ''"], "hint: did you mean `name`?", id="field"),
        pytest.param(["[1].includes(1)"], "hint: `includes` needs Kubernetes 1.37", id="version"),
        pytest.param([CHECK], "users' permissions are unknown", id="authorizer"),
    ],
)
def test_errors_are_shown_with_a_caret(run, words, message):
    result = run("eval", *words, "-f", "web.yaml")

    assert result.exit_code == 1
    assert message in result.stderr
    assert "^" in result.stderr
    assert result.stdout == ""


def test_a_failure_is_json_too(run):
    result = run("eval", "object.a", "-f", "web.yaml", "-o", "json")

    assert result.exit_code == 1
    shown = json.loads(result.stdout)
    assert (shown["error"], shown["line"], shown["column"]) == ("no such key: a", 1, 7)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        pytest.param(["1", "--env", "vip"], "did you mean `vap`?", id="environment"),
        pytest.param(["1", "--env", "vap-1.20"], "unknown environment", id="version"),
        pytest.param(["1", "-f", "none.yaml"], "does not exist", id="no-file"),
        pytest.param(["1", "-f", "two.yaml"], "has 2 documents", id="two-documents"),
        pytest.param(["-", "-f", "-"], "can be read only once", id="standard-input-twice"),
        pytest.param(["1", "--variable", "a"], "NAME=EXPRESSION", id="variable"),
        pytest.param([], "Missing argument", id="no-expression"),
    ],
)
def test_a_wrong_call_is_explained(run, words, message):
    result = run("eval", *words)

    assert result.exit_code == 2
    assert message in result.stderr


def test_a_file_that_is_broken_is_shown(run):
    result = run("eval", "1", "-f", "broken.yaml")

    assert result.exit_code == 2
    assert "broken.yaml:1" in result.stderr


def test_explain_shows_every_part(run):
    result = run("explain", "object.spec.replicas < 3 || request.name == 'web'", "-f", "web.yaml")

    assert result.exit_code == 0
    assert result.stdout == (
        "object.spec.replicas < 3 || request.name == 'web'  →  true\n"
        "  object.spec.replicas < 3  →  false\n"
        "    object.spec.replicas  →  3\n"
        "  request.name == 'web'  →  true\n"
        '    request.name  →  "web"\n'
        "\n"
        "value: true\n"
        "type:  bool\n"
        "cost:  7 (estimated: 2 to 5)\n"
    )


def test_explain_has_json_with_places(run):
    source = "has(object.a) && object.a == 1"

    shown = json.loads(run("explain", source, "-f", "web.yaml", "-o", "json").stdout)

    assert shown["value"] is False
    assert shown["steps"][1:] == [
        {"expression": "has(object.a)", "line": 1, "column": 5, "depth": 1, "value": False},
        {"expression": "object.a == 1", "line": 1, "column": 18, "depth": 1, "evaluated": False},
    ]


def test_explain_shows_what_failed_and_cuts_what_is_long(run):
    result = run("explain", "[object.spec.template, object.a].size() + 0", "-f", "web.yaml")

    assert result.exit_code == 1
    assert "object.a  →  error: no such key: a" in result.stdout
    assert "no such key: a" in result.stderr
    assert run("explain", f"'{'x' * 200}' + object.metadata.name", "-f", "web.yaml").stdout.count(
        "…"
    )


def test_functions_are_listed_and_looked_up(run):
    listed = run("functions")
    found = run("functions", "indexOf", "sortBy", "--env", "vap-1.34")

    assert any(line.startswith("quantity ") for line in listed.stdout.splitlines())
    assert "  string.indexOf(string, int) -> int\n" in found.stdout
    assert "  x.sortBy(v, key)\n  since Kubernetes 1.34\n" in found.stdout
    assert (listed.exit_code, found.exit_code) == (0, 0)


def test_a_function_there_is_not_is_reported_with_a_hint(run):
    assert "did you mean `indexOf`?" in run("functions", "indexof").stderr
    missing = run("functions", "includes")
    assert "it needs Kubernetes 1.37" in missing.stderr
    assert missing.exit_code == 1


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        pytest.param("[1]" + ".map(x, [[[[[x]]]]])" * 60, "levels deep", id="deep"),
        pytest.param("[1]" + ".map(x, [x, x, x, x, x, x, x, x])" * 9, "parts", id="large"),
    ],
)
@pytest.mark.parametrize("output", ["text", "json"])
@pytest.mark.parametrize("command", ["eval", "explain"])
def test_a_value_too_deep_or_large_for_json_is_reported_in_words(
    run, command, output, expression, message
):
    result = run(command, expression, "-o", output)

    assert result.exit_code == 1
    assert message in (json.loads(result.stdout)["error"] if output == "json" else result.stderr)


def test_numbers_json_has_not_are_strings(run):
    result = run("eval", "[0.0 / 0.0, 1.0 / 0.0, -1.0 / 0.0]", "-o", "value")

    assert json.loads(result.stdout) == ["NaN", "+Inf", "-Inf"]


def test_of_a_long_line_what_is_around_the_mistake_is_shown(run):
    result = run("eval", " + ".join(["1"] * 200) + " + 'a'" + " + 1" * 40)

    _, shown, caret, *_ = result.stderr.splitlines()
    assert len(shown) < 200
    assert shown[caret.index("^") :].startswith("+ 'a'")
