"""Changes of queues, and of the objects that they name, applied to the cache."""

from contextlib import suppress

import structlog

from policyd.api.gpus import asks_for_part
from policyd.api.kueue import (
    AdmissionCheck,
    ClusterQueue,
    Cohort,
    LocalQueue,
    ResourceFlavor,
    Topology,
    WorkloadPriorityClass,
)
from policyd.api.kueue.names import ACTIVE
from policyd.api.limit_ranges import LimitRange
from policyd.api.meta import condition_true
from policyd.api.quantity import QuantityError, parse_quantity
from policyd.controller.watch.cache import Cache
from policyd.controller.watch.keys import owner_keys, workload_key
from policyd.controller.watch.mirrors import RuntimeClass
from policyd.errors import PolicydError
from policyd.kube.changes import Added, Change, Deleted, Modified
from policyd.kube.client import PartialObject
from policyd.workload.conversion import (
    check_names,
    cohort_spec,
    flavor_spec,
    queue_spec,
    sharing_flavors,
    weight_of,
)

log = structlog.get_logger()


class QueueChanges:
    """Follows queues, cohorts, flavors, checks, namespaces and priority classes."""

    def __init__(self, cache: Cache) -> None:
        self._cache = cache
        mirrors = self._mirrors = cache.mirrors
        mirrors.cluster_queues.listen(self._cluster_queue_changed)
        mirrors.local_queues.listen(self._local_queue_changed)
        mirrors.cohorts.listen(self._cohort_changed)
        mirrors.flavors.listen(self._flavor_changed)
        mirrors.topologies.listen(self._topology_changed)
        mirrors.checks.listen(self._check_changed)
        mirrors.namespaces.listen(self._namespace_changed)
        mirrors.priorities.listen(self._priority_changed)
        mirrors.limit_ranges.listen(self._limits_changed)
        mirrors.runtime_classes.listen(self._runtime_changed)

    def _cluster_queue_changed(self, change: Change[ClusterQueue]) -> None:
        name = change.object.metadata.name
        match change:
            case Modified(old, new) if _relevant_fields(old) == _relevant_fields(new):
                pass  # we write its status after each decision: no cycle need follow
            case Added() | Modified() | Deleted():
                self._put_queue(name)
                self._touch_queue(name)
        if not isinstance(change, Deleted):
            self._cache.hooks.report(name)

    def _put_queue(self, name: str) -> None:
        queue = self._mirrors.cluster_queues.get(name)
        if queue is None:
            self._cache.state.remove_queue(name)
        else:
            checks = {check.metadata.name: check for check in self._mirrors.checks}
            try:
                self._cache.state.put_queue(queue_spec(queue, checks))
            except PolicydError as error:
                log.warning("cluster_queue_unusable", cluster_queue=name, error=str(error))
                self._cache.state.remove_queue(name)
        self._cache.hooks.schedule()

    def _touch_queue(self, name: str) -> None:
        """Look again at everything that is submitted to a ClusterQueue."""
        for local_queue in self._mirrors.local_queues:
            if local_queue.spec.cluster_queue == name:
                self._cache.touch_local_queue(local_queue.metadata.key)

    def _local_queue_changed(self, change: Change[LocalQueue]) -> None:
        key, report = change.object.metadata.key, self._cache.hooks.report
        match change:
            case Modified(old, new) if old.spec == new.spec and _deleted(old) == _deleted(new):
                report(key)
                return
            case Added(new) | Modified(object=new):
                self._weigh(key, new)
            case Deleted():
                self._forget_weight(key)
        self._cache.touch_local_queue(key)
        if isinstance(change, Modified):
            report(change.old.spec.cluster_queue)
        report(change.object.spec.cluster_queue)

    def _forget_weight(self, key: str) -> None:
        self._cache.state.local_weights[key] = 1.0
        if self._cache.state.history is not None:
            self._cache.state.history.remove_queue(key)

    def _weigh(self, key: str, queue: LocalQueue) -> None:
        """Give the history a LocalQueue's weight, and its usage before this process."""
        weight, history = weight_of(queue.spec.fair_sharing), self._cache.state.history
        self._cache.state.local_weights[key] = weight
        if history is None:
            return
        history.put_queue(key, weight)
        sharing = queue.status.fair_sharing
        past = None if sharing is None else sharing.admission_fair_sharing_status
        if past is not None and past.last_update is not None:
            with suppress(QuantityError):  # it begins anew
                consumed = {n: parse_quantity(q).nano for n, q in past.consumed_resources.items()}
                history.seed(key, consumed, self._cache.now)

    def _cohort_changed(self, change: Change[Cohort]) -> None:
        match change:
            case Modified(old, new) if old.spec == new.spec:
                return
            case Added(new) | Modified(object=new):
                self._put_cohort(new)
            case Deleted(old):
                self._cache.state.remove_cohort(old.metadata.name)
        self._report_all()

    def _put_cohort(self, cohort: Cohort) -> None:
        name = cohort.metadata.name
        try:
            self._cache.state.put_cohort(cohort_spec(cohort))
        except QuantityError as error:
            log.warning("cohort_unusable", cohort=name, error=str(error))
            self._cache.state.remove_cohort(name)

    def _flavor_changed(self, change: Change[ResourceFlavor]) -> None:
        match change:
            case Added(new) | Modified(object=new):
                self._put_flavor(new)
                self._retry_starts(new.metadata.name)
                old = change.old if isinstance(change, Modified) else None
                if sharing_flavors([new]) != sharing_flavors([old] if old else []):
                    self._sharing_changed()
            case Deleted(old):
                self._cache.state.remove_flavor(old.metadata.name)
                if sharing_flavors([old]):
                    self._sharing_changed()
        self._report_all()

    def _sharing_changed(self) -> None:
        """Compute anew what parts of GPUs are of a device."""
        for workload in self._mirrors.workloads:
            templates = (each.template for each in workload.spec.pod_sets)
            if any(asks_for_part(each.metadata.annotations) for each in templates):
                self._cache.look_again(workload)

    def _put_flavor(self, flavor: ResourceFlavor) -> None:
        name = flavor.spec.topology_name
        topology = self._mirrors.topologies.get(name) if name else None
        self._cache.state.put_flavor(flavor_spec(flavor, topology))

    def _topology_changed(self, change: Change[Topology]) -> None:
        for flavor in self._mirrors.flavors:
            if flavor.spec.topology_name == change.object.metadata.name:
                self._put_flavor(flavor)
        self._report_all()

    def _retry_starts(self, flavor: str) -> None:
        """Look again at jobs that could not start while this flavor was missing."""
        for workload in self._mirrors.workloads:
            admission = workload.status.admission
            assignments = () if admission is None else admission.pod_set_assignments
            if any(flavor in each.flavors.values() for each in assignments):
                for key in owner_keys(workload):
                    self._cache.hooks.reconcile(key)

    def _check_changed(self, change: Change[AdmissionCheck]) -> None:
        for queue in self.with_check(change.object.metadata.name):
            self._put_queue(queue)
            self._touch_queue(queue)
            self._cache.hooks.report(queue)

    def with_check(self, name: str) -> list[str]:
        """Return the ClusterQueues whose workloads must pass an admission check."""
        queues = self._mirrors.cluster_queues
        return [queue.metadata.name for queue in queues if name in check_names(queue)]

    def _namespace_changed(self, change: Change[PartialObject]) -> None:
        match change:
            case Modified(old, new) if old.metadata.labels == new.metadata.labels:
                pass
            case Added() | Modified() | Deleted():
                self._touch_namespace(change.object.metadata.name)

    def _limits_changed(self, change: Change[LimitRange]) -> None:
        """Compute the requests of the workloads of a namespace again."""
        self._touch_namespace(change.object.metadata.namespace)

    def _touch_namespace(self, namespace: str) -> None:
        for key in self._cache.index.local_queues(namespace):
            self._cache.touch_local_queue(key)

    def _runtime_changed(self, change: Change[RuntimeClass]) -> None:
        name = change.object.metadata.name
        for workload in self._mirrors.workloads:
            specs = (pod_set.template.spec for pod_set in workload.spec.pod_sets)
            if any(spec.runtime_class_name == name for spec in specs):
                self._cache.put(workload)

    def _priority_changed(self, change: Change[WorkloadPriorityClass]) -> None:
        name = change.object.metadata.name
        for workload in self._mirrors.workloads:
            reference = workload.spec.priority_class_ref
            if reference is not None and reference.name == name:
                self._cache.hooks.reconcile(workload_key(workload))

    def _report_all(self) -> None:
        self._cache.hooks.schedule()
        for queue in self._mirrors.cluster_queues:
            self._cache.hooks.report(queue.metadata.name)


def _relevant_fields(queue: ClusterQueue) -> tuple[object, ...]:
    # By the condition, workloads learn of changes of cohorts, flavors and topologies, too.
    active = condition_true(queue.status.conditions, ACTIVE)
    return queue.spec, queue.metadata.annotations, _deleted(queue), active


def _deleted(queue: ClusterQueue | LocalQueue) -> bool:
    return queue.metadata.deletion_timestamp is not None
