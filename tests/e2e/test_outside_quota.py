"""What gets past webhooks that do not answer is found by the controller within ten seconds."""

import socket
import time
import urllib.request
from contextlib import contextmanager

import pytest

from policyd.jobs.integrations import EVERYTHING
from policyd.kube.resources import (
    MUTATING_WEBHOOK_CONFIGURATIONS,
    VALIDATING_WEBHOOK_CONFIGURATIONS,
)
from policyd.registration.configurations import (
    Registration,
    UrlEndpoint,
    mutating_configuration,
    validating_configuration,
)
from policyd.registration.webhook_rules import derive_webhook_rules
from tests.charts.release import NAMESPACE
from tests.controlplane.programs import free_ports
from tests.controlplane.server import ControlPlane
from tests.scenarios.api import Api, eventually
from tests.scenarios.clusters import Process, accounts_on, controller_command, install
from tests.scenarios.objects import job, pod

pytestmark = pytest.mark.e2e

WITHIN_SECONDS = 10.0
CONFIGURATIONS = "apis/admissionregistration.k8s.io/v1"
QUEUE = "kueue.x-k8s.io/queue-name"


@pytest.fixture(scope="module")
def outage(tmp_path_factory):
    """A real API server whose webhooks never answer, with the controller beside it."""
    folder = tmp_path_factory.mktemp("outage")
    with ControlPlane() as control_plane, silent_port() as silent:
        api, port = Api(control_plane.kubeconfig), free_ports(["health"])["health"]
        install(api)
        accounts = accounts_on(control_plane)
        command = [*controller_command(accounts), "--health-port", str(port)]
        controller = Process(command, folder / "controller.log")
        controller.start()
        try:
            eventually(lambda: metrics(port), what="the controller serves its metrics")
            register(api, silent)
            yield api, port
        finally:
            controller.stop()


@contextmanager
def silent_port():
    """Listen, as a process does that is flooded, and never answer."""
    with socket.create_server(("127.0.0.1", 0), backlog=128) as listener:
        yield listener.getsockname()[1]


def register(api, port):
    """Have the API server call webhooks that do not answer, and go on without them."""
    wanted = Registration(
        endpoint=UrlEndpoint(url=f"https://127.0.0.1:{port}"),
        rules=derive_webhook_rules((), queue=EVERYTHING, failure_policy="Ignore"),
        own_namespace=NAMESPACE,
        timeout_seconds=1,
    )
    for resource, body in (
        (MUTATING_WEBHOOK_CONFIGURATIONS, mutating_configuration(wanted)),
        (VALIDATING_WEBHOOK_CONFIGURATIONS, validating_configuration(wanted)),
    ):
        path = f"{CONFIGURATIONS}/{resource.plural}"
        api.call("DELETE", f"{path}/{body['metadata']['name']}")
        api.call("POST", path, body)


def metrics(port):
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
            return answer.read().decode()
    except OSError:
        return ""


def value(port, name, **labels):
    wanted = [f'{key}="{text}"' for key, text in labels.items()]
    for line in metrics(port).splitlines():
        if line.startswith(f"{name}{{") and all(each in line for each in wanted):
            return float(line.rpartition(" ")[2])
    return 0.0


def events_of(api, name, reason="OutsideQuota"):
    return [
        event["message"]
        for event in api.find("Event", "team-a")
        if (event["reason"], event["involvedObject"]["name"]) == (reason, name)
    ]


def usage(port):
    name = "policyd_usage_outside_quota"
    return value(port, name, namespace="team-a", resource="nvidia.com/gpu")


@pytest.mark.parametrize("labels", [{}, {QUEUE: "team-a"}], ids=["no-queue", "a-queue"])
def test_a_pod_of_64_gpus_is_found(outage, labels):
    api, port = outage
    api.create(pod("huge", gpus=64, labels=labels))
    created = time.monotonic()

    eventually(lambda: events_of(api, "huge"), within=WITHIN_SECONDS, what="it is told of")
    eventually(lambda: usage(port) == 64, within=WITHIN_SECONDS, what="it is measured")
    assert time.monotonic() - created < WITHIN_SECONDS

    api.delete("Pod", "huge", "team-a")
    eventually(lambda: not api.exists("Pod", "huge", "team-a"), what="it is gone")
    eventually(lambda: usage(port) == 0, what="it is no longer measured")


def test_a_job_that_was_not_held_is_stopped(outage):
    """A Job that names a queue and runs is suspended, until its turn comes."""
    api, _ = outage
    made = job("huge", gpus=64, pods=8, run_for="600s")
    made["metadata"]["labels"] = {QUEUE: "team-a"}
    api.create(made)
    created = time.monotonic()

    eventually(
        lambda: api.get("Job", "huge", "team-a")["spec"]["suspend"],
        within=WITHIN_SECONDS,
        what="it is suspended",
    )
    assert time.monotonic() - created < WITHIN_SECONDS
