"""Virtual time: who runs when, and what cycles decide on the way."""

import json

import pytest
from click.testing import CliRunner

from policyd.alloc.plan import Admit, Preempt, Requeue
from policyd.alloc.queue import PreemptionPolicy
from policyd.cli import main
from policyd.simulate.scenario import Arrival, Simulation
from tests.alloc.builders import group, pod_set, queue, quota, state, workload


def run(of, *arrivals, **options):
    """The decisions of a scenario, a line each: when, what, who."""
    lines = []
    for step in Simulation(of, arrivals).steps(**options):
        lines += [(step.at, "ended", key) for key in step.ended]
        words = {Admit: "admitted", Preempt: "preempted", Requeue: "waits"}
        lines += [(step.at, words[type(a)], a.workload.key) for a in step.plan.actions]
    return lines


def arrival(key, at=0.0, runs=None, **fields):
    return Arrival(workload=workload(key, "q", **fields), at=at, run_seconds=runs)


def test_a_pending_workload_starts_when_another_ends():
    of = state(queue("q", gpu=4))

    assert run(of, arrival("a", runs=60, gpu=4), arrival("b", at=10, gpu=4)) == [
        (0, "admitted", "a"),
        (10, "waits", "b"),
        (60, "ended", "a"),
        (60, "admitted", "b"),
    ]  # fmt: skip


def test_a_victim_starts_again_from_the_beginning():
    of = state(queue("q", gpu=4, preemption=PreemptionPolicy(within_cluster_queue="LowerPriority")))

    assert run(
        of, arrival("low", runs=60, gpu=4), arrival("high", at=30, runs=10, gpu=4, priority=1)
    ) == [
        (0, "admitted", "low"),
        (30, "preempted", "low"),
        (30, "waits", "high"),
        (30, "admitted", "high"),
        (30, "waits", "low"),
        (40, "ended", "high"),
        (40, "admitted", "low"),
        (100, "ended", "low"),
    ]


def test_a_workload_that_was_evicted_before_it_started_can_be_preempted():
    """Its eviction is over once it runs; a workload that is being stopped has no new preemptor."""
    of = state(queue("q", gpu=4, preemption=PreemptionPolicy(within_cluster_queue="LowerPriority")))

    assert (30, "preempted", "low") in run(
        of,
        arrival("low", runs=60, gpu=4, evicted=True),
        arrival("high", at=30, runs=10, gpu=4, priority=1),
    )


def test_time_ends_where_it_is_configured():
    assert run(state(queue("q", gpu=4)), arrival("a", at=5, gpu=1), until=4) == []


def test_concurrent_arrivals_are_considered_together():
    of = state(queue("q", gpu=4))

    (first, *_) = Simulation(of, [arrival("a", gpu=4), arrival("b", gpu=4, priority=1)]).steps()

    assert [action.workload.key for action in first.plan.actions] == ["b"]


SCENARIO = """
kind: ResourceFlavor
metadata: {name: h100}
---
kind: ClusterQueue
metadata: {name: q}
spec:
  namespaceSelector: {}
  resourceGroups:
  - coveredResources: [gpu]
    flavors: [{name: h100, resources: [{name: gpu, nominalQuota: 4}]}]
---
kind: LocalQueue
metadata: {name: lq, namespace: ns}
spec: {clusterQueue: q}
---
kind: Workload
metadata: {name: train, namespace: ns, annotations: {policyd.io/run-for: 1m}}
spec:
  queueName: lq
  podSets:
  - count: 2
    template: {spec: {containers: [{name: c, resources: {requests: {gpu: 2}}}]}}
"""


@pytest.fixture
def simulate(tmp_path):
    def call(text, *options):
        file = tmp_path / "scenario.yaml"
        file.write_text(text)
        return CliRunner().invoke(main, ["simulate", str(file), *options])

    return call


