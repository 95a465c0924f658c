"""What is sent to the webhooks, derived beside the reviews: with many policies it takes a while."""

import asyncio
from collections.abc import Callable

from policyd.engine.model.compiled import CompiledPolicy
from policyd.registration.webhook_rules import WebhookRules

Policies = tuple[CompiledPolicy, ...]
Namespaces = frozenset[str]


class Rules:
    """The rules of what was asked about last: policies, and where jobs have a default queue.

    Deriving them is pure, so that a thread can do it: with a thousand policies that select by
    labels of their own it takes a second, in which no review must wait.
    """

    def __init__(self, derive: Callable[[Policies, Namespaces], WebhookRules]) -> None:
        """Begin with no policies.

        Args:
            derive: Derives the rules; called in a thread.
        """
        self._derive = derive
        self._last: tuple[Policies, Namespaces, WebhookRules] | None = None
        self._deriving = asyncio.Lock()

    async def of(self, policies: Policies, *, defaulted: Namespaces = frozenset()) -> WebhookRules:
        """Return what is sent for these policies, and these namespaces with a default queue."""
        async with self._deriving:  # who comes second mostly wants the same
            last = self._last
            if last is None or last[0] is not policies or last[1] != defaulted:
                rules = await asyncio.to_thread(self._derive, policies, defaulted)
                self._last = last = policies, defaulted, rules
            return last[2]
