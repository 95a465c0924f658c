"""Forecasts of starts, kept up to date beside the cycles, and what they are made from, stored.

They are made in steps with long rests between them: a tenth of a core at most, and no cycle waits
for longer than a step.
"""

from collections import Counter
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from math import floor, log10
from typing import Final, NoReturn

import structlog
from msgspec.structs import replace

from policyd.alloc.ledger import Holding
from policyd.alloc.pending import Ticket
from policyd.alloc.workload import QueuedWorkload
from policyd.api.kueue import Workload
from policyd.controller.metrics.counters import ControllerMetrics
from policyd.controller.queues.learning import Learning
from policyd.controller.settings import ForecastsSettings
from policyd.controller.watch.cache import Cache
from policyd.controller.writes import Writes
from policyd.forecast.arrivals import ArrivalHistory
from policyd.forecast.coarse import CoarseQueues
from policyd.forecast.correction import Correction
from policyd.forecast.exact import cohorts_of, emptied
from policyd.forecast.memory import MemoryDamagedError, pack, remembered, restore, unpack
from policyd.forecast.probes import Request, plain_queues, probes_of, request_of
from policyd.forecast.run_times import RunTimeHistory
from policyd.forecast.starts import (
    DAY,
    DEFAULTS,
    Forecaster,
    ForecastSettings,
    KnownJob,
    QueuesNow,
    StartForecast,
)
from policyd.kube.errors import ApiError
from policyd.kube.steps import Steps
from policyd.kube.stored_bytes import read_bytes, write_bytes
from policyd.kube.unforeseen import log_unforeseen
from policyd.optimize.opt_ins import NO_OPT_INS, wants
from policyd.optimize.optimizer import Optimizer
from policyd.snapshot.new_workloads import TreeStamp, stamps_of
from policyd.snapshot.taking import STEP
from policyd.snapshot.values import NewWorkloadStart, StartRow
from policyd.status.pending_order import sort_in_steps

SOON_SECONDS, REFRESH_SECONDS = 3.0, 10.0
"""From the begin of one refresh to that of the next, if it takes no longer: the first where it is
little work, the second where it is much, and where nothing is pending."""
LITTLE_SECONDS: Final = 0.03
STEP_SECONDS: Final = 0.004
"""Of work at a time; then follows a rest."""
RESTS: Final = 9
"""How long a rest is by the work before it: a tenth of a core is used."""
MOST_SECONDS: Final = 1.8
"""Of work for a refresh. If it takes more, fewer workloads are simulated the next time."""
FIRST_SIMULATED, LEAST_SIMULATED = 500, 100
LOOKS: Final = 1_000
"""Steps without a turn for others, at most, however short they are."""
TEACHES_SECONDS: Final = 3_600.0
"""From one forecast that corrects later ones to the next: what comes together waits alike."""
FIRST_SAVE_SECONDS, SAVE_SECONDS = 60.0, 900.0
"""From the start to the first write of the memory, or after none could be made; and between
writes."""
KEY: Final = "memory"
"""In the ConfigMap."""

log = structlog.get_logger()


