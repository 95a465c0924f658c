"""Other teams' jobs are named as far as is wanted, wherever jobs are named at all."""

import ast
import re
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

import policyd
from policyd.cli import main
from policyd.cli.formats.json_values import as_json
from policyd.status.naming import Names, Naming
from policyd.status.remedies import AllowPreemption, Wait, WaitForProtection
from policyd.status.shortages import Holder

SOURCES = sorted(Path(policyd.__file__).parent.rglob("*.py"))

WORKLOAD = """
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: Workload
metadata:
  name: {name}
  namespace: {team}
  annotations: {{policyd.io/arrives-after: {at}, policyd.io/run-for: {lasts}}}
spec:
  queueName: lq
  priority: {priority}
  podSets:
  - name: main
    count: {pods}
    topologyRequest: {{required: kubernetes.io/hostname}}
    template: {{spec: {{containers: [{{name: c, resources: {{requests: {{gpu: 1}}}}}}]}}}}
"""
NODE = """
---
apiVersion: v1
kind: Node
metadata: {{name: {name}, labels: {{gpu: h100, kubernetes.io/hostname: {name}}}}}
status: {{allocatable: {{gpu: "4", pods: "110"}}, conditions: [{{type: Ready, status: "True"}}]}}
"""
QUEUES = """
apiVersion: config.kueue.x-k8s.io/v1beta2
kind: Configuration
visibility: {otherTeams: OTHERS}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: Topology
metadata: {name: t}
spec: {levels: [{nodeLabel: kubernetes.io/hostname}]}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ResourceFlavor
metadata: {name: h100}
spec: {nodeLabels: {gpu: h100}, topologyName: t}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: q}
spec:
  namespaceSelector: {}
  preemption: {withinClusterQueue: LowerPriority}
  resourceGroups:
  - coveredResources: [gpu]
    flavors: [{name: h100, resources: [{name: gpu, nominalQuota: 7}]}]
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: LocalQueue
metadata: {name: lq, namespace: ours}
spec: {clusterQueue: q}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: LocalQueue
metadata: {name: lq, namespace: theirs}
spec: {clusterQueue: q}
---
apiVersion: v1
kind: Pod
metadata: {name: loose, namespace: theirs, labels: {kueue.x-k8s.io/queue-name: lq}}
"""


def scenario(others):
    """Everybody waits for everybody else, and is preempted by them."""
    workloads = [
        ("large", "theirs", 3, "0s", "20m", 0),
        ("small", "theirs", 2, "0s", "30m", 0),
        ("mine", "ours", 4, "1m", "10m", 0),
        ("wide", "ours", 3, "1m", "10m", 0),
        ("alike", "theirs", 4, "2m", "10m", 0),
        ("urgent", "ours", 2, "5m", "5m", 9),
        ("gone", "theirs", 2, "5m", "5m", 9),
    ]
    keys = ("name", "team", "pods", "at", "lasts", "priority")
    nodes = [NODE.format(name=name) for name in ("n1", "n2")]
    made = [WORKLOAD.format(**dict(zip(keys, each, strict=True))) for each in workloads]
    return "".join([QUEUES.replace("OTHERS", others), *nodes, *made])


SIMULATED = [
    pytest.param([], id="table"),
    pytest.param(["--explain", "--map"], id="map"),
    pytest.param(["--until", "2m", "--defragment", "2", "--map"], id="plans"),
    pytest.param(["-o", "json", "--explain"], id="json"),
    pytest.param(["-o", "json", "--until", "2m", "--defragment", "2"], id="plans-json"),
]


def simulated(others, *words):
    result = CliRunner().invoke(main, ["simulate", "-", *words], input=scenario(others))
    assert result.exit_code == 0, result.stderr
    return result.stdout + result.stderr


