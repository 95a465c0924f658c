"""`check --prove`, `export --prove`, `migrate --against`: what proofs find."""

import pytest
import yaml
from click.testing import CliRunner

from policyd.cli import main

pytest.importorskip("z3")


def policy(name, expression, resource="pods", **spec):
    rule = {
        "apiGroups": [""],
        "apiVersions": ["v1"],
        "operations": ["CREATE"],
        "resources": [resource],
    }
    return {
        "apiVersion": "policyd.io/v1alpha1",
        "kind": "Policy",
        "metadata": {"name": name},
        "spec": {
            "matchConstraints": {"resourceRules": [rule]},
            "validations": [{"expression": expression, "message": "no"}],
            **spec,
        },
    }


STEPS = ("--prove", "3000000")


def check(*policies, limits=STEPS):
    text = yaml.safe_dump_all(policies, sort_keys=False)
    done = CliRunner().invoke(main, ["check", *limits, "-"], input=text)
    assert done.exit_code == 0, done.output
    return done.stderr


ON_NODE = "object.spec.?nodeName.orValue('') == 'a'"
HEADLESS = "object.spec.?clusterIP.orValue('') == 'None'"
WIDE = policy("wide", "object.spec.?hostNetwork.orValue(false) == false")
CONDITION = [{"name": "c", "expression": ON_NODE}]
NARROW = {**WIDE, "metadata": {"name": "narrow"}, "spec": {**WIDE["spec"]}}
NARROW["spec"]["matchConditions"] = CONDITION


@pytest.mark.parametrize(
    ("policies", "expected"),
    [
        pytest.param(
            [policy("p", "!object.spec.?hostPID.orValue(false) || true")],
            "`p` denies no request: proved for lists and maps of up to 4 elements",
            id="never",
        ),
        pytest.param(
            [policy("p", f"{ON_NODE} && object.spec.?nodeName.orValue('') == 'b'")],
            "`p` denies each request that it matches",
            id="always",
        ),
        pytest.param(
            [WIDE, NARROW],
            "`narrow` denies nothing that `wide` in stdin:1:1 does not deny",
            id="shadowed",
        ),
    ],
)
def test_what_is_proved_is_a_warning(policies, expected):
    found = check(*policies)

    assert expected in found
    assert found.count("warning:") == 1


@pytest.mark.parametrize(
    "policies",
    [
        pytest.param([policy("p", "false")], id="written-so"),
        pytest.param([policy("p", "true", enforcement="Audit")], id="not-enforced"),
        pytest.param([WIDE, policy("other", ON_NODE)], id="apart"),
        pytest.param([WIDE, policy("other", HEADLESS, resource="services")], id="other-kinds"),
    ],
)
def test_what_is_meant_so_is_no_warning(policies):
    assert "warning" not in check(*policies)


def test_policies_that_deny_the_same_are_named_once():
    twin = {**WIDE, "metadata": {"name": "twin"}}

    assert check(WIDE, twin).count("denies nothing that") == 1


def test_what_is_not_looked_at_in_time_is_counted(monkeypatch):
    times = iter([0.0, *[100.0] * 50])
    monkeypatch.setattr(
        "policyd.cli.policies.proving.SystemClock.monotonic", lambda _clock: next(times)
    )

    found = check(WIDE, NARROW, limits=(*STEPS, "--prove-timeout", "1"))

    assert "1 seconds are over: 6 questions are not asked" in found


_PRODUCT = "object.spec.priority * object.spec.containers[0].ports[0].containerPort"
HARD = policy("hard", f"{_PRODUCT} != {999_999_937 * 1_000_000_007}", failurePolicy="Ignore")


def test_how_far_it_is_proved_depends_on_the_steps_alone(monkeypatch):
    asked = []
    questions = pytest.importorskip("policyd.prove.questions")
    answer = questions.answer

    def counted(*sides, **limits):
        asked.append(limits)
        return answer(*sides, **limits)

    monkeypatch.setattr("policyd.prove.questions.answer", counted)

    assert "warning" not in check(HARD, limits=("--prove", "20000"))
    assert {each["steps"] for each in asked} == {20_000}
    assert {each["seconds"] for each in asked} == {questions.DEFAULT_SECONDS}


@pytest.mark.parametrize("command", [("check",), ("export",), ("migrate", "kyverno")])
@pytest.mark.parametrize("given", ["60", "0.5", "a"])
def test_the_seconds_that_it_took_before_are_refused(command, given):
    _, stderr, code = run(*command, "--prove", given, given=[WIDE])

    assert code == 2
    assert given in stderr
    assert "it takes steps of the solver, such as 3000000, and no seconds" in stderr


