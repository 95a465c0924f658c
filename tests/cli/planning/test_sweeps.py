"""Sweeps: every plan, policy, load and seed, the same results wherever they are simulated."""

import json
import sys
from types import SimpleNamespace

import pytest

from policyd.simulate.draws import DrawnNumbers
from tests.cli.planning.test_trace_command import SCENARIO, simulate

SWEEP = """
plans:
  few: {gpus: 16}
  nodes: {nodes: 3x8}
policies:
  as-is: {}
  strict:
    clusterQueues: {spec: {queueingStrategy: StrictFIFO}}
loads: [0.8, 1.2]
seeds: [0, 1]
"""


def trace_of(folder, *, jobs):
    """A trace of two teams, the same each time."""
    numbers, at, lines = DrawnNumbers("trace"), 0.0, ["submit,seconds,gpus,team"]
    for _ in range(jobs):
        at += 600 * numbers.next()
        gpus = (1, 1, 2, 4, 8)[int(5 * numbers.next())]
        team = "ab"[int(2 * numbers.next())]
        lines.append(f"{at},{3_600 * numbers.next() ** 2},{gpus},{team}")
    file = folder / "jobs.csv"
    file.write_text("\n".join([*lines, ""]))
    return file


def simulate_sweep(trace, *arguments):
    """Simulate the sweep that is next to the trace."""
    sweep = trace.parent / "sweep.yaml"
    return simulate("--trace", trace, "--sweep", sweep, "-o", "json", *arguments)


@pytest.fixture
def trace(tmp_path):
    (tmp_path / "sweep.yaml").write_text(SWEEP)
    return trace_of(tmp_path, jobs=120)


def test_a_sweep_has_all_combinations_in_the_order_of_the_file(trace):
    report = json.loads(simulate_sweep(trace, "--workers", 1).stdout)

    points = [(each["plan"], each["policy"], each["load"], each["seed"]) for each in report]
    assert points == [
        (plan, policy, load, seed)
        for plan in ("few", "nodes")
        for policy in ("as-is", "strict")
        for load in (0.8, 1.2)
        for seed in (0, 1)
    ]
    assert all(each["figures"]["load"] == pytest.approx(each["load"]) for each in report)
    assert len({json.dumps(each["figures"]) for each in report}) == len(report)


def test_processes_give_the_same_bits_as_one(trace):
    one, two = (simulate_sweep(trace, "--workers", workers) for workers in (1, 2))

    assert two.exit_code == 0, two.stderr
    assert one.stdout == two.stdout


def test_a_point_of_a_sweep_is_the_simulation_of_its_options(trace):
    report = json.loads(simulate_sweep(trace, "--workers", 1).stdout)
    alone = simulate(
        "--trace", trace, "--nodes", "3x8", "--load", "1.2", "--seed", "1", "-o", "json"
    )

    found = next(
        each
        for each in report
        if (each["plan"], each["policy"], each["load"], each["seed"]) == ("nodes", "as-is", 1.2, 1)
    )
    assert json.loads(alone.stdout)["figures"] == found["figures"]


def test_plans_are_files_next_to_the_file_of_the_sweep(trace):
    (trace.parent / "queues.yaml").write_text(SCENARIO)
    (trace.parent / "sweep.yaml").write_text(
        "plans: {mine: {file: queues.yaml}}\n"
        "policies:\n"
        "  fair: {configuration: {fairSharing: {preemptionStrategies: [LessThanInitialShare]}}}\n"
    )

    (report,) = json.loads(simulate_sweep(trace).stdout)

    assert (report["plan"], report["policy"], report["figures"]["gpus"]) == ("mine", "fair", 8)


def test_without_plans_the_cluster_is_that_of_the_options(trace):
    (trace.parent / "sweep.yaml").write_text("seeds: [1, 2]\n")

    report = json.loads(simulate_sweep(trace, "--gpus", "12").stdout)

    assert [(each["seed"], each["figures"]["gpus"]) for each in report] == [(1, 12), (2, 12)]


def test_a_table_has_a_line_for_each_scenario(trace):
    done = simulate("--trace", trace, "--sweep", trace.parent / "sweep.yaml", "--workers", 1)

    lines = done.stdout.splitlines()
    assert lines[0].split()[:4] == ["PLAN", "POLICY", "LOAD", "SEED"]
    assert len(lines) == 17
    assert "16 scenarios" in done.stderr


