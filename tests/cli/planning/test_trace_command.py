"""`policyd simulate --trace`: traces of every format, clusters that are made, figures."""

import json

import pytest
from click.testing import CliRunner

from policyd.cli import main

CSV = """submit,seconds,gpus,team,queue
0,3600,8,vision,a
60,3600,8,vision,a
120,600,4,speech,b
"""
SCENARIO = """
kind: ResourceFlavor
metadata: {name: h100}
---
kind: ClusterQueue
metadata: {name: research}
spec:
  namespaceSelector: {}
  resourceGroups:
  - coveredResources: [nvidia.com/gpu]
    flavors: [{name: h100, resources: [{name: nvidia.com/gpu, nominalQuota: 8}]}]
---
kind: LocalQueue
metadata: {name: gpu, namespace: vision}
spec: {clusterQueue: research}
"""
MORE = SCENARIO.replace("research", "other").replace("name: h100}\n---", "name: a100}\n---")

JOBS = """
apiVersion: batch/v1
kind: Job
metadata: {name: train, namespace: vision, creationTimestamp: "2025-01-02T03:00:00Z"}
spec:
  parallelism: 2
  completions: 2
  template: {spec: {restartPolicy: Never, containers: [{name: c, image: i, resources: {requests: {cpu: 4, nvidia.com/gpu: 4}, limits: {nvidia.com/gpu: 4}}}]}}
status:
  startTime: "2025-01-02T03:05:00Z"
  completionTime: "2025-01-02T04:05:00Z"
  conditions: [{type: Complete, status: "True", lastTransitionTime: "2025-01-02T04:05:00Z"}]
---
apiVersion: jobset.x-k8s.io/v1alpha2
kind: JobSet
metadata: {name: set, namespace: vision, creationTimestamp: "2025-01-02T03:10:00Z", annotations: {policyd.io/run-for: 30m}}
spec:
  replicatedJobs:
  - name: w
    replicas: 1
    template: {spec: {parallelism: 1, completions: 1, template: {spec: {containers: [{name: c, image: i, resources: {limits: {nvidia.com/gpu: 8}}}]}}}}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: Workload
metadata: {name: old, namespace: vision, creationTimestamp: "2025-01-02T02:00:00Z"}
spec:
  queueName: gpu
  podSets: [{name: main, count: 1, template: {spec: {containers: [{name: c, resources: {requests: {nvidia.com/gpu: 8}}}]}}}]
status:
  conditions:
  - {type: Admitted, status: "False", reason: Finished, message: "", lastTransitionTime: "2025-01-02T02:10:00Z"}
  - {type: Finished, status: "True", reason: JobFinished, message: "", lastTransitionTime: "2025-01-02T02:40:00Z"}
---
apiVersion: batch/v1
kind: Job
metadata: {name: goes-on, namespace: vision, creationTimestamp: "2025-01-02T03:20:00Z"}
spec: {template: {spec: {restartPolicy: Never, containers: [{name: c, image: i, resources: {limits: {nvidia.com/gpu: 1}}}]}}}
status: {startTime: "2025-01-02T03:20:00Z", active: 1}
"""  # noqa: E501 - objects in one line each


def simulate(*arguments):
    return CliRunner().invoke(main, ["simulate", *map(str, arguments)])


def figures(*arguments):
    done = simulate(*arguments, "-o", "json", "--gantt")
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


@pytest.fixture
def trace(tmp_path):
    file = tmp_path / "jobs.csv"
    file.write_text(CSV)
    return file


@pytest.fixture
def scenario(tmp_path):
    file = tmp_path / "queues.yaml"
    file.write_text(SCENARIO)
    return file


def starts(report):
    return {job["job"]: [run["from"] for run in job["runs"]] for job in report["jobs"]}


