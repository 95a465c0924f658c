"""The real process on a real socket: it answers, reloads, refuses bad settings, ends cleanly."""

import http.client
import json
import os
import signal
import socket
import ssl
import subprocess
import sys
import time
from contextlib import contextmanager
from urllib.request import urlopen

import pytest

from tests.webhooks.conftest import AUTHORITY, issue
from tests.webhooks.reviews import POD, patch, patched, policy, queued, response, review

DEADLINE_SECONDS = 20


@contextmanager
def process(*arguments, **variables):
    environ = {name: value for name, value in os.environ.items() if not name.startswith("POLICYD_")}
    running = subprocess.Popen(
        [sys.executable, "-m", "webhooks", *map(str, arguments)],
        stderr=subprocess.PIPE,
        text=True,
        env=environ | variables,
    )
    try:
        yield running
    finally:
        running.kill()
        running.wait()
        running.stderr.close()


class WebhookProcess:
    """A running admission server."""

    def __init__(self, running):
        self.running = running
        opened = self.event("webhooks_started")
        self.port, self.metrics_port = opened["port"], opened["metrics_port"]

    def event(self, name):
        """Wait for an event of the log, and return it."""
        for line in self.running.stderr:
            entry = json.loads(line)
            if entry["event"] == name:
                return entry
        raise AssertionError(f"ended without {name}")

    def post(self, path, body):
        trust = ssl.create_default_context(cadata=AUTHORITY.certificate_pem.decode())
        connection = http.client.HTTPSConnection("127.0.0.1", self.port, context=trust, timeout=10)
        connection.request("POST", path, body, {"content-type": "application/json"})
        answer = connection.getresponse()
        text = answer.read()
        connection.close()
        return answer.status, text

    def end(self):
        self.running.send_signal(signal.SIGTERM)
        return self.running.wait(DEADLINE_SECONDS)


@pytest.fixture
def files(tmp_path):
    pair = issue("webhooks")
    (tmp_path / "tls.crt").write_bytes(pair.certificate_pem)
    (tmp_path / "tls.key").write_bytes(pair.key_pem)
    (tmp_path / "policies").mkdir()
    return tmp_path


def arguments(files, **more):
    given = {
        "policies": files / "policies",
        "certificate": files / "tls.crt",
        "key": files / "tls.key",
        "host": "127.0.0.1",
        "port": 0,
        "drain-seconds": 0,
        "log-format": "json",
        **more,
    }
    return [text for name, value in given.items() for text in (f"--{name}", str(value))]


@contextmanager
def running_server(files, **variables):
    with process(*arguments(files), **variables) as running:
        yield WebhookProcess(running)


def test_health_and_metrics_are_beside_the_reviews(files):
    with running_server(files) as webhooks:
        webhooks.post("/validate", review())
        counted = urlopen(f"http://127.0.0.1:{webhooks.metrics_port}/metrics").read().decode()

        assert 'policyd_reviews_total{outcome="allowed",path="/validate"} 1.0' in counted
        assert urlopen(f"http://127.0.0.1:{webhooks.metrics_port}/readyz").read() == b"ok\n"
        assert webhooks.post("/metrics", b"{}")[0] == 404


def test_http_may_be_left_to_uvicorn(files):
    write_policy(files, validations=[FROM_OURS])

    with running_server(files, POLICYD_PLAIN_HTTP="true") as webhooks:
        assert response(webhooks.post("/validate", review())[1])["allowed"] is False


def write_policy(files, **spec):
    text = json.dumps(policy("images", **spec))
    (files / "policies" / "images.yaml").write_text(text)


FROM_OURS = {
    "expression": "object.spec.containers.all(c, c.image.startsWith('ours/'))",
    "message": "images come from ours/",
}


def test_policies_from_files_mutate_and_deny_over_tls(files):
    write_policy(files, validations=[FROM_OURS], inject={"queueName": "gpus"})

    with running_server(files) as webhooks:
        status, mutated = webhooks.post("/mutate", review())
        denied = response(webhooks.post("/validate", review())[1])

        assert status == 200
        assert response(mutated)["uid"] == "u-1"
        labels = patched(mutated)["metadata"]["labels"]
        assert labels["kueue.x-k8s.io/queue-name"] == "gpus"
        assert denied["allowed"] is False
        assert denied["status"]["message"] == "images: images come from ours/"
        assert webhooks.end() == 0


def test_a_policy_that_changes_is_in_force_without_a_restart(files):
    write_policy(files, validations=[FROM_OURS])

    with running_server(files, POLICYD_RELOAD_SECONDS="0.05") as webhooks:
        assert not response(webhooks.post("/validate", review())[1])["allowed"]

        write_policy(files, validations=[{"expression": "true"}])
        until(lambda: response(webhooks.post("/validate", review())[1])["allowed"])

        (files / "policies" / "images.yaml").write_text("kind: [")
        write_policy_beside(files)
        until(lambda: not response(webhooks.post("/validate", review())[1])["allowed"])


def write_policy_beside(files):
    text = json.dumps(policy("other", validations=[{"expression": "false"}]))
    (files / "policies" / "other.yaml").write_text(text)


def until(holds):
    end = time.monotonic() + DEADLINE_SECONDS
    while not holds():
        assert time.monotonic() < end, "it never held"
        time.sleep(0.02)


