"""What is measured of a run, from the events of workloads and queues in their order."""

import re
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from policyd.api.quantity import parse_quantity
from policyd.kube.changes import Added, Change, Deleted, Modified
from tests.bench_cluster.loads import BORROWING, CLASS_LABEL, NOMINAL, Load, queue_names
from tests.bench_cluster.wire import ClusterQueue, Workload


@dataclass
class Ledger:
    """The quota that is held, added up from what workloads say; the most of each is kept.

    The events of a watch come in the order of the writes, so this is the history that the API
    server has: at no moment may queues or cohorts hold more than they may.
    """

    cohort_of: Mapping[str, str]
    sizes: Mapping[str, int]
    """CPUs of a workload, by class."""
    held: Counter[str] = field(default_factory=Counter)
    most: Counter[str] = field(default_factory=Counter)

    def change(self, change: Change[Workload]) -> None:
        """Take notice of a change of a workload."""
        match change:
            case Modified(old, new):
                self._add(old, -1)
                self._add(new, 1)
            case Added(new):
                self._add(new, 1)
            case Deleted(old):
                self._add(old, -1)

    def exceeded(self, load: Load) -> list[str]:
        """Return which queues and cohorts held more than they may at some moment."""
        shared = load.queues * NOMINAL
        allowed = {name: min(shared, NOMINAL + BORROWING) for name in self.cohort_of}
        allowed |= dict.fromkeys(self.cohort_of.values(), shared)
        return [f"{name}: {cpus} CPUs" for name, cpus in self.most.items() if cpus > allowed[name]]

    def _add(self, workload: Workload, step: int) -> None:
        if not _holds_quota(workload):
            return
        queue = workload.spec.queue_name
        cpus = self.sizes[workload.metadata.labels[CLASS_LABEL].partition("-")[0]]
        for name in (queue, self.cohort_of[queue]):
            self.held[name] += step * cpus
            self.most[name] = max(self.most[name], self.held[name])


def _holds_quota(workload: Workload) -> bool:
    return workload.holds("QuotaReserved") and not workload.holds("Finished")


def ledger_of(load: Load) -> Ledger:
    """Return an empty ledger for a load."""
    sizes = {kind.name: kind.pods * kind.milli_cpu // 1000 for kind in load.classes}
    return Ledger(dict(queue_names(load)), sizes)


@dataclass
class Usage:
    """What queues say that they use, integrated over time."""

    core_seconds: Counter[str] = field(default_factory=Counter)
    first: dict[str, float] = field(default_factory=dict)
    last: dict[str, tuple[float, float]] = field(default_factory=dict)

    def change(self, queue: ClusterQueue, now: float) -> None:
        """Take notice of a queue's status, seen at a moment in seconds."""
        name = queue.metadata.name
        since, cpus = self.last.get(name, (now, 0.0))
        self.core_seconds[name] += cpus * (now - since)
        self.first.setdefault(name, now)
        self.last[name] = (now, _used(queue))

    def share(self) -> float:
        """Return what was used of the nominal quota between the first and the last event."""
        spans = {name: self.last[name][0] - first for name, first in self.first.items()}
        offered = NOMINAL * sum(spans.values())
        return sum(self.core_seconds.values()) / offered if offered else 0.0


def _used(queue: ClusterQueue) -> float:
    amounts = (r.total for flavor in queue.status.flavors_usage for r in flavor.resources)
    return sum(parse_quantity(str(amount)).milli() / 1e3 for amount in amounts)


@dataclass
class Times:
    """When workloads were admitted, by class."""

    to_admission: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))

    def admitted(self, workload: Workload) -> None:
        """Take notice of a workload that is over."""
        began, since = workload.metadata.creation_timestamp, workload.since("Admitted")
        if began is not None and since is not None:
            waited = (since - began).total_seconds()
            self.to_admission[workload.metadata.labels[CLASS_LABEL]].append(waited)

    def means(self) -> dict[str, float]:
        """Return the mean seconds to admission of each class."""
        return {name: statistics.fmean(found) for name, found in sorted(self.to_admission.items())}


AGAIN_SECONDS = 60
"""A preemptor that is evicted sooner has not gained by what it took."""