def test_each_queue_of_a_trace_gets_a_quota_and_may_borrow(trace):
    report = figures("--trace", trace, "--gpus", 12)

    assert starts(report) == {
        "vision/job-000002": [0],
        "vision/job-000003": [3600],
        "speech/job-000004": [120],
    }
    assert report["figures"]["utilization"] == pytest.approx(8 / 12)
    assert report["figures"]["bySize"]["8+"]["meanSeconds"] == 1770
    assert report["figures"]["byTeam"]["speech"]["jobs"] == 1


def test_nodes_hold_whole_pods_where_quotas_alone_would_do(trace):
    on_nodes, by_quota = (
        starts(figures("--trace", trace, "--columns", "queue=", *size))
        for size in (("--nodes", "2x6"), ("--gpus", 12))
    )

    assert by_quota["speech/job-000004"] == [120]
    assert on_nodes["vision/job-000002"] == [0]  # as two pods of four
    assert on_nodes["speech/job-000004"] == [7200]


def test_the_queues_of_a_file_are_found_by_local_queue_and_by_name(trace, scenario):
    one = figures(scenario, "--trace", trace)
    scenario.write_text(f"{SCENARIO}---{MORE.split('LocalQueue')[0].rsplit('---', 1)[0]}")
    trace.write_text("submit,seconds,gpus,team,queue\n0,60,8,vision,gpu\n0,60,8,speech,other\n")
    two = figures(scenario, "--trace", trace)

    assert starts(one)["vision/job-000003"] == [3600]
    assert list(starts(two).values()) == [[0], [0]]


def test_a_queue_that_the_file_lacks_is_named(trace, scenario):
    scenario.write_text(f"{SCENARIO}---{MORE.split('LocalQueue')[0].rsplit('---', 1)[0]}")

    done = simulate(scenario, "--trace", trace)

    assert done.exit_code == 2
    assert "no ClusterQueue or LocalQueue for queue `a`" in done.stderr


def test_a_dump_of_jobs_runs_as_the_jobs_ran(tmp_path):
    dump = tmp_path / "jobs.yaml"
    dump.write_text(JOBS)

    done = simulate("--trace", dump, "--gpus", 8, "-o", "json", "--gantt")
    report = json.loads(done.stdout)

    assert [(job["gpus"], job["submitted"], job["runs"]) for job in report["jobs"]] == [
        (8, 0, [{"from": 0, "to": 1800}]),
        (8, 3600, [{"from": 3600, "to": 7200}]),
        (8, 4200, [{"from": 7200, "to": 9000}]),
    ]
    assert "1 job of the trace left out: they have not ended" in done.stderr


@pytest.mark.parametrize("text", [pytest.param(CSV, id="csv"), pytest.param(JOBS, id="dump")])
def test_a_trace_may_come_from_standard_input(text):
    arguments = ["simulate", "--trace", "-", "--gpus", "16"]

    done = CliRunner().invoke(main, arguments, input=text)

    assert done.exit_code == 0, done.stderr
    assert "3 started, 3 ended" in done.stdout


def test_a_dump_cut_in_half_is_an_error_with_its_place(tmp_path):
    dump = tmp_path / "jobs.yaml"
    dump.write_text(JOBS[:500])

    done = simulate("--trace", dump, "--gpus", 8)

    assert done.exit_code == 2
    assert f"{dump}:" in done.stderr


def test_failures_cost_work_and_are_those_of_the_seed(trace):
    arguments = ("--trace", trace, "--nodes", "2x8", "--failures", "2h/10m")

    once, again = (figures(*arguments, "--seed", 3) for _ in range(2))
    others = [figures(*arguments, "--seed", seed) for seed in range(4, 8)]

    assert once == again
    assert any(each["figures"]["failed"] for each in others)
    assert any(each != once for each in others)
    failed = next(each for each in others if each["figures"]["failed"])
    assert failed["figures"]["lostGpuHours"] > 0
    assert failed["figures"]["ended"] == 3


def test_a_window_and_a_load(trace):
    report = figures("--trace", trace, "--gpus", 8, "--from", "1m", "--span", "2m", "--load", "0.5")

    assert report["jobs"][0]["submitted"] == 0
    assert report["figures"]["load"] == pytest.approx(0.5)
    assert len(report["jobs"]) == 2


