"""The two clusters on which the same scenarios run: the embedded one, and a real control plane.

Both get the same nodes, teams, queues and policies; on the real one, webhooks and controller run as
the separate processes that they are in production, by the chart's accounts and all that binds them.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any, Literal, cast

import yaml

from policyd.cli import demo
from policyd.policy_files import default_files
from policyd.snapshot.values import API_VERSION, CLUSTER_PLURAL, NAME
from tests.charts import release
from tests.charts.release import CONTROLLER, NAMESPACE, WEBHOOKS, Accounts
from tests.controlplane.programs import API_SERVER, free_ports
from tests.full_schemas import kueue_definitions
from tests.scenarios.api import Api, Refused, eventually

Schemas = Literal["slim", "full", "kueue"]
SCHEMAS = cast("Schemas", os.environ.get("POLICYD_SCHEMAS", "slim"))
"""Which definitions Kueue's kinds have in the scenarios, unless one chooses for itself."""

SNAPSHOTS = f"apis/{API_VERSION}/{CLUSTER_PLURAL}/{NAME}"

PROJECT = Path(__file__).parents[2]
COMMANDS = Path(sys.executable).parent


@dataclass
class Process:
    """A process of policyd's that a scenario may kill and start again."""

    arguments: list[str]
    log: Path
    running: subprocess.Popen[bytes] = field(init=False)

    def start(self) -> None:
        # The tests' own variables, such as POLICYD_SCHEMAS, are no settings of the product.
        own = {k: v for k, v in os.environ.items() if not k.startswith("POLICYD_")}
        with self.log.open("ab") as log:
            self.running = subprocess.Popen(
                self.arguments, stdout=log, stderr=log, cwd=PROJECT, env=own
            )

    def kill(self) -> None:
        self.running.kill()
        self.running.wait()

    def stop(self) -> int:
        if self.running.poll() is None:
            self.running.send_signal(signal.SIGINT)
        try:
            return self.running.wait(timeout=15)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"did not end on SIGINT:\n{self.tail()}") from None

    def tail(self) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-40:])

    def alive(self) -> None:
        if self.running.poll() is not None:
            raise AssertionError(f"{self.arguments} ended:\n{self.tail()}")


@dataclass
class Cluster:
    """A cluster with policyd in it."""

    name: str
    kubeconfig: Path
    api: Api
    controller: Process


