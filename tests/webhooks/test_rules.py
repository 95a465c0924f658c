"""Rules are derived beside the reviews, and once."""

import asyncio
import threading

import pytest

from policyd.registration.webhook_rules import WebhookRules
from tests.webhooks.policies import policy, rule
from webhooks.registering import Rules

pytestmark = pytest.mark.anyio


async def test_the_loop_goes_on_while_rules_are_derived():
    let = threading.Event()

    def derive(_policies, _defaulted):
        assert let.wait(10)
        return WebhookRules()

    deriving = asyncio.create_task(Rules(derive).of(()))
    await asyncio.sleep(0.01)

    assert not deriving.done()
    let.set()
    assert await deriving == WebhookRules()


async def test_the_same_is_looked_at_once_and_what_is_new_anew():
    seen = []

    def derive(policies, defaulted):
        seen.append((policies, defaulted))
        return WebhookRules()

    rules, one, other = Rules(derive), (policy(rule(), inject=True),), ()

    await asyncio.gather(rules.of(one), rules.of(one))
    await rules.of(other)
    await rules.of(other, defaulted=frozenset({"ml"}))

    assert seen == [(one, frozenset()), (other, frozenset()), (other, frozenset({"ml"}))]