def run(*words, given):
    text = given if isinstance(given, str) else yaml.safe_dump_all(given, sort_keys=False)
    done = CliRunner().invoke(main, [*words, "-"], input=text)
    return done.stdout, done.stderr, done.exit_code


WORDY = policy("wordy", "pod.?spec.?hostNetwork.orValue(false) == false", enforcement="Audit")
WORDY["spec"]["matchConstraints"]["resourceRules"].append(
    {
        "apiGroups": ["apps"],
        "apiVersions": ["v1"],
        "operations": ["CREATE", "UPDATE"],
        "resources": ["deployments"],
    }
)


def test_an_exported_policy_is_proved_to_deny_what_its_source_denies():
    stdout, stderr, code = run("export", *STEPS, given=[WORDY])

    assert (code, stdout.count("kind: ValidatingAdmissionPolicy\n")) == (0, 2)
    assert (
        "1 of 1 policy with validations proved to deny what the source denies,"
        " for lists and maps of up to 4 elements\n"
    ) in stderr
    assert "warning" not in stderr


def test_an_exported_policy_that_differs_is_left_out(monkeypatch):
    monkeypatch.setattr(
        "policyd.engine.export.policies._ValidationExporter._demanded",
        lambda _self, _validation, _used: "true",
    )
    stdout, stderr, code = run("export", *STEPS, given=[policy("p", ON_NODE)])

    assert (code, stdout.strip()) == (1, "")
    assert 'only `p` denies this CREATE: {"apiVersion": "v1", "kind": "Pod"' in stderr
    assert "0 of 1 policy" in stderr


def test_what_has_no_formula_is_exported_with_a_warning():
    source = policy("p", "object.metadata.name.split('-', 2).size() > 1")
    stdout, stderr, code = run("export", *STEPS, given=[source])

    assert (code, stdout.count("kind: ValidatingAdmissionPolicy\n")) == (0, 1)
    assert (
        "warning: it is not proved that `p` denies what the exported policy denies:"
        " policyd prove does not know split() with a limit"
    ) in " ".join(stderr.split())


LEGACY = """
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: wide}
spec:
  validationFailureAction: Enforce
  rules:
  - name: own-network
    match: {any: [{resources: {kinds: [Pod], operations: [CREATE]}}]}
    validate:
      message: "no"
      pattern: {spec: {=(hostNetwork): false}}
"""
TWIN = policy("wide", "!has(object.spec.hostNetwork) || object.spec.hostNetwork == false")
PODS_ONLY = LEGACY.replace(
    "{name: wide}", "{name: wide, annotations: {pod-policies.kyverno.io/autogen-controllers: none}}"
)


@pytest.mark.parametrize(
    ("twin", "code", "expected"),
    [
        pytest.param(TWIN, 0, "1 of 1 policy proved to deny what twin.yaml denies", id="equal"),
        pytest.param(
            policy("wide", "true", failurePolicy="Ignore"),
            1,
            "only the result of `wide` denies this CREATE:",
            id="looser",
        ),
        pytest.param(policy("other", ON_NODE), 1, "denies this CREATE:", id="alone"),
    ],
)
def test_a_converted_policy_is_compared_with_its_twin(tmp_path, monkeypatch, twin, code, expected):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "twin.yaml").write_text(yaml.safe_dump(twin))

    stdout, stderr, found = run(
        "migrate", "kyverno", "--against", "twin.yaml", *STEPS, given=PODS_ONLY
    )

    assert "kind: Policy" in stdout
    assert expected in stderr
    assert found == code


def test_a_policy_without_a_twin_is_named(tmp_path):
    (tmp_path / "twin.yaml").write_text(yaml.safe_dump(TWIN))
    two = PODS_ONLY + "---" + PODS_ONLY.replace("{name: wide", "{name: lone")

    _, stderr, _ = run("migrate", "kyverno", "--against", str(tmp_path / "twin.yaml"), given=two)

    assert "there is no policy `lone` to compare the result with" in stderr


def test_rules_of_the_result_that_are_shadowed_are_named():
    rule = LEGACY[LEGACY.index("  - name:") :].replace("own-network", "again")
    rule = rule.replace("[Pod]", "[apps/v1/Deployment]").replace(
        "{=(hostNetwork): false}", "{template: {spec: {=(hostNetwork): false}}}"
    )

    _, stderr, code = run("migrate", "kyverno", *STEPS, given=LEGACY + rule)

    assert code == 0
    assert "`wide-again` denies nothing that `wide-own-network` in result:" in stderr