class Forecasts:
    """Makes forecasts for all pending workloads, again and again.

    Attributes:
        forecaster: What is remembered.
    """

    def __init__(
        self,
        cache: Cache,
        writes: Writes,
        *,
        metrics: ControllerMetrics,
        settings: ForecastsSettings,
        leading: Callable[[], bool],
    ) -> None:
        self._cache, self._writes, self._pace = cache, writes, writes.pace
        self._metrics, self._settings, self._leading = metrics, settings, leading
        now = self._pace.clock.now()
        self.forecaster = Forecaster(
            run_times=RunTimeHistory(),
            arrivals=ArrivalHistory(since=now, least_seconds=DAY),
            correction=Correction(apart_seconds=TEACHES_SECONDS),
            settings=_simulating(FIRST_SIMULATED),
        )
        self._learning = Learning(cache, self.forecaster, names=settings.names)
        self._since, self._saved = 0.0, 0
        self._steps = Steps(self._pace, seconds=STEP_SECONDS, most=LOOKS, rests=RESTS)
        self._stamps: Mapping[str, TreeStamp] = {}
        self._lines: Counter[tuple[str, int]] = Counter()

    async def run(self) -> NoReturn:
        """Make forecasts until cancelled."""
        with log_unforeseen("forecast_error"):
            await self._load()
        existing = list(self._cache.mirrors.workloads)
        self._cache.mirrors.workloads.listen(self._learning.changed)
        with log_unforeseen("forecast_error"):
            await self._steps.run(self._catch_up(existing))
        save_at = self._pace.clock.monotonic() + FIRST_SAVE_SECONDS
        while True:
            began = self._pace.clock.monotonic()
            await self.refresh()
            if self._pace.clock.monotonic() >= save_at:
                saved = False
                with log_unforeseen("forecast_error"):
                    saved = await self._save()
                pause = SAVE_SECONDS if saved else FIRST_SAVE_SECONDS
                save_at = self._pace.clock.monotonic() + pause
            took = self._pace.clock.monotonic() - began
            known = self._cache.starts or self._cache.new_starts
            little = known and self._steps.spent < LITTLE_SECONDS
            every = SOON_SECONDS if little else REFRESH_SECONDS
            await self._pace.sleep(max(0.0, every - took))

    async def refresh(self) -> None:
        """Forecast the starts of all pending workloads."""
        self._steps.spent = 0.0
        now = self._pace.clock.now()
        try:
            await self._steps.run(self._learning.gather())
            present = await self._steps.run(self._present(now))
            forecasts = await self._steps.run(self.forecaster.steps(present))
            new_starts = self._new_starts(present.probes, forecasts, now)
            self._cache.starts = await self._steps.run(_rows(forecasts, now))
            self._cache.new_starts.put(new_starts, self._stamps, at=now)
        except Exception:
            # An unforeseen error in a forecast must not stop the queue.
            log.exception("forecast_error")
            self._cache.starts = {}
            self._cache.new_starts.put({}, {}, at=now)
            return
        counts = Counter(row.how for row in self._cache.starts.values())
        self._metrics.forecasts(counts, seconds=self._steps.spent)
        self.forecaster.settings = _fitted(self.forecaster.settings, self._steps.spent)

    def _catch_up(self, existing: Iterable[Workload]) -> Generator[None, None, None]:
        for workload in existing:
            self._learning.catch_up(workload, since=self._since)
            yield

    def _present(self, now: float) -> Generator[None, None, QueuesNow]:
        """Return the queues now: their quotas and workloads of one moment."""
        state = self._cache.state
        queues = [each for each in state.queues.values() if each.spec is not None]
        waiting = [(each.pending, list(each.pending)) for each in queues if len(each.pending)]
        held = [holding for each in queues for holding in each.holdings.values()]
        coarse = CoarseQueues([each.spec for each in queues if each.spec], cohorts_of(state))
        probing = self._cache.new_starts.wanted(self._pace.clock.monotonic())
        if not waiting and not (held and probing):
            return QueuesNow(now=now, jobs=(), queues=coarse)
        self._stamps = stamps_of(state)
        plain = plain_queues(state, lambda spec: wants(spec) is not NO_OPT_INS)
        yield
        orders: list[list[Ticket]] = []
        for pending, tickets in waiting:
            orders.append([])
            yield from sort_in_steps(pending, tickets, orders[-1], step=STEP)
        most = share(list(map(len, orders)), self.forecaster.settings.coarse_first)
        jobs: list[KnownJob] = []
        for holding in held:
            jobs.append(self._running(holding))
            yield
        for ticket in (each for order in orders for each in order[:most]):
            workload = self._cache.mirrors.workloads.get(ticket.workload.key)
            jobs.append(self._learning.known(ticket.workload, workload))
            yield
        probes: tuple[KnownJob, ...] = ()
        if probing:
            probes = yield from self._probes([each.workload for each in jobs], orders, now)
        core = (yield from emptied(state, Optimizer)) if waiting else None
        behind = [ticket.workload for order in orders for ticket in order[most:]]
        return QueuesNow(
            now=now,
            jobs=jobs,
            queues=coarse,
            make_state=None if core is None else lambda: core,
            behind=behind,
            probes=probes,
            plain=plain,
        )

    def _probes(
        self, workloads: Sequence[QueuedWorkload], orders: Sequence[Sequence[Ticket]], now: float
    ) -> Generator[None, None, tuple[KnownJob, ...]]:
        """Return the workloads that are tried, and count those that are ahead of them."""
        requests: dict[str, Counter[Request]] = {}
        for each in workloads:
            requests.setdefault(each.cluster_queue, Counter())[request_of(each)] += 1
            yield
        self._lines = Counter[tuple[str, int]]()
        for ticket in (each for order in orders for each in order):
            self._lines[ticket.workload.cluster_queue, ticket.workload.priority] += 1
            yield
        return tuple(probes_of(requests, now=now))

    def _new_starts(
        self, probes: Iterable[KnownJob], forecasts: dict[str, StartForecast], now: float
    ) -> dict[str, tuple[NewWorkloadStart, ...]]:
        """Take the forecasts of probes out of all, and return those that are known, by queue."""
        found: dict[str, list[NewWorkloadStart]] = {}
        for job in probes:
            of, forecast = job.workload, forecasts.pop(job.workload.key)
            if forecast.interval is None:
                continue
            ahead = sum(
                count
                for (name, priority), count in self._lines.items()
                if name == of.cluster_queue and priority >= of.priority
            )
            row = NewWorkloadStart(
                of.priority, ahead, dict(request_of(of)[1]), start_row(forecast, now)
            )
            found.setdefault(of.cluster_queue, []).append(row)
        return {name: tuple(rows) for name, rows in found.items()}

    def _running(self, holding: Holding) -> KnownJob:
        job = self._learning.running(holding.workload, holding.admission)
        if holding.stopping and not job.workload.evicted:
            return replace(job, workload=replace(job.workload, evicted=True))
        return job

    async def _load(self) -> None:
        """Remember what was stored before, if anything was."""
        place = self._settings.memory
        if not place:
            return
        try:
            body = await read_bytes(self._writes.client, place, KEY)
            if body is None:
                return
            memory = unpack(body, names=self._settings.names)
            restore(self.forecaster, memory)
        except (ApiError, ValueError, MemoryDamagedError) as error:
            log.warning("forecast_memory_unreadable", memory=place, error=str(error))
        else:
            self._since = memory.at
            log.info("forecast_memory_read", memory=place, arrivals=len(memory.arrivals))

    async def _save(self) -> bool:
        """Store what is remembered, if this process leads and has learnt something; tell if so."""
        place, count = self._settings.memory, self._learning.count
        if not place or count == self._saved or not self._leading():
            return False
        memory = await self._steps.run(remembered(self.forecaster, at=self._pace.clock.now()))
        body = await self._steps.run(pack(memory))
        try:
            await write_bytes(self._writes.client, place, KEY, body)
        except ApiError as error:
            log.warning("forecast_memory_unwritten", memory=place, error=str(error))
            return False
        self._saved = count
        return True


