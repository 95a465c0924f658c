"""`policyd migrate gatekeeper`: what is written, what is said, and the exit codes."""

import pytest
import yaml
from click.testing import CliRunner

from policyd.cli import main
from tests.cli.given import CONSTRAINT


def migrate(text, *options):
    done = CliRunner().invoke(main, ["migrate", "gatekeeper", "-", *options], input=text)
    return done.stdout, done.stderr, done.exit_code


@pytest.mark.parametrize(
    ("target", "kinds"),
    [
        ("policyd", {"Policy"}),
        ("vpol", {"ValidatingPolicy"}),
        ("vap", {"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"}),
    ],
)
def test_the_kind_of_the_result_can_be_chosen(target, kinds):
    stdout, stderr, code = migrate(CONSTRAINT, "-o", target)

    assert code == 0
    assert {each["kind"] for each in yaml.safe_load_all(stdout)} == kinds
    assert "# The template of K8sAllowedRepos is in Rego: this CEL decides the same.\n" in stdout
    assert "Own is in Rego" not in stdout
    assert "2 constraints of 2 converted" in stderr
    checked = CliRunner().invoke(main, ["check", "-"], input=stdout)
    assert checked.exit_code == 0, checked.output


def test_constraints_of_one_name_become_policies_of_two():
    one, template, other = CONSTRAINT.split("---\n")
    stdout, _, code = migrate("---\n".join([one, template, other.replace("name: b", "name: a")]))

    assert code == 0
    names = [each["metadata"]["name"] for each in yaml.safe_load_all(stdout)]
    assert names == ["a", "a-k8sallowedrepos"]


def test_a_constraint_that_is_not_converted_is_named_with_its_line():
    stdout, stderr, code = migrate(
        CONSTRAINT.replace("enforcementAction: warn", "enforcementAction: x")
    )

    assert code == 1
    assert [each["metadata"]["name"] for each in yaml.safe_load_all(stdout)] == ["b"]
    assert (
        "stdin:5:3: error: not converted: the enforcement action `x` has no counterpart" in stderr
    )
    assert "1 constraint of 2 converted" in stderr


def test_the_template_that_is_missing_is_named():
    one, _, _ = CONSTRAINT.split("---\n")
    stdout, stderr, code = migrate(one)

    assert (stdout, code) == ("", 1)
    assert "the template of `Own` is not among these files" in stderr


def test_the_constraints_of_a_template_in_rego_are_not_converted():
    text = CONSTRAINT.replace("engine: K8sNativeValidation", "engine: Rego")
    _, stderr, code = migrate(text)

    assert code == 1
    assert "the template `Own` is in Rego, and not of gatekeeper-library" in stderr
    assert "its template `Own` is not" in stderr
