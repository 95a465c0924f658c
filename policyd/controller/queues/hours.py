"""The record of GPU-hours, kept while this process leads, and the budgets that are judged by it.

It is stored in a ConfigMap every minute while quota is held. After a restart, what holds quota says
itself since when; of what is gone by then, the record says how much is not known.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC
from functools import partial
from hashlib import blake2b
from math import inf
from typing import Final, NamedTuple, NoReturn

import structlog

from policyd.alloc.quota import QuotaNode
from policyd.api.kueue import ClusterQueue, LocalQueue, Workload
from policyd.controller.watch.cache import Cache
from policyd.controller.writes import Writes
from policyd.kube.changes import Change, Deleted
from policyd.kube.errors import ApiError
from policyd.kube.stored_bytes import read_bytes, write_bytes
from policyd.kube.unforeseen import log_unforeseen
from policyd.usage.budgets import BudgetError, BudgetUse, HoursBudget, budget_of, budget_uses
from policyd.usage.months import Month, month_of
from policyd.usage.packing import HoursDamagedError, pack, unpack
from policyd.usage.record import MOST_MONTHS, HeldQuota, HoursRecord, QuotaGiven
from policyd.workload.held_quota import held_quota, parts_of, quota_times

TICK_SECONDS: Final = 5.0
"""Between two looks at budgets: so much later one may hold, or renew."""
IDLE_SECONDS: Final = 20.0
"""The same while no queue has a budget."""
LEAST_SECONDS, SAVE_SECONDS = 10.0, 60.0
"""Between writes of the record, if something began or ended meanwhile; if quota is only held."""
BYTES_A_SECOND: Final = 5_000
"""Of the record, at most: a large one is written less often."""
KEY: Final = "hours"
"""In the ConfigMap."""

log = structlog.get_logger()


class Hours:
    """Keeps the record, and holds queues whose budgets are used up."""

    def __init__(
        self, cache: Cache, writes: Writes, *, place: str, leading: Callable[[], bool]
    ) -> None:
        """Prepare.

        Args:
            cache: The state.
            writes: Writes while this process leads.
            place: The ConfigMap, as `namespace/name`; "" to keep the record in the process only.
            leading: Tells whether this process leads.
        """
        self._cache, self._writes, self._pace = cache, writes, writes.pace
        self._place, self._leading = place, leading
        self.record: HoursRecord | None = None
        self._quotas: object = None
        self._oldest = 0
        """The first month that is kept, as a number: the record is looked through once a month."""
        self._saved, self._saved_at, self._rest = -1, -inf, 0.0
        cache.mirrors.workloads.listen(self._changed)

    async def prepare(self) -> None:
        """Read the record, before queues give quota: one of them may be held.

        It must not begin anew while an old one cannot be read: then it is read later.
        """
        try:
            found, whole = await self._load()
        except ApiError as error:
            log.warning("hours_unreadable", place=self._place, error=str(error))
            return
        # Quotas of now, since the record was stored: else all that was held since then would count
        # as borrowed.
        self._quotas = None
        self._put_quotas(found, found.at)
        workloads = filter(self._counts, self._cache.mirrors.workloads)
        resume(found, workloads, now=self._cache.now, whole=whole)
        self.record, self._oldest = found, 0
        self.tick()

    async def run(self) -> NoReturn:
        """Keep the record until cancelled."""
        while True:
            with log_unforeseen("hours_error"):
                if self.record is None:
                    await self.prepare()
                self.tick()
                await self.save()
            await self._pace.sleep(TICK_SECONDS if self._cache.budgets else IDLE_SECONDS)

    def drop(self) -> None:
        """Drop the record and its budgets: another process leads, and keeps them."""
        self.record = None
        self._put_budgets({})

    async def follow(self) -> NoReturn:
        """Judge budgets by the stored record until cancelled, for readers who ask this process.

        While it leads, it keeps the record itself.
        """
        while True:
            await self._pace.sleep(SAVE_SECONDS)
            if self._place and self.record is None:
                with log_unforeseen("hours_error"):
                    await self._look()

    async def _look(self) -> None:
        """Judge budgets by the stored record; without it, nothing is known of them."""
        found = None
        if any(budget for _, budget in self._budgets()):
            try:
                body = await read_bytes(self._writes.client, self._place, KEY)
                found = None if body is None else unpack(body)[0]
            except (ApiError, ValueError, HoursDamagedError) as error:
                log.info("hours_unreadable", place=self._place, error=str(error))
        if self.record is None:  # it may lead by now
            if found is None:
                self._put_budgets({})
            else:
                self._judge(found, self._cache.now)

    async def _load(self) -> tuple[HoursRecord, bool]:
        new = HoursRecord(int(self._cache.now))
        if not self._place:
            return new, True
        try:
            body = await read_bytes(self._writes.client, self._place, KEY)
            return (new, True) if body is None else unpack(body)
        except (ValueError, HoursDamagedError) as error:
            log.warning("hours_damaged", place=self._place, error=str(error))
            return new, True

    def tick(self) -> None:
        """Charge up to now, and judge the budgets."""
        record, now = self.record, self._cache.now
        if record is None:
            return
        self._put_quotas(record, now)
        record.advance(now)
        month = month_of(now, UTC)
        oldest = month.number - MOST_MONTHS + 1
        if oldest != self._oldest:
            record.forget(Month(oldest // 12, oldest % 12 + 1))
            self._oldest = oldest
        self._judge(record, now)

    def _judge(self, record: HoursRecord, now: float) -> None:
        budgets = {name: budget for name, budget in self._budgets() if budget is not None}
        self._put_budgets({each.queue: each for each in budget_uses(budgets, record, now=now)})

    def _put_budgets(self, found: Mapping[str, BudgetUse]) -> None:
        before, self._cache.budgets = self._cache.budgets, found
        for name in before.keys() | found.keys():
            if _held(before.get(name)) != _held(found.get(name)):
                log.info("budget_changed", queue=name, held=_held(found.get(name)))
                self._touch(name)

    def _budgets(self) -> Iterator[tuple[str, HoursBudget | None]]:
        mirrors = self._cache.mirrors
        for queue in mirrors.cluster_queues:
            yield queue.metadata.name, _budget(queue)
        for local in mirrors.local_queues:
            yield local.metadata.key, _budget(local)

    def _touch(self, name: str) -> None:
        """Look again at what is submitted to a queue."""
        for local in self._cache.mirrors.local_queues:
            if name in {local.metadata.key, local.spec.cluster_queue}:
                self._cache.touch_local_queue(local.metadata.key)

    def _put_quotas(self, record: HoursRecord, now: float) -> None:
        hierarchy = self._cache.state.tree.hierarchy
        given = {name: _given(node) for name, node in hierarchy.queues.items()}
        given |= {f"cohort {name}": _given(node) for name, node in hierarchy.cohorts.items()}
        if given != self._quotas:
            record.put_quotas(given, now)
            self._quotas = given

    def _changed(self, change: Change[Workload]) -> None:
        record, workload = self.record, change.object
        if record is None or not self._counts(workload):
            return
        uid, held = short(workload.metadata.uid), held_quota(workload)
        if held is None and uid not in record.held:
            return
        times = quota_times(workload)
        if held is None or times.end is not None:
            record.release(uid, times.end or self._cache.now)
        elif isinstance(change, Deleted):
            record.release(uid, self._cache.now)
        elif uid not in record.held:
            record.hold(uid, held, times.begin or self._cache.now)
        elif record.holds(uid) != held.amounts:
            record.hold(uid, held, self._cache.now)

    def _counts(self, workload: Workload) -> bool:
        """Tell whether the quota of a workload is recorded: that of a variant is its parent's."""
        return self._cache.role_of(workload) != "variant"

    async def save(self) -> None:
        """Store the record, if this process leads, and it is time."""
        record = self.record
        if record is None or not self._place or not self._leading():
            return
        changes, elapsed = record.changes, self._pace.clock.monotonic() - self._saved_at
        changed = changes != self._saved
        if elapsed < self._rest or not (changed or (record.held and elapsed >= SAVE_SECONDS)):
            return
        record.advance(self._cache.now)
        body = pack(record)
        self._saved_at = self._pace.clock.monotonic()
        self._rest = max(LEAST_SECONDS, len(body) / BYTES_A_SECOND)
        try:
            await write_bytes(self._writes.client, self._place, KEY, body)
        except ApiError as error:
            log.warning("hours_unwritten", place=self._place, error=str(error))
        else:
            self._saved = changes