def test_the_table_has_sizes_teams_and_a_gantt(trace):
    done = simulate("--trace", trace, "--gpus", 12, "--gantt")

    assert done.exit_code == 0
    assert "utilization  66.7 %" in done.stdout
    lines = {line.split()[0]: line for line in done.stdout.splitlines() if line}
    assert lines["8+"].split()[1:4] == ["2", "2", "00:29:30"]
    assert "█" in lines["vision/job-000002"]
    assert "·" in lines["vision/job-000003"]


def test_a_file_without_an_end_may_have_been_cut_off(trace):
    trace.write_text(CSV[:-1])

    assert "may have been cut off" in simulate("--trace", trace, "--gpus", 12).stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        pytest.param((), "a trace needs one cluster", id="no-cluster"),
        pytest.param(("--gpus", 8, "--nodes", "1x8"), "a trace needs one cluster", id="two"),
        pytest.param(("--nodes", "8"), "`8` is not a number of nodes", id="nodes"),
        pytest.param(("--gpus", 8, "--span", "soon"), "`soon` is not a duration", id="span"),
        pytest.param(("--gpus", 8, "--failures", "30d"), "`30d` does not say", id="failures"),
        pytest.param(("--gpus", 8, "--failures", "1d/1h"), "failures need nodes", id="no-nodes"),
        pytest.param(("--gpus", 8, "--from", "9d"), "no job of the trace", id="empty-window"),
        pytest.param(("--gpus", 1), "2 queues cannot divide 1 GPUs", id="too-small"),
    ],
)
def test_what_does_not_fit_together_is_reported(trace, arguments, message):
    done = simulate("--trace", trace, *arguments)

    assert done.exit_code == 2
    assert message in done.stderr


def test_a_file_a_trace_or_a_cluster_is_needed():
    done = simulate()

    assert done.exit_code == 2
    assert "FILE, --trace or --cluster is required" in done.stderr


NEVER_FIT = "submit,seconds,gpus,team\n0,600,16,a\n0,7200,4,a\n60,600,16,a\n"


@pytest.mark.parametrize(
    ("arguments", "wait", "warning"),
    [
        pytest.param((), ["never"] * 4, "2 of 3 jobs never start", id="to-the-end"),
        pytest.param(
            ("--until", "20m"),
            [">", "00:20:00"] * 4,
            "2 of 3 jobs have not started when the simulation stops",
            id="stopped",
        ),
    ],
)
def test_jobs_that_do_not_start_count_in_no_wait(tmp_path, arguments, wait, warning):
    (tmp_path / "jobs.csv").write_text(NEVER_FIT)

    done = simulate("--trace", tmp_path / "jobs.csv", "--gpus", 12, *arguments)

    large = next(line for line in done.stdout.splitlines() if line.startswith("8+"))
    assert large.split() == ["8+", "2", "0", *wait]
    assert warning in done.stderr
    assert "> maximum capacity (12)" in done.stderr


def test_figures_of_jobs_that_never_start_are_null(tmp_path):
    (tmp_path / "jobs.csv").write_text(NEVER_FIT)

    done = simulate("--trace", tmp_path / "jobs.csv", "--gpus", 12, "-o", "json")

    large = json.loads(done.stdout)["figures"]["bySize"]["8+"]
    assert (large["started"], large["never"], large["meanSeconds"]) == (0, 2, None)


def test_a_trace_on_queues_without_their_flavors_names_them(tmp_path):
    (tmp_path / "jobs.csv").write_text(NEVER_FIT)
    (tmp_path / "queues.yaml").write_text(SCENARIO.partition("---")[2])

    done = simulate(tmp_path / "queues.yaml", "--trace", tmp_path / "jobs.csv")

    assert "3 of 3 jobs never start" in done.stderr
    assert "ClusterQueue research: " in done.stderr
    assert "missing ResourceFlavor(s): h100" in done.stderr
