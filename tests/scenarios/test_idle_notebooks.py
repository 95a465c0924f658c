"""Idle notebooks are stopped by `policyd usage idle --stop`, with an Event, and can be started."""

import json
import subprocess
import time
from contextlib import suppress

import pytest

from tests.scenarios.api import Refused
from tests.scenarios.clusters import COMMANDS
from tests.usage import recording
from tests.usage.loopback import FakePrometheus, serving

APPS = "apis/apps/v1/namespaces/team-a/statefulsets"
PODS = "api/v1/namespaces/team-a/pods"
EVENTS = "api/v1/namespaces/team-a/events"
QUEUE = "kueue.x-k8s.io/queue-name"
TEMPLATE = {
    "metadata": {"labels": {"app": "nb"}},
    "spec": {
        "containers": [
            {"name": "main", "image": "a/b:1", "resources": {"limits": {"nvidia.com/gpu": "1"}}}
        ]
    },
}


def series():
    for name in ("idle", "allowed", "busy"):
        labels = recording.gpu(name[0], 0, f"team-a/{name}-0", UUID=f"GPU-{name}")
        yield recording.ENGINE, labels, recording.always(0.9 if name == "busy" else 0.0)


@pytest.fixture
def notebooks(api):
    """Three notebooks with a pod each; `allowed` may be idle for 12 hours."""
    for name, after in (("idle", "1s"), ("allowed", "12h"), ("busy", "1s")):
        notebook = api.call("POST", APPS, stateful_set(name, after))
        owner = {
            "apiVersion": "apps/v1", "kind": "StatefulSet", "name": name, "controller": True,
            "uid": notebook["metadata"]["uid"],
        }  # fmt: skip
        metadata = {"name": f"{name}-0", "ownerReferences": [owner], "labels": {"app": "nb"}}
        pod = {**TEMPLATE, "kind": "Pod", "apiVersion": "v1", "metadata": metadata}
        with suppress(Refused):  # where a controller makes the pods, it may be the first
            api.call("POST", PODS, pod)
    yield
    for name in ("idle", "allowed", "busy"):
        api.call("DELETE", f"{APPS}/{name}", {"propagationPolicy": "Background"})


def stateful_set(name, after):
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {
            "name": name,
            "labels": {"policyd.io/notebook": "true", QUEUE: "team-a"},
            "annotations": {"policyd.io/idle-after": after},
        },
        "spec": {
            "replicas": 1,
            "serviceName": name,
            "selector": {"matchLabels": {"app": "nb"}},
            "template": TEMPLATE,
        },
    }


def replicas(api):
    return {
        each["metadata"]["name"]: each["spec"]["replicas"]
        for each in api.call("GET", APPS)["items"]
    }


def test_an_idle_notebook_is_stopped_with_an_event_and_can_be_started_again(
    api, cluster, notebooks
):
    begin = (int(time.time()) + 60) // 30 * 30 - (recording.END - recording.BEGIN)

    def stop(*more):
        with serving(FakePrometheus(series, begin=begin)) as address:
            command = [
                COMMANDS / "policyd", "usage", "idle", "--prometheus", address, "--stop", *more,
                "--kubeconfig", cluster.kubeconfig, "-o", "json", "--since", "6h",
            ]  # fmt: skip
            done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        found = json.loads(done.stdout)["notebooks"]
        return {each["notebook"].partition("/")[2]: each["done"] for each in found}

    everything = {"idle": 1, "allowed": 1, "busy": 1}
    assert stop("--dry-run") == {"idle": "would be stopped", "allowed": "kept"}
    assert replicas(api) == everything
    assert not [e for e in api.call("GET", EVENTS)["items"] if e["reason"] == "StoppedIdle"]

    assert stop() == {"idle": "stopped", "allowed": "kept"}
    assert replicas(api) == {**everything, "idle": 0}
    (event,) = [e for e in api.call("GET", EVENTS)["items"] if e["reason"] == "StoppedIdle"]
    assert event["involvedObject"]["name"] == "idle"
    assert (
        "start it again: kubectl scale statefulset/idle -n team-a --replicas=1" in event["message"]
    )

    assert stop() == {"allowed": "kept"}
    scale = {"spec": {"replicas": 1}}
    merge = "application/merge-patch+json"
    api.call("PATCH", f"{APPS}/idle/scale", scale, content_type=merge)
    assert replicas(api) == everything
