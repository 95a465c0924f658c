"""Certificates: how near a packing is to the optimum."""

import json
import sys

import pytest

from tests.cli.planning.test_trace_command import simulate

PODS = """
kind: Topology
metadata: {name: t}
spec: {levels: [{nodeLabel: kubernetes.io/hostname}]}
---
kind: ResourceFlavor
metadata: {name: h100}
spec: {nodeLabels: {gpu: "yes"}, topologyName: t}
---
kind: ClusterQueue
metadata: {name: q}
spec:
  namespaceSelector: {}
  resourceGroups:
  - coveredResources: [nvidia.com/gpu]
    flavors: [{name: h100, resources: [{name: nvidia.com/gpu, nominalQuota: 16}]}]
"""
NODE = """---
kind: Node
metadata: {name: NAME, labels: {gpu: "yes", kubernetes.io/hostname: NAME}}
status:
  allocatable: {nvidia.com/gpu: "8", pods: "110"}
  conditions: [{type: Ready, status: "True"}]
"""


@pytest.fixture
def cluster(tmp_path):
    """Two nodes of eight GPUs, which a quota of 16 is for."""
    pytest.importorskip(
        "ortools", reason="the extra `optimum` is not installed: pip install 'policyd[optimum]'"
    )
    file = tmp_path / "cluster.yaml"
    file.write_text(PODS + NODE.replace("NAME", "n1") + NODE.replace("NAME", "n2"))
    return file


def certified(cluster, gpus):
    trace = cluster.parent / "jobs.csv"
    rows = [f"{at},3600,{each}" for at, each in enumerate(gpus)]
    trace.write_text("\n".join(["submit,seconds,gpus", *rows, ""]))
    done = simulate(cluster, "--trace", trace, "--until", "1m", "--optimum", 20, "-o", "json")
    assert done.exit_code == 0, done.stderr
    return json.loads(done.stdout)["packing"]


@pytest.mark.parametrize(
    ("gpus", "held", "bound"),
    [
        pytest.param([8, 8], 16, 16, id="full"),
        pytest.param([5, 5, 4, 4, 4, 4], 10, 16, id="others-would-fill-the-nodes"),
        pytest.param([5, 5, 5, 5], 10, 10, id="nothing-else-fits"),
        pytest.param([3], 3, 3, id="nothing-else-is-asked-for"),
        pytest.param([6, 6, 2], 14, 14, id="all-fit"),
    ],
)
def test_the_bound_is_the_best_packing(cluster, gpus, held, bound):
    found = certified(cluster, gpus)

    assert (found["held"], found["bound"], found["proven"]) == (held, bound, True)
    assert found["gap"] == pytest.approx((bound - held) / bound)


def test_quotas_bound_a_packing_too(cluster):
    cluster.write_text(cluster.read_text().replace("nominalQuota: 16", "nominalQuota: 9"))

    assert certified(cluster, [8, 8, 4])["bound"] == 8


def test_a_scenario_has_a_certificate_beside_its_steps(cluster):
    done = simulate(cluster, "--optimum", 5, "-o", "json")
    shown = simulate(cluster, "--optimum", 5)

    assert json.loads(done.stdout) == {
        "steps": [],
        "packing": {"held": 0, "bound": 0, "gap": 0.0, "proven": True},
    }
    assert "packing: 0 GPUs held, 0 at most: within 0.0 % of the optimum" in shown.stdout


def test_without_ortools_it_is_one_sentence(tmp_path, monkeypatch):
    file = tmp_path / "cluster.yaml"
    file.write_text(PODS)
    monkeypatch.setitem(sys.modules, "ortools.sat.python.cp_model", None)

    done = simulate(file, "--optimum", 5)

    assert done.exit_code == 2
    assert (
        done.output
        == "error: certificates need the extra `optimum`: pip install 'policyd[optimum]'\n"
    )
