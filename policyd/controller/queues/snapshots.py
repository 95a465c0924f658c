"""Snapshots of the queues: taken on request, at most every two seconds, step by step.

Without requests, nothing is done. Cycles and writes run between the steps of a snapshot.
"""

import asyncio
import gzip
from collections.abc import Iterator
from contextlib import suppress
from math import inf
from typing import Any, Final

from msgspec.structs import replace

from policyd.alloc.queue import NO_EXTRAS, CohortQuotas, QueueSpec
from policyd.api.kueue import ClusterQueue, LocalQueue
from policyd.api.kueue.names import QUOTA_RESERVED
from policyd.api.meta import find_condition
from policyd.api.quantity import QuantityError
from policyd.controller.reasons.shortage import naming_in
from policyd.controller.watch.cache import Cache
from policyd.controller.watch.preemptions import priority_parts
from policyd.kube.changes import Change, Modified
from policyd.kube.pace import Pace
from policyd.kube.steps import Steps
from policyd.optimize.opt_ins import NO_OPT_INS, wants
from policyd.snapshot.budgets import state_of
from policyd.snapshot.rules import BudgetRule, ClusterQueueRule, LocalQueueRule, QueueRules
from policyd.snapshot.taking import FullSnapshot, QueueOfNamespace, SnapshotTaker
from policyd.snapshot.values import BudgetState, Origin, SnapshotReason, StartRow
from policyd.snapshot.writing import write
from policyd.status.naming import PLAIN
from policyd.workload.conversion import check_names, cohort_spec
from policyd.workload.records import job_of, owner_of

FRESH_SECONDS: Final = 2.0
"""For how long a full snapshot is used."""
MOST_READERS: Final = 64
"""Snapshots that are written from one and kept, each for readers of the same names and queues."""
MOST_LISTED: Final = 200
"""Pending workloads of each queue that the webhooks get rows of; of the others, counts."""
APART_SECONDS: Final = 0.5
"""Between two snapshots for the webhooks, at least."""
LEVEL: Final = 1
"""Of the compression: higher ones take longer than a network saves."""


class Snapshots:
    """Takes and keeps snapshots."""

    def __init__(self, cache: Cache, *, pace: Pace) -> None:
        self._cache = cache
        self._pace = pace
        self._taker = SnapshotTaker(cache.state, _Jobs(cache))
        self._full: FullSnapshot | None = None
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
            if self._full is None or self._pace.clock.monotonic() >= self._taken + FRESH_SECONDS:
                self._written.clear()
                self._full = None  # its room is free while the next is taken
                self._full = await self._take()
            full, naming = self._full, naming_in(self._cache, reader)
            trees = frozenset(full.trees.get(scope, ())) if scope else None
            same = trees, naming.others, "" if naming.all_named else reader
            body = self._written.get(same)
            if body is None:
                plain = await Steps(self._pace).run(write(full, naming, trees))
                body = await asyncio.to_thread(gzip.compress, plain, LEVEL)
                if len(self._written) >= MOST_READERS:
                    self._written.clear()
                self._written[same] = body
            return body

    async def _take(self) -> FullSnapshot:
        mirrors = self._cache.mirrors
        devices = self._cache.devices
        claimed = None if devices is None else await devices.on_nodes()
        version = mirrors.workloads.informer.version
        full = FullSnapshot(
            self._pace.clock.now(),
            self._cache.state.revision,
            str(version) if version else "",
            configuration=self._cache.configuration,
            budgets=budget_states(self._cache),
            claimed=claimed,
        )
        queues = [
            QueueOfNamespace(each.metadata.namespace, each.spec.cluster_queue, each.metadata.name)
            for each in mirrors.local_queues
        ]
        self._taken = self._pace.clock.monotonic()
        return await Steps(self._pace).run(self._taker.take(full, queues))


