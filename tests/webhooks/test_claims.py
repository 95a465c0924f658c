"""Devices of claims are looked up by the webhooks, and what is not known is refused."""

import asyncio
import json

import pytest
from prometheus_client import CollectorRegistry

from policyd.admission.handler import AdmissionHandler
from policyd.kube import resources as r
from policyd.kube.errors import ForbiddenError
from policyd.testing import FakeClient, FakeClock
from tests.webhooks.reviews import policy, response, review
from webhooks.external_data.lookups import ExternalLookups
from webhooks.external_data.owners import Claims
from webhooks.metrics import WebhookMetrics
from webhooks.namespaces import without_cluster
from webhooks.policies.in_force import PoliciesInForce

pytestmark = pytest.mark.anyio


class Case:
    """A policy that allows eight devices by claims, over an API server."""

    def __init__(self, folder):
        validations = [{"expression": "pod.claimedDevices() <= 8", "message": "too many"}]
        (folder / "a.yaml").write_text(json.dumps(policy("counts", validations=validations)))
        self.clock, self.client = FakeClock(), CountingClient()
        lookups = ExternalLookups(clock=self.clock)
        policies = PoliciesInForce(
            namespaces=without_cluster,
            metrics=WebhookMetrics(CollectorRegistry()),
            claims=Claims(self.client, lookups).spec,
        )
        policies.read_files([folder])
        self._answer = AdmissionHandler(
            phase="validate", policies=policies.validate, with_external_data=lookups.decide
        ).answer

    def offer(self, name, count):
        exactly = {"deviceClassName": "gpu", "count": count}
        spec = {"spec": {"devices": {"requests": [{"name": "r", "exactly": exactly}]}}}
        metadata = {"name": name, "namespace": "team-a"}
        self.client.store.put(r.RESOURCE_CLAIM_TEMPLATES, {"metadata": metadata, "spec": spec})

    async def refusal(self, *templates):
        claims = [
            {"name": f"c{number}", "resourceClaimTemplateName": each}
            for number, each in enumerate(templates)
        ]
        spec = {"containers": [{"name": "main", "image": "a"}], "resourceClaims": claims}
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "train", "namespace": "team-a"},
            "spec": spec,
        }
        reply = response(await self._answer(review(obj=pod), lambda: False))
        return reply["status"]["message"] if not reply["allowed"] else ""


class CountingClient(FakeClient):
    """An API server that notes which objects it was asked for."""

    def __init__(self):
        super().__init__()
        self.asked = []

    async def get(self, resource, name, **options):
        self.asked.append((resource.kind, options["namespace"], name))
        return await super().get(resource, name, **options)


async def test_each_review_looks_up_a_template_in_the_namespace_of_its_request_once(tmp_path):
    case = Case(tmp_path)
    case.offer("four", 4)

    assert await case.refusal("four", "four") == ""
    assert await case.refusal("four", "four", "four") == "counts: too many"
    assert case.client.asked == [("ResourceClaimTemplate", "team-a", "four")] * 2


async def test_reviews_at_the_same_time_share_the_answer(tmp_path):
    case = Case(tmp_path)
    case.offer("four", 4)

    assert await asyncio.gather(*[case.refusal("four") for _ in range(9)]) == [""] * 9
    assert case.client.asked == [("ResourceClaimTemplate", "team-a", "four")]


async def test_a_pod_without_claims_asks_for_nothing(tmp_path):
    case = Case(tmp_path)

    assert await case.refusal() == ""
    assert case.client.asked == []


async def test_a_template_that_is_not_there_is_refused_until_it_is(tmp_path):
    case = Case(tmp_path)
    refusal = await case.refusal("late")
    assert "there is no ResourceClaimTemplate `late` in namespace `team-a`" in refusal

    case.offer("late", 8)
    assert await case.refusal("late") == ""


async def test_a_template_that_was_replaced_counts_anew_at_once(tmp_path):
    case = Case(tmp_path)
    case.offer("four", 4)
    assert await case.refusal("four") == ""

    case.offer("four", 9)
    assert await case.refusal("four") == "counts: too many"


async def test_what_the_account_may_not_read_is_refused_with_the_reason(tmp_path):
    case = Case(tmp_path)
    case.client.fail(ForbiddenError("may not"), plural="resourceclaimtemplates")

    assert "ResourceClaimTemplate `four`: may not" in await case.refusal("four")
