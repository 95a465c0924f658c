"""Load of all kinds for a cluster that is watched: every metric of the dashboards moves."""

import contextlib
import json
import socket
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from typing import Any

from policyd.api.kueue.names import API_VERSION
from policyd.cli import demo
from tests.scenarios.api import Api, Refused, eventually
from tests.scenarios.objects import job, pod

QUEUE = "kueue.x-k8s.io/queue-name"
PRIORITY = "kueue.x-k8s.io/priority-class"
PREEMPTION = {"withinClusterQueue": "LowerPriority", "reclaimWithinCohort": "Any"}
DEEP = 2_000
ASKED_EVERY = 5


def prepare(api: Api) -> None:
    """Create a pod that no webhook sees, and queues with preemption and with a topology."""
    outside = pod("outside", "team-b", gpus=1, annotations={"policyd.io/run-for": "3600s"})
    outside["spec"]["tolerations"] = [{**demo.GPU_TOLERATION}]
    api.create(outside)
    for team in demo.TEAMS:
        api.patch("ClusterQueue", team, {"spec": {"preemption": PREEMPTION}})
    for item in _placed():
        api.create(item)


def policies(api: Api) -> None:
    """Create policies that refuse, that fail, and that are shadows."""
    rules = [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"]}]
    match = {"resourceRules": [{**rules[0], "resources": ["configmaps"]}]}
    fails = {"expression": "object.data['absent'] == 'x'", "message": "never said"}
    refuses = {"expression": "object.metadata.name != 'refused'", "message": "the name is refused"}
    for name, spec in {
        "monitored-fails": {"failurePolicy": "Ignore", "validations": [fails]},
        "monitored-refuses": {"validations": [refuses]},
        "monitored-shadow": {"shadowOf": "monitored-refuses", "validations": [fails]},
    }.items():
        whole = {"matchConstraints": match, **spec}
        metadata = {"name": name}
        kind = {"apiVersion": "policyd.io/v1alpha1", "kind": "Policy"}
        api.create({**kind, "metadata": metadata, "spec": whole})


def run(api: Api, webhooks_port: int, *, enough: Callable[[], bool], most_seconds: float) -> None:
    """Let jobs come, run, wait and be preempted, and requests be refused and fail.

    Args:
        api: The API server.
        webhooks_port: Where reviews are answered, to send some that are none.
        enough: Asked now and then whether it may end.
        most_seconds: When it ends in any case.
    """
    until, number = time.monotonic() + most_seconds, 0
    _create(api, _gang("gang", gpus=8, pods=2, run_for="3600s"))
    for team in demo.TEAMS:
        _create(api, _job(f"long-{team}", team, priority="research", run_for="3600s"))
    eventually(lambda: not api.get("Job", "long-team-a", "team-a")["spec"]["suspend"])
    while time.monotonic() < until:
        number += 1
        team = demo.TEAMS[number % 2]
        _create(api, _job(f"short-{number}", team, gpus=4, run_for="1s"))
        if number % 4 == 1:
            _create(api, _job(f"urgent-{number}", team, priority="production", run_for="1s"))
        _create(api, _single(f"single-{number}", team))
        for name in ("refused", f"fails-{number}"):
            config = {"apiVersion": "v1", "kind": "ConfigMap", "data": {"a": "b"}}
            _create(api, {**config, "metadata": {"name": name, "namespace": team}})
        _no_verdict(webhooks_port)
        _no_handshake(webhooks_port)
        time.sleep(1.0)
        if number % ASKED_EVERY == 0 and enough():
            return


def _create(api: Api, item: dict[str, Any]) -> None:
    with contextlib.suppress(Refused):  # some are to be refused
        api.create(item)


def _job(
    name: str, team: str, *, gpus: int = 8, priority: str = "", run_for: str
) -> dict[str, Any]:
    body = job(name, team, gpus=gpus, run_for=run_for)
    body["metadata"]["labels"] = {QUEUE: team, **({PRIORITY: priority} if priority else {})}
    return body


def _single(name: str, team: str) -> dict[str, Any]:
    return pod(name, team, gpus=1, labels={QUEUE: team}, annotations={"policyd.io/run-for": "1s"})


def _gang(name: str, *, gpus: int, pods: int, run_for: str) -> dict[str, Any]:
    body = job(name, "team-a", gpus=gpus * pods, pods=pods, run_for=run_for)
    body["metadata"]["labels"] = {QUEUE: "placed"}
    asked = {"kueue.x-k8s.io/podset-required-topology": demo.RACK_LABEL}
    body["spec"]["template"]["metadata"]["annotations"] |= asked
    body["spec"]["completionMode"] = "Indexed"
    return body


def _placed() -> list[dict[str, Any]]:
    levels = [{"nodeLabel": each} for each in (demo.RACK_LABEL, "kubernetes.io/hostname")]
    quotas = {"cpu": "1000", "memory": "10Ti", "nvidia.com/gpu": "1000"}
    resources = [{"name": name, "nominalQuota": amount} for name, amount in quotas.items()]
    flavor = {"name": "placed", "resources": resources}
    group = {"coveredResources": list(quotas), "flavors": [flavor]}
    specs: dict[str, dict[str, Any]] = {
        "Topology": {"levels": levels},
        "ResourceFlavor": {
            "nodeLabels": {demo.GPU_LABEL: demo.GPU_PRODUCT},
            "topologyName": "placed",
            "tolerations": [demo.GPU_TOLERATION],
        },
        "ClusterQueue": {"namespaceSelector": {}, "resourceGroups": [group]},
        "LocalQueue": {"clusterQueue": "placed"},
    }
    found = []
    for kind, spec in specs.items():
        metadata = {"name": "placed", **({"namespace": "team-a"} if kind == "LocalQueue" else {})}
        about = {"apiVersion": API_VERSION, "kind": kind, "metadata": metadata, "spec": spec}
        found.append(about)
    return found


def _no_verdict(port: int) -> None:
    """Send a review that cannot be decided on: its object is nested too deep."""
    nested = '{"a":' * DEEP + "1" + "}" * DEEP
    kind = {"group": "", "version": "v1", "kind": "ConfigMap"}
    request = {
        "uid": "deep",
        "kind": kind,
        "resource": {"group": "", "version": "v1", "resource": "configmaps"},
        "name": "deep",
        "namespace": "team-a",
        "operation": "CREATE",
        "userInfo": {"username": "someone"},
        "object": {"metadata": {"name": "deep"}, "data": "NESTED"},
    }
    review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
    body = json.dumps(review).replace('"NESTED"', nested).encode()
    headers = {"content-type": "application/json"}
    asked = urllib.request.Request(
        f"https://127.0.0.1:{port}/validate?timeout=5s", body, headers=headers
    )
    trusting = ssl.create_default_context()
    trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE
    with contextlib.suppress(urllib.error.HTTPError):
        urllib.request.urlopen(asked, timeout=10, context=trusting).close()


def _no_handshake(port: int) -> None:
    with socket.create_connection(("127.0.0.1", port), timeout=5) as connection:
        connection.sendall(b"no TLS at all\r\n\r\n")
        with contextlib.suppress(OSError):
            connection.recv(1)
