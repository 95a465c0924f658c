"""Shadows are asked after the answer: counted, logged, reported, and never in the way."""

import asyncio
import json

import pytest
import structlog
from msgspec import structs
from prometheus_client import CollectorRegistry

from policyd.api.admission import UserInfo, parse_review
from policyd.engine.compile.load import load_policies
from policyd.engine.evaluate.policy_set import PolicySet
from policyd.engine.offline.shadows import Shadow
from policyd.registration.webhook_rules import derive_webhook_rules
from policyd.testing import FakeClock
from tests.engine.reviews import policy as policy_text
from tests.webhooks.policies import policy, rule
from tests.webhooks.reviews import review
from webhooks.metrics import WebhookMetrics
from webhooks.namespaces import without_cluster
from webhooks.observe.shadowing import MOST_LINES, MOST_WAITING, Shadows

pytestmark = pytest.mark.anyio

TRUE, FALSE = 'validations: [{expression: "true"}]', 'validations: [{expression: "false"}]'


class World:
    """Shadows, and what they said."""

    def __init__(self, new=FALSE, *, old=TRUE, inquire=None, exempt=()):
        texts = [policy_text(old)]
        texts += [policy_text(f"shadowOf: p\n{new}", name="p2")] if new else []
        loaded = load_policies("---\n".join(texts), "p.yaml")
        self.policies = PolicySet(loaded.policies, namespaces=without_cluster)
        self.metrics = WebhookMetrics(CollectorRegistry())
        self.clock = FakeClock()
        self.reported = []
        self.shadows = Shadows(
            lambda: self.policies,
            metrics=self.metrics,
            clock=self.clock,
            inquire=inquire,
            report=lambda request, found: self.reported.append((request.namespace, found.outcome)),
            exempt=frozenset(exempt),
        )

    def offer(self, phase="validate", **more):
        self.shadows.offer(phase, structs.replace(parse_review(review()), **more))

    async def settle(self):
        """Let shadows be asked about all that waits."""
        task = asyncio.create_task(self.shadows.run())
        for _ in range(2000):
            await asyncio.sleep(0)
        task.cancel()

    def count(self, outcome, phase="validate"):
        labels = {"phase": phase, "outcome": outcome}
        return self.metrics.registry.get_sample_value("policyd_shadow_reviews_total", labels)


@pytest.mark.parametrize(
    ("new", "phase", "outcome"),
    [
        pytest.param(TRUE, "validate", "same", id="the-same"),
        pytest.param(FALSE, "validate", "denied", id="would-refuse"),
        pytest.param("inject: {queueName: a}", "mutate", "changed", id="would-change"),
    ],
)
async def test_answers_are_counted_by_how_they_differ(new, phase, outcome):
    world = World(new)

    world.offer(phase)
    await world.settle()

    assert world.count(outcome, phase) == 1
    assert world.reported == ([] if outcome == "same" else [("team-a", outcome)])


async def test_nothing_is_kept_without_shadows():
    world = World("")

    world.offer()
    await world.settle()

    assert (
        world.metrics.registry.get_sample_value(
            "policyd_shadow_reviews_total", {"phase": "validate", "outcome": "same"}
        )
        is None
    )


async def test_requests_that_no_policy_is_asked_about_are_left_out():
    world = World(exempt=["system:nodes"])

    world.offer(user_info=UserInfo(groups=("system:nodes",)))
    await world.settle()

    assert world.reported == []


async def test_a_burst_is_left_out_and_counted():
    world = World()

    for _ in range(MOST_WAITING + 5):
        world.offer()
    await world.settle()

    assert world.count("dropped") == 5
    assert world.count("denied") == MOST_WAITING


async def test_lines_are_bounded_and_say_why():
    world = World(FALSE.replace("}]", ", message: not so}]"))

    with structlog.testing.capture_logs() as lines:
        for _ in range(2 * MOST_LINES):
            world.offer()
        await world.settle()

    assert len(lines) == MOST_LINES
    assert lines[0]["event"] == "shadow_differs"
    assert lines[0]["reason"] == "p2, shadow of p, would deny: Deny: not so"


async def test_decisions_wait_for_external_data():
    asked = []

    async def inquire(decide, request, out_of_time):
        asked.append(request.name)
        return decide(request, out_of_time)

    world = World(inquire=inquire)

    world.offer()
    await world.settle()

    assert asked == ["train", "train"]
    assert world.count("denied") == 1


async def test_a_shadow_that_goes_wrong_goes_wrong_alone():
    async def inquire(decide, request, out_of_time):
        raise ZeroDivisionError

    world = World(inquire=inquire)

    world.offer()
    await world.settle()

    assert world.count("failed") == 1


async def test_policies_that_change_have_other_shadows():
    world = World(TRUE)
    world.offer()
    await world.settle()

    world.policies = World(FALSE).policies
    world.offer()
    await world.settle()

    assert world.reported == [("team-a", "denied")]


def test_requests_of_a_shadow_are_sent_but_not_refused():
    old = policy(rule("pods"), validations=True)
    spec = {
        "shadowOf": "p",
        "matchConstraints": {"resourceRules": [rule("services")]},
        "validations": [{"expression": "false"}],
    }
    kind = {"apiVersion": "policyd.io/v1alpha1", "kind": "Policy", "metadata": {"name": "p2"}}
    known = loaded(kind | {"spec": spec})

    rules = derive_webhook_rules([old, *known], queue=None)

    sent = {(r.resources, call.failure_policy) for call in rules.validate for r in call.rules}
    assert sent == {(("pods",), "Fail"), (("services",), "Ignore")}


def loaded(*documents):
    """Load policies as the webhooks do, shadows included."""
    found = load_policies("\n---\n".join(map(json.dumps, documents)), "here")
    return PolicySet(found.policies, namespaces=without_cluster).known


def test_a_shadow_is_distinguished_by_what_it_may_replace():
    world = World()

    assert [Shadow(p, world.policies).of for p in world.policies.shadows] == ["p"]