def test_a_table_shows_how_many_jobs_start(tmp_path):
    (tmp_path / "jobs.csv").write_text("submit,seconds,gpus,team\n0,60,16,a\n0,60,4,a\n")
    (tmp_path / "sweep.yaml").write_text("plans: {small: {gpus: 12}}\n")

    done = simulate("--trace", tmp_path / "jobs.csv", "--sweep", tmp_path / "sweep.yaml")

    head, line = done.stdout.splitlines()
    end = head.index("STARTED") + len("STARTED")
    assert line[:end].split()[-2:] == ["2", "1"]
    assert "never" in line
    assert "small, as-is, seed 0: 1 of 2 jobs never start" in done.stderr


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param("plan: {}", "unknown field `plan`", id="unknown-field"),
        pytest.param("plans: {a: {}}", "plan `a` is one of", id="empty-plan"),
        pytest.param("plans: {a: {file: no.yaml}}", "no.yaml` is not a file", id="no-file"),
        pytest.param("plans: {a: {nodes: 8}}", "Expected `str`, got `int`", id="type"),
        pytest.param("loads: [0]", "a load is more than 0", id="load"),
        pytest.param("seeds: [-1]", "a seed at least 0", id="seed"),
        pytest.param(
            "plans: {a: {gpus: 8}}\npolicies:\n  strict:\n"
            "    clusterQueues: {spec: {queueingStrateg: StrictFIFO}}\n",
            "sweep.yaml:4:28: policy `strict`: a ClusterQueue has no field `queueingStrateg`",
            id="misspelt-field",
        ),
        pytest.param(
            "plans: {a: {gpus: 8}}\npolicies:\n  strict: {clusterQueues: {spec: {resourceGroups: "
            "[{flavors: [{resources: [{nominalQuotas: 3}]}]}]}}}\n",
            "a ClusterQueue has no field `nominalQuotas`",
            id="misspelt-field-in-a-list",
        ),
        pytest.param(
            "plans: {a: {gpus: 8}}\npolicies:\n  strict: {clusterQueues: {metadata: "
            "{anotations: {a: b}}}}\n",
            "did you mean `annotations`?",
            id="misspelt-field-of-the-metadata",
        ),
        pytest.param(
            "plans: {a: {gpus: 8}}\npolicies:\n  strict: {clusterQueues: {spec: "
            "{queueingStrategy: Strict}}}\n",
            "sweep.yaml: plan `a`, policy `strict`: ClusterQueue `none`: Invalid enum value",
            id="bad-value",
        ),
        pytest.param(
            "plans: {a: {gpus: 8}}\npolicies: {fair: {configuration: {fairSharin: {}}}}\n",
            "sweep.yaml: plan `a`, policy `fair`: ",
            id="misspelt-field-of-the-configuration",
        ),
        pytest.param("seeds: [", "sweep.yaml:", id="no-yaml"),
        pytest.param("seeds: [1]", "no plan, and no cluster", id="no-cluster"),
        pytest.param("- 1", "Expected `object`, got `array`", id="a-list"),
    ],
)
def test_a_sweep_that_cannot_be_read_is_an_error(trace, text, message):
    (trace.parent / "sweep.yaml").write_text(text)

    done = simulate_sweep(trace)

    assert done.exit_code == 2
    assert message in done.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        pytest.param(("--gantt",), "a sweep has no chart", id="gantt"),
        pytest.param(("--ray", "a:1"), "sweeps on Ray need the extra `ray`", id="no-ray"),
    ],
)
def test_options_that_a_sweep_cannot_have_are_an_error(trace, monkeypatch, arguments, message):
    monkeypatch.setitem(sys.modules, "ray", None)

    done = simulate_sweep(trace, *arguments)

    assert done.exit_code == 2
    assert message in done.stderr


@pytest.mark.parametrize(
    ("address", "reason"),
    [
        pytest.param("127.0.0.1:1", "connection refused", id="nothing-listens"),
        pytest.param("ray://127.0.0.1:1", "connection refused", id="client"),
        pytest.param("127.0.0.1", "it is not HOST:PORT", id="no-port"),
    ],
)
def test_a_ray_cluster_that_does_not_answer_is_a_sentence(trace, monkeypatch, address, reason):
    monkeypatch.setitem(sys.modules, "ray", SimpleNamespace())

    done = simulate_sweep(trace, "--ray", address)

    assert done.exit_code == 2
    assert f"cannot use the Ray cluster `{address}`: {reason}" in done.stderr


def test_a_sweep_needs_a_trace(trace):
    done = simulate("--sweep", trace.parent / "sweep.yaml")

    assert done.exit_code == 2
    assert "no trace is given" in done.stderr
