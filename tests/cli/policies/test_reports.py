"""Reports for CI: what code scanning and test reports need of SARIF and JUnit."""

import json
from xml.etree import ElementTree

import jsonschema
import pytest
from click.testing import CliRunner

from policyd.cli import main
from policyd.cli.formats.reports import ReportEntry, entries_of, report
from policyd.engine.documents.findings import RULES, Finding

POLICY = """\
apiVersion: policyd.io/v1alpha1
kind: Policy
metadata: {name: few-gpus}
spec:
  matchConstraints:
    resourceRules:
    - {apiGroups: [""], apiVersions: ["*"], operations: [CREATE], resources: [pods]}
  validations: [{name: few, expression: pod.gpus() <= 1, message: too many, remedy: ask for one}]
"""
POD = """\
apiVersion: v1
kind: Pod
metadata: {name: a}
spec: {containers: [{name: main, resources: {limits: {nvidia.com/gpu: 4}}}]}
"""
CASES = """\
cases:
- name: four are too many
  object: {apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {containers: []}}
  expect: {denied: too many}
- name: none is fine
  object: {apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {containers: []}}
  expect: {allowed: true}
"""


def closed(required="", **properties):
    """An object of SARIF's schema: it has nothing but what the schema knows."""
    names = required.split()
    return {
        "type": "object",
        "properties": properties,
        "required": names,
        "additionalProperties": False,
    }


def listed(items, **rest):
    return {"type": "array", "items": items, **rest}


TEXT, MESSAGE = {"type": "string"}, closed("text", text={"type": "string"})
RULE = closed("id", id=TEXT, shortDescription=MESSAGE, fullDescription=MESSAGE, help=MESSAGE)
DRIVER = closed(
    "name",
    name=TEXT,
    version=TEXT,
    semanticVersion={"type": "string", "pattern": r"^\d+\.\d+\.\d+([-+].+)?$"},
    rules=listed(RULE, uniqueItems=True),
)
FROM_1 = {"type": "integer", "minimum": 1}
PLACE = closed(
    "artifactLocation",
    artifactLocation=closed(uri={"type": "string", "pattern": r"^[^\s\\<>\"{}|^`]+$"}),
    region=closed(startLine=FROM_1, startColumn=FROM_1),
)
RESULT = closed(
    "message",
    ruleId=TEXT,
    ruleIndex={"type": "integer", "minimum": -1},
    level={"enum": ["none", "note", "warning", "error"]},
    message=MESSAGE,
    locations=listed(closed(physicalLocation=PLACE)),
    partialFingerprints={"type": "object", "additionalProperties": TEXT},
)
RUN = closed(
    "tool",
    tool=closed("driver", driver=DRIVER),
    columnKind={"enum": ["utf16CodeUnits", "unicodeCodePoints"]},
    results=listed(RESULT),
)
SARIF = closed("version runs", **{"$schema": TEXT}, version={"const": "2.1.0"}, runs=listed(RUN))
"""What SARIF's own schema says of the parts that are written, and that there are no others."""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "policy.yaml").write_text(POLICY)
    (tmp_path / "cases.yaml").write_text(CASES)
    (tmp_path / "pod one.yaml").write_text(POD)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*arguments, text=None):
    return CliRunner().invoke(main, [str(argument) for argument in arguments], input=text)


def sarif_run(result):
    written = json.loads(result.stdout)
    jsonschema.validate(written, SARIF)
    (only,) = written["runs"]
    return only


def assert_readable(sarif):
    """Check what code scanning asks of each result."""
    rules = sarif["tool"]["driver"]["rules"]
    assert all(rule["shortDescription"]["text"] and rule["help"]["text"] for rule in rules)
    fingerprints = set()
    for result in sarif["results"]:
        assert rules[result["ruleIndex"]]["id"] == result["ruleId"]
        assert result["level"] in ("error", "warning", "note")
        assert result["message"]["text"]
        (location,) = result["locations"]
        region = location["physicalLocation"]["region"]
        assert region["startLine"] >= 1
        assert region["startColumn"] >= 1
        fingerprints.add(result["partialFingerprints"]["primaryLocationLineHash"])
    assert len(fingerprints) == len(sarif["results"])


def test_sarif_of_check_points_into_the_policy(folder):
    (folder / "bad.yaml").write_text(POLICY.replace("pod.gpus()", "pod.gpu()"))

    result = run("check", "-o", "sarif", "bad.yaml")

    sarif = sarif_run(result)
    (one,) = sarif["results"]
    place = one["locations"][0]["physicalLocation"]
    assert result.exit_code == 1
    assert_readable(sarif)
    assert place["artifactLocation"]["uri"] == "bad.yaml"
    assert place["region"]["startLine"] == 8
    assert "did you mean `gpus`?" in one["message"]["text"]