def test_the_command_prints_a_line_for_each_decision(simulate):
    lines = simulate(SCENARIO).stdout.splitlines()

    assert [line.split() for line in lines[1:]] == [
        ["0:00:00", "1", "ns/train", "admitted", "to", "q", "on", "h100"],
        ["0:01:00", "ns/train", "ended"],
    ]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param("run-for: 1m", "expected-run-time: 1m", id="of-the-workload"),
        pytest.param(
            "annotations: {policyd.io/run-for: 1m}}", "annotations: {}}", id="of-its-pods"
        ),
    ],
)
def test_a_workload_runs_as_long_as_it_or_its_pods_declare(simulate, before, after):
    text = SCENARIO.replace(before, after)
    if "expected" not in after:
        text = text.replace(
            "template: {spec", "template: {metadata: {annotations: {policyd.io/run-for: 1m}}, spec"
        )

    (_, last) = json.loads(simulate(text, "-o", "json").stdout)

    assert (last["time"], last["ended"]) == (60.0, ["ns/train"])


def test_the_command_prints_every_number_as_json(simulate):
    first, last = json.loads(simulate(SCENARIO, "-o", "json").stdout)

    assert first["actions"][0]["counts"] == {"main": 2}
    assert (last["time"], last["ended"]) == (60.0, ["ns/train"])


def test_the_command_says_what_would_help(simulate):
    large = SCENARIO.replace("count: 2", "count: 3")

    table = simulate(large, "--explain").stdout
    (step,) = json.loads(simulate(large, "--explain", "-o", "json").stdout)

    assert "to help it: run 1 pod fewer of pod set main: 2 fit" in table
    (waits,) = step["actions"]
    assert (waits["nearest"]["kind"], waits["nearest"]["capacity"]) == ("OverCapacity", 4)
    assert [each["kind"] for each in waits["remedies"]] == ["Shrink", "RaiseQuota"]
    assert waits["remedies"][1]["by"] == 2


def test_the_command_says_who_is_left(simulate):
    result = simulate(SCENARIO.replace("count: 2", "count: 3"))

    assert "1 workload still waiting, 0 still running" in result.stderr
    assert "maximum capacity (4)" in result.stdout


def test_the_command_says_which_queues_give_out_nothing(simulate):
    result = simulate(SCENARIO.replace("kind: ResourceFlavor\nmetadata: {name: h100}", ""))

    assert "ClusterQueue q: Can't admit new workloads: references missing" in result.stderr


ADMITTED = """
kind: Workload
metadata: {name: runs, namespace: ns}
spec:
  queueName: lq
  maximumExecutionTimeSeconds: 600
  podSets:
  - name: main
    template: {spec: {containers: [{name: c, resources: {requests: {gpu: 4}}}]}}
status:
  admission:
    clusterQueue: q
    podSetAssignments: [{name: main, count: 1, flavors: {gpu: h100}, resourceUsage: {gpu: 4}}]
  conditions:
  - {type: QuotaReserved, status: "True", lastTransitionTime: "2026-01-01T00:00:00Z"}
  - {type: Admitted, status: "True", lastTransitionTime: "2026-01-01T00:00:00Z"}
"""
QUEUES = SCENARIO[: SCENARIO.rindex("---")]


def waiting(name, queue="lq", extra=""):
    return f"""
kind: Workload
metadata: {{name: {name}, namespace: ns}}
spec:
  queueName: {queue}
  {extra}
  podSets:
  - name: main
    template: {{spec: {{containers: [{{name: c, resources: {{requests: {{gpu: 4}}}}}}]}}}}
status:
  conditions: [{{type: Other, status: "True", lastTransitionTime: "2026-01-01T00:01:00Z"}}]
"""


def cluster(*objects):
    return "---".join([QUEUES, *objects])


def test_running_workloads_of_a_cluster_end_after_their_maximum_execution_time(simulate):
    steps = json.loads(simulate(cluster(ADMITTED, waiting("next")), "-o", "json").stdout)

    assert (steps[1]["time"], steps[1]["stopped"]) == (540.0, ["ns/runs"])
    assert [(a["action"], a["workload"]) for a in steps[1]["actions"]] == [("Admit", "ns/next")]


