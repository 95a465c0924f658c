"""The ways in which a pod is admitted: each is opened for a round, and closed after it."""

import base64
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from policyd.certificates import Authority
from tests.bench_door.given import Published, pod
from tests.controlplane.programs import free_ports
from tests.live.processes import cpu_seconds, memory_mb
from tests.live.server import Live, path_of

WAIT_SECONDS = 60
POLL_SECONDS = 0.1
ADMISSION = "admissionregistration.k8s.io/v1"
RULE = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
CHANGES = (
    {"op": "add", "path": "/metadata/labels/bench-a", "value": "a"},
    {"op": "add", "path": "/metadata/labels/bench-b", "value": "changed-by-the-bench"},
)
"""What empty webhooks change, unless told otherwise."""


@dataclass(frozen=True)
class Door:
    """An open door; `pid` is the process of its webhooks, None if it has none."""

    pid: int | None = None
    mark: str = ""

    def cpu_seconds(self) -> float:
        """CPU time that the webhooks have had."""
        return 0.0 if self.pid is None else cpu_seconds(self.pid)

    def memory_mb(self) -> float:
        """What the webhooks keep in memory."""
        return 0.0 if self.pid is None else memory_mb(self.pid)

    def acts(self, obj: Any) -> bool:
        """Tell whether an answer shows that the door is in force."""
        return not self.mark or self.mark in json.dumps(obj)


@contextmanager
def bare() -> Iterator[Door]:
    """Nothing."""
    yield Door()


@contextmanager
def native(running: Live, published: list[Published]) -> Iterator[Door]:
    """The API server's own policies."""
    objects = [document for policy in published for document in policy.native]
    objects = [{**document, "apiVersion": ADMISSION} for document in objects]
    running.create(objects)
    try:
        yield Door()
    finally:
        running.delete(objects)


@contextmanager
def empty(running: Live, changes: Sequence[Any] = CHANGES) -> Iterator[Door]:
    """One mutating and one validating webhook that decide nothing, and answer these changes."""
    mark = json.dumps(changes[-1]["value"])
    with _credentials() as (folder, authority), _port() as port:
        (folder / "patch.json").write_text(json.dumps(changes))
        files = [str(folder / name) for name in ("tls.crt", "tls.key", "patch.json")]
        arguments = ["-m", "tests.bench_door.empty", *files, str(port)]
        with _process(arguments, folder / "log") as pid:
            objects = list(_configurations(port, authority))
            running.create(objects)
            try:
                _await(running, mark)
                yield Door(pid, mark)
            finally:
                running.delete(objects)


@contextmanager
def policyd(running: Live, published: list[Published]) -> Iterator[Door]:
    """The door of policyd with the policies as they were published."""
    with _credentials() as (folder, _), _port() as port:
        text = "\n---\n".join(json.dumps(policy.policy) for policy in published)
        (folder / "policies.yaml").write_text(text)
        options = {
            "policies": folder / "policies.yaml",
            "certificate": folder / "tls.crt",
            "key": folder / "tls.key",
            "authority": folder / "ca.crt",
            "kubeconfig": running.control_plane.kubeconfig,
            "host": "127.0.0.1",
            "port": port,
            "url": f"https://127.0.0.1:{port}",
        }
        flags = [str(part) for name, value in options.items() for part in (f"--{name}", value)]
        log = folder / "log"
        with _process(["-m", "webhooks", *flags, "--register", "--no-queue"], log) as pid:
            _until_registered(running, log)
            try:
                yield Door(pid)
            finally:
                running.delete(_registered())


def _until_registered(running: Live, log: Path) -> None:
    """Wait until policyd's webhooks are called."""
    deadline = time.monotonic() + WAIT_SECONDS
    while True:
        found = [running.ask("GET", path_of(obj, obj["metadata"]["name"])) for obj in _registered()]
        if all(answer.allowed and answer.body.get("webhooks") for answer in found):
            time.sleep(1)  # the API server reads configurations from a watch
            return
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(POLL_SECONDS)


def _registered() -> list[Any]:
    return [
        {"apiVersion": ADMISSION, "kind": kind, "metadata": {"name": "door.policyd.io"}}
        for kind in ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")
    ]


def _configurations(port: int, authority: str) -> Iterator[Any]:
    for kind in ("Mutating", "Validating"):
        path = "mutate" if kind == "Mutating" else "validate"
        webhook = {
            "name": f"{path}.empty.example.com",
            "clientConfig": {"url": f"https://127.0.0.1:{port}/{path}", "caBundle": authority},
            "rules": [RULE],
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
            "failurePolicy": "Ignore",
            "timeoutSeconds": 5,
        }
        yield {
            "apiVersion": ADMISSION,
            "kind": f"{kind}WebhookConfiguration",
            "metadata": {"name": "empty.example.com"},
            "webhooks": [webhook],
        }


def _await(running: Live, mark: str) -> None:
    """Wait until an answer has a mark in it."""
    given = pod()
    deadline = time.monotonic() + WAIT_SECONDS
    while mark not in json.dumps(
        running.ask("POST", path_of(given), given, query={"dryRun": "All"}).body
    ):
        assert time.monotonic() < deadline, f"no answer has `{mark}` in it"
        time.sleep(POLL_SECONDS)


@contextmanager
def _credentials() -> Iterator[tuple[Path, str]]:
    """Write a certificate, its key and its authority; yield their folder, and the authority."""
    with tempfile.TemporaryDirectory(prefix="policyd-bench-") as name:
        folder, now = Path(name), time.time()
        authority = Authority.create(now=now)
        pair = authority.issue(["127.0.0.1"], now=now)
        (folder / "tls.crt").write_bytes(pair.certificate_pem)
        (folder / "tls.key").write_bytes(pair.key_pem)
        (folder / "ca.crt").write_bytes(authority.certificate_pem)
        yield folder, base64.b64encode(authority.certificate_pem).decode()


@contextmanager
def _port() -> Iterator[int]:
    yield free_ports(["webhook"])["webhook"]


@contextmanager
def _process(arguments: list[str], log: Path) -> Iterator[int]:
    variables = {k: v for k, v in os.environ.items() if not k.startswith("POLICYD_")}
    command = [sys.executable, *arguments]
    with (
        log.open("wb") as written,
        subprocess.Popen(command, stdout=written, stderr=written, env=variables) as running,
    ):
        try:
            yield running.pid
        finally:
            running.kill()
