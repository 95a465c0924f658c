"""Plans of moves: whom they concern, from where to where, and what they cost."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from policyd.cli import main
from policyd.optimize.opt_ins import NO_OPT_INS
from policyd.simulate.defragmentation import carried_out, described, plan_moves
from tests.optimize.test_moves import anywhere, gang, world


def plan(of, key="new", most=3):
    of.settle()
    (waiting,) = [
        t.workload for q in of.queues.values() for t in q.pending if t.workload.key == key
    ]
    return plan_moves(of, waiting, most=most)


def in_the_way(**fields):
    return world(
        anywhere("a", 2, on={"r1-0": 2}, **fields), gang("new", 2, gpu=4), r1=(4, 4), r2=(2, 2)
    )


def test_a_plan_says_who_moves_from_where_to_where_at_what_cost():
    of = in_the_way(reserved_at=-1800.0)

    report = described(of, plan(of))

    assert (report.workload, dict(report.target), report.fewest) == (
        "new",
        {"r1-0": 1, "r1-1": 1},
        True,
    )
    (move,) = report.moves
    assert (move.workload, move.pods) == ("a", 2)
    assert (dict(move.source), dict(move.target)) == ({"r1-0": 2}, {"r2-0": 2})
    assert (move.lost_seconds, move.cost, report.cost) == (1800.0, 3600.0, 3600.0)


def test_queues_that_did_not_ask_for_moves_can_be_planned_for_too():
    of = world(
        anywhere("a", 2, on={"r1-0": 2}),
        gang("new", 2, gpu=4),
        opt_ins=NO_OPT_INS,
        r1=(4, 4),
        r2=(2, 2),
    )

    assert plan(of) is not None


def test_a_plan_is_drawn_as_if_it_were_carried_out_and_then_taken_back():
    of = in_the_way()
    before = dict(of.ledger.nodes.held)

    with carried_out(of, plan(of)):
        held = {k: dict(p.assignment.domains) for k, (p,) in of.ledger.nodes.held.items()}

    assert held == {"new": {("r1-0",): 1, ("r1-1",): 1}, "a": {("r2-0",): 2}}
    assert of.ledger.nodes.held == before


def test_a_workload_of_a_missing_queue_has_no_plan():
    of = in_the_way()
    found = plan(of)
    of.remove_queue("q")

    assert found is not None
    assert plan(of) is None


# On the command line.

SCENARIO = """
apiVersion: kueue.x-k8s.io/v1beta2
kind: Topology
metadata: {name: racks}
spec: {levels: [{nodeLabel: example.com/rack}, {nodeLabel: kubernetes.io/hostname}]}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ResourceFlavor
metadata: {name: h100}
spec: {nodeLabels: {gpu: h100}, topologyName: racks}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: research, annotations: {ANNOTATIONS}}
spec:
  namespaceSelector: {}
  resourceGroups:
  - coveredResources: [nvidia.com/gpu]
    flavors: [{name: h100, resources: [{name: nvidia.com/gpu, nominalQuota: 32}]}]
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: LocalQueue
metadata: {name: gpu, namespace: vision}
spec: {clusterQueue: research}
"""
NODE = """---
apiVersion: v1
kind: Node
metadata: {name: NAME, labels: {gpu: h100, example.com/rack: RACK, kubernetes.io/hostname: NAME}}
status: {allocatable: {nvidia.com/gpu: "4", pods: "9"}, conditions: [{type: Ready, status: "True"}]}
"""
WORKLOAD = """---
apiVersion: kueue.x-k8s.io/v1beta2
kind: Workload
metadata:
  name: NAME
  namespace: vision
  annotations: {policyd.io/arrives-after: AT, policyd.io/run-for: RUN}
spec:
  queueName: gpu
  podSets:
  - name: main
    count: COUNT
    topologyRequest: {HOW}
    template:
      metadata: {annotations: {policyd.io/checkpoint-every: 20m}}
      spec: {containers: [{name: c, resources: {requests: {nvidia.com/gpu: GPUS}}}]}