def test_a_preempted_workload_has_less_maximum_execution_time_left():
    of = state(queue("q", gpu=4, preemption=PreemptionPolicy(within_cluster_queue="LowerPriority")))
    low = Arrival(workload=workload("low", "q", gpu=4), most_seconds=60.0)
    high = arrival("high", at=40, runs=10, gpu=4, priority=1)

    ended = [line for line in run(of, low, high) if line[1] == "ended"]

    assert ended == [(50, "ended", "high"), (70, "ended", "low")]


def test_pods_that_are_stopped_are_gone():
    of = state(queue("q", gpu=4, preemption=PreemptionPolicy(within_cluster_queue="LowerPriority")))
    pods = Arrival(workload=workload("pods", "q", gpu=4), run_seconds=60.0, ends_when_stopped=True)

    found = run(of, pods, arrival("high", at=30, runs=10, gpu=4, priority=1))

    assert found[-1] == (40, "ended", "high")
    assert "pods" not in {key for at, _, key in found if at > 30}


def test_a_missing_local_queue_leaves_out_its_workload_alone(simulate):
    result = simulate(cluster(waiting("lost", queue="ql"), waiting("found")))

    assert result.exit_code == 0
    assert "Workload ns/lost: not simulated: LocalQueue `ns/ql` not found" in result.stderr
    assert "did you mean `ns/lq`?" in result.stderr
    assert "ns/found" in result.stdout


def test_each_of_several_equal_workloads_is_reported_as_pending(simulate):
    text = cluster(ADMITTED.replace("maximumExecutionTimeSeconds: 600", ""), *map(waiting, "abc"))

    table = simulate(text).stdout
    *_, last = json.loads(simulate(text, "-o", "json").stdout)

    assert "ns/b                      waits: as ns/a, which asks for the same: couldn't" in table
    assert [(w["workload"], w["like"]) for w in last["waiting"]] == [
        ("ns/b", "ns/a"),
        ("ns/c", "ns/a"),
    ]


def test_workloads_behind_the_head_of_a_strict_queue_are_reported_as_waiting(simulate):
    strict = cluster(ADMITTED, waiting("a", extra="priority: 1"), waiting("b")).replace(
        "namespaceSelector: {}", "namespaceSelector: {}\n  queueingStrategy: StrictFIFO"
    )

    assert "ns/b                      waits: behind ns/a" in simulate(strict).stdout


def test_a_deactivated_workload_is_left_out(simulate):
    result = simulate(cluster(waiting("idle", extra="active: false")))

    assert "Workload ns/idle: not simulated: it is deactivated" in result.stderr


JOB = """
apiVersion: batch/v1
kind: Job
metadata: {name: j, namespace: ns, labels: {kueue.x-k8s.io/queue-name: lq}}
spec:
  parallelism: 2
  template:
    metadata: {annotations: {policyd.io/run-for: 1m}}
    spec: {containers: [{name: c, resources: {requests: {gpu: 2}}}]}
"""


def test_jobs_are_simulated(simulate):
    steps = json.loads(simulate(cluster(JOB), "-o", "json").stdout)

    assert steps[0]["actions"][0]["counts"] == {"main": 2}
    assert steps[1]["time"] == 60.0


