"""What to run: the commands of a control plane, with their flags."""

import os
import random
import re
import socket
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path

from tests.controlplane.process import ControlPlaneError, Program

HERE = Path(__file__).parent
HOST = "127.0.0.1"

ETCD = "etcd"
API_SERVER = "kube-apiserver"
CONTROLLER_MANAGER = "kube-controller-manager"
SCHEDULER = "kube-scheduler"
KWOK = "kwok"

COMPONENTS = (ETCD, API_SERVER, CONTROLLER_MANAGER, SCHEDULER, KWOK)
"""All components, in the order in which they start."""

CLIENTS = ("kubectl", "helm")
"""The commands that users of a cluster have."""

GATED = (API_SERVER, CONTROLLER_MANAGER, SCHEDULER)
"""The components that take Kubernetes' feature gates."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """Where one control plane lives: its files, its ports and its administrator's token."""

    folder: Path
    binaries: Path
    ports: Mapping[str, int]
    token: str

    @property
    def server(self) -> str:
        """The API server's address."""
        return f"https://{HOST}:{self.ports[API_SERVER]}"

    @property
    def kubeconfig(self) -> Path:
        """The file that says how to reach the API server, with a context for each user."""
        return self.folder / "kubeconfig"

    @property
    def certificates(self) -> Path:
        """The folder that the API server writes its certificate to."""
        return self.folder / "certificates"

    @property
    def authority(self) -> Path:
        """The API server's certificate, which is its own authority."""
        return self.certificates / "apiserver.crt"

    @property
    def tokens(self) -> Path:
        """The file of static tokens."""
        return self.folder / "tokens.csv"

    @property
    def service_account_key(self) -> Path:
        """The key that signs service accounts' tokens."""
        return self.folder / "service-account.pem"


def find_binaries() -> Path:
    """Return the folder of the binaries, which are built already.

    Raises:
        ControlPlaneError: If one is missing.
    """
    script = HERE / "build.sh"
    where = subprocess.run([script, "--where"], check=True, capture_output=True, text=True)
    binaries = Path(where.stdout.strip())
    missing = [name for name in (*COMPONENTS, *CLIENTS) if not (binaries / name).exists()]
    if missing:
        raise ControlPlaneError(f"not built yet: {', '.join(missing)}; run `make controlplane`")
    return binaries


KUEUE = re.search(
    r"^require sigs.k8s.io/kueue v(\S+)$", (HERE / "kueuectl" / "go.mod").read_text(), re.MULTILINE
)[1]
"""The version of Kueue that is built, and its client."""


def build_kueuectl() -> Path:
    """Return Kueue's own client, which is built if it is not there: only one test needs it."""
    return _build("kueuectl")


def build_kueue() -> Path:
    """Return Kueue itself, which is built if it is not there: only one test needs it."""
    return _build("kueue")


def kueue_module() -> Path:
    """Return the folder of Kueue's Go module, from which it has been built."""
    command = ["go", "list", "-m", "-f={{.Dir}}", "sigs.k8s.io/kueue"]
    printed = subprocess.run(
        command, check=True, stdout=subprocess.PIPE, text=True, cwd=HERE / "kueuectl"
    ).stdout
    return Path(printed.strip())


def _build(name: str) -> Path:
    command = [HERE / "build.sh", name]
    printed = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    return Path(printed.splitlines()[-1])


PORTS = range(20_000, 30_000)
"""Below those that the kernel hands out itself: between choosing a port and listening on it, no
connection of anybody's can take it."""
MOST_WORKERS = 10
"""Processes of one test run, each of which has a part of the ports for itself."""


def _own_ports() -> Iterator[int]:
    """Yield ports of this process, again and again: the one that was used last comes last."""
    worker = os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")
    own = PORTS[int(worker) % MOST_WORKERS :: MOST_WORKERS]
    return cycle(random.sample(own, len(own)))


_OWN_PORTS = _own_ports()