def test_sarif_of_apply_calls_results_by_the_policy(folder):
    result = run("apply", "-p", "policy.yaml", "-f", folder / "pod one.yaml", "-o", "sarif")

    sarif = sarif_run(result)
    (one,) = sarif["results"]
    place = one["locations"][0]["physicalLocation"]
    assert_readable(sarif)
    assert one["ruleId"] == "few-gpus"
    assert place["artifactLocation"]["uri"] == "pod%20one.yaml"


def test_sarif_of_nothing_wrong_has_no_results(folder):
    result = run("check", "-o", "sarif", "policy.yaml")

    assert result.exit_code == 0
    assert sarif_run(result)["results"] == []


def test_a_fingerprint_stays_when_lines_move(folder):
    bad = POLICY.replace("pod.gpus()", "pod.gpu()")

    first, second = (
        sarif_run(run("check", "-o", "sarif", "-", text=text))["results"][0]
        for text in (bad, f"# a line more\n{bad}")
    )

    assert first["locations"] != second["locations"]
    assert first["partialFingerprints"] == second["partialFingerprints"]


def test_junit_of_test_has_a_case_for_each_case(folder):
    result = run("test", "-o", "junit", "cases.yaml")

    root = ElementTree.fromstring(result.stdout)
    (suite,) = root
    failed, passed = suite
    assert result.exit_code == 1
    assert (root.tag, suite.tag, failed.tag) == ("testsuites", "testsuite", "testcase")
    assert (suite.get("tests"), suite.get("failures")) == ("2", "1")
    assert (failed.get("classname"), failed.get("name")) == ("cases.yaml", "four are too many")
    assert "no denial with `too many`" in failed.find("failure").text
    assert passed.find("failure") is None


def test_junit_of_check_names_policies_that_are_fine(folder):
    result = run("check", "-o", "junit", "policy.yaml")

    (case,) = ElementTree.fromstring(result.stdout).iter("testcase")
    assert (case.get("classname"), case.get("name")) == ("policy.yaml", "few-gpus")


def test_junit_of_apply_has_a_case_for_each_object(folder):
    result = run("apply", "-p", "policy.yaml", "-f", folder / "pod one.yaml", "-o", "junit")

    (case,) = ElementTree.fromstring(result.stdout).iter("testcase")
    assert case.find("failure").get("message") == "few-gpus: too many; ask for one"


def test_missing_coverage_fails_in_a_report(folder):
    (folder / "cases.yaml").write_text(CASES.replace("denied: too many", "allowed: true"))

    result = run("test", "--coverage", "-o", "junit", ".")

    assert result.exit_code == 1
    assert ElementTree.fromstring(result.stdout).get("failures") == "1"


def test_names_of_test_cases_differ_and_control_characters_are_replaced():
    entries = [ReportEntry(name="a\x00", group="f"), ReportEntry(name="a\x00", group="f")]

    root = ElementTree.fromstring(report("junit", "test", entries))

    assert [case.get("name") for case in root.iter("testcase")] == ["a\ufffd", "a\ufffd (2)"]


def test_doubts_are_no_failures():
    finding = Finding(source="p.yaml", message="doubtful", severity="warning", line=2)

    root = ElementTree.fromstring(report("junit", "check", entries_of([finding])))

    assert root.get("failures") == "0"
    assert "doubtful" in next(root.iter("system-out")).text


def test_a_place_that_is_written_out_is_taken_apart():
    finding = Finding(source="p.yaml:7:3", message="doubtful")

    (result,) = json.loads(report("sarif", "check", entries_of([finding])))["runs"][0]["results"]

    place = result["locations"][0]["physicalLocation"]
    assert place["artifactLocation"]["uri"] == "p.yaml"
    assert place["region"] == {"startLine": 7, "startColumn": 3}


def test_every_rule_says_what_it_is_about():
    assert all(text and not text.endswith(".") for text in RULES.values())


JUNIT = {
    "testsuites": ({"name", "tests", "failures", "errors"}, {"testsuite"}),
    "testsuite": ({"name", "tests", "failures", "errors", "skipped"}, {"testcase"}),
    "testcase": ({"name", "classname", "file", "time"}, {"failure", "system-out"}),
    "failure": ({"message", "type"}, set()),
    "system-out": (set(), set()),
}
"""The attributes and parts of each element, of those that the usual schema of JUnit knows."""


@pytest.mark.parametrize("command", ["check", "test"])
def test_junit_has_nothing_that_its_schema_does_not_know(command, folder):
    root = ElementTree.fromstring(run(command, "-o", "junit", ".").stdout)

    assert root.tag == "testsuites"
    for element in root.iter():
        attributes, parts = JUNIT[element.tag]
        assert set(element.attrib) <= attributes
        assert {part.tag for part in element} <= parts
