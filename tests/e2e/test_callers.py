"""The guide's way to answer the API server alone, on a real one: it is answered, others are not."""

import socket
import ssl
import subprocess
from contextlib import suppress

import pytest

from tests.controlplane.programs import API_SERVER, ETCD, free_ports
from tests.controlplane.server import ControlPlane
from tests.docs.pages import PROJECT, blocks, commands
from tests.scenarios.api import Api, Refused, eventually
from tests.scenarios.clusters import COMMANDS, Process, ready

pytestmark = pytest.mark.e2e

GUIDE = PROJECT / "docs" / "guides" / "known-callers.md"
FOLDER, SERVICE = "/etc/kubernetes/policyd", "policyd-webhooks.policyd-system.svc"

REFUSING = """
apiVersion: policyd.io/v1alpha1
kind: Policy
metadata: {name: nothing}
spec:
  matchConstraints:
    resourceRules:
    - {apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [configmaps]}
  validations: [{expression: "object.metadata.name != 'bad'", message: not this one}]
"""


def follow_guide(folder, address):
    """Do what the guide says, in a folder, for webhooks at an address."""
    for block in blocks(GUIDE):
        for command in commands(block) if block.language == "console" else ():
            subprocess.run(["bash", "-c", command.line], cwd=folder, check=True)
        if block.language == "yaml":
            text = block.text.replace(FOLDER, str(folder)).replace(SERVICE, address)
            (folder / block.remark).write_text(text)


@pytest.fixture(scope="module")
def guarded(tmp_path_factory):
    """A control plane, and webhooks that ask for certificates of the guide's authority."""
    folder = tmp_path_factory.mktemp("callers")
    port = free_ports(["webhooks"])["webhooks"]
    follow_guide(folder, f"127.0.0.1:{port}")
    (folder / "policy.yaml").write_text(REFUSING)
    flags = {API_SERVER: [f"--admission-control-config-file={folder / 'admission.yaml'}"]}
    with ControlPlane(flags=flags, components=(ETCD, API_SERVER)) as control_plane:
        command = [
            str(COMMANDS / "policyd-webhooks"),
            *("--kubeconfig", str(control_plane.kubeconfig), "--no-queue", "--register"),
            *("--policies", str(folder / "policy.yaml"), "--secret", "default/webhooks"),
            *("--port", str(port), "--url", f"https://127.0.0.1:{port}"),
            *("--client-ca", str(folder / "ca.crt"), "--client-names", "kube-apiserver"),
            *("--drain-seconds", "0"),
        ]
        process = Process(command, folder / "webhooks.log")
        process.start()
        try:
            eventually(lambda: ready(process, "webhooks_started"), what="the webhooks answer")
            yield Api(control_plane.kubeconfig), folder, port
        finally:
            process.stop()


def config_map(name):
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": "default"},
    }


def test_the_api_server_is_answered(guarded):
    api, _, _ = guarded

    def refused():
        try:
            api.create(config_map("bad"), dry_run=True)
        except Refused as refusal:
            return "not this one" in str(refusal)
        return False

    eventually(refused, what="the policy refuses")
    api.create(config_map("good"), dry_run=True)


@pytest.mark.parametrize("shown", [None, "ca"], ids=["without-one", "of-another-name"])
def test_nobody_else_is(guarded, shown):
    _, folder, port = guarded
    trust = ssl.create_default_context()
    trust.check_hostname, trust.verify_mode = False, ssl.CERT_NONE
    if shown:
        trust.load_cert_chain(folder / f"{shown}.crt", folder / f"{shown}.key")

    answer = b""
    with (
        suppress(OSError),
        socket.create_connection(("127.0.0.1", port), timeout=10) as plain,
        trust.wrap_socket(plain) as connection,
    ):
        connection.sendall(b"POST /validate HTTP/1.1\r\nhost: a\r\ncontent-length: 0\r\n\r\n")
        answer = connection.recv(100)

    assert answer == b""
