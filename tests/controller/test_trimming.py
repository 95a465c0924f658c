"""Pods beside the queue are cut down, and still say what they take of their nodes."""

import msgspec
import pytest

from policyd.api.kueue.names import SLICE_NAME, WORKLOAD
from policyd.controller.watch.mirrors import Trimmer
from policyd.jobs.places import takes_room
from policyd.jobs.pods import QueuedPod
from policyd.workload.topology_values import taken_by

LIMITS = {"requests": {"cpu": "2", "nvidia.com/gpu": "1"}}
SPEC = {
    "nodeName": "n1",
    "containers": [{"name": "main", "resources": LIMITS, "ports": [{"hostPort": 80}]}],
    "initContainers": [{"name": "proxy", "resources": LIMITS, "restartPolicy": "Always"}],
    "overhead": {"memory": "1Gi"},
    "tolerations": [{"key": "gpu", "operator": "Exists"}],
    "schedulerName": "default-scheduler",
}


def pod(name="web", *, annotations=None, phase="Running", **spec):
    metadata = {
        "name": name,
        "namespace": "shop",
        "uid": f"uid-{name}",
        "resourceVersion": "7",
        "labels": {"app": "web"},
        "annotations": annotations or {"note": "n" * 100},
    }
    status = {"phase": phase, "conditions": [{"type": "Ready", "status": "True"}]}
    return msgspec.convert({"metadata": metadata, "spec": SPEC | spec, "status": status}, QueuedPod)


@pytest.mark.parametrize("phase", ["Running", "Pending", "Succeeded"])
def test_a_pod_that_is_cut_down_takes_what_it_took(phase):
    whole = pod(phase=phase, resources={"requests": {"cpu": "9"}})

    kept = Trimmer().trimmed(whole)

    assert (kept.metadata.key, kept.metadata.uid) == ("shop/web", "uid-web")
    assert kept.metadata.resource_version == "7"
    assert (kept.metadata.annotations, kept.metadata.labels) == ({}, {})
    assert kept.status.conditions == ()
    assert taken_by(kept.spec) == taken_by(whole.spec)
    assert takes_room(kept) is takes_room(whole)
    assert kept.spec.node_name == "n1"


@pytest.mark.parametrize(
    "whole",
    [
        pytest.param(pod(annotations={WORKLOAD: "w"}), id="of-a-workload"),
        pytest.param(pod(annotations={SLICE_NAME: "w"}), id="of-a-slice"),
        pytest.param(
            pod(annotations={"kueue.x-k8s.io/podset-required-topology": "rack"}), id="to-be-placed"
        ),
        pytest.param(
            pod(schedulingGates=[{"name": "kueue.x-k8s.io/topology"}]), id="held-for-its-place"
        ),
    ],
)
def test_a_pod_that_a_topology_places_is_kept_whole(whole):
    assert Trimmer().trimmed(whole) is whole


def test_pods_that_are_alike_share_what_they_ask_for():
    trimmer = Trimmer()

    one, other, different = (
        trimmer.trimmed(each)
        for each in (pod("a"), pod("b", nodeName="n2"), pod("c", overhead={"memory": "2Gi"}))
    )

    assert one.spec.containers is other.spec.containers
    assert one.spec.containers is not different.spec.containers
    assert (one.spec.node_name, other.spec.node_name) == ("n1", "n2")