def resume(record: HoursRecord, workloads: Iterable[Workload], *, now: float, whole: bool) -> None:
    """Bring a record that was stored up to date with the Workloads that there are.

    Args:
        record: As it was stored, or a new one.
        workloads: All that there are.
        now: Seconds since the epoch.
        whole: Whether all that held quota when it was stored is in it.
    """
    gone: set[str] = set(record.held)
    events: list[_Event] = []
    for workload in workloads:
        uid = short(workload.metadata.uid)
        gone.discard(uid)
        meanwhile = _continued if uid in record.held else partial(_new, whole=whole)
        events += meanwhile(record, uid, workload, now)
    for uid in sorted(gone):
        record.miss(uid, now)
    # In the order of time: how much is borrowed depends on what else is held then.
    for moment, uid, held in sorted(events, key=lambda event: event.at):
        if held is None:
            record.release(uid, moment)
        else:
            record.hold(uid, held, moment)


class _Event(NamedTuple):
    """From a moment on, a workload holds this quota; None if it holds none."""

    at: float
    uid: str
    held: HeldQuota | None


def _continued(record: HoursRecord, uid: str, workload: Workload, now: float) -> Iterator[_Event]:
    """Yield what became of a workload that held quota when the record was stored."""
    times, held = quota_times(workload), held_quota(workload)
    if held is None or times.end is not None:
        yield _Event(max(record.at, times.end or now), uid, None)
    elif record.holds(uid) != held.amounts:
        yield _Event(now, uid, held)


