"""The runner of outside cases counts, explains, and says when there is nothing to run."""

import json

import pytest

from policyd.api.kueue import Workload
from tests.conformance.__main__ import main
from tests.conformance.kueue_objects import Cluster, Columns, WantedColumns, convert
from tests.conformance.kueue_replay import CallReplay
from tests.conformance.outcome import Outcome, SuiteResult, judge
from tests.conformance.suites import ADAPTERS

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


def test_missing_cases_are_reported_on_one_line(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("POLICYD_CASES", str(tmp_path / "nowhere"))

    assert main([]) == 2
    assert "set POLICYD_CASES to their folder" in capsys.readouterr().err


def test_an_unknown_suite_is_reported(cases, capsys):
    assert main(["--suite", "nothing"]) == 2
    assert "is called `nothing`" in capsys.readouterr().err


@pytest.fixture
def tables(cases):
    folder = cases / "kueue"
    folder.mkdir()
    (folder / "pkg-none__TestNew.json").write_text(json.dumps({"cases": [{"name": "a"}] * 3}))
    (folder / "pkg-none__TestMachinery.json").write_text(json.dumps({"cases": [{"name": "a"}]}))
    (folder / "suites.tsv").write_text("suite\ttable\tcases\nkueue-core\tpkg-none__TestNew\t3\n")
    return cases


@pytest.mark.parametrize(
    "wanted", ["kueue-core", "kueue", "pkg-none__TestNew", "kueue-core/pkg-none__TestNew"]
)
def test_a_table_nothing_runs_yet_is_named_with_its_cases(tables, capsys, wanted):
    report = tables / "report.json"

    assert main(["--suite", wanted, "--json", str(report)]) == 0

    (suite,) = json.loads(report.read_text())["suites"]
    assert suite["suite"] == "kueue-core/pkg-none__TestNew"
    assert (suite["cases"], suite["passed"], suite["no_adapter"]) == (3, 0, True)
    assert "3 cases of 1 suites have no adapter yet" in capsys.readouterr().out


def test_files_of_policies_nothing_runs_yet_are_named_too(cases, capsys):
    (cases / "policy").mkdir()
    (cases / "policy" / "new.json").write_text("[{}, {}]")

    main(["--suite", "policy"])

    assert "policy/new" in capsys.readouterr().out


@pytest.mark.parametrize("adapter", ADAPTERS, ids=lambda adapter: f"{adapter.group}-{adapter.stem}")
def test_every_adapter_has_a_group_and_code(adapter):
    assert adapter.group
    assert callable(adapter.runner())


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        pytest.param("bool", False, id="flag"),
        pytest.param("int32", 0, id="number"),
        pytest.param("time.Duration", "0s", id="duration"),
        pytest.param("[]kueue.Workload", [], id="slice"),
        pytest.param("map[string]bool", {}, id="map"),
        pytest.param("*kueue.Workload", None, id="pointer"),
    ],
)
@pytest.mark.parametrize("row", [{}, {"column": None}], ids=["absent", "null"])
def test_a_column_that_a_row_leaves_out_is_as_in_go(row, kind, value):
    columns = Columns(row, {"column": kind})

    assert columns["column"] == value
    with pytest.raises(KeyError):
        columns["other"]


def test_expected_columns_that_are_nil_are_empty_or_none():
    columns = WantedColumns({"wantKeys": None}, {"wantKeys": "[]string", "wantOther": "error"})

    assert (columns["wantKeys"], columns["wantOther"]) == ([], None)
    assert (columns.get("wantKeys"), "wantOther" in columns) == (None, False)
    with pytest.raises(KeyError):
        columns["wantMore"]


def test_what_the_api_server_demands_is_zero_where_go_leaves_it_out():
    given = {
        "admission": {"podSetAssignments": [{"name": "main"}]},
        "admissionChecks": [{"message": "m"}],
        "reclaimablePods": [{"name": "main"}],
    }

    status = convert({"metadata": {"name": "wl"}, "status": given}, Workload).status

    assert status.admission.cluster_queue == ""
    assert (status.admission_checks[0].name, status.admission_checks[0].state) == ("", "Pending")
    assert status.reclaimable_pods[0].count == 0


QUEUE = {"kind": "LocalQueue", "metadata": {"name": "lq"}, "spec": {"clusterQueue": "cq"}}
FLAVOR = {"kind": "ResourceFlavor", "metadata": {"name": "a"}, "spec": {}}


@pytest.mark.parametrize(
    ("operation", "args", "left"),
    [
        pytest.param("Cache.DeleteResourceFlavor", {"rf": FLAVOR}, ([], 1), id="object-taken-out"),
        pytest.param("Manager.DeleteLocalQueue", {"key": "default/lq"}, (["a"], 0), id="by-key"),
        pytest.param("Cache.DeleteTopology", {"name": "none"}, (["a"], 1), id="what-is-not-there"),
        pytest.param(
            "Cache.UpdateResourceFlavor",
            {"rf": {**FLAVOR, "metadata": {"name": "b"}}},
            (["a", "b"], 1),
            id="object-put",
        ),
        pytest.param("hierarchy.Manager.Cohorts", {}, (["a"], 1), id="objects-of-go"),
    ],
)
def test_calls_that_no_adapter_names_are_made_by_their_names(operation, args, left):
    replay = CallReplay(Cluster(), {"q": QUEUE})
    replay.replay([{"op": "Manager.AddLocalQueue", "args": {"q": {"$obj": "q"}}}])
    replay.put({"rf": FLAVOR})

    assert replay.replay([{"op": operation, "args": args}]) == ""

    mirrors = replay.cluster.mirrors
    assert ([f.metadata.name for f in mirrors.flavors], len([*mirrors.local_queues])) == left


def test_a_question_that_no_adapter_answers_fails_its_case():
    replay = CallReplay(Cluster(), {})

    assert "no such call" in judge("a", lambda: replay.replay([{"op": "Cache.IsTall"}])).why


def test_a_case_that_crashes_is_a_failure_and_no_end():
    assert judge("fine", lambda: "") == Outcome("fine")
    assert judge("bad", lambda: str(1 // 0)).why.startswith("unexpected ZeroDivisionError")


def test_a_runner_that_crashes_is_a_failure_too():
    def outcomes():
        yield Outcome("first")
        raise KeyError("cases")

    result = SuiteResult.of("group/stem", outcomes())

    assert (result.passed, [failure["case"] for failure in result.failures]) == (1, ["the runner"])
