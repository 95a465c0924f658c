"""Three replicas on a real control plane, while certificates rotate, one dies, and one is flooded.

All the while pods that are too large or have no gate are created. None may be admitted ungated.
"""

import base64
import contextlib
import itertools
import socket
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from policyd.certificates import Authority
from tests.attacks.figures import Attack, Figures
from tests.charts import release
from tests.controlplane.programs import free_ports
from tests.controlplane.server import ControlPlane
from tests.scenarios.api import PATCH_TYPES, Api, Refused, eventually
from tests.scenarios.clusters import Process, install, webhooks_are_ready, webhooks_command
from tests.scenarios.objects import pod
from webhooks.certificate.rotation import KeptCertificates, write_secret

REPLICAS = 3
SECONDS = 80
"""A round of the replicas' look at the Secret, and some more."""

SECRET = f"api/v1/namespaces/{release.NAMESPACE}/secrets/{release.WEBHOOKS}"
GATE = "kueue.x-k8s.io/admission"
GREEDY_GPUS = 64


@dataclass
class Balancer:
    """Passes connections on to the replicas in turn, as a Service does; dead ones are skipped."""

    ports: list[int]
    listener: socket.socket = field(init=False)

    def __post_init__(self) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=512)
        self._turn = itertools.count()
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def port(self) -> int:
        """The port that the API server calls."""
        return int(self.listener.getsockname()[1])

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self.listener.accept()
                replica = self._replica()
                if replica is None:
                    client.close()
                    continue
                for pair in ((client, replica), (replica, client)):
                    threading.Thread(target=_pass_on, args=pair, daemon=True).start()

    def _replica(self) -> socket.socket | None:
        for _ in self.ports:
            port = self.ports[next(self._turn) % len(self.ports)]
            with contextlib.suppress(OSError):
                return socket.create_connection(("127.0.0.1", port), timeout=1)
        return None


def _pass_on(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        target.settimeout(None)
        # Without it, a small part of an answer waits 40 ms for the other side's acknowledgement.
        target.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while chunk := source.recv(1 << 16):
            target.sendall(chunk)
    for end in (source, target):
        with contextlib.suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)


def begin_rotation(api: Api) -> None:
    """Have the next round of the replicas switch to another authority."""
    upcoming = Authority.create(now=time.time() - 3600).pair
    data = write_secret(KeptCertificates(upcoming=upcoming))
    encoded = {name: base64.b64encode(value).decode() for name, value in data.items()}
    api.call("PATCH", SECRET, {"data": encoded}, content_type=PATCH_TYPES["merge"])


@contextmanager
def opened(folder: Path) -> Iterator[tuple[Api, list[Process], list[int]]]:
    """Start a control plane, and three replicas behind one address."""
    names = [f"{what}-{number}" for what in ("reviews", "metrics") for number in range(REPLICAS)]
    given = list(free_ports(names).values())
    ports, beside = given[:REPLICAS], given[REPLICAS:]
    balancer = Balancer(ports)
    with ControlPlane() as control_plane, ExitStack() as stack:
        stack.callback(balancer.listener.close)
        api = Api(control_plane.kubeconfig)
        install(api)
        accounts = release.accounts(control_plane, port=balancer.port)
        replicas = []
        for number, port in enumerate(ports):
            command = [*webhooks_command(accounts), "--metrics-port", str(beside[number])]
            command[command.index("--port") + 1] = str(port)
            replica = Process(command, folder / f"replica-{number}.log")
            replica.start()
            stack.callback(replica.stop)
            replicas.append(replica)
        eventually(lambda: webhooks_are_ready(api, tuple(replicas)), what="the webhooks are called")
        yield api, replicas, ports


def try_replicas() -> Figures:
    """Try to get a pod past three replicas while they change; judge what was admitted."""
    with (
        tempfile.TemporaryDirectory(prefix="policyd-attacks-") as folder,
        opened(Path(folder)) as (api, replicas, ports),
    ):
        authority = _authority(api)
        begin_rotation(api)
        took, passed = _besiege(api, replicas, ports)
        rotated = _authority(api) != authority
    return Figures(
        tried=len(took),
        bypasses=passed,
        worst_seconds=max(took),
        median_seconds=statistics.median(took),
        faults=() if rotated else ("the certificates did not rotate: that was not tried",),
    )


def _besiege(api: Api, replicas: list[Process], ports: list[int]) -> tuple[list[float], int]:
    """Create pods while replicas change; return how long each took, and how many passed."""
    began, passed = time.monotonic(), 0
    took: list[float] = []
    flood: list[socket.socket] = []
    events = [(15, "kill"), (25, "start"), (35, "flood"), (50, "end")]
    while (elapsed := time.monotonic() - began) < SECONDS:
        if events and elapsed > events[0][0]:
            _change(events.pop(0)[1], replicas, ports, flood)
        passed += _admitted(api, pod(f"greedy-{len(took)}", gpus=GREEDY_GPUS), took)
        passed += _admitted(api, pod(f"plain-{len(took)}", gpus=8), took)
    return took, passed


def _admitted(api: Api, tried: dict[str, Any], took: list[float]) -> bool:
    """Tell whether a pod was admitted without a gate."""
    began = time.monotonic()
    try:
        created = api.create(tried)
    except Refused:
        return False
    finally:
        took.append(time.monotonic() - began)
    api.delete("Pod", tried["metadata"]["name"], tried["metadata"]["namespace"])
    gates = [gate["name"] for gate in created["spec"].get("schedulingGates", ())]
    return GATE not in gates


def _authority(api: Api) -> str:
    return str(api.call("GET", SECRET)["data"]["ca.crt"])


def _change(
    event: str, replicas: list[Process], ports: list[int], flood: list[socket.socket]
) -> None:
    match event:
        case "kill":
            replicas[0].kill()
        case "start":
            replicas[0].start()
        case "flood":
            for _ in range(200):
                with contextlib.suppress(OSError):
                    flood.append(socket.create_connection(("127.0.0.1", ports[1]), timeout=1))
        case "end":
            while flood:
                flood.pop().close()


ATTACKS: Mapping[str, Attack] = {"rotation, a killed and a flooded replica": try_replicas}