_PREEMPTOR = re.compile(r"\(UID: ([^,()]+),")


@dataclass
class Losses:
    """What preemptions cost, and whether they were of use.

    Work is CPUs times the seconds that a workload ran; what an evicted one did until then is lost.
    """

    sizes: Mapping[str, int]
    """CPUs of a workload, by class."""
    lost: Counter[str] = field(default_factory=Counter)
    done: Counter[str] = field(default_factory=Counter)
    times: Counter[str] = field(default_factory=Counter)
    """How often each workload was evicted, by uid."""
    rights: Counter[str] = field(default_factory=Counter)
    preempted_at: dict[str, float] = field(default_factory=dict)
    """When each preemptor got its last victim, by uid."""
    in_vain: set[str] = field(default_factory=set)
    """Preemptors that were evicted themselves within `AGAIN_SECONDS`."""
    undone: list[float] = field(default_factory=list)
    """What those lost whose preemptors waited already when they were admitted."""
    began: dict[str, float] = field(default_factory=dict)
    came: dict[str, float] = field(default_factory=dict)

    def change(self, change: Change[Workload], now: float) -> None:
        """Take notice of a change of a workload, seen at a moment in seconds."""
        if isinstance(change, Deleted):
            return
        old, new = change.old if isinstance(change, Modified) else None, change.object
        uid, kind = new.metadata.uid, new.metadata.labels[CLASS_LABEL]
        self.comes(uid, now)
        if new.holds("Evicted"):
            if old is None or not old.holds("Evicted"):
                self.evicted(uid, kind, now, by=_rights(new))
        elif new.holds("Finished"):
            self.finished(uid, kind, now)
        elif new.holds("Admitted"):
            self.admitted(uid, now)

    def comes(self, uid: str, now: float) -> None:
        """Note a workload that may be known already."""
        self.came.setdefault(uid, now)

    def admitted(self, uid: str, now: float) -> None:
        """Note that a workload runs, if it does not yet."""
        self.began.setdefault(uid, now)

    def finished(self, uid: str, kind: str, now: float) -> None:
        """Note the end of a workload of a class."""
        self._ends(uid, kind, self.done, now)

    def figures(self) -> dict[str, Any]:
        """Return all that is reported."""
        return {
            "evictions": sum(self.times.values()),
            "rights": dict(self.rights),
            "lost": dict(self.lost),
            "done": sum(self.done.values()),
            "share": sum(self.lost.values()) / (sum(self.done.values()) or 1),
            "undone": {"count": len(self.undone), "lost": sum(self.undone)},
            "repeated": sum(count > 1 for count in self.times.values()),
            "in_vain": len(self.in_vain),
        }

    def evicted(
        self, uid: str, kind: str, now: float, *, by: Iterable[tuple[str, str]] = ()
    ) -> None:
        """Note that a workload of a class is stopped.

        Args:
            uid: The workload's.
            kind: Its class.
            now: In seconds.
            by: By which right, and the uid of the workload for which it is preempted.
        """
        began, work = self.began.get(uid, now), self._ends(uid, kind, self.lost, now)
        self.times[uid] += 1
        if now - self.preempted_at.get(uid, -AGAIN_SECONDS) < AGAIN_SECONDS:
            self.in_vain.add(uid)
        for right, preemptor in by:
            self.rights[right] += 1
            if preemptor:
                self.preempted_at[preemptor] = now
                if self.came.get(preemptor, now) < began:
                    self.undone.append(work)

    def _ends(self, uid: str, kind: str, works: Counter[str], now: float) -> float:
        """Count what a run has done; return it."""
        began = self.began.pop(uid, now)
        work = self.sizes[kind.partition("-")[0]] * (now - began)
        works[kind] += work
        return work


def _rights(workload: Workload) -> Iterator[tuple[str, str]]:
    """Yield by which right a workload is preempted, and the uid of its preemptor."""
    for condition in workload.status.conditions:
        if condition.type == "Preempted" and condition.status == "True":
            found = _PREEMPTOR.search(condition.message)
            yield condition.reason, "" if found is None else found[1]
