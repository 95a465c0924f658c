"""What forecasts learn from: workloads that come, get quota, and end."""

from collections import deque
from collections.abc import Generator
from typing import Final

from msgspec.structs import replace

from policyd.alloc.workload import QueuedPodSet, QueuedWorkload, ReservedQuota
from policyd.api.kueue import Workload
from policyd.api.kueue.names import FINISHED, QUOTA_RESERVED
from policyd.api.meta import find_condition
from policyd.controller.watch.cache import Cache
from policyd.forecast.arrivals import PastArrival
from policyd.forecast.memory import nameless
from policyd.forecast.run_times import JobTraits, stem_of
from policyd.forecast.starts import Forecaster, KnownJob, size_class_of
from policyd.jobs.base import controller_of
from policyd.jobs.kinds.registry import kind_of_owner
from policyd.jobs.lifecycle import has_quota, is_finished
from policyd.kube.changes import Added, Change, Deleted, Modified

MOST_KNOWN: Final = 2_000
"""Traits and workloads that are kept once for all jobs that have them."""
MOST_CAME: Final = 20_000
"""Workloads that came since the last forecasts; of more, the latest are kept."""


class Learning:
    """Tells a forecaster what happens to workloads."""

    def __init__(self, cache: Cache, forecaster: Forecaster, *, names: bool) -> None:
        """Begin; without `names`, neither owners nor names of jobs are remembered."""
        self._cache, self._forecaster, self._names = cache, forecaster, names
        self._came: deque[tuple[float, Workload]] = deque(maxlen=MOST_CAME)
        self._running: dict[str, JobTraits] = {}
        self._traits_known: dict[JobTraits, JobTraits] = {}
        self._workloads_known: dict[JobTraits, QueuedWorkload] = {}
        self.count = 0
        """How much was learnt."""

    def changed(self, change: Change[Workload]) -> None:
        """Learn from a change."""
        workload = change.object
        match change:
            case Added():
                self._came.append((_created(workload), workload))
            case Modified(old, new):
                self._modified(old, new)
            case Deleted():
                if _runs(workload):
                    self._ended(workload, self._cache.now, ended=True)
                self._forecaster.correction.forget(workload.metadata.key)
        if isinstance(change, Deleted) or not _runs(workload):
            self._running.pop(workload.metadata.key, None)

    def _modified(self, old: Workload, new: Workload) -> None:
        if has_quota(new) and not has_quota(old):
            self._started(new)
        elif is_finished(new) and _runs(old):
            self._ended(new if has_quota(new) else old, _since(new, FINISHED), ended=True)
        elif _runs(old) and not has_quota(new):
            self._ended(old, self._cache.now, ended=False)

    def catch_up(self, workload: Workload, *, since: float) -> None:
        """Learn from a workload that was there at the start.

        Args:
            workload: The workload.
            since: Up to when all is known, in seconds; 0 if nothing is.
        """
        if since and _created(workload) > since:
            self._came.append((_created(workload), workload))
        if is_finished(workload) and (at := _since(workload, FINISHED)) and at > since:
            self._ended(workload, at, ended=True)
            self._running.pop(workload.metadata.key, None)

    def gather(self) -> Generator[None, None, None]:
        """Learn from workloads that came since the last time, in the order of time."""
        came, self._came = sorted(self._came, key=lambda each: each[0]), deque(maxlen=MOST_CAME)
        for at, workload in came:
            value = self._cache.as_pending(workload)
            if value is not None and value.cluster_queue and value.objection is None:
                job = self.known(value, workload)
                kept = replace(job.workload, key="", uid="", local_queue="", queued_at=0.0)
                past = PastArrival(
                    at=at, workload=self._shared(kept, job.traits), traits=job.traits
                )
                self._forecaster.arrivals.observe(past)
                self.count += 1
            yield

    def _started(self, workload: Workload) -> None:
        at = _since(workload, QUOTA_RESERVED) or self._cache.now
        self._forecaster.correction.started(workload.metadata.key, at=at)
        self.count += 1

    def _ended(self, workload: Workload, at: float | None, *, ended: bool) -> None:
        since = _since(workload, QUOTA_RESERVED)
        traits = self._traits_of(workload)
        if at is not None and since is not None and traits is not None and at >= since:
            self._forecaster.run_times.observe(traits, at - since, at=at, ended=ended)
            if ended:
                self._forecaster.recent.observe(traits, at - since, queued_at=_created(workload))
            self.count += 1

    def _traits_of(self, workload: Workload) -> JobTraits | None:
        """Return the traits of a workload with quota, by what it requested before it had that."""
        key = workload.metadata.key
        found = self._running.get(key)
        if found is None:
            value = self._cache.as_pending(workload)
            if value is None:
                return None
            found = self._running[key] = self._traits(value, workload)
        return found

    def _traits(self, value: QueuedWorkload, workload: Workload) -> JobTraits:
        owner = controller_of(workload.metadata)
        traits = JobTraits(
            queue=value.cluster_queue,
            owner=workload.metadata.namespace,
            stem=stem_of(workload.metadata.name if owner is None else owner.name),
            shape=",".join(f"{name}={n}" for name, n in sorted(_totals(value).items()) if n),
        )
        if not self._names:
            traits = nameless(traits)
        if len(self._traits_known) >= MOST_KNOWN:
            self._traits_known.clear()
        return self._traits_known.setdefault(traits, traits)

    def _shared(self, workload: QueuedWorkload, traits: JobTraits) -> QueuedWorkload:
        """Return a workload, or the equal one before it: most jobs are like an earlier one."""
        alike = self._workloads_known.get(traits)
        if alike == workload:
            return alike
        if len(self._workloads_known) >= MOST_KNOWN:
            self._workloads_known.clear()
        self._workloads_known[traits] = workload
        return workload

    def known(self, value: QueuedWorkload, workload: Workload | None) -> KnownJob:
        """Return a pending workload with what is known of its job."""
        if workload is None:
            return KnownJob(workload=value, traits=JobTraits(queue=value.cluster_queue))
        limit = self._limit(workload) if value.run_seconds is None else value.run_seconds
        if limit != value.run_seconds:
            value = replace(value, run_seconds=limit)
        return KnownJob(
            workload=value, traits=self._traits(value, workload), size_class=_size_class(value)
        )

    def running(self, value: QueuedWorkload, admission: ReservedQuota) -> KnownJob:
        """Return a workload that has quota with what is known of its job."""
        workload = self._cache.mirrors.workloads.get(value.key)
        traits = None if workload is None else self._traits_of(workload)
        limit = value.run_seconds
        if limit is None and workload is not None:
            limit = self._limit(workload)
        pod_sets = value.pod_sets or tuple(
            QueuedPodSet(
                name=each.name,
                count=max(1, each.count),
                requests={name: n // max(1, each.count) for name, n in each.usage.items()},
            )
            for each in admission.pod_sets
        )
        return KnownJob(
            workload=replace(value, admission=admission, pod_sets=pod_sets, run_seconds=limit),
            traits=traits or JobTraits(queue=value.cluster_queue),
        )

    def _limit(self, workload: Workload) -> float | None:
        """Return how long the job of a workload may run by its own fields; None if for ever."""
        owner = controller_of(workload.metadata)
        if any(each.kind == "Pod" for each in workload.metadata.owner_references):
            return self._limit_of_pods(workload)
        kind = None if owner is None else kind_of_owner(owner)
        mirror = None if kind is None else self._cache.mirrors.jobs.get(kind.kind)
        if owner is None or kind is None or mirror is None:
            return None
        job = mirror.get(f"{workload.metadata.namespace}/{owner.name}")
        return kind.limit(job) if isinstance(job, kind.type) else None

    def _limit_of_pods(self, workload: Workload) -> float | None:
        """Return how long pods may run that queue together; None if one of them may for ever."""
        space, pods = workload.metadata.namespace, self._cache.mirrors.pods
        found = [pods.get(f"{space}/{each.name}") for each in workload.metadata.owner_references]
        limits = [each.spec.active_deadline_seconds for each in found if each is not None]
        known = [each for each in limits if each is not None]
        total = sum(each.count for each in workload.spec.pod_sets)
        return max(known) if known and len(known) == len(found) >= total else None


def _runs(workload: Workload) -> bool:
    return has_quota(workload) and not is_finished(workload)


def _totals(value: QueuedWorkload) -> dict[str, int]:
    found: dict[str, int] = {}
    for pod_set in value.pod_sets:
        for name, amount in pod_set.totals().items():
            found[name] = found.get(name, 0) + amount
    return found


def _size_class(value: QueuedWorkload) -> str:
    return size_class_of(sum(n for name, n in _totals(value).items() if "/" in name))


def _created(workload: Workload) -> float:
    created = workload.metadata.creation_timestamp
    return 0.0 if created is None else created.timestamp()


def _since(workload: Workload, kind: str) -> float | None:
    found = find_condition(workload.status.conditions, kind)
    since = None if found is None else found.last_transition_time
    return None if since is None else since.timestamp()