def answer(cluster, *words, namespace="team-a"):
    """Return what a command that asks a cluster prints as JSON."""
    options = ["--kubeconfig", cluster.kubeconfig, "-n", namespace, "-o", "json"]
    done = subprocess.run(
        [COMMANDS / "policyd", *words, *options], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@contextmanager
def embedded(folder: Path, *options: str) -> Iterator[Cluster]:
    """`policyd up`, as a user starts it, with more options."""
    kubeconfig = folder / "kubeconfig"
    command = [str(COMMANDS / "policyd"), "up", "--kubeconfig", str(kubeconfig), "--port", "0"]
    command += ["--serve-v1beta1", *options]
    process = Process(command, folder / "up.log")
    process.start()
    try:
        eventually(lambda: ready(process, "export KUBECONFIG="), what="`policyd up` is ready")
        yield Cluster("embedded", kubeconfig, Api(kubeconfig), process)
    finally:
        code = process.stop()
    assert code == 0, process.tail()


def ready(process: Process, words: str) -> bool:
    process.alive()
    return words in process.log.read_text(errors="replace")


@contextmanager
def real(
    folder: Path,
    *,
    also: Sequence[Path] = (),
    both: Sequence[str] = (),
    schemas: Schemas = SCHEMAS,
    values: Mapping[str, object] | None = None,
    **options: Any,
) -> Iterator[Cluster]:
    """The real control plane, with policyd's two processes beside it.

    Args:
        folder: Where the processes log.
        also: Policies of the library beside those that are installed unless others are chosen.
        both: Options of both processes.
        schemas: Which definitions Kueue's kinds have: ours, slim or full, or Kueue's own.
        values: Of the chart, which makes the accounts of both.
        options: How the control plane is started, as `ControlPlane` takes them.
    """
    from tests.controlplane.server import ControlPlane  # noqa: PLC0415 - only here is it needed

    flags = dict(options.pop("flags", {}))
    flags[API_SERVER] = [*flags.get(API_SERVER, ()), *release.front_proxy(folder)]
    with ControlPlane(flags=flags, **options) as control_plane, ExitStack() as stack:
        kubeconfig = control_plane.kubeconfig
        api = Api(kubeconfig)
        install(api, schemas)
        served = {"controller__visibility__enabled": True}
        accounts = accounts_on(control_plane, **served, **(values or {}))
        port = free_ports(["visibility"])["visibility"]
        release.lead_visibility_to_this_machine(control_plane, port)
        command = webhooks_command(accounts, also, snapshots=True)
        webhooks = Process([*command, *both], folder / "webhooks.log")
        command = [*controller_command(accounts), "--visibility-port", str(port)]
        controller = Process([*command, *both], folder / "controller.log")
        for process in (webhooks, controller):
            process.start()
            stack.callback(process.stop)
        eventually(
            lambda: webhooks_are_ready(api, (webhooks, controller)),
            within=90,
            what="the webhook is open",
        )
        eventually(lambda: found(api, SNAPSHOTS), within=90, what="snapshots are served")
        yield Cluster("real", kubeconfig, api, controller)
        refused = find_failures(webhooks, controller)
        assert not refused, "\n".join(refused[:5])


def found(api: Api, path: str) -> bool:
    try:
        api.call("GET", path)
    except Refused:
        return False
    return True


def find_failures(*processes: Process) -> list[str]:
    """Return what processes were refused, by policies on them or for lack of rights."""
    words = ("ValidatingAdmissionPolicy", "is forbidden: User")
    lines = chain(*(each.log.read_text(errors="replace").splitlines() for each in processes))
    return [line for line in lines if any(word in line for word in words)]


def accounts_on(control_plane: Any, **values: object) -> Accounts:
    """Make policyd's accounts on a control plane, as the chart does, given some of its values."""
    return release.accounts(control_plane, port=free_ports(["webhooks"])["webhooks"], **values)


def webhooks_command(
    accounts: Accounts,
    also: Sequence[Path] = (),
    *,
    only: Sequence[Path] | None = None,
    snapshots: bool = False,
) -> list[str]:
    """Return the command of the webhooks; `snapshots` of the queues are served to few of them.

    They have the policies of the library that a release has, and others, or `only` those given.
    """
    policies = [*default_files(PROJECT / "policies"), *also] if only is None else only
    service = f"{NAMESPACE}/{WEBHOOKS}"
    return [
        str(COMMANDS / "policyd-webhooks"),
        *(word for file in policies for word in ("--policies", str(file))),
        *("--kubeconfig", str(accounts.webhooks), "--namespace", NAMESPACE),
        *("--port", str(accounts.port), "--service", f"{service}:{accounts.port}", "--register"),
        *("--leave-out", "secrets", "--leave-out", "roles"),
        *("--secret", service, "--from-cluster", "--drain-seconds", "0"),
        *(() if snapshots else ("--no-queue-snapshots",)),
    ]


def controller_command(accounts: Accounts) -> list[str]:
    program = [str(COMMANDS / "policyd"), "controller"]
    memory = ["--forecast-memory", f"{CONTROLLER}-memory", "--hours-record", f"{CONTROLLER}-hours"]
    return [*program, "--kubeconfig", str(accounts.controller), "--namespace", NAMESPACE, *memory]


def install(api: Api, schemas: Schemas = "slim") -> None:
    """Create policyd's kinds, the nodes, the teams and their queues."""
    for crd in definitions(schemas):
        api.create(crd)
    for item in (*demo.nodes(), *demo.teams()):
        eventually(lambda item=item: created(api, item), what=f"{item['kind']} is served")


def definitions(schemas: Schemas) -> list[dict[str, Any]]:
    """Return the definitions of all kinds; Kueue's own are used where they are at hand."""
    command = [COMMANDS / "policyd", "crds", *(["--full"] if schemas == "full" else [])]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found = {crd["metadata"]["name"]: crd for crd in yaml.safe_load_all(printed)}
    theirs = kueue_definitions() if schemas == "kueue" else ()
    return list((found | {crd["metadata"]["name"]: crd for crd in theirs}).values())


def created(api: Api, item: dict[str, Any]) -> bool:
    try:
        api.create(item)
    except Refused as refusal:
        if refusal.code in {404, 429, 503}:  # the kind was created a moment ago
            return False
        raise
    return True


def webhooks_are_ready(api: Api, processes: tuple[Process, ...]) -> bool:
    """Tell whether a pod comes back with what the policies inject."""
    for process in processes:
        process.alive()
    probe = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "probe", "namespace": "team-a"},
        "spec": {
            "containers": [
                {
                    "name": "main",
                    "image": "registry.example/probe:1",
                    "resources": {"limits": {"nvidia.com/gpu": "1"}},
                }
            ]
        },
    }
    try:
        answer = api.create(probe, dry_run=True)
    except Refused:
        return False
    return "kueue.x-k8s.io/queue-name" in answer["metadata"].get("labels", {})
