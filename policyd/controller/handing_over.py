"""From one leader to the next: no quota is given that the last one has given already.

The next leader decides by what its watches told it. What the last one wrote a moment before it
stopped may not have come yet, or may even be on its way to the server. So the last one waits for
its writes, and leaves word of the latest version of a workload that it wrote; the next one waits
until its watch is as far.
"""

import structlog

from policyd.api.kueue import Workload
from policyd.controller.mirror import Mirror
from policyd.controller.writes import Writes
from policyd.kube.pace import Pace

CATCH_UP_SECONDS = 5.0
"""How long the last leader's word is trusted: after a restore from a backup it may be wrong."""
LOOK_SECONDS = 0.02
"""Between looks at how far the watch has come."""

log = structlog.get_logger()


class HandingOver:
    """What one leader tells the next, and how the next one makes use of it."""

    def __init__(self, writes: Writes, workloads: Mirror[Workload], *, pace: Pace) -> None:
        self._writes = writes
        self._informer = workloads.informer
        self._pace = pace

    async def last_word(self) -> str:
        """Return, once nothing is under way, which version of workloads is the latest from here."""
        await self._writes.settled()
        return str(self._writes.written)

    async def catch_up(self, word: str) -> None:
        """Wait until what the last leader wrote is known, and what was begun here before.

        Who leads again after it has lost the Lease may have writes under way of which it has
        forgotten that it decided them.

        Args:
            word: What it left; empty if it left nothing, and was gone for a whole term.
        """
        await self._writes.settled()
        last = max(int(word) if word.isdecimal() else 0, self._writes.written)
        until = self._pace.clock.monotonic() + CATCH_UP_SECONDS
        while not self._informer.has_reached(last):
            if self._pace.clock.monotonic() >= until:
                log.warning("workloads_behind", version=last)
                return
            await self._pace.sleep(LOOK_SECONDS)