@pytest.mark.parametrize("words", SIMULATED)
@pytest.mark.parametrize(
    ("others", "unsaid", "message"),
    [
        pytest.param("names", None, r"theirs/large", id="names"),
        pytest.param("team", r"theirs/", r"of theirs|theirs \(", id="team"),
        pytest.param("hidden", r"theirs", r"another team|other teams", id="hidden"),
    ],
)
def test_a_simulation_shows_a_team_others_as_far_as_is_wanted(words, others, unsaid, message):
    text = simulated(others, "--namespace", "ours", *words)

    assert re.search(message, text)
    assert "ours/mine" in text
    assert unsaid is None or not re.findall(f".*{unsaid}.*", text)


def test_without_a_reader_each_workload_gets_the_names_of_its_own_team():
    """A row names its own workload; what it says of other teams' does not."""
    rows = simulated("hidden", "--explain").splitlines()

    team, teams = "", set()
    for row in rows[1:]:
        named = re.findall(r"\b(ours|theirs)/[a-z]+", row)
        team = named[0] if re.match(r" +\d+:\d\d:\d\d", row) else team
        assert set(named) <= {team}, row
        teams.add(team)
    assert teams == {"ours", "theirs"}


def test_the_command_line_says_more_than_the_configuration():
    text = simulated("hidden", "--other-teams", "names", "--namespace", "ours")

    assert "theirs/large" in text


@pytest.mark.parametrize(
    "remedy",
    [
        Wait(flavor="f", resource="r", missing=1, holders=(Holder("a/x", "q", 1),)),
        WaitForProtection(workloads=("a/x",), until=0.0),
        AllowPreemption(
            cluster_queue="q",
            field="withinClusterQueue",
            policy="Any",
            victims=("a/x",),
            priority=0,
        ),
    ],
    ids=lambda each: type(each).__name__,
)
def test_remedies_as_json_name_others_as_far_as_is_wanted(remedy):
    naming = Naming(namespace="b", others="hidden")

    assert "a/x" in msgspec.json.encode(as_json(remedy)).decode()
    assert "a/x" not in msgspec.json.encode(as_json(remedy, naming)).decode()


ABOUT_NO_WORKLOAD = ("devices.py", "command.py", "hours.py")
"""Where values become JSON in which there are no workloads."""


def functions_that_name():
    """The functions that are told how to name others: where, and at which place of arguments."""
    for source in SOURCES:
        for node in ast.walk(ast.parse(source.read_text())):
            if isinstance(node, ast.FunctionDef):
                names = [each.arg for each in node.args.args]
                if "naming" in names and "self" not in names:
                    yield node.name, (source.stem, names.index("naming"))


def forgetful(source, known):
    """The calls of such functions in a module that do not say how others are named."""
    tree = ast.parse(source.read_text())
    imported = {
        (name.name, (node.module or "").rpartition(".")[2])
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for name in node.names
    }
    for node in ast.walk(tree):
        name = node.func.id if isinstance(node, ast.Call) and hasattr(node.func, "id") else ""
        module, place = known.get(name, ("", 0))
        if module and (source.stem == module or (name, module) in imported):
            given = {word.arg for word in node.keywords}
            if len(node.args) <= place and "naming" not in given:
                yield f"{source.name}:{node.lineno} {name}"


def test_messages_about_workloads_set_the_names_of_others():
    """None of the functions that name workloads is called without."""
    known = dict(functions_that_name())
    assert {"message_of", "remedy_text", "held_by", "considered_text", "as_json"} <= known.keys()

    forgotten = [each for source in SOURCES for each in forgetful(source, known)]

    assert [each for each in forgotten if not each.startswith(ABOUT_NO_WORKLOAD)] == []


def test_one_function_decides_which_workloads_are_named():
    readers = [
        f"{source.name}:{node.lineno}"
        for source in SOURCES
        for node in ast.walk(ast.parse(source.read_text()))
        if isinstance(node, ast.Compare)
        and isinstance(node.left, ast.Attribute)
        and node.left.attr == "others"
        and any(getattr(each, "value", "") == "names" for each in node.comparators)
    ]

    assert [each.partition(":")[0] for each in readers] == ["naming.py"]
    assert not Names(others="hidden", reader="b").to("a/x").names("a/x")
    assert Names(others="hidden").of("a/x") == "a/x"
