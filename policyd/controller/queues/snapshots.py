"""Snapshots of the queues: taken on request, at most every two seconds, step by step.

Without requests, nothing is done. Cycles and writes run between the steps of a snapshot.
"""

import asyncio
import gzip
from collections.abc import Generator
from math import inf
from typing import Any, Final, TypeVar

from policyd.api.kueue.names import QUOTA_RESERVED
from policyd.api.meta import find_condition
from policyd.controller.queues.admission_rules import budget_rules, rules_of
from policyd.controller.reasons.shortage import naming_in
from policyd.controller.watch.cache import Cache
from policyd.controller.watch.preemptions import priority_parts
from policyd.kube.changes import Change, Modified
from policyd.kube.pace import Pace
from policyd.snapshot.picture import Picture, Pictures, QueueOfNamespace
from policyd.snapshot.rules import BudgetRule
from policyd.snapshot.values import Origin, SnapshotReason, StartRow
from policyd.snapshot.writing import write
from policyd.status.naming import PLAIN
from policyd.workload.records import job_of, owner_of

FRESH_SECONDS: Final = 2.0
"""For how long a picture is used."""
MOST_READERS: Final = 64
"""Snapshots of one picture that are kept, each for readers of the same names and queues."""
MOST_LISTED: Final = 200
"""Pending workloads of each queue that the webhooks get rows of; of the others, counts."""
APART_SECONDS: Final = 0.5
"""Between two snapshots for the webhooks, at least."""
LEVEL: Final = 1
"""Of the compression: higher ones take longer than a network saves."""

T = TypeVar("T")


class Snapshots:
    """Takes and keeps snapshots."""

    def __init__(self, cache: Cache, *, pace: Pace) -> None:
        self._cache = cache
        self._pace = pace
        self._pictures = Pictures(cache.state, _Jobs(cache))
        self._picture: Picture | None = None
        self._taken = 0.0
        self._written: dict[object, bytes] = {}
        self._turn = asyncio.Lock()

    async def current(self, *, scope: str, reader: str) -> bytes:
        """Return the snapshot for a reader: JSON, compressed by gzip.

        Args:
            scope: A namespace, for the trees of queues in which it has LocalQueues; "" for all.
            reader: The namespace whose jobs are always named; "" for none.
        """
        async with self._turn:
            if self._picture is None or self._pace.clock.monotonic() >= self._taken + FRESH_SECONDS:
                self._written.clear()
                self._picture = None  # its room is free while the next is taken
                self._picture = await self._take()
            picture, naming = self._picture, naming_in(self._cache, reader)
            trees = frozenset(picture.trees.get(scope, ())) if scope else None
            same = trees, naming.others, "" if naming.all_named else reader
            body = self._written.get(same)
            if body is None:
                plain = await self._in_steps(write(picture, naming, trees))
                body = await asyncio.to_thread(gzip.compress, plain, LEVEL)
                if len(self._written) >= MOST_READERS:
                    self._written.clear()
                self._written[same] = body
            return body

    async def _take(self) -> Picture:
        mirrors = self._cache.mirrors
        version = mirrors.workloads.informer.version
        picture = Picture(
            self._pace.clock.now(),
            self._cache.state.revision,
            str(version) if version else "",
            configuration=self._cache.configuration,
        )
        queues = [
            QueueOfNamespace(each.metadata.namespace, each.spec.cluster_queue)
            for each in mirrors.local_queues
        ]
        self._taken = self._pace.clock.monotonic()
        return await self._in_steps(self._pictures.take(picture, queues))

    async def _in_steps(self, work: Generator[None, None, T]) -> T:
        return await in_steps(self._pace, work)


async def in_steps(pace: Pace, work: Generator[None, None, T]) -> T:
    """Do work step by step, and return its result; others have their turn between the steps."""
    while True:
        try:
            next(work)
        except StopIteration as end:
            result: T = end.value
            return result
        await pace.sleep(0)