def free_ports(names: Sequence[str]) -> dict[str, int]:
    """Find a free port for each name, all of them different, and none that was found just before.

    Between choosing a port and listening on it, nothing else of the tests takes it.
    """
    return {name: next(filter(is_free, _OWN_PORTS)) for name in names}


def is_free(port: int) -> bool:
    """Tell whether nobody listens on a port."""
    with socket.socket() as probe:
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True


def program(name: str, site: Site, *, extra: Sequence[str] = ()) -> Program:
    """Return the program that a component runs, with `extra` flags at the end."""
    command = (str(site.binaries / name), *FLAGS[name](site), *extra)
    port = site.ports[name]
    scheme = "http" if name in {ETCD, KWOK} else "https"
    path = {ETCD: "readyz", API_SERVER: "readyz"}.get(name, "healthz")
    token = site.token if name == API_SERVER else None
    return Program(
        name=name, command=command, health=f"{scheme}://{HOST}:{port}/{path}", token=token
    )


def etcd_flags(site: Site) -> list[str]:
    """Return etcd's flags: data in the folder, written without waiting for the disk."""
    client, peer = (f"http://{HOST}:{site.ports[name]}" for name in (ETCD, "etcd-peer"))
    return [
        f"--data-dir={site.folder / 'etcd'}",
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=default={peer}",
        "--unsafe-no-fsync",
        "--log-level=warn",
    ]


def api_server_flags(site: Site) -> list[str]:
    """Return kube-apiserver's flags: RBAC, static tokens, and no service account needed."""
    return [
        f"--etcd-servers=http://{HOST}:{site.ports[ETCD]}",
        f"--secure-port={site.ports[API_SERVER]}",
        f"--bind-address={HOST}",
        f"--advertise-address={HOST}",
        "--endpoint-reconciler-type=none",  # it accepts no loopback address
        f"--cert-dir={site.certificates}",
        f"--service-account-key-file={site.service_account_key}",
        f"--service-account-signing-key-file={site.service_account_key}",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--token-auth-file={site.tokens}",
        "--authorization-mode=RBAC",
        "--service-cluster-ip-range=10.0.0.0/24",
        "--disable-admission-plugins=ServiceAccount",  # a pod need not wait for its token
        "--allow-privileged=true",
    ]


def controller_manager_flags(site: Site) -> list[str]:
    """Return kube-controller-manager's flags."""
    return [
        *client_flags(site, CONTROLLER_MANAGER),
        "--controllers=*,-nodeipam,-service-lb-controller",
        "--use-service-account-credentials=true",  # as clusters have it: each is somebody
        f"--service-account-private-key-file={site.service_account_key}",
        f"--root-ca-file={site.authority}",
    ]


def scheduler_flags(site: Site) -> list[str]:
    """Return kube-scheduler's flags."""
    return client_flags(site, SCHEDULER)


def client_flags(site: Site, name: str) -> list[str]:
    """Return the flags that both clients take: one replica, and no throttling."""
    return [
        f"--kubeconfig={site.kubeconfig}",
        f"--authentication-kubeconfig={site.kubeconfig}",
        f"--authorization-kubeconfig={site.kubeconfig}",
        f"--bind-address={HOST}",
        f"--secure-port={site.ports[name]}",
        "--leader-elect=false",
        "--kube-api-qps=1000",
        "--kube-api-burst=2000",
    ]


def kwok_flags(site: Site) -> list[str]:
    """Return kwok's flags: it plays kubelet for every node, by the stages beside this file."""
    stages = sorted((HERE / "stages").glob("*.yaml"))
    return [
        f"--kubeconfig={site.kubeconfig}",
        f"--server-address={HOST}:{site.ports[KWOK]}",
        "--manage-all-nodes=true",
        "--cidr=10.1.0.0/16",
        "--node-ip=10.2.0.1",
        *(f"--config={stage}" for stage in stages),
    ]


FLAGS = {
    ETCD: etcd_flags,
    API_SERVER: api_server_flags,
    CONTROLLER_MANAGER: controller_manager_flags,
    SCHEDULER: scheduler_flags,
    KWOK: kwok_flags,
}
