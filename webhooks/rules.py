"""What is sent to the door, derived beside the reviews: with many policies it takes a while."""

import asyncio
from collections.abc import Callable

from policyd.engine.compiled import CompiledPolicy
from webhooks.calls import DoorRules

Policies = tuple[CompiledPolicy, ...]


class Rules:
    """The rules of the policies that were asked about last.

    Deriving them is pure, so that a thread can do it: with a thousand policies that select by
    labels of their own it takes a second, in which no review must wait.
    """

    def __init__(self, derive: Callable[[Policies], DoorRules]) -> None:
        """Begin with no policies.

        Args:
            derive: Derives the rules; called in a thread.
        """
        self._derive = derive
        self._last: tuple[Policies, DoorRules] | None = None
        self._deriving = asyncio.Lock()

    async def of(self, policies: Policies) -> DoorRules:
        """Return what is sent for these policies."""
        async with self._deriving:  # who comes second mostly wants the same
            if self._last is None or self._last[0] is not policies:
                rules = await asyncio.to_thread(self._derive, policies)
                self._last = policies, rules
            return self._last[1]
