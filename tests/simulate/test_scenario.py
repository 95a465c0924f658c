"""Virtual time: who runs when, and what cycles decide on the way."""

import json

import pytest
from click.testing import CliRunner

from policyd.alloc.plan import Admit, Preempt, Requeue
from policyd.alloc.queue import PreemptionPolicy
from policyd.cli import main
from policyd.simulate.scenario import Arrival, Simulation
from tests.alloc.builders import queue, state, workload


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


def test_who_waits_starts_when_another_ends():
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


def test_time_ends_where_it_is_told_to():
    assert run(state(queue("q", gpu=4)), arrival("a", at=5, gpu=1), until=4) == []


def test_who_comes_at_the_same_time_is_considered_together():
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


def test_the_command_prints_every_number_as_json(simulate):
    first, last = json.loads(simulate(SCENARIO, "-o", "json").stdout)

    assert first["actions"][0]["counts"] == {"main": 2}
    assert (last["time"], last["ended"]) == (60.0, ["ns/train"])


def test_the_command_says_what_would_help(simulate):
    large = SCENARIO.replace("count: 2", "count: 3")

    table = simulate(large, "--explain").stdout
    (step,) = json.loads(simulate(large, "--explain", "-o", "json").stdout)

    assert "to help it: run 1 pods fewer of pod set main: 2 fit" in table
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


@pytest.mark.parametrize(
    ("change", "said"),
    [
        pytest.param(("queueName: lq", "queueName: gone"), "`ns/gone`", id="unknown-queue"),
        pytest.param(("run-for: 1m", "run-for: soon"), "`soon` is no duration", id="no-duration"),
        pytest.param(("nominalQuota: 4", "nominalQuota: [4]"), "ClusterQueue `q`", id="no-quota"),
        pytest.param(("kind: ClusterQueue", "kind: Queue"), "no ClusterQueue", id="no-queue"),
        pytest.param(("kind: LocalQueue", "kinds: x"), "no Kubernetes object", id="no-object"),
        pytest.param(("---", "{"), "is not YAML", id="no-yaml"),
    ],
)
def test_what_is_wrong_with_a_scenario_is_said(simulate, change, said):
    result = simulate(SCENARIO.replace(*change))

    assert result.exit_code == 2
    assert said in result.stderr