def test_a_file_broken_by_an_edit_keeps_its_last_good_policy(files):
    write_policy(files, validations=[FROM_OURS])

    with running_server(files, POLICYD_RELOAD_SECONDS="0.05") as webhooks:
        (files / "policies" / "images.yaml").write_text("kind: [")
        entry = webhooks.event("policy_rejected")

        assert entry["place"].endswith("images.yaml:1:8")
        assert not response(webhooks.post("/validate", review())[1])["allowed"]


def test_jobs_that_name_a_queue_are_held(files):
    with running_server(files) as webhooks:
        held = patch(webhooks.post("/mutate", review(queued(POD)))[1])
        free = patch(webhooks.post("/mutate", review(POD))[1])

    assert {"name": "kueue.x-k8s.io/admission"} in [
        gate for operation in held if "Gates" in operation["path"] for gate in operation["value"]
    ]
    assert free == []


def test_jobs_are_left_alone_where_the_queue_is_turned_off(files):
    with running_server(files, POLICYD_QUEUE="false") as webhooks:
        assert patch(webhooks.post("/mutate", review(queued(POD)))[1]) == []


def test_it_ends_within_the_second_signal_however_long_it_should_drain(files):
    with process(*arguments(files, **{"drain-seconds": 3600})) as running:
        webhooks = WebhookProcess(running)
        running.send_signal(signal.SIGTERM)
        webhooks.event("webhooks_stopping")
        running.send_signal(signal.SIGTERM)

        assert running.wait(DEADLINE_SECONDS) != 0


def other_key(files):
    (files / "tls.key").write_bytes(issue("other").key_pem)
    return arguments(files)


def unreachable_kubeconfig(files):
    """A kubeconfig for an API server that is not there."""
    named = {"name": "none"}
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{**named, "cluster": {"server": "https://127.0.0.1:1"}}],
        "users": [{**named, "user": {"token": "secret"}}],
        "contexts": [{**named, "context": {"cluster": "none", "user": "none"}}],
        "current-context": "none",
    }
    path = files / "kubeconfig"
    path.write_text(json.dumps(config))
    return str(path)


CONVERTING = ["--serve-v1beta1", "--register"]


@pytest.mark.parametrize(
    ("given", "message", "hint"),
    [
        pytest.param(
            other_key, "tls.crt` does not match key `", "first certificate", id="key-of-another"
        ),
        pytest.param(
            lambda files: arguments(files, certificate=files / "none"),
            "none`: no such file or directory",
            "check the paths",
            id="no-certificate-file",
        ),
        pytest.param(
            lambda files: arguments(files, policies=files / "none"),
            "` not found",
            "files and folders",
            id="no-policy-file",
        ),
        pytest.param(
            lambda files: arguments(files, host="192.0.2.1"),
            "cannot listen on `192.0.2.1`",
            "--host",
            id="address-of-another-machine",
        ),
        pytest.param(
            lambda files: ["--secret", "name"],
            "`name` does not name a secret",
            "namespace/name",
            id="secret-without-namespace",
        ),
        pytest.param(
            lambda files: ["--secret", "a/b", "--kubeconfig", str(files / "none"), "--port", "0"],
            "none`",
            "KUBECONFIG",
            id="no-kubeconfig",
        ),
        pytest.param(
            lambda files: [
                "--secret",
                "a/b",
                "--kubeconfig",
                unreachable_kubeconfig(files),
                "--port",
                "0",
            ],
            "cannot connect to `https://127.0.0.1:1`",
            "is the API server running",
            id="nobody-answers",
        ),
        pytest.param(
            lambda files: arguments(files, **{"feature-gates": "MultiKueu=true"}),
            "unrecognized feature gate: MultiKueu",
            "did you mean `MultiKueue`?",
            id="unknown-feature-gate",
        ),
        pytest.param(
            lambda files: arguments(files, **{"client-names": "kube-apiserver"}),
            "without a certificate authority",
            "--client-ca",
            id="names-without-an-authority",
        ),
        pytest.param(
            lambda files: arguments(files, **{"client-ca": files / "none"}),
            "none`: no such file or directory",
            "check the paths",
            id="no-file-of-the-callers-authority",
        ),
        pytest.param(
            lambda files: [*arguments(files, **{"client-ca": files / "tls.crt"}), *CONVERTING],
            "shows no certificate when it asks for another version",
            "--serve-v1beta1",
            id="callers-that-cannot-show-one",
        ),
        pytest.param(
            lambda files: [], "no certificate to serve with", "--certificate", id="no-certificate"
        ),
    ],
)
def test_unusable_input_is_one_sentence_with_a_hint_and_exit_2(files, given, message, hint):
    with process(*given(files)) as running:
        assert running.wait(DEADLINE_SECONDS) == 2
        output = [line for line in running.stderr.read().splitlines() if not line.startswith("{")]

    assert [line.partition(":")[0] for line in output] == ["error", "hint"]
    assert message in output[0]
    assert hint in output[1]


def test_a_taken_port_is_one_sentence_and_a_hint_and_exit_2(files):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with process(*arguments(files, port=port)) as running:
            assert running.wait(DEADLINE_SECONDS) == 2
            output = running.stderr.read()

    assert f"error: port `{port}` on `127.0.0.1` is taken" in output


def test_a_setting_that_is_unknown_in_the_environment_is_refused(files):
    with process(POLICYD_PROT="1") as running:
        assert running.wait(DEADLINE_SECONDS) == 2
        output = running.stderr.read()

    assert "unknown setting `POLICYD_PROT`" in output
    assert "did you mean `POLICYD_PORT`?" in output
