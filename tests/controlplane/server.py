"""A real control plane: etcd, kube-apiserver, controller manager, scheduler, and kwok for nodes.

    with ControlPlane() as control_plane:
        control_plane.add_nodes("a1", "a2", labels={RACK: "a"})
        control_plane.kubectl("apply", "-f", "-", stdin=manifest)

It lives in a temporary folder and on free ports, so that several run side by side. `build.sh`
beside this file makes the binaries.
"""

import json
import secrets
import shutil
import ssl
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.controlplane import credentials, programs
from tests.controlplane.credentials import ADMIN, User
from tests.controlplane.nodes import node
from tests.controlplane.process import (
    POLL_SECONDS,
    Component,
    ControlPlaneError,
    ProcessGroup,
    environment,
)
from tests.controlplane.programs import API_SERVER, COMPONENTS, GATED, Site

START_SECONDS = 120.0
"""Five seconds are usual; a busy machine may need many more."""


class ControlPlane:
    """A control plane, from entering the context to leaving it.

    Attributes:
        tokens: The token of each user, by name; `admin` may do everything.
        start_seconds: What the start took.
    """

    def __init__(
        self,
        *,
        components: Sequence[str] = COMPONENTS,
        feature_gates: Sequence[str] = (),
        flags: Mapping[str, Sequence[str]] | None = None,
        users: Sequence[User] = (),
        folder: Path | None = None,
    ) -> None:
        """Choose what to run; nothing happens yet.

        Args:
            components: Which of `COMPONENTS` to start.
            feature_gates: Such as `GangScheduling=true`, for all that take them.
            flags: More flags, by component.
            users: More users, each with a token and a kubeconfig context of its name.
            folder: Where to put logs and data, and leave them; else a temporary folder.
        """
        self.tokens = {name: secrets.token_hex(16) for name in (ADMIN, *(u.name for u in users))}
        self.start_seconds = 0.0
        self._users = users
        self._names = [name for name in COMPONENTS if name in components]
        gates = [f"--feature-gates={','.join(feature_gates)}"] if feature_gates else []
        self._extra = {
            name: [*(gates if name in GATED else []), *(flags or {}).get(name, ())]
            for name in self._names
        }
        self._keep = folder is not None
        self._folder = folder
        self._components: dict[str, Component] = {}

    def __enter__(self) -> Self:
        started = time.monotonic()
        binaries = programs.find_binaries()
        folder = self._folder or Path(tempfile.mkdtemp(prefix="policyd-controlplane-"))
        ports = programs.free_ports(("etcd-peer", *COMPONENTS))
        self.site = Site(folder=folder, binaries=binaries, ports=ports, token=self.token)
        self._group = ProcessGroup()
        try:
            credentials.write_service_account_key(self.site)
            credentials.write_tokens(self.site, self._users, self.tokens)
            self._start_all(started + START_SECONDS)
        except BaseException:
            self.close()
            raise
        self.start_seconds = time.monotonic() - started
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Stop everything, and remove the folder if it is a temporary one."""
        try:
            for component in reversed(self._components.values()):
                component.stop()
        finally:
            self._group.close()
            if not self._keep:
                shutil.rmtree(self.site.folder, ignore_errors=True)

    @property
    def server(self) -> str:
        """The API server's address, `https://127.0.0.1:PORT`."""
        return self.site.server

    @property
    def kubeconfig(self) -> Path:
        """A kubeconfig file with a context for each user; `admin` is the current one."""
        return self.site.kubeconfig

    @property
    def token(self) -> str:
        """The administrator's token."""
        return self.tokens[ADMIN]

    @property
    def ca(self) -> bytes:
        """The certificates that the API server's certificate is verified with, in PEM."""
        return self.site.authority.read_bytes()

    def pid(self, component: str) -> int:
        """Return the process id of a component that runs."""
        return self._components[component].pid

    def log(self, component: str) -> str:
        """Return what a component has logged."""
        return self._components[component].log.read_text(errors="replace")

    def kubectl(self, *arguments: str, stdin: str | None = None, user: str = ADMIN) -> str:
        """Run kubectl as a user, and return what it prints.

        Raises:
            ControlPlaneError: If it fails, with its own words, or takes longer than two minutes.
        """
        options = [f"--kubeconfig={self.kubeconfig}", f"--context={user}"]
        try:
            done = subprocess.run(
                [self.site.binaries / "kubectl", *options, *arguments],
                input=stdin,
                capture_output=True,
                text=True,
                check=False,
                timeout=120,
                env=environment(self.site.folder),
            )
        except subprocess.TimeoutExpired as error:
            raise ControlPlaneError(f"kubectl {' '.join(arguments)}: no end") from error
        if done.returncode:
            raise ControlPlaneError(f"kubectl {' '.join(arguments)}: {done.stderr.strip()}")
        return done.stdout

    def get(self, path: str, *, accept: str = "application/json") -> Any:
        """Return the decoded JSON under a path of the API server, read as the administrator."""
        return json.loads(self.text(path, accept=accept))

    def text(self, path: str, *, accept: str = "*/*") -> str:
        """Return what is under a path of the API server, such as `/metrics`, as it is."""
        headers = {"Authorization": f"Bearer {self.token}", "Accept": accept}
        request = urllib.request.Request(self.server + path, headers=headers)
        trusted = ssl.create_default_context(cadata=self.ca.decode())
        with urllib.request.urlopen(request, timeout=30, context=trusted) as response:
            return str(response.read(), "utf-8")

    def add_nodes(
        self,
        *names: str,
        labels: Mapping[str, str] | None = None,
        allocatable: Mapping[str, str] | None = None,
        taints: Sequence[Mapping[str, str]] = (),
    ) -> None:
        """Create nodes, played by kwok, and wait until pods may run there.

        Args:
            names: The nodes' names.
            labels: Labels of each node besides its host name, such as `{RACK: "a"}`.
            allocatable: What each offers; `GPU_NODE` unless told.
            taints: As in a node's `spec.taints`.

        Raises:
            ControlPlaneError: If they do not become ready.
        """
        items = [
            node(name, labels=labels, allocatable=allocatable, taints=taints) for name in names
        ]
        manifest = {"apiVersion": "v1", "kind": "List", "items": items}
        self.kubectl("create", "-f", "-", stdin=json.dumps(manifest))
        self.wait_for("nodes", *names, condition="condition=Ready")
        # The controller manager takes away the taint of a new node some time after it is ready.
        deadline = time.monotonic() + START_SECONDS
        while "node.kubernetes.io/not-ready" in self._taints(names):
            if time.monotonic() > deadline:
                raise ControlPlaneError(f"nodes keep their not-ready taint: {', '.join(names)}")
            time.sleep(POLL_SECONDS)

    def wait_for(self, *target: str, condition: str, namespace: str = "default") -> None:
        """Wait for a minute until objects fulfil a condition, as `kubectl wait --for` has it."""
        scope = ("--namespace", namespace, "--timeout=60s")
        self.kubectl("wait", *target, f"--for={condition}", *scope)

    def start(self, component: str) -> None:
        """Start a component that was stopped or killed, and wait until it is ready."""
        self._components[component].start()
        self._components[component].wait_ready(time.monotonic() + START_SECONDS)

    def stop(self, component: str) -> None:
        """Stop a component as a shutdown would; its data stay."""
        self._components[component].stop()

    def kill(self, component: str) -> None:
        """End a component as a crash would; its data stay."""
        self._components[component].kill()

    def restart(self, component: str) -> None:
        """Kill a component, and start it again under the same address, with the same data."""
        self.kill(component)
        self.start(component)

    def pause(self, component: str) -> None:
        """Let a component answer nothing, with its connections open."""
        self._components[component].pause()

    def resume(self, component: str) -> None:
        """Let a paused component go on."""
        self._components[component].resume()

    def _start_all(self, deadline: float) -> None:
        for name in self._names:
            program = programs.program(name, self.site, extra=self._extra[name])
            component = Component(program, folder=self.site.folder, group=self._group)
            self._components[name] = component
            component.start()
            if name in {programs.ETCD, API_SERVER}:
                component.wait_ready(deadline)
            if name == API_SERVER:
                credentials.write_kubeconfig(self.site, self.tokens)
        for component in self._components.values():
            component.wait_ready(deadline)

    def _taints(self, names: Sequence[str]) -> str:
        return self.kubectl("get", "nodes", *names, "-o=jsonpath={..spec.taints[*].key}")
