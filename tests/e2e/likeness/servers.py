"""The two servers that are compared, and how they are asked."""

import asyncio
import base64
import http.client
import json
import ssl
import threading
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from policyd.local.apiserver import ApiServer
from policyd.local.apiserver.requests import ApiUser
from tests.controlplane.programs import API_SERVER, CONTROLLER_MANAGER, ETCD
from tests.controlplane.server import ControlPlane

WAIT_SECONDS = 30

IDLE_SECONDS = 2
"""A connection that was not used for longer is opened anew: a server may have closed it."""

WITHOUT = (
    "cronjob-controller",
    "daemonset-controller",
    "deployment-controller",
    "job-controller",
    "node-lifecycle-controller",
    "pod-garbage-collector-controller",
    "replicaset-controller",
    "root-ca-certificate-publisher-controller",
    "serviceaccount-controller",
    "statefulset-controller",
    "taint-eviction-controller",
    "ttl-controller",
)
"""Controllers that would write in between; collecting garbage and emptying namespaces stay."""

ADMIN = ApiUser(name="admin", groups=("system:masters", "system:authenticated"))
"""The administrator as the real server knows them."""


class Server:
    """One of the two, by its kubeconfig."""

    def __init__(self, kubeconfig: Path) -> None:
        self.kubeconfig = kubeconfig
        config = json.loads(kubeconfig.read_text())
        cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
        self._address = urlsplit(cluster["server"])
        self._headers = {"Authorization": f"Bearer {user['token']}", "User-Agent": "likeness/1"}
        self._trust = ssl.create_default_context()
        if authority := cluster.get("certificate-authority-data"):
            self._trust.load_verify_locations(cadata=base64.b64decode(authority).decode())
        else:
            self._trust.load_verify_locations(cluster["certificate-authority"])
        self._connection = self._connect()
        self._used = time.monotonic()

    def _connect(self):
        assert self._address.hostname is not None
        return http.client.HTTPSConnection(
            self._address.hostname,
            self._address.port,
            context=self._trust,
            timeout=WAIT_SECONDS,
        )

    def close(self):
        self._connection.close()

    def ask(self, method, target, body, headers):
        """Return code, headers and body of an answer."""
        if time.monotonic() - self._used > IDLE_SECONDS:
            self._connection.close()  # the next request opens it
        try:
            self._connection.request(method, target, body, self._headers | headers)
            answer = self._connection.getresponse()
            found = answer.status, answer.headers, answer.read()
        except (OSError, http.client.HTTPException):
            self._connection.close()  # one that fails must not fail the tests after it
            raise
        self._used = time.monotonic()
        return found

    @contextmanager
    def watching(self, target, headers=None):
        """Open a watch; yield a function that gives its next event."""
        connection = self._connect()
        connection.request("GET", target, headers=self._headers | (headers or {}))
        answer = connection.getresponse()
        try:
            yield lambda: json.loads(answer.readline())
        finally:
            connection.close()


class Loop:
    """An event loop in a thread, for what the tests need beside them."""

    def __enter__(self):
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def run(self, coroutine):
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(WAIT_SECONDS)

    @contextmanager
    def entered(self, context):
        """Be inside an asynchronous context."""
        value = self.run(context.__aenter__())
        try:
            yield value
        finally:
            self.run(context.__aexit__(None, None, None))


@contextmanager
def embedded(loop, folder):
    """Run the embedded server."""

    async def start():
        server = ApiServer()
        await server.start()
        return server

    running = loop.run(start())
    kubeconfig = folder / "embedded.json"
    kubeconfig.write_text(json.dumps(running.kubeconfig(ADMIN)))
    server = Server(kubeconfig)
    try:
        yield server
    finally:
        server.close()
        loop.run(running.stop())


@contextmanager
def real():
    """Run a real API server with the controllers that the embedded one has inside."""
    flags = {CONTROLLER_MANAGER: [f"--controllers=-{',-'.join(WITHOUT)}"]}
    with ControlPlane(components=(ETCD, API_SERVER, CONTROLLER_MANAGER), flags=flags) as running:
        server = Server(running.kubeconfig)
        try:
            yield server
        finally:
            server.close()


@contextmanager
def both(folder):
    """Run both; yield them by name, and the loop."""
    with ExitStack() as stack:
        loop = stack.enter_context(Loop())
        servers = {
            "embedded": stack.enter_context(embedded(loop, folder)),
            "real": stack.enter_context(real()),
        }
        yield servers, loop
