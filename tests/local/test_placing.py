"""Where the embedded scheduler puts a pod, and what it says when it cannot."""

import msgspec
import pytest

from policyd.api.nodes import Node
from policyd.local.objects import LocalPod
from policyd.local.placing import NodeCandidate, Unschedulable, choose_node

GPU = "nvidia.com/gpu"
TAINT = {"key": GPU, "value": "present", "effect": "NoSchedule"}


def candidate(name, free=None, *, taints=(), labels=None, unschedulable=False):
    node = {
        "metadata": {"name": name, "labels": labels or {}},
        "spec": {"taints": list(taints), "unschedulable": unschedulable},
    }
    free = {"cpu": 1000, "pods": 10} if free is None else free
    return NodeCandidate(node=msgspec.convert(node, Node), free=free)


def pod(**spec):
    return msgspec.convert({"spec": spec}, LocalPod)


def affinity(*expressions):
    terms = [{"matchExpressions": list(expressions)}]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    return {"nodeAffinity": required}


@pytest.mark.parametrize(
    ("spec", "candidates", "expected"),
    [
        pytest.param({}, [candidate("a"), candidate("b")], "a", id="a-tie-goes-to-the-first-name"),
        pytest.param(
            {},
            [
                candidate("a", {"cpu": 1000, "pods": 9, GPU: 2}),
                candidate("b", {"cpu": 500, "pods": 9, GPU: 8}),
            ],
            "b",
            id="the-most-devices-win",
        ),
        pytest.param(
            {"nodeSelector": {"rack": "2"}},
            [candidate("a"), candidate("b", labels={"rack": "2"})],
            "b",
            id="the-node-selector-decides",
        ),
        pytest.param(
            {"affinity": affinity({"key": "rack", "operator": "In", "values": ["2"]})},
            [candidate("a", labels={"rack": "1"}), candidate("b", labels={"rack": "2"})],
            "b",
            id="required-affinity-decides",
        ),
        pytest.param(
            {"tolerations": [{"key": GPU, "operator": "Exists"}]},
            [candidate("a", taints=[TAINT])],
            "a",
            id="a-toleration-lets-in",
        ),
        pytest.param(
            {},
            [candidate("a", taints=[{**TAINT, "effect": "PreferNoSchedule"}])],
            "a",
            id="a-preference-keeps-nobody-out",
        ),
    ],
)
def test_a_fitting_node_is_chosen(spec, candidates, expected):
    assert choose_node(pod(**spec), {"cpu": 100, "pods": 1}, candidates) == expected


@pytest.mark.parametrize(
    ("spec", "candidates", "message"),
    [
        pytest.param({}, [], "0/0 nodes are available: no nodes.", id="no-nodes"),
        pytest.param(
            {},
            [candidate("a", {"cpu": 0, "pods": 1}), candidate("b", {"cpu": 0, "pods": 0})],
            "0/2 nodes are available: 2 Insufficient cpu, 1 Too many pods.",
            id="reasons-are-counted",
        ),
        pytest.param(
            {},
            [candidate("a", taints=[TAINT])],
            "0/1 nodes are available: 1 node(s) had untolerated taint {nvidia.com/gpu: present}.",
            id="the-taint-is-named",
        ),
        pytest.param(
            {"nodeSelector": {"rack": "2"}},
            [candidate("a")],
            "0/1 nodes are available: 1 node(s) didn't match Pod's node affinity/selector.",
            id="no-label-matches",
        ),
        pytest.param(
            {},
            [candidate("a", unschedulable=True)],
            "0/1 nodes are available: 1 node(s) were unschedulable.",
            id="a-cordoned-node-takes-nothing",
        ),
    ],
)
def test_a_pod_that_fits_nowhere_gets_the_reason(spec, candidates, message):
    assert choose_node(pod(**spec), {"cpu": 100, "pods": 1}, candidates) == Unschedulable(message)
