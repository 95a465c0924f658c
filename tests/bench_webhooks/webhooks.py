"""The ways in which a pod is admitted: webhooks side by side, each for a namespace of its own."""

import base64
import json
import os
import socket
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
from policyd.dialects.registry import EVERY_FORMAT
from policyd.engine.compile.load import gather, load_document
from policyd.engine.documents.reading import Document
from policyd.registration.configurations import (
    Registration,
    UrlEndpoint,
    mutating_configuration,
    validating_configuration,
)
from policyd.registration.webhook_rules import derive_webhook_rules
from tests.bench_webhooks.given import Published, pod
from tests.controlplane.programs import free_ports
from tests.live.processes import cpu_seconds, memory_mb
from tests.live.server import Live, path_of

WAIT_SECONDS = 60
POLL_SECONDS = 0.1
TIMEOUT_SECONDS = 5
ADMISSION = "admissionregistration.k8s.io/v1"
RULE = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
CHANGES = (
    {"op": "add", "path": "/metadata/labels/bench-a", "value": "a"},
    {"op": "add", "path": "/metadata/labels/bench-b", "value": "changed-by-the-bench"},
)
"""What empty webhooks change."""


@dataclass(frozen=True)
class Measured:
    """Registered webhooks; `pid` is the process of its webhooks, None if it has none."""

    pid: int | None = None

    def cpu_seconds(self) -> float:
        """CPU time that the webhooks have had."""
        return 0.0 if self.pid is None else cpu_seconds(self.pid)

    def memory_mb(self) -> float:
        """What the webhooks keep in memory."""
        return 0.0 if self.pid is None else memory_mb(self.pid)


@contextmanager
def native(running: Live, published: list[Published]) -> Iterator[None]:
    """The API server's own policies, for all namespaces."""
    objects = [document for policy in published for document in policy.native]
    objects = [{**document, "apiVersion": ADMISSION} for document in objects]
    running.create(objects)
    running.settle()
    try:
        yield
    finally:
        running.delete(objects)
        running.settle()


@contextmanager
def empty(running: Live, namespace: str, changes: Sequence[Any]) -> Iterator[Measured]:
    """One mutating and one validating webhook that decide nothing, and answer these changes."""
    with _credentials() as (folder, authority), _port() as port:
        (folder / "patch.json").write_text(json.dumps(changes))
        files = [str(folder / name) for name in ("tls.crt", "tls.key", "patch.json")]
        arguments = ["-m", "tests.bench_webhooks.empty", *files, str(port)]
        with _process(arguments, folder / "log") as pid:
            configurations = list(_configurations(port, authority))
            yield from _registered(running, namespace, configurations, changes, pid)


@contextmanager
def policyd(
    running: Live, namespace: str, published: list[Published], changes: Sequence[Any]
) -> Iterator[Measured]:
    """The webhooks of policyd with the policies as they were published, and all its webhooks."""
    with _credentials() as (folder, authority), _port() as port:
        documents = [policy.policy for policy in published]
        (folder / "policies.yaml").write_text("\n---\n".join(map(json.dumps, documents)))
        options = {
            "policies": folder / "policies.yaml",
            "certificate": folder / "tls.crt",
            "key": folder / "tls.key",
            "kubeconfig": running.control_plane.kubeconfig,
            "host": "127.0.0.1",
            "port": port,
        }
        flags = [str(part) for name, value in options.items() for part in (f"--{name}", value)]
        with _process(["-m", "webhooks", *flags, "--no-queue"], folder / "log") as pid:
            loaded = gather(
                load_document(Document(document, "bench"), EVERY_FORMAT) for document in documents
            )
            assert len(loaded.policies) >= len(documents), "each document is a policy"
            wanted = Registration(
                endpoint=UrlEndpoint(url=f"https://127.0.0.1:{port}"),
                rules=derive_webhook_rules(loaded.policies, queue=None),
                own_namespace="policyd",
                timeout_seconds=TIMEOUT_SECONDS,
                ca_bundle_pem=base64.b64decode(authority),
            )
            configurations = [mutating_configuration(wanted), validating_configuration(wanted)]
            _await_listening(port)
            yield from _registered(running, namespace, configurations, changes, pid)


def _registered(
    running: Live, namespace: str, configurations: list[Any], changes: Sequence[Any], pid: int
) -> Iterator[Measured]:
    """Have webhooks called for one namespace, and wait until its pods are changed."""
    within = {"key": "kubernetes.io/metadata.name", "operator": "In", "values": [namespace]}
    for configuration in configurations:
        configuration["metadata"]["name"] = f"{namespace}.example.com"
        for webhook in configuration["webhooks"]:
            expressions = webhook.get("namespaceSelector", {}).get("matchExpressions", [])
            webhook["namespaceSelector"] = {"matchExpressions": [*expressions, within]}
    running.create(configurations)
    try:
        _await(running, namespace, changes)
        yield Measured(pid)
    finally:
        running.delete(configurations)


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
            "timeoutSeconds": TIMEOUT_SECONDS,
        }
        yield {
            "apiVersion": ADMISSION,
            "kind": f"{kind}WebhookConfiguration",
            "metadata": {},
            "webhooks": [webhook],
        }


def _await_listening(port: int) -> None:
    """Wait until webhooks answer: they may refuse all until they do."""
    deadline = time.monotonic() + WAIT_SECONDS
    with socket.socket() as probe:
        while probe.connect_ex(("127.0.0.1", port)):
            assert time.monotonic() < deadline, f"nothing listens at {port}"
            time.sleep(POLL_SECONDS)


def send(running: Live, given: Any) -> Any:
    """Create a pod that is not kept, and return it."""
    answer = running.ask("POST", path_of(given), given, query={"dryRun": "All"})
    assert answer.allowed, answer.message
    return answer.object


def _await(running: Live, namespace: str, changes: Sequence[Any]) -> None:
    """Wait until a pod is changed so, and assert that it is not so without."""
    marks = [json.dumps(change["value"]) for change in changes if change["value"]]
    given = pod(namespace)
    assert not all(mark in json.dumps(given) for mark in marks), "the changes are not seen"
    deadline = time.monotonic() + WAIT_SECONDS
    while not all(mark in json.dumps(send(running, given)) for mark in marks):
        assert time.monotonic() < deadline, f"no answer has all of {marks} in it"
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
