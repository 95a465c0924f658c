"""The forecasts of workers: their snapshots, read when a workload has to be sent somewhere."""

import asyncio
from collections.abc import Mapping
from typing import Final, NamedTuple

import msgspec
import structlog

from policyd.api.kueue import Workload
from policyd.errors import PolicydError
from policyd.kube.client import Client
from policyd.kube.pace import Pace
from policyd.kube.resources import Resource
from policyd.multikueue.forecasts import (
    LOOK_SECONDS,
    SOON_KNOWN,
    Choice,
    ExpectedStart,
    Trial,
    Waiting,
    choose,
    try_workload,
)
from policyd.multikueue.settings import MultiKueueSettings
from policyd.snapshot.dry_run import AdmissionDryRun
from policyd.snapshot.reading import read
from policyd.snapshot.values import ADMISSION_PLURAL, GROUP, KIND, NAME, VERSION

log = structlog.get_logger()

SNAPSHOTS = Resource(GROUP, VERSION, ADMISSION_PLURAL, KIND, namespaced=False)
FRESH_SECONDS: Final = 2.0
"""How long a snapshot is used: workers make no new one sooner."""
SETTLE_SECONDS: Final = 4.0
"""Until the snapshot of a worker has a workload that it was sent."""
READ_SECONDS: Final = 5.0
"""How long a worker may take to answer."""
MOST_WAITING: Final = 100_000
"""Workloads of which the promised start is remembered."""


class _Known(NamedTuple):
    """The queues of a worker, when they were read.

    Attributes:
        dry_run: The queues; None if the worker serves none.
    """

    read_at: float
    client: Client
    dry_run: AdmissionDryRun | None


class _Wait(NamedTuple):
    """A workload that has not started: since when a worker is looked for, and what was promised."""

    since: float
    next_at: float
    promised: ExpectedStart | None = None


class WorkerForecasts:
    """Says where a workload would start first."""

    def __init__(self, settings: MultiKueueSettings, pace: Pace) -> None:
        self._settings = settings
        self._pace = pace
        self._known: dict[str, _Known] = {}
        self._sent_at: dict[str, float] = {}
        self._waits: dict[str, _Wait] = {}
        self._turns: dict[str, asyncio.Lock] = {}

    def forget(self, key: str) -> None:
        """Forget a workload that waits no longer."""
        self._waits.pop(key, None)

    async def next_choice(self, workload: Workload, clients: Mapping[str, Client]) -> Choice:
        """Say which workers a workload is to be nominated for.

        Args:
            workload: It has quota here, and runs nowhere.
            clients: The connected workers of its config, in order.
        """
        key, nominated = workload.metadata.key, workload.status.nominated_cluster_names
        clock = self._pace.clock
        wait = self._waits.get(key) or _Wait(clock.monotonic(), 0.0)
        left = wait.next_at - clock.monotonic()
        if nominated and left > 0 and all(name in clients for name in nominated):
            return Choice(nominated, left, wait.promised)
        since = min(wait.since, clock.monotonic())
        names = list(clients)
        known = await asyncio.gather(*(self._queues(name, clients[name]) for name in names))
        now = clock.now()
        trials = {
            name: self._try(name, dry_run, workload, now)
            for name, dry_run in zip(names, known, strict=True)
        }
        found = choose(
            Waiting(nominated, clock.monotonic() - since, wait.promised),
            {name: trial.start for name, trial in trials.items()},
            self._settings,
            now=now,
        )
        if found.names != nominated:
            self._send(found, trials)
            log.info("workload_nominated", workload=key, clusters=found.names, again=found.again)
        if len(self._waits) >= MOST_WAITING:
            self._waits.clear()
        next_at = clock.monotonic() + found.again
        decided = found.again > LOOK_SECONDS
        self._waits[key] = _Wait(next_at if decided else since, next_at, found.promised)
        return found

    def _try(
        self, name: str, dry_run: AdmissionDryRun | None, workload: Workload, now: float
    ) -> Trial:
        if dry_run is None:
            return Trial(None)
        try:
            trial = try_workload(dry_run, workload, now=now)
        except Exception as error:
            log.warning("forecast_failed", cluster=name, exc_info=error)
            self._known[name] = self._known[name]._replace(dry_run=None)
            return Trial(None)
        sent, at_once = self._sent_at.get(name), trial.quota is not None
        unsettled = sent is not None and self._known[name].read_at < sent + SETTLE_SECONDS
        return Trial(SOON_KNOWN) if unsettled and not at_once else trial

    def _send(self, found: Choice, trials: Mapping[str, Trial]) -> None:
        """Count a workload where it goes, for those that come before the next snapshot."""
        for name in found.names:
            trial, known = trials.get(name), self._known.get(name)
            if trial is None or known is None or known.dry_run is None:
                continue
            if trial.quota is not None and trial.queued is not None:
                known.dry_run.hold(trial.queued, trial.quota)
            self._sent_at[name] = self._pace.clock.monotonic()

    async def _queues(self, name: str, client: Client) -> AdmissionDryRun | None:
        """Return the queues of a worker; None if it serves none."""
        turn = self._turns.setdefault(name, asyncio.Lock())
        async with turn:
            known, now = self._known.get(name), self._pace.clock.monotonic()
            if known is None or known.client is not client or now - known.read_at >= FRESH_SECONDS:
                known = self._known[name] = _Known(now, client, await self._read(name, client))
            return known.dry_run

    async def _read(self, name: str, client: Client) -> AdmissionDryRun | None:
        try:
            asked = client.get(SNAPSHOTS, NAME, into=msgspec.Raw)
            body = await self._pace.within(READ_SECONDS, asked)
            return await asyncio.to_thread(_dry_run, bytes(body), name)
        except (PolicydError, TimeoutError) as error:
            log.debug("forecasts_not_served", cluster=name, error=str(error))
            return None


def _dry_run(body: bytes, name: str) -> AdmissionDryRun | None:
    snapshot = read(body, f"the snapshot of cluster {name}")
    if snapshot.rules is None:
        return None
    try:
        return AdmissionDryRun(snapshot, snapshot.rules)
    except Exception as error:
        log.warning("forecast_failed", cluster=name, exc_info=error)
        return None
