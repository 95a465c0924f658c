"""The largest and the deepest review that a real API server sends: what the bounds are made for."""

import base64
import copy
import json
import ssl
import time
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import accumulate
from threading import Thread

import pytest

from policyd.api.admission import MAXIMUM_REVIEW_BYTES
from policyd.certificates import Authority
from tests.controlplane.server import ControlPlane
from tests.scenarios.api import Api, Refused, eventually

pytestmark = pytest.mark.e2e

MOST_BYTES = 3 * 1024 * 1024
"""What the API server takes in a request."""
STORED_BYTES = 1_500_000
"""What it can store."""
MOST_LEVELS = 10_000
PODS = "api/v1/namespaces/default/pods"
DEEP = "apis/example.com/v1/namespaces/default/deeps"
STEPS = {"{": 1, "[": 1, "}": -1, "]": -1}


class Received(BaseHTTPRequestHandler):
    """A webhook that allows everything, and keeps the reviews."""

    bodies = []

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.bodies.append(body)
        uid = body.partition(b'"uid":"')[2].partition(b'"')[0].decode()
        review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}
        answer = json.dumps({**review, "response": {"uid": uid, "allowed": True}}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_given):
        pass


@contextmanager
def receiving(folder):
    """Serve the webhook; yield its configuration."""
    now = time.time()
    authority = Authority.create(now=now)
    pair = authority.issue(["127.0.0.1"], now=now)
    (folder / "tls.crt").write_bytes(pair.certificate_pem)
    (folder / "tls.key").write_bytes(pair.key_pem)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "tls.crt", folder / "tls.key")
    with ThreadingHTTPServer(("127.0.0.1", 0), Received) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        Thread(target=server.serve_forever, daemon=True).start()
        yield {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "MutatingWebhookConfiguration",
            "metadata": {"name": "sizes"},
            "webhooks": [
                {
                    "name": "sizes.example.com",
                    "clientConfig": {
                        "url": f"https://127.0.0.1:{server.server_port}/",
                        "caBundle": base64.b64encode(authority.certificate_pem).decode(),
                    },
                    "rules": [
                        {
                            "apiGroups": ["", "example.com"],
                            "apiVersions": ["v1"],
                            "operations": ["CREATE", "UPDATE"],
                            "resources": ["pods", "deeps"],
                        }
                    ],
                    "sideEffects": "None",
                    "admissionReviewVersions": ["v1"],
                    "timeoutSeconds": 30,
                }
            ],
        }
        server.shutdown()


@pytest.fixture(scope="module")
def api(tmp_path_factory):
    with ControlPlane() as running, receiving(tmp_path_factory.mktemp("sizes")) as configuration:
        api = Api(running.kubeconfig)
        path = "apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
        api.call("POST", path, configuration)
        api.create(definition())
        eventually(lambda: seen(api), what="the webhook is called")
        yield api


def seen(api):
    try:
        api.call("POST", PODS, pod(0), dryRun="All")
        api.call("GET", DEEP)
    except Refused:
        return False
    return bool(Received.bodies)


def definition():
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "deeps.example.com"},
        "spec": {
            "group": "example.com",
            "scope": "Namespaced",
            "names": {"plural": "deeps", "kind": "Deep"},
            "versions": [
                {
                    "name": "v1",
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": schema},
                }
            ],
        },
    }


def pod(size):
    """Return a pod of so many bytes, of which nearly each is sent as six."""
    container = {"name": "a", "image": "a", "args": [""]}
    made = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "big"},
        "spec": {"containers": [container]},
    }
    container["args"] = ["<" * (size - len(json.dumps(made).encode()))]
    return made


def longest(send):
    """Return the longest review that a request leads to."""
    Received.bodies.clear()
    send()
    return max(Received.bodies, key=len)


def test_the_longest_review_of_an_object_that_can_be_stored_is_read(api):
    created = longest(lambda: api.call("POST", PODS, pod(MOST_BYTES), dryRun="All"))
    api.call("POST", PODS, pod(STORED_BYTES))

    def replace():
        with pytest.raises(Refused, match="may not change fields"):  # only after the webhooks
            api.call("PUT", f"{PODS}/big", pod(MOST_BYTES))

    replaced = longest(replace)
    text = "<" * (MOST_BYTES - 1_000)
    patch = [{"op": "add", "path": "/metadata/annotations", "value": {"a": text}}]

    def change():
        with pytest.raises(Refused, match="Too long"):  # only after the webhooks
            api.call("PATCH", f"{PODS}/big", patch, content_type="application/json-patch+json")

    patched = longest(change)

    assert len(created) == pytest.approx(18.9e6, rel=0.01)
    assert len(replaced) == pytest.approx(27.9e6, rel=0.01)
    assert len(patched) == pytest.approx(36.9e6, rel=0.01)
    assert len(patched) < 0.75 * MAXIMUM_REVIEW_BYTES


def depth(text):
    return max(accumulate(STEPS.get(letter, 0) for letter in text))


def test_the_deepest_review_has_two_levels_more_than_a_request_may_have(api):
    def send(levels):
        """Send an object with so many levels, itself included; it is not answered with."""
        alone = copy.copy(api)
        alone.headers = {"Accept": "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"}
        lists = "[" * (levels - 1) + "]" * (levels - 1)
        body = '{"apiVersion":"example.com/v1","kind":"Deep","metadata":{"name":"a"},"a":%s}'
        alone.call("POST", DEEP, (body % lists).encode(), dryRun="All")

    deepest = longest(lambda: send(MOST_LEVELS))

    assert depth(deepest.decode()) == MOST_LEVELS + 2
    with pytest.raises(Refused):
        send(MOST_LEVELS + 1)