class AdmissionSnapshots:
    """Takes and keeps the snapshot for the webhooks, which ask for it all the time.

    Without a change, nothing is done. It has all names, and says how far users may know them.
    """

    def __init__(self, cache: Cache, *, pace: Pace) -> None:
        self._cache = cache
        self._pace = pace
        self._taker = SnapshotTaker(cache.state, _Jobs(cache), most=MOST_LISTED)
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
        self._cache.new_starts.asked_at = self._pace.clock.monotonic()
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
        changes = cache.state.revision, self._rules, cache.new_starts.version
        return "-".join((self._instance, *map(str, changes)))

    async def _made(self, version: str) -> bytes:
        now, state = self._pace.clock.now(), self._cache.state
        full = FullSnapshot(
            now,
            state.revision,
            version=version,
            rules=rules_of(self._cache),
            new_starts=self._cache.new_starts.current(state, now=now),
        )
        taken = await Steps(self._pace).run(self._taker.take(full, ()))
        work = write(taken, PLAIN, other_teams=self._cache.other_teams)
        plain = await Steps(self._pace).run(work)
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
        return "" if workload is None else job_of(workload.metadata)

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


def rules_of(cache: Cache) -> QueueRules:
    """Return the rules of a cluster, as the controller has them now."""
    mirrors, state = cache.mirrors, cache.state
    specs = ((queue.spec, mirrors.cluster_queues.get(name)) for name, queue in state.queues.items())
    defaults = [each for each in mirrors.priority_classes if each.global_default]
    lowest = min(defaults, key=lambda each: (each.value, each.metadata.name), default=None)
    limited = {each.metadata.namespace for each in mirrors.limit_ranges}
    rules = cache.request_rules("")
    return QueueRules(
        settings=state.settings,
        flavors=tuple(state.flavors.values()),
        cohorts=tuple(_cohorts(cache)),
        queues=tuple(_queue(spec, each) for spec, each in specs if spec and each),
        local_queues=tuple(map(_local_queue, mirrors.local_queues)),
        priorities={each.metadata.name: each.value for each in mirrors.priorities},
        pod_priorities={each.metadata.name: each.value for each in mirrors.priority_classes},
        default_priority="" if lowest is None else lowest.metadata.name,
        limits={name: cache.request_rules(name).limits for name in sorted(limited)},
        overheads=rules.overheads,
        resources=rules.resources,
        shared_gpus=rules.shared_gpus,
        bases=cache.new_starts.bases,
        budgets=budget_rules(cache),
    )


def budget_states(cache: Cache) -> dict[str, list[BudgetState]]:
    """Return how far budgets are used up, by ClusterQueue."""
    found: dict[str, list[BudgetState]] = {}
    for name, use in cache.budgets.items():
        local = cache.mirrors.local_queues.get(name) if "/" in name else None
        of = name if local is None else local.spec.cluster_queue
        found.setdefault(of, []).append(state_of(use))
    return found


def budget_rules(cache: Cache) -> tuple[BudgetRule, ...]:
    """Return the budgets that are used up, or nearly."""
    used = (each for each in cache.budgets.values() if each.message)
    return tuple(BudgetRule(each.queue, each.held, each.message) for each in used)


def _cohorts(cache: Cache) -> Iterator[CohortQuotas]:
    for cohort in cache.mirrors.cohorts:
        with suppress(QuantityError):  # the core does without it, too
            yield cohort_spec(cohort)


def _queue(spec: QueueSpec, queue: ClusterQueue) -> ClusterQueueRule:
    return ClusterQueueRule(
        spec=replace(spec, opt_ins=NO_EXTRAS),
        beyond=wants(spec) is not NO_OPT_INS,
        namespaces=queue.spec.namespace_selector,
        checks=check_names(queue),
    )


def _local_queue(queue: LocalQueue) -> LocalQueueRule:
    metadata = queue.metadata
    open_ = queue.spec.stop_policy == "None" and metadata.deletion_timestamp is None
    return LocalQueueRule(metadata.namespace, metadata.name, queue.spec.cluster_queue, open_)