def _new(
    record: HoursRecord, uid: str, workload: Workload, _now: float, *, whole: bool
) -> Iterator[_Event]:
    """Yield when a workload held quota that held none when the record was stored."""
    times, held = quota_times(workload), held_quota(workload)
    if held is None or times.begin is None:
        return
    if times.end is None or times.end > record.at:
        yield _Event(times.begin if whole else max(record.at, times.begin), uid, held)
        if times.end is not None:
            yield _Event(times.end, uid, None)


def short(uid: str) -> str:
    """Return a uid as the record has it: in 16 letters, so that many take little room."""
    return blake2b(uid.encode(), digest_size=8).hexdigest()


def _budget(queue: ClusterQueue | LocalQueue) -> HoursBudget | None:
    try:
        return budget_of(queue.metadata.annotations)
    except BudgetError:
        return None  # admission refuses it; one from before is no budget


def _held(use: BudgetUse | None) -> bool:
    return use is not None and use.held


def _given(node: QuotaNode) -> tuple[str, Mapping[str, QuotaGiven]]:
    """Return the root of a node's tree, and the parts of GPUs that it gives by flavor."""
    found: dict[str, QuotaGiven] = {}
    for (flavor, resource), quota in node.quotas.items():
        parts = parts_of({resource: quota.nominal})
        limit = quota.nominal if quota.lending_limit is None else quota.lending_limit
        lent = parts_of({resource: limit})
        if parts:
            known = found.get(flavor, QuotaGiven(0, 0))
            found[flavor] = QuotaGiven(known.nominal + parts, (known.lent or 0) + lent)
    root = node.root
    return f"{'queue' if root.queue else 'cohort'} {root.name}", found
