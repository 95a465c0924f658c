"""`policyd prove`: answers, exit codes, and what it cannot be asked."""

import json
import sys

import pytest
from click.testing import CliRunner

from policyd.cli import main

POLICY = """
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: registry}
spec:
  matchConstraints:
    resourceRules:
    - {apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}
  validations:
  - expression: EXPRESSION
"""


@pytest.fixture
def prove(tmp_path, monkeypatch):
    """Run the command on files of expressions by name."""
    monkeypatch.chdir(tmp_path)
    for name, expression in {
        "all": "object.spec.containers.all(c, c.name != 'a')",
        "none": "!object.spec.containers.exists(c, c.name == 'a')",
        "more": "object.spec.containers.all(c, c.name != 'a' && c.name != 'b')",
    }.items():
        (tmp_path / f"{name}.yaml").write_text(POLICY.replace("EXPRESSION", f'"{expression}"'))

    def run(*arguments):
        return CliRunner().invoke(main, ["prove", *arguments])

    return run


def test_equal_policies_are_proved(prove):
    result = prove("equal", "all.yaml", "none.yaml")
    assert result.exit_code == 0
    assert result.stdout == (
        "proved for lists and maps of up to 4 elements: both deny the same requests\n"
    )


def test_a_difference_is_shown_with_an_object(prove):
    result = prove("equal", "-o", "json", "all.yaml", "more.yaml")
    assert result.exit_code == 1
    found = json.loads(result.stdout)
    assert (found["verdict"], found["operation"]) == ("refuted", "CREATE")
    assert [c["name"] for c in found["object"]["spec"]["containers"]] == ["b"]


@pytest.mark.parametrize(
    ("new", "old", "code", "change"),
    [
        ("more", "all", 0, "stricter"),
        ("all", "more", 1, "looser"),
        ("none", "all", 0, "the same"),
    ],
)
def test_a_change_is_stricter_or_looser(prove, new, old, code, change):
    result = prove("check", f"{new}.yaml", "--against", f"{old}.yaml")
    assert result.exit_code == code
    assert result.stdout.startswith(f"The new policy is {change}.\n")
    assert ("name: b" in result.stdout) == (change != "the same")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["equal", "all.yaml"], "`prove equal` takes two files, not 1"),
        (["check", "all.yaml"], "`prove check` takes a policy, and --against"),
        (["never-denies", "all.yaml", "--policy", "other"], "no policy other; it has"),
    ],
)
def test_wrong_questions_are_refused_with_a_reason(prove, arguments, message):
    result = prove(*arguments)
    assert result.exit_code == 2
    assert message in result.stderr


def test_without_the_solver_it_names_the_extra(prove, monkeypatch):
    monkeypatch.setitem(sys.modules, "policyd.prove.questions", None)
    result = prove("equal", "all.yaml", "none.yaml")
    assert result.exit_code == 2
    assert "proofs need the extra `prove`: pip install 'policyd[prove]'" in result.stderr


def test_a_standard_is_asked_for_by_its_level(prove):
    result = prove("subsumes", "baseline", "all.yaml")
    assert result.exit_code == 1
    controls, sentence, *_ = result.stdout.splitlines()
    assert controls.startswith("controls that are not: host-namespaces, privileged, capabilities, ")
    assert sentence.startswith("refuted: it is not so that each pod that the standard forbids")


def test_a_standard_that_is_none_has_the_levels_named(prove):
    result = prove("subsumes", "foo", "all.yaml")

    assert result.exit_code == 2
    assert "A Pod Security Standard is `baseline` or `restricted`." in result.stderr


def test_a_standard_is_judged_control_by_control(prove, tmp_path):
    security = (tmp_path / "all.yaml").read_text()
    expression = next(line for line in security.splitlines() if "expression:" in line)
    flags = ("hostNetwork", "hostPID", "hostIPC")
    denied = " && ".join(f"!object.spec.?{flag}.orValue(false)" for flag in flags)
    changed = security.replace(expression, f"  - expression: '{denied}'")
    (tmp_path / "host.yaml").write_text(changed)

    result = prove("subsumes", "baseline", "host.yaml", "-o", "json")

    found = json.loads(result.stdout)
    verdicts = {name: each["verdict"] for name, each in found["controls"].items()}
    assert (result.exit_code, found["verdict"]) == (1, "refuted")
    assert verdicts.pop("host-namespaces") == "proved"
    assert set(verdicts.values()) == {"refuted"}


def test_a_file_with_two_policies_is_a_set(prove, tmp_path):
    one, other = ((tmp_path / f"{name}.yaml").read_text() for name in ("all", "more"))
    both = f"{one}\n---\n{other.replace('name: registry', 'name: other')}"
    (tmp_path / "both.yaml").write_text(both)

    result = prove("equal", "both.yaml", "more.yaml")

    assert (result.exit_code, result.stdout[:6]) == (0, "proved")
    assert prove("equal", "both.yaml", "more.yaml", "--policy", "registry").exit_code == 1