def share(lengths: Sequence[int], total: int) -> int:
    """Return how many of each queue are simulated at most: together no more than `total`, or one.

    Args:
        lengths: How many are pending in each queue.
        total: How many are simulated in all.
    """
    left, most = total, 0
    for number, length in enumerate(sorted(lengths)):
        even = left // (len(lengths) - number)
        if length > even:
            return max(1, even)
        left, most = left - length, length
    return most


def _fitted(settings: ForecastSettings, spent: float) -> ForecastSettings:
    """Return settings for the next refresh, so that it takes no longer than it may."""
    if spent > MOST_SECONDS:
        factor = 0.5
    elif spent < MOST_SECONDS / 3 and settings.coarse_first < DEFAULTS.coarse_first:
        factor = 2.0
    else:
        return settings
    return _simulating(int(settings.coarse_first * factor))


def _simulating(pending: int) -> ForecastSettings:
    """Return settings by which about so many pending workloads are simulated."""
    coarse = max(LEAST_SIMULATED, min(DEFAULTS.coarse_first, pending))
    return replace(DEFAULTS, coarse_first=coarse, exact_first=min(DEFAULTS.exact_first, coarse))


def _rows(
    forecasts: Mapping[str, StartForecast], now: float
) -> Generator[None, None, dict[str, StartRow]]:
    """Return forecasts as snapshots have them: equal ones are one."""
    same: dict[StartRow, StartRow] = {}
    rows: dict[str, StartRow] = {}
    for key, forecast in forecasts.items():
        row = start_row(forecast, now)
        rows[key] = same.setdefault(row, row)
        yield
    return rows


def start_row(forecast: StartForecast, now: float) -> StartRow:
    """Return a forecast as snapshots have it.

    Waits have two digits, so that many workloads share a row; what is certain stays exact.

    Args:
        forecast: The forecast.
        now: When it was made, in seconds since the epoch.
    """
    interval = forecast.interval
    if interval is None:
        return StartRow(0, 0, 0, forecast.unknown)
    exact = interval.low == interval.high
    median, low, high = (
        int(now + (wait if exact else _rounded(wait)))
        for wait in (interval.median, interval.low, interval.high)
    )
    return StartRow(median, low, high, "coarse" if forecast.coarse else "exact")


def _rounded(wait: float) -> float:
    digits = 1 - floor(log10(wait)) if wait >= 1 else 0
    return round(wait, min(0, digits))
