"""`policyd test` tells what the cases leave open: branches, and the order between policies."""

import json

import pytest
from click.testing import CliRunner

from policyd.cli import main

POLICY = """\
apiVersion: policyd.io/v1alpha1
kind: Policy
metadata: {name: %s}
spec:
  matchConstraints:
    resourceRules:
    - {apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}
%s
"""
ASKING = '  validations: [{name: few, expression: "%s", message: too many}]'
CASES = """\
cases:
- name: one
  object: {apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {containers: []}}
  expect: {allowed: true}
"""
EITHER = "object.kind == 'Pod' || size(object.spec.containers) > 9"


@pytest.fixture
def write(tmp_path):
    def policy(name, rest, folder="a"):
        (tmp_path / folder).mkdir(exist_ok=True)
        (tmp_path / folder / f"{name}.yaml").write_text(POLICY % (name, rest))
        (tmp_path / folder / "cases.yaml").write_text(CASES)
        return tmp_path

    return policy


def run(*arguments):
    return CliRunner().invoke(main, ["test", *map(str, arguments)])


def test_branches_that_no_case_takes_fail_if_that_is_asked(write):
    path = write("p", ASKING % EITHER)
    result = run("--branches", path)

    assert run(path).exit_code == 0
    assert result.exit_code == 1
    assert "`object.kind == 'Pod'` in `few` of `p` is never false" in result.stderr
    assert "`size(object.spec.containers) > 9` in `few` of `p` is never true" in result.stderr


def test_branches_are_in_the_reports(write):
    path = write("p", ASKING % EITHER)
    report = json.loads(run("--branches", "-o", "json", path).stdout)["branches"]

    assert report[0] | {"file": ""} == {
        "file": "",
        "policy": "p",
        "place": "few",
        "part": "object.kind == 'Pod'",
        "holds": False,
    }
    assert 'failures="3"' in run("--branches", "-o", "junit", path).stdout


INJECT = "  inject: {override: true, labels: {x: %s}}"


def test_the_order_of_policies_beside_each_other_must_not_matter(write):
    write("a", INJECT % "one")
    result = run(write("b", INJECT % "two"))

    assert result.exit_code == 1
    assert "the order of `a` and `b` matters" in result.stdout


def test_the_order_of_policies_in_all_folders_is_asked_for(write):
    write("a", INJECT % "one")
    path = write("b", INJECT % "two", folder="b")
    result = run("--together", path)

    assert run(path).exit_code == 0
    assert result.exit_code == 1
    assert result.stdout.count("the order of `a` and `b` matters") == 1
    assert "+    x: one" in result.stdout


def test_many_files_are_run_in_several_processes_and_keep_their_order(write):
    for index in range(45):
        path = write("p", ASKING % "object.kind == 'Pod'", folder=f"f{index:02}")
    result = run("-v", path)

    names = [line.split("/")[-2] for line in result.stdout.splitlines() if line.startswith("ok")]
    assert names == [f"f{index:02}" for index in range(45)]
    assert "45 cases passed" in result.stdout
