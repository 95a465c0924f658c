"""A webhook server whose answers the tests choose, over real TLS."""

import base64
import inspect
import json
import ssl
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from aiohttp import web

from policyd.certificates import Authority
from policyd.clock import SystemClock

MUTATING = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
VALIDATING = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"


class Hooks:
    """Answers by path; every request is kept in `asked`, with the path."""

    def __init__(self, authority: Authority) -> None:
        self.authority = authority
        self.port = 0
        self.answers = {}
        self.asked: list[tuple[str, dict]] = []

    def paths(self):
        return [path for path, _ in self.asked]

    async def answer(self, request):
        review = await request.json()
        self.asked.append((request.path, review["request"]))
        answer = self.answers[request.path]
        response = answer(review["request"]) if callable(answer) else answer
        if inspect.isawaitable(response):
            await response
            response = {}
        if isinstance(response, web.Response):
            return response
        kind = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}
        uid = review["request"]["uid"]
        return web.json_response(kind | {"response": {"uid": uid, "allowed": True, **response}})

    def client(self, path, port=None):
        bundle = base64.b64encode(self.authority.certificate_pem).decode()
        return {"url": f"https://127.0.0.1:{port or self.port}{path}", "caBundle": bundle}

    def webhook(self, path, **more):
        """Return a webhook for pods that are created, under the name of its path."""
        rule = {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}
        return {
            "name": f"{path.strip('/')}.example.com",
            "clientConfig": self.client(path),
            "rules": [{**rule, "operations": ["CREATE"]}],
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
            **more,
        }


def configuration(*webhooks, name="test"):
    return {"metadata": {"name": name}, "webhooks": list(webhooks)}


def patching(*operations):
    """Answer with a patch; each operation is given as (op, path, value)."""
    written = [{"op": op, "path": path, "value": value} for op, path, value in operations]
    encoded = base64.b64encode(json.dumps(written).encode()).decode()
    return {"patch": encoded, "patchType": "JSONPatch"}


@asynccontextmanager
async def serving_hooks() -> AsyncIterator[Hooks]:
    """Run a webhook server."""
    now = SystemClock().now()
    authority = Authority.create(now=now, name="test authority")
    pair = authority.issue(["127.0.0.1", "hook.tools.svc"], now=now)
    hooks = Hooks(authority)
    app = web.Application(client_max_size=2**24)
    app.router.add_post("/{tail:.*}", hooks.answer)
    runner = web.AppRunner(app, shutdown_timeout=0)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=_context(pair))
    await site.start()
    hooks.port = runner.addresses[0][1]
    try:
        yield hooks
    finally:
        await runner.cleanup()


def _context(pair):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with tempfile.TemporaryDirectory() as folder:
        certificate, key = Path(folder, "c"), Path(folder, "k")
        certificate.write_bytes(pair.certificate_pem)
        key.write_bytes(pair.key_pem)
        context.load_cert_chain(certificate, key)
    return context
