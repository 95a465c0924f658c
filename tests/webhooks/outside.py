"""Policies that may ask others, and a server to be asked."""

import asyncio
import json
from contextlib import asynccontextmanager

from aiohttp import web
from prometheus_client import CollectorRegistry

from policyd.admission.handler import AdmissionHandler
from policyd.testing import FakeClock
from tests.webhooks.reviews import response, review
from webhooks.external_data.fetching import MOST_BYTES
from webhooks.external_data.lookups import ExternalLookups
from webhooks.metrics import WebhookMetrics
from webhooks.namespaces import without_cluster
from webhooks.policies.in_force import PoliciesInForce

RULE = {
    "apiGroups": [""],
    "apiVersions": ["v1"],
    "operations": ["CREATE"],
    "resources": ["pods"],
}


class Server:
    """A server that notes what it is asked."""

    def __init__(self):
        self.asked = []
        self.url = ""

    async def answer(self, request):
        body = await request.text()
        self.asked.append((request.method, request.path_qs, body, request.headers.get("Team", "")))
        match request.path:
            case "/api/teams":
                return web.json_response({"name": "ml", "gpus": 8})
            case "/api/list":
                return web.json_response(["a", "b"])
            case "/api/missing":
                return web.json_response({"error": "no such team"}, status=404)
            case "/api/elsewhere":
                raise web.HTTPFound("/secret")
            case "/api/long":
                return web.Response(body=b"1" * (MOST_BYTES + 1))
        return web.Response(text="no JSON")


@asynccontextmanager
async def serving(context=None):
    server = Server()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", server.answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context)
    await site.start()
    port = runner.addresses[0][1]
    server.url = f"{'https' if context else 'http'}://127.0.0.1:{port}"
    try:
        yield server
    finally:
        await runner.cleanup()


@asynccontextmanager
async def sending(fetcher):
    running = asyncio.create_task(fetcher.run())
    try:
        yield
    finally:
        await asyncio.sleep(0)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


class AskingPolicies:
    """One policy of Kyverno's, whose denial has the value of an expression."""

    def __init__(self, folder):
        self.folder = folder
        self.clock = FakeClock()
        self.lookups = ExternalLookups(clock=self.clock)
        self.out_of_time = False

    async def evaluate(self, expression, **outside):
        (self.folder / "a.yaml").write_text(json.dumps(message_policy(expression)))
        metrics = WebhookMetrics(CollectorRegistry())
        policies = PoliciesInForce(namespaces=without_cluster, metrics=metrics, **outside)
        policies.read_files([self.folder])
        assert metrics.registry.get_sample_value("policyd_policy_mistakes") == 0
        answer = AdmissionHandler(
            phase="validate", policies=policies.validate, with_external_data=self.lookups.decide
        ).answer
        body = response(await answer(review(), lambda: self.out_of_time))
        return body["status"]["message"].partition("request: ")[2] if not body["allowed"] else ""


def message_policy(expression):
    """Return a policy of Kyverno's that refuses by saying what an expression gives."""

    return {
        "apiVersion": "policies.kyverno.io/v1",
        "kind": "ValidatingPolicy",
        "metadata": {"name": "asks"},
        "spec": {
            "validationActions": ["Deny"],
            "matchConstraints": {"resourceRules": [RULE]},
            "variables": [{"name": "said", "expression": f"string({expression})"}],
            "validations": [
                {"expression": "variables.said == ''", "messageExpression": "variables.said"}
            ],
        },
    }