"""


def filled(template, **values):
    for name, value in values.items():
        template = template.replace(name, str(value))
    return template


@pytest.fixture
def scenario(tmp_path):
    """Two racks of two nodes; one job is left in each when two others have gone."""

    def written(annotations=""):
        rack = "required: example.com/rack"
        nodes = [filled(NODE, NAME=f"{r}-{n}", RACK=r) for r in "ab" for n in (1, 2)]
        jobs = [
            ("gone-a", "0s", "1h", 1, rack, 4),
            ("stays", "0s", "9h", 1, rack, 3),
            ("gone-b", "1m", "1h", 1, rack, 4),
            ("small", "1m", "9h", 2, rack, 1),
            ("new", "2h", "1h", 4, rack, 2),
        ]
        file = tmp_path / "scenario.yaml"
        file.write_text(
            SCENARIO.replace("ANNOTATIONS", annotations)
            + "".join(nodes)
            + "".join(
                filled(WORKLOAD, NAME=n, AT=at, RUN=run, COUNT=c, HOW=how, GPUS=g)
                for n, at, run, c, how, g in jobs
            )
        )
        return str(file)

    return written


def simulated(*arguments):
    result = CliRunner().invoke(main, ["simulate", *arguments])
    assert result.exit_code == 0, result.output
    return result.stdout


def test_the_plan_follows_the_decisions(scenario):
    lines = simulated("--until", "3h", "--defragment", "2", scenario()).splitlines()

    assert lines[-3:] == [
        "vision/new: 1 move would start it, 0.7 device-hours of work lost",
        "  move vision/small: b-2 2 -> a-1 2 (2 pods, 20m lost: 0.7 device-hours)",
        "  start vision/new: b-1 2, b-2 2",
    ]


def test_the_map_shows_what_would_be(scenario):
    drawn = simulated("--map", "--until", "3h", "--defragment", "2", scenario()).splitlines()

    assert drawn[-6:-4] == [
        "rack a        a-1 DD..   a-2 BBB.",
        "rack b        b-1 EEEE   b-2 EEEE",
    ]


def test_json_has_it_beside_the_steps(scenario):
    found = json.loads(simulated("-o", "json", "--until", "3h", "--defragment", "2", scenario()))

    assert set(found) == {"steps", "defragmentation"}
    assert found["steps"][0]["actions"][0]["gpus"] == 4
    (plan,) = found["defragmentation"]
    assert plan["fewest"] is True
    assert plan["cost"] == 2 * 1200
    assert [(m["workload"], m["source"], m["target"]) for m in plan["moves"]] == [
        ("vision/small", {"b-2": 2}, {"a-1": 2})
    ]


def test_a_workload_beyond_the_reach_of_moves_gets_the_reason(scenario):
    lines = simulated("--until", "30m", "--defragment", "2", scenario()).splitlines()
    assert not any("would start it" in line for line in lines), "nobody waits yet"

    file = scenario()
    huge = filled(
        WORKLOAD,
        NAME="huge",
        AT="2h",
        RUN="1h",
        COUNT=3,
        HOW="required: example.com/rack",
        GPUS=4,
    )
    Path(file).write_text(Path(file).read_text() + huge)

    lines = simulated("--until", "3h", "--defragment", "1", file).splitlines()

    assert "vision/huge: no plan of at most 1 move starts it" in lines


def test_it_is_carried_out_only_where_the_queue_says_so(scenario):
    table = simulated("--until", "3h", scenario('policyd.io/consolidate: "1"'))

    assert "vision/small              preempted for vision/new (Consolidation)" in table
    assert "vision/small              admitted to research on h100" in table
    assert "Consolidation" not in simulated("--until", "3h", scenario())


RUNNING = """
status:
  conditions:
  - {type: QuotaReserved, status: "True", reason: R, message: m, lastTransitionTime: "SINCE"}
  - {type: Admitted, status: "True", reason: R, message: m, lastTransitionTime: "SINCE"}
  admission:
    clusterQueue: research
    podSetAssignments:
    - name: main
      count: COUNT
      flavors: {nvidia.com/gpu: h100}
      resourceUsage: {nvidia.com/gpu: COUNT}
      topologyAssignment:
        levels: [kubernetes.io/hostname]
        slices:
        - domainCount: 1
          valuesPerLevel: [{universal: HOST}]
          podCounts: {universal: COUNT}
"""


def test_running_workloads_of_a_cluster_can_be_planned_for(scenario):
    """As `kubectl get -o yaml` has it: with statuses, and some that are finished."""
    file = Path(scenario())
    furniture, _ = file.read_text().split(
        "---\napiVersion: kueue.x-k8s.io/v1beta2\nkind: Workload", 1
    )
    jobs = [
        filled(
            WORKLOAD, NAME=name, AT="0s", RUN="9h", COUNT=pods, HOW="unconstrained: true", GPUS=1
        )
        + filled(RUNNING, COUNT=pods, HOST=host, SINCE=since)
        for name, pods, host, since in (
            ("long", 3, "a-1", "2026-01-01T10:00:00Z"),
            ("short", 2, "b-1", "2026-01-01T11:50:00Z"),
            ("last", 1, "b-2", "2026-01-01T12:00:00Z"),
        )
    ]
    ended = "\nstatus: {conditions: [{type: Finished, status: 'True', reason: R, message: m}]}"
    rack = "required: example.com/rack"
    waiting = filled(WORKLOAD, NAME="new", AT="0s", RUN="1h", COUNT=2, HOW=rack, GPUS=4)
    file.write_text(
        furniture
        + "".join(jobs)
        + filled(WORKLOAD, NAME="old", AT="0s", RUN="1h", COUNT=9, HOW=rack, GPUS=4)
        + ended
        + "\n"
        + waiting
    )

    (plan,) = json.loads(simulated("-o", "json", "--until", "0s", "--defragment", "2", str(file)))[
        "defragmentation"
    ]

    assert [(m["workload"], m["lostSeconds"]) for m in plan["moves"]] == [("vision/long", 1200.0)]
