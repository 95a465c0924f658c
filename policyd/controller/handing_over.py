"""From one leader to the next: no quota is given that the last one has given already.

The next leader decides by what its watches told it. What the last one wrote a moment before it
stopped may not have come yet, or may even be on its way to the server. So the last one waits for
its writes, and leaves word of the latest version of a workload that it wrote; the next one waits
until its watch is as far. Who lost the Lease, as it or the server was too slow, leaves no word, and
breaks its writes off before the Lease runs out: the next one reads all workloads again.
"""

import structlog

from policyd.api.kueue import Workload
from policyd.controller.watch.mirror import Mirror
from policyd.controller.writes import Writes
from policyd.kube.client import Reader
from policyd.kube.errors import ApiError
from policyd.kube.pace import Pace
from policyd.kube.pages import pages

CATCH_UP_SECONDS = 5.0
"""How long a word is trusted: after a restore from a backup it may be wrong."""
LOOK_SECONDS = 0.02
"""Between looks at how far the watch has come."""
AGAIN_SECONDS = 0.5
"""Between tries to read what a slow server does not answer."""

log = structlog.get_logger()


class HandingOver:
    """What one leader tells the next, and how the next one makes use of it."""

    def __init__(
        self, reader: Reader, writes: Writes, workloads: Mirror[Workload], *, pace: Pace
    ) -> None:
        self._reader = reader
        self._writes = writes
        self._workloads = workloads
        self._pace = pace
        self._caught_up = 0

    async def last_word(self) -> str:
        """Return, once nothing is under way, which version of workloads is the latest known here.

        Who wrote nothing passes on what the leader before left.
        """
        await self._writes.settled()
        known = self._workloads.informer.version
        return str(max(self._writes.written, self._caught_up, known))

    async def catch_up(self, word: str) -> None:
        """Wait until what the last leader wrote is known, and what was begun here before.

        Who leads again after it has lost the Lease may have writes under way of which it has
        forgotten that it decided them.

        Args:
            word: What it left; empty if it left nothing, and was gone for a whole term.
        """
        await self._writes.settled()
        if word.isdecimal() and await self._reaches(max(int(word), self._writes.written)):
            return
        while not await self._read_again():
            await self._pace.sleep(AGAIN_SECONDS)

    async def _reaches(self, version: int) -> bool:
        """Wait until the watch of workloads is as far as a version; tell whether it is."""
        until = self._pace.clock.monotonic() + CATCH_UP_SECONDS
        while not self._workloads.informer.has_reached(version):
            if self._pace.clock.monotonic() >= until:
                log.warning("workloads_behind", version=version)
                return False
            await self._pace.sleep(LOOK_SECONDS)
        self._caught_up = version
        return True

    async def _read_again(self) -> bool:
        """Take in all workloads as the server has them: on a slow one watches are far behind."""
        mirror = self._workloads
        try:
            async for page in pages(self._reader, mirror.resource, into=mirror.into):
                for workload in page.items:
                    mirror.wrote(workload)
                if page.resource_version.isdecimal():
                    self._caught_up = max(self._caught_up, int(page.resource_version))
        except ApiError as error:
            log.warning("workloads_not_read", error=str(error))
            return False
        return True