def test_a_job_with_a_workload_is_simulated_once(simulate):
    owner = (
        "ownerReferences: [{apiVersion: batch/v1, kind: Job, name: j, uid: x, controller: true}]"
    )
    owned = waiting("job-j").replace("namespace: ns}", f"namespace: ns, {owner}}}", 1)

    result = simulate(cluster(owned, JOB), "-o", "json")

    assert [a["workload"] for s in json.loads(result.stdout) for a in s["actions"]] == ["ns/job-j"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param(
            JOB.replace("labels: {kueue.x-k8s.io/queue-name: lq}", ""), "names no queue", id="job"
        ),
        pytest.param(
            JOB.replace("parallelism: 2", "parallelism: [2]"), "Expected `int", id="no-job"
        ),
        pytest.param(
            JOB.replace("apiVersion: batch/v1", "apiVersion: v1").replace("kind: Job", "kind: Pod"),
            "made in a cluster",
            id="pod",
        ),
        pytest.param(
            JOB.replace("batch/v1", "example.com/v1").replace("kind: Job", "kind: Own"),
            "no job of this kind",
            id="unknown-kind",
        ),
        pytest.param(
            "\napiVersion: batch/v1\nkind: CronJob\nmetadata: {name: c, namespace: ns}\n"
            "spec: {jobTemplate: {metadata: {labels: {kueue.x-k8s.io/queue-name: lq}}}}\n",
            "its Jobs are made in a cluster",
            id="cron-job",
        ),
        pytest.param(
            "\napiVersion: kueue.x-k8s.io/v1beta2\nkind: ClusterQeue\nmetadata: {name: c}\n",
            "Kueue has no such kind",
            id="mistyped-kind",
        ),
        pytest.param(
            JOB.replace("lq}", "lq, kueue.x-k8s.io/priority-class: gone}"),
            "WorkloadPriorityClass `gone` not found",
            id="priority-class",
        ),
    ],
)
def test_unsimulated_features_are_reported(simulate, text, message):
    result = simulate(cluster(text))

    assert result.exit_code == 0
    assert message in result.stderr


def test_columns_are_as_wide_as_the_longest_name(simulate):
    names = ["short", "a-name-that-is-much-longer-than-others-are"]

    lines = simulate(cluster(*map(waiting, names))).stdout.splitlines()

    at = lines[0].index("DECISION")
    assert {line[at - 2 : at] for line in lines} == {"  "}
    assert [line[at:].split()[0] for line in lines[1:]] == ["admitted", "waits:"]


def test_a_scenario_may_come_from_standard_input(simulate):
    result = CliRunner().invoke(main, ["simulate", "-"], input=SCENARIO)

    assert "ns/train" in result.stdout


@pytest.mark.parametrize(
    ("change", "message"),
    [
        pytest.param(
            ("run-for: 1m", "run-for: soon"), "`soon` is not a duration", id="no-duration"
        ),
        pytest.param(("nominalQuota: 4", "nominalQuota: [4]"), "ClusterQueue `q`", id="no-quota"),
        pytest.param(("kind: ClusterQueue", "kind: Queue"), "no ClusterQueue", id="no-queue"),
        pytest.param(("kind: LocalQueue", "kinds: x"), "not a Kubernetes object", id="no-object"),
        pytest.param(("---", "{"), "not YAML", id="no-yaml"),
    ],
)
def test_errors_in_a_scenario_are_reported(simulate, change, message):
    result = simulate(SCENARIO.replace(*change))

    assert result.exit_code == 2
    assert message in result.stderr


def rivals(**runs):
    """Two workloads that may run with fewer pods, and of which each makes the other stop."""
    of = state(
        queue("lends", "x", groups=[group(default={"gpu": quota(5, borrow=1)})]),
        queue("q", "x", gpu=1, preemption=PreemptionPolicy(reclaim_within_cohort="Any")),
    )
    small, large = (
        workload("small", "q", pod_set(count=3, minimum=1, gpu=1)),
        workload("large", "lends", pod_set(count=2, minimum=1, gpu=3), priority=2),
    )
    return of, [Arrival(workload=each, **runs) for each in (small, large)]


@pytest.mark.parametrize("seconds", [0.0, 5.0])
def test_time_goes_on_where_workloads_preempt_each_other_without_an_end(seconds):
    of, coming = rivals(run_seconds=seconds)
    simulation = Simulation(of, [*coming, arrival("later", at=50)])

    steps = list(zip(range(2_000), simulation.steps(until=60), strict=False))

    assert simulation.unsettled
    assert steps[-1][1].at >= 50
