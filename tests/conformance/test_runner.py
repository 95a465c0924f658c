"""The runner of outside cases counts, explains, and says when there is nothing to run."""

import json

import pytest

from tests.conformance.__main__ import main

CASES = [
    {"section": "s", "name": "right", "expression": "1 + 1", "want": {"value": {"int": "2"}}},
    {"section": "s", "name": "wrong", "expression": "1 + 1", "want": {"value": {"int": "3"}}},
    {"section": "s", "name": "kind", "expression": "1 + 1", "want": {"value": {"uint": "2"}}},
    {"section": "s", "name": "error", "expression": "1 / 0", "want": {"error": True}},
    {"section": "s", "name": "block", "expression": "cel.block([1], 1)", "want": {"error": True}},
    {
        "section": "s",
        "name": "type",
        "expression": "[x]",
        "declarations": [{"name": "x", "type": "map(string,list(int))"}],
        "checkOnly": True,
        "want": {"type": "list(map(string,list(int)))"},
    },
]


@pytest.fixture
def cases(tmp_path, monkeypatch):
    (tmp_path / "cel").mkdir()
    (tmp_path / "cel" / "sample.json").write_text(json.dumps(CASES))
    monkeypatch.setenv("POLICYD_CASES", str(tmp_path))
    return tmp_path


def test_results_are_counted_and_explained(cases):
    report = cases / "report.json"

    code = main(["--suite", "sample", "--json", str(report)])

    (suite,) = json.loads(report.read_text())["suites"]
    assert code == 1
    assert (suite["suite"], suite["cases"], suite["passed"], suite["failed"]) == (
        "cel/sample",
        6,
        3,
        2,
    )
    assert [failure["case"] for failure in suite["failures"]] == ["s/wrong", "s/kind"]
    assert list(suite["out_of_scope"].values()) == [1]


def test_a_suite_whose_cases_pass_is_no_finding(cases):
    (cases / "cel" / "sample.json").write_text(json.dumps(CASES[:1]))

    assert main(["--suite", "cel"]) == 0


def test_missing_cases_are_said_on_one_line(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("POLICYD_CASES", str(tmp_path / "nowhere"))

    assert main([]) == 2
    assert "set POLICYD_CASES to their folder" in capsys.readouterr().err


def test_an_unknown_suite_is_said(cases, capsys):
    assert main(["--suite", "nothing"]) == 2
    assert "no suite is called `nothing`" in capsys.readouterr().err