class AdmissionSnapshots:
    """Takes and keeps the snapshot for the webhooks, which ask for it all the time.

    Without a change, nothing is done. It has all names, and says how far users may know them.
    """

    def __init__(self, cache: Cache, *, pace: Pace) -> None:
        self._cache = cache
        self._pace = pace
        self._pictures = Pictures(cache.state, _Jobs(cache), most=MOST_LISTED)
        self._instance = f"{int(pace.clock.now() * 1e6):x}"
        self._version = ""
        self._taken = -inf
        self._body = b""
        self._rules = 0
        self._budgets: tuple[BudgetRule, ...] = ()
        mirrors = cache.mirrors
        for mirror in (
            mirrors.local_queues,
            mirrors.cluster_queues,
            mirrors.priorities,
            mirrors.priority_classes,
            mirrors.limit_ranges,
            mirrors.runtime_classes,
        ):
            mirror.listen(self._rule_changed)
        self._turn = asyncio.Lock()

    async def unless(self, version: str) -> bytes:
        """Return the snapshot, compressed by gzip, unless its version is this one: then b""."""
        self._cache.newcomers.asked_at = self._pace.clock.monotonic()
        async with self._turn:
            now = self._current_version()
            late = self._pace.clock.monotonic() >= self._taken + APART_SECONDS
            if now != self._version and (late or not self._body):
                self._taken = self._pace.clock.monotonic()
                self._body = await self._made(now)
                self._version = now
            return b"" if version == self._version else self._body

    def _rule_changed(self, change: Change[Any]) -> None:
        """Count a change of an object that rules are made of; most are of its status alone."""
        match change:
            case Modified(old, new) if _relevant_fields(old) == _relevant_fields(new):
                pass
            case _:
                self._rules += 1

    def _current_version(self) -> str:
        cache = self._cache
        budgets = budget_rules(cache)
        if budgets != self._budgets:
            self._budgets, self._rules = budgets, self._rules + 1
        changes = cache.state.revision, self._rules, cache.newcomers.version
        return "-".join((self._instance, *map(str, changes)))

    async def _made(self, version: str) -> bytes:
        now, state = self._pace.clock.now(), self._cache.state
        picture = Picture(
            now,
            state.revision,
            version=version,
            rules=rules_of(self._cache),
            newcomers=self._cache.newcomers.current(state, now=now),
        )
        taken = await in_steps(self._pace, self._pictures.take(picture, ()))
        work = write(taken, PLAIN, other_teams=self._cache.other_teams)
        plain = await in_steps(self._pace, work)
        return await asyncio.to_thread(gzip.compress, plain, LEVEL)


def _relevant_fields(obj: Any) -> tuple[object, ...]:  # noqa: ANN401 - of any kind
    """Return the parts of an object that users write: without its status and metadata."""
    written = [name for name in obj.__struct_fields__ if name not in {"metadata", "status"}]
    return obj.metadata.deletion_timestamp, *(getattr(obj, name) for name in written)


class _Jobs:
    """What is known of workloads."""

    def __init__(self, cache: Cache) -> None:
        self._cache, self._workloads = cache, cache.mirrors.workloads
        self._gates = cache.state.settings.gates

    def start(self, key: str) -> StartRow | None:
        """Return when a workload is forecast to start; None if there is no forecast yet."""
        return self._cache.starts.get(key)

    def job(self, key: str) -> str:
        """Return `Kind/name` of the job that a workload stands for; "" if it stands for itself."""
        workload = self._workloads.get(key)
        return "" if workload is None else job_of(workload)

    def condition(self, key: str) -> SnapshotReason:
        """Return why a workload is pending, as its condition says it."""
        workload = self._workloads.get(key)
        conditions = () if workload is None else workload.status.conditions
        found = find_condition(conditions, QUOTA_RESERVED)
        if found is None or found.status == "True":
            return SnapshotReason(type="")
        return SnapshotReason(type=found.reason, message=found.message)

    def origin(self, key: str) -> Origin:
        """Return where a workload and its priority are from."""
        workload = self._workloads.get(key)
        if workload is None:
            return Origin()
        class_ = workload.spec.priority_class_ref
        _, _, boost = priority_parts(workload, self._gates)
        named = "" if class_ is None else f"{class_.kind}/{class_.name}"
        return Origin(owner_of(workload), named, boost)
