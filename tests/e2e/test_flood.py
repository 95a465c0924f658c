"""A flood on the webhooks' port, and pods of 64 GPUs behind it that no quota has room for."""

import signal
import time
from contextlib import ExitStack, contextmanager

import pytest

from tests.attacks.connections import Flood, begin, counted, stay
from tests.attacks.replicas import GATE
from tests.controlplane.programs import free_ports
from tests.controlplane.server import ControlPlane
from tests.e2e.test_outside_quota import QUEUE, WITHIN_SECONDS, events_of, metrics, usage
from tests.scenarios.api import Api, Refused, eventually
from tests.scenarios.clusters import (
    Process,
    accounts_on,
    controller_command,
    install,
    webhooks_command,
)
from tests.scenarios.objects import pod

pytestmark = pytest.mark.e2e

GPUS = 64
FLOOD = Flood(700, stay, "shed", tls=False)
"""More connections than the webhooks keep, which they close to have room for callers."""
MOST_SECONDS = 120.0


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """A control plane with both processes, which goes on without webhooks that do not answer."""
    folder = tmp_path_factory.mktemp("flood")
    ports = free_ports(["webhooks", "controller"])
    with ControlPlane() as control_plane, ExitStack() as stack:
        api = Api(control_plane.kubeconfig)
        install(api)
        accounts = accounts_on(control_plane)
        lenient = ["--failure-policy", "Ignore", "--timeout-seconds", "1"]
        # Policies of the library deny pods of so many GPUs.
        command = [*webhooks_command(accounts, only=()), *lenient]
        webhooks = Process(
            [*command, "--metrics-port", str(ports["webhooks"])], folder / "webhooks.log"
        )
        command = [*controller_command(accounts), "--health-port", str(ports["controller"])]
        for process in (webhooks, Process(command, folder / "controller.log")):
            process.start()
            stack.callback(process.stop)
        eventually(lambda: end_of(api, "probe", dry_run=True) == "held", within=90, what="ready")
        eventually(lambda: metrics(ports["controller"]), within=90, what="the controller runs")
        yield api, webhooks, accounts.port, ports


def end_of(api, name, *, dry_run=False):
    """Create a pod in a queue; tell whether it was refused, is held, or passed the webhooks."""
    try:
        made = api.create(pod(name, gpus=GPUS, labels={QUEUE: "team-a"}), dry_run=dry_run)
    except Refused:
        return "refused"
    gates = [gate["name"] for gate in made["spec"].get("schedulingGates", ())]
    return "held" if GATE in gates else "passed"


@contextmanager
def flooded(port):
    attacker, began = begin(FLOOD, port, seconds=MOST_SECONDS)
    try:
        assert began, "the flood has no connection"
        yield
    finally:
        attacker.kill()


def test_what_a_flood_lets_past_is_found_within_ten_seconds(cluster):
    """Some reviews are answered in spite of it; one is not, as its process has no turn."""
    api, webhooks, port, ports = cluster
    ends, created = {}, {}

    def tried(name):
        ends[name], created[name] = end_of(api, name), time.monotonic()

    with flooded(port):
        eventually(lambda: counted("shed", ports["webhooks"]), what="connections are shed")
        for number in range(5):
            tried(f"flooded-{number}")
        webhooks.running.send_signal(signal.SIGSTOP)
        try:
            tried("unanswered")
        finally:
            webhooks.running.send_signal(signal.SIGCONT)
        passed = {name for name, end in ends.items() if end == "passed"}
        assert "unanswered" in passed
        found = {}
        while found.keys() != passed and time.monotonic() < max(created.values()) + WITHIN_SECONDS:
            for name in passed - found.keys():
                if events_of(api, name):
                    found[name] = time.monotonic() - created[name]
            time.sleep(0.2)
        assert found.keys() == passed
        assert max(found.values()) < WITHIN_SECONDS
        assert usage(ports["controller"]) == GPUS * len(passed)
        assert counted("shed", ports["webhooks"]) >= FLOOD.connections - 512

    assert ends["flooded-0"] in ("held", "passed")
    for name in ends:
        api.delete("Pod", name, "team-a")
    eventually(lambda: usage(ports["controller"]) == 0, what="it is no longer measured")
    eventually(lambda: end_of(api, "after", dry_run=True) == "held", what="reviews are answered")
