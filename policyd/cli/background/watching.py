"""`policyd background --watch`: passes whenever something changes, by one of several processes.

Changes are only the signal for a pass, which reads everything anew. A pass rests for five times as
long as it took, so a cluster that changes all the time costs a sixth of a core at most.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final, NoReturn

import structlog
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from policyd.api.meta import Wire
from policyd.cli.background.acting import Passed
from policyd.cli.background.deletions import DeletionReader, NoticedDeletions
from policyd.cli.background.writes import LeadershipLostError, PassLine
from policyd.engine.background.record import RecordDamagedError, RecordFullError
from policyd.kube.client import Client
from policyd.kube.errors import ApiError
from policyd.kube.informer import Informer
from policyd.kube.leader import LeaderElection
from policyd.kube.pace import Pace
from policyd.kube.resources import Resource

LEASE: Final = "policyd-background"
"""The Lease of the process that acts."""

LEAST_SECONDS: Final = 0.5
"""Between two passes."""

LONGEST_REST: Final = 60.0
"""Seconds to rest after a pass, at most."""

log = structlog.get_logger()


class _SeenMetadata(Wire, frozen=True, gc=False):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""


class _Seen(Wire, frozen=True, gc=False):
    """An object, as far as it takes to notice that it has changed."""

    metadata: _SeenMetadata = _SeenMetadata()


class BackgroundMetrics:
    """What passes did."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.passes = Counter(
            "policyd_background_passes",
            "Passes over policies that generate, mutate and delete, by outcome: `done`, `failed` if"
            " something in it failed, `unread` if the cluster could not be read.",
            ["outcome"],
            registry=self.registry,
        )
        self.writes = Counter(
            "policyd_background_writes",
            "Objects written for policies, by step: `create`, `update`, `mutate`, `delete`.",
            ["step"],
            registry=self.registry,
        )
        self.problems = Gauge(
            "policyd_background_problems",
            "What failed in the last pass: policies that cannot be used, conflicts, writes.",
            registry=self.registry,
        )
        self.recorded = Gauge(
            "policyd_background_recorded_objects",
            "Generated objects in the record.",
            registry=self.registry,
        )
        self.seconds = Histogram(
            "policyd_background_pass_seconds",
            "How long a pass took.",
            buckets=(0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60),
            registry=self.registry,
        )


Carry = Callable[[Callable[[PassLine], None]], Awaitable[Passed]]
"""Carries out one pass, and tells what it does."""


@dataclass(slots=True)
class Watching:
    """Carries out passes while this process leads.

    Attributes:
        client: The API server.
        carry: Carries out one pass.
        election: Of the process that acts; None if there is only one.
        every: Seconds between passes if nothing changes: schedules are due with the time.
        deletions: Keeps the deletions that passes act on.
    """

    client: Client
    carry: Carry
    election: LeaderElection | None
    every: float
    deletions: NoticedDeletions
    pace: Pace = field(default_factory=Pace)
    metrics: BackgroundMetrics = field(default_factory=BackgroundMetrics)
    _woken: asyncio.Event = field(default_factory=asyncio.Event)
    _watches: dict[tuple[Resource, bool], asyncio.Task[NoReturn]] = field(default_factory=dict)
    """By resource, and whether its deletions are noticed."""
    _reported: frozenset[PassLine] = frozenset()

    async def run(self) -> NoReturn:
        """Carry out passes until cancelled."""
        async with asyncio.TaskGroup() as group:
            if self.election is not None:
                group.create_task(self.election.run())
            self.deletions.watching = True
            while True:
                if self.election is not None:
                    await self.election.wait_elected()
                began = self.pace.clock.monotonic()
                self._woken.clear()
                self._watch(await self._pass(), group)
                self.metrics.seconds.observe(self.pace.clock.monotonic() - began)
                await self.pace.sleep(LEAST_SECONDS)
                await self.pace.rest(began, most=LONGEST_REST)
                await self.pace.wait(self._woken, self.every)

    async def _pass(self) -> Passed | None:
        """Carry out one pass; None if the cluster could not be read."""
        lines: list[PassLine] = []

        def note(line: PassLine) -> None:
            lines.append(line)
            if line.written:
                self.metrics.writes.labels(line.written).inc()
            if line.written or line not in self._reported:
                write = log.warning if line.failed else log.info
                write("background", object=line.what, policy=line.policy, done=line.done)

        try:
            passed = await self.carry(note)
        except LeadershipLostError:
            return None
        except (ApiError, RecordDamagedError, RecordFullError) as error:
            log.warning("background_pass_failed", reason=str(error), hint=error.hint)
            self.metrics.passes.labels("unread").inc()
            return None
        self.metrics.passes.labels("failed" if passed.failed else "done").inc()
        self.metrics.problems.set(sum(line.failed for line in lines))
        self.metrics.recorded.set(passed.recorded)
        self._reported = frozenset(lines)
        return passed

    def _watch(self, passed: Passed | None, group: asyncio.TaskGroup) -> None:
        """Watch the resources whose changes ask for another pass, and no others."""
        if passed is None:
            return
        wanted = {(each, each in passed.noticed) for each in passed.watched}
        for each in self._watches.keys() - wanted:
            self._watches.pop(each).cancel()
        for each in sorted(wanted - self._watches.keys(), key=_order):
            self._watches[each] = group.create_task(self._informer(*each).run())

    def _informer(self, resource: Resource, noticed: bool) -> Informer[_Seen]:  # noqa: FBT001 - a pair
        reader = DeletionReader(self.client, self.deletions) if noticed else self.client
        return Informer(reader, resource, into=_Seen, on_change=self._changed, pace=self.pace)

    def _changed(self, _change: object) -> None:
        self._woken.set()


def _order(watch: tuple[Resource, bool]) -> tuple[str, str]:
    return watch[0].group, watch[0].plural
