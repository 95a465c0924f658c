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
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from policyd.certificates import Authority
from tests.attacks.connections import Flood, begin, counted, stay
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
FLOOD_SECONDS = 15

SECRET = f"api/v1/namespaces/{release.NAMESPACE}/secrets/{release.WEBHOOKS}"
GATE = "kueue.x-k8s.io/admission"
GREEDY_GPUS = 64
FLOOD = Flood(700, stay, "shed", tls=False)
"""More connections than a replica keeps."""
LEAST_HELD = 0.9
"""The part of the pods that may queue, and are held all the while."""


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
def opened(folder: Path) -> Iterator[tuple[Api, list[Process], list[int], list[int]]]:
    """Start a control plane, and three replicas behind one address; yield the ports of each too."""
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
        yield api, replicas, ports, beside


def try_replicas() -> Figures:
    """Try to get a pod past three replicas while they change; judge what was admitted."""
    with (
        tempfile.TemporaryDirectory(prefix="policyd-attacks-") as folder,
        opened(Path(folder)) as (api, replicas, ports, beside),
    ):
        authority = _authority(api)
        begin_rotation(api)
        siege = _besiege(api, replicas, ports[1])
        rotated, shed = _authority(api) != authority, counted("shed", beside[1])
    held, passed = siege.ends["plain"]["held"], sum(e["passed"] for e in siege.ends.values())
    faults = {
        "the certificates did not rotate: that was not tried": not rotated,
        f"{held} pods of those that may queue were held": held < LEAST_HELD * len(siege.took) / 2,
        f"the flooded replica shed {shed} connections": shed < FLOOD.connections // 4,
    }
    return Figures(
        tried=len(siege.took),
        bypasses=passed,
        worst_seconds=max(siege.took),
        median_seconds=statistics.median(siege.took),
        faults=tuple(fault for fault, found in faults.items() if found),
    )


@dataclass
class Siege:
    """How long the creation of each pod took, and how those of each size ended."""

    took: list[float] = field(default_factory=list)
    ends: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))


def _besiege(api: Api, replicas: list[Process], flooded: int) -> Siege:
    """Create pods while replicas change, and one of them is flooded on its port."""
    began, siege = time.monotonic(), Siege()
    events: list[tuple[int, Callable[[], object]]] = [
        (15, replicas[0].kill),
        (25, replicas[0].start),
        (35, lambda: begin(FLOOD, flooded, seconds=FLOOD_SECONDS)),
    ]
    while (elapsed := time.monotonic() - began) < SECONDS:
        if events and elapsed > events[0][0]:
            events.pop(0)[1]()
        for name, gpus in (("greedy", GREEDY_GPUS), ("plain", 8)):
            siege.ends[name][_end_of(api, pod(f"{name}-{len(siege.took)}", gpus=gpus), siege)] += 1
    return siege


def _end_of(api: Api, tried: dict[str, Any], siege: Siege) -> str:
    """Create a pod; tell whether it was refused, is held, or passed without a gate."""
    began = time.monotonic()
    try:
        created = api.create(tried)
    except Refused:
        return "refused"
    finally:
        siege.took.append(time.monotonic() - began)
    api.delete("Pod", tried["metadata"]["name"], tried["metadata"]["namespace"])
    gates = [gate["name"] for gate in created["spec"].get("schedulingGates", ())]
    return "held" if GATE in gates else "passed"


def _authority(api: Api) -> str:
    return str(api.call("GET", SECRET)["data"]["ca.crt"])


ATTACKS: Mapping[str, Attack] = {"rotation, a killed and a flooded replica": try_replicas}
