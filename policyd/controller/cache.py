"""The cluster as the queue sees it: mirrors of the API's objects, and the allocator's state.

Whatever changes in a mirror is converted once and put into the state, and whoever must look at it
is told: the reconcilers by keys, the scheduling loop and the writer of queue statuses by a call.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

import msgspec
import structlog

from policyd.alloc.state import State
from policyd.alloc.workload import Objection
from policyd.alloc.workload import Workload as Value
from policyd.api.kueue import (
    AdmissionCheck,
    ClusterQueue,
    Cohort,
    LocalQueue,
    ResourceFlavor,
    Workload,
    WorkloadPriorityClass,
)
from policyd.api.kueue.names import ADMISSION_GATED_BY, QUOTA_RESERVED
from policyd.api.meta import ObjectMeta, condition_true, find_condition
from policyd.api.quantity import QuantityError
from policyd.controller.conversion import (
    NAMESPACE_MISMATCH,
    check_names,
    cohort_spec,
    flavor_spec,
    queue_spec,
    workload_value,
)
from policyd.controller.keys import Key, owner_keys, pod_key, workload_key
from policyd.controller.mirrors import Mirrors, Namespace
from policyd.jobs.base import JobObject, queue_name
from policyd.jobs.lifecycle import has_quota, is_finished
from policyd.jobs.pods import Pod
from policyd.kube.pace import Pace

log = structlog.get_logger()

WAITING_FOR_REPLACEMENT = "WaitingForReplacementPods"
ON_HOLD = "OnHold"
K = TypeVar("K")


class Described(Protocol):
    """An object with metadata."""

    @property
    def metadata(self) -> ObjectMeta:
        """Name, namespace, uid and the like."""
        ...


@dataclass(slots=True)
class Ears:
    """Whom to tell of a change."""

    reconcile: Callable[[Key], None] = lambda _key: None
    """Something about this object may have to be done."""
    schedule: Callable[[], None] = lambda: None
    """The state changed: another cycle may decide otherwise."""
    report: Callable[[str], None] = lambda _name: None
    """The figures of this ClusterQueue changed; or, as `namespace/name`, of this LocalQueue."""


@dataclass(slots=True)
class Indexes:
    """Who belongs to whom, by keys."""

    by_local_queue: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    by_owner: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    by_group: dict[Key, set[str]] = field(default_factory=lambda: defaultdict(set))


class Cache:
    """Keeps the allocator's state equal to what the mirrors show."""

    def __init__(self, mirrors: Mirrors, *, pace: Pace) -> None:
        self.mirrors = mirrors
        self.state = State()
        self.ears = Ears()
        self._pace = pace
        self._index = Indexes()
        self._held_back: set[str] = set()
        mirrors.workloads.listen(self._workload_changed)
        mirrors.cluster_queues.listen(self._cluster_queue_changed)
        mirrors.local_queues.listen(self._local_queue_changed)
        mirrors.cohorts.listen(self._cohort_changed)
        mirrors.flavors.listen(self._flavor_changed)
        mirrors.checks.listen(self._check_changed)
        mirrors.namespaces.listen(self._namespace_changed)
        mirrors.priorities.listen(self._priority_changed)
        mirrors.pods.listen(self._pod_changed)
        for kind, jobs in mirrors.jobs.items():
            jobs.listen(self._job_listener(kind))

    # What is asked of it.

    def workloads_of(self, uid: str) -> list[Workload]:
        """Return the workloads that an object owns, by name."""
        found = (
            self.mirrors.workloads.get(key) for key in sorted(self._index.by_owner.get(uid, ()))
        )
        return [workload for workload in found if workload is not None]

    def pods_of(self, key: Key) -> list[Pod]:
        """Return the pods of a group, or the one pod, that a key names."""
        found = (self.mirrors.pods.get(name) for name in sorted(self._index.by_group.get(key, ())))
        return [pod for pod in found if pod is not None]

    def local_queue_of(self, workload: Workload) -> LocalQueue | None:
        """Return the LocalQueue that a workload is submitted to."""
        return self.mirrors.local_queues.get(local_queue_key(workload))

    def cluster_queue_of(self, workload: Workload) -> ClusterQueue | None:
        """Return the ClusterQueue behind the LocalQueue of a workload."""
        local_queue = self.local_queue_of(workload)
        if local_queue is None:
            return None
        return self.mirrors.cluster_queues.get(local_queue.spec.cluster_queue)

    def objection(self, workload: Workload) -> Objection | None:
        """Return why a workload cannot be considered; None if it can, or holds quota."""
        local_queue = self.local_queue_of(workload)
        if has_quota(workload) or local_queue is None:
            return None
        return self._value(workload, local_queue.spec.cluster_queue).objection

    def everything(self) -> Iterable[Key]:
        """Yield a key for all there is, as after a start."""
        for workload in self.mirrors.workloads:
            yield workload_key(workload)
        for kind, jobs in self.mirrors.jobs.items():
            for job in jobs:
                yield Key("Job", job.metadata.namespace, job.metadata.name, kind)
        yield from {pod_key(pod) for pod in self.mirrors.pods}

    def retract(self, key: str) -> None:
        """Take back an assumed admission, unless it has been written after all."""
        for queue in self.state.queues.values():
            holding = queue.holdings.get(key)
            if holding is not None and holding.assumed:
                self.state.retract(key)
                break
        workload = self.mirrors.workloads.get(key)
        if workload is None:
            self.state.remove_workload(key)
        else:
            self.put(workload)
        self.ears.schedule()

    def hold_back(self, key: str) -> None:
        """Do not let a workload be tried for now: its admission could not be written."""
        self._held_back.add(key)

    def let_try_again(self, key: str) -> None:
        """Let a workload be tried that was held back."""
        if key in self._held_back:
            self._held_back.discard(key)
            workload = self.mirrors.workloads.get(key)
            if workload is not None:
                self.put(workload)

    # What happens.

    def put(self, workload: Workload) -> None:
        """Put a workload into the state, or take it out, as it now is."""
        local_queue = self.local_queue_of(workload)
        name = "" if local_queue is None else local_queue.spec.cluster_queue
        reserved = has_quota(workload)
        if not self._counts(workload) or not (reserved or self._queues(workload, local_queue)):
            self.state.remove_workload(workload.metadata.key)
        else:
            self.state.put_workload(self._value(workload, name))
        self._tell_queues(workload)
        self.ears.schedule()

    def _value(self, workload: Workload, cluster_queue: str) -> Value:
        reserved = has_quota(workload)
        objection = None if reserved else self._objection(workload, cluster_queue)
        now = self._pace.clock.now()
        value = workload_value(workload, cluster_queue=cluster_queue, objection=objection, now=now)
        if value.key in self._held_back and not reserved:
            return msgspec.structs.replace(value, backing_off=True)
        return value

    def _counts(self, workload: Workload) -> bool:
        return workload.spec.active and not is_finished(workload)

    def _queues(self, workload: Workload, local_queue: LocalQueue | None) -> bool:
        """Tell whether a workload without quota may be considered at all."""
        if local_queue is None or local_queue.spec.stop_policy != "None":
            return False
        if workload.metadata.deletion_timestamp or local_queue.metadata.deletion_timestamp:
            return False
        conditions = workload.status.conditions
        reserved = find_condition(conditions, QUOTA_RESERVED)
        on_hold = reserved is not None and reserved.reason == ON_HOLD
        gated = bool(workload.metadata.annotations.get(ADMISSION_GATED_BY))
        return not (on_hold or gated or condition_true(conditions, WAITING_FOR_REPLACEMENT))

    def _objection(self, workload: Workload, cluster_queue: str) -> Objection | None:
        queue = self.mirrors.cluster_queues.get(cluster_queue)
        if queue is None:
            return None
        namespace = self.mirrors.namespaces.get(workload.metadata.namespace)
        labels = {} if namespace is None else namespace.metadata.labels
        selector = queue.spec.namespace_selector
        if selector is not None and selector.matches(labels):
            return None
        return Objection(reason="Misconfigured", message=NAMESPACE_MISMATCH, misplaced=True)

    def _tell_queues(self, workload: Workload) -> None:
        self.ears.report(local_queue_key(workload))
        local_queue = self.local_queue_of(workload)
        if local_queue is not None:
            self.ears.report(local_queue.spec.cluster_queue)
        if workload.status.admission is not None:
            self.ears.report(workload.status.admission.cluster_queue)

    def _workload_changed(self, old: Workload | None, new: Workload | None) -> None:
        if old is not None:
            self._unindex(old)
            self._tell_queues(old)
        if new is None:
            assert old is not None, "a change has an object before or after"
            keys = owner_keys(old)
            self.state.remove_workload(old.metadata.key)
            self.ears.schedule()
        else:
            self._index_workload(new)
            self.put(new)
            self.ears.reconcile(workload_key(new))
            keys = owner_keys(new)
        for key in keys:
            self.ears.reconcile(key)

    def _index_workload(self, workload: Workload) -> None:
        key = workload.metadata.key
        self._index.by_local_queue[local_queue_key(workload)].add(key)
        for owner in workload.metadata.owner_references:
            self._index.by_owner[owner.uid].add(key)

    def _unindex(self, workload: Workload) -> None:
        key = workload.metadata.key
        _discard(self._index.by_local_queue, local_queue_key(workload), key)
        for owner in workload.metadata.owner_references:
            _discard(self._index.by_owner, owner.uid, key)

    def _cluster_queue_changed(self, old: ClusterQueue | None, new: ClusterQueue | None) -> None:
        name = _name(old, new)
        self._put_queue(name)
        if old is None or new is None or old.spec != new.spec or _deleted(old) != _deleted(new):
            self._touch_queue(name)
        if new is not None:
            self.ears.report(name)

    def _put_queue(self, name: str) -> None:
        queue = self.mirrors.cluster_queues.get(name)
        if queue is None:
            self.state.remove_queue(name)
        else:
            checks = {check.metadata.name: check for check in self.mirrors.checks}
            try:
                self.state.put_queue(queue_spec(queue, checks))
            except QuantityError as error:
                log.warning("cluster_queue_unusable", cluster_queue=name, error=str(error))
                self.state.remove_queue(name)
        self.ears.schedule()

    def _touch_queue(self, name: str) -> None:
        """Look again at everything that is submitted to a ClusterQueue."""
        for local_queue in self.mirrors.local_queues:
            if local_queue.spec.cluster_queue == name:
                self._touch_local_queue(local_queue.metadata.key)

    def _touch_local_queue(self, key: str) -> None:
        self.ears.report(key)
        for name in tuple(self._index.by_local_queue.get(key, ())):
            workload = self.mirrors.workloads.get(name)
            if workload is not None:
                self.put(workload)
                self.ears.reconcile(workload_key(workload))

    def _local_queue_changed(self, old: LocalQueue | None, new: LocalQueue | None) -> None:
        if old is None or new is None or old.spec != new.spec or _deleted(old) != _deleted(new):
            self._touch_local_queue(_name(old, new))
            for each in (old, new):
                if each is not None:
                    self.ears.report(each.spec.cluster_queue)
        self.ears.report(_name(old, new))

    def _cohort_changed(self, old: Cohort | None, new: Cohort | None) -> None:
        try:
            spec = None if new is None else cohort_spec(new)
        except QuantityError as error:
            log.warning("cohort_unusable", cohort=_name(old, new), error=str(error))
            spec = None
        if spec is None:
            self.state.remove_cohort(_name(old, new))
        else:
            self.state.put_cohort(spec)
        self._report_all()

    def _flavor_changed(self, old: ResourceFlavor | None, new: ResourceFlavor | None) -> None:
        if new is None:
            self.state.remove_flavor(_name(old, new))
        else:
            self.state.put_flavor(flavor_spec(new))
            self._retry_starts(new.metadata.name)
        self._report_all()

    def _retry_starts(self, flavor: str) -> None:
        """Look again at jobs that could not start while this flavor was missing."""
        for workload in self.mirrors.workloads:
            admission = workload.status.admission
            assignments = () if admission is None else admission.pod_set_assignments
            if any(flavor in each.flavors.values() for each in assignments):
                for key in owner_keys(workload):
                    self.ears.reconcile(key)

    def _check_changed(self, old: AdmissionCheck | None, new: AdmissionCheck | None) -> None:
        name = _name(old, new)
        for queue in self.mirrors.cluster_queues:
            if name in check_names(queue):
                self._put_queue(queue.metadata.name)
                self._touch_queue(queue.metadata.name)
                self.ears.report(queue.metadata.name)

    def _namespace_changed(self, old: Namespace | None, new: Namespace | None) -> None:
        if old is not None and new is not None and old.metadata.labels == new.metadata.labels:
            return
        prefix = f"{_name(old, new)}/"
        for key in [key for key in self._index.by_local_queue if key.startswith(prefix)]:
            self._touch_local_queue(key)

    def _priority_changed(
        self, old: WorkloadPriorityClass | None, new: WorkloadPriorityClass | None
    ) -> None:
        name = _name(old, new)
        for workload in self.mirrors.workloads:
            reference = workload.spec.priority_class_ref
            if reference is not None and reference.name == name:
                for key in owner_keys(workload):
                    self.ears.reconcile(key)

    def _pod_changed(self, old: Pod | None, new: Pod | None) -> None:
        if old is not None:
            _discard(self._index.by_group, pod_key(old), old.metadata.key)
            self.ears.reconcile(pod_key(old))
        if new is not None:
            self._index.by_group[pod_key(new)].add(new.metadata.key)
            self.ears.reconcile(pod_key(new))
        else:
            self._orphan(old)

    def _job_listener(self, kind: str) -> Callable[[JobObject | None, JobObject | None], None]:
        def changed(old: JobObject | None, new: JobObject | None) -> None:
            metadata = _present(old, new).metadata
            queued = any(each and queue_name(each.metadata) for each in (old, new))
            if queued or self._index.by_owner.get(metadata.uid):
                self.ears.reconcile(Key("Job", metadata.namespace, metadata.name, kind))
            if new is None or new.metadata.deletion_timestamp is not None:
                self._orphan(new or old)

        return changed

    def _orphan(self, owner: JobObject | Pod | None) -> None:
        """Look at the workloads whose owner has gone."""
        if owner is not None:
            for workload in self.workloads_of(owner.metadata.uid):
                self.ears.reconcile(workload_key(workload))

    def _report_all(self) -> None:
        self.ears.schedule()
        for queue in self.mirrors.cluster_queues:
            self.ears.report(queue.metadata.name)


def local_queue_key(workload: Workload) -> str:
    """Return `namespace/name` of the LocalQueue that a workload is submitted to."""
    return f"{workload.metadata.namespace}/{workload.spec.queue_name}"


def _discard(index: dict[K, set[str]], key: K, member: str) -> None:
    members = index.get(key)
    if members is not None:
        members.discard(member)
        if not members:
            del index[key]


def _deleted(obj: Described) -> bool:
    return obj.metadata.deletion_timestamp is not None


def _present(old: Described | None, new: Described | None) -> Described:
    present = new or old
    assert present is not None, "a change has an object before or after"
    return present


def _name(old: Described | None, new: Described | None) -> str:
    return _present(old, new).metadata.key
