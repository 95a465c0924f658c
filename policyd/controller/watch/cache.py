"""The cluster as the queue sees it: mirrors of the API's objects, and the allocator's state.

An object that changes in a mirror is converted once and put into the state. The keys that have to
be reconciled because of it are queued, and the scheduling loop and the queue statuses are notified.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial

import msgspec
import structlog

from policyd.alloc.ledger import Holding
from policyd.alloc.plan import Admit, Preempt
from policyd.alloc.settings import DEFAULTS, QueueingSettings
from policyd.alloc.state import CoreState
from policyd.alloc.workload import Objection
from policyd.alloc.workload import QueuedWorkload as Value
from policyd.api.configuration.kinds import ResourcesConfiguration
from policyd.api.kueue import (
    AdmissionCheckState,
    ClusterQueue,
    LocalQueue,
    Workload,
    WorkloadStatus,
)
from policyd.api.kueue.names import (
    ADMISSION_GATED_BY,
    ADMITTED,
    EVICTED,
    WAITING_FOR_REPLACEMENT,
)
from policyd.api.limit_ranges import summarize
from policyd.api.meta import Json, ObjectMeta, OwnerReference, condition_true
from policyd.api.pods import PodTemplate
from policyd.api.quantity import QuantityError
from policyd.controller.watch.claimed_devices import ClaimedDevices, counts_devices
from policyd.controller.watch.index import OwnerIndex, local_queue_key, replaced_key
from policyd.controller.watch.keys import (
    ReconcileKey,
    family_key,
    job_key,
    owner_keys,
    pod_key,
    workload_key,
)
from policyd.controller.watch.mirrors import Mirrors
from policyd.controller.watch.workload_values import (
    JUST_AFTER,
    NAMESPACE_MISMATCH,
    SecondPass,
    WorkloadContext,
    needs_second_pass,
    queued_at,
    workload_value,
)
from policyd.jobs.ancestors import LONGEST_CHAIN
from policyd.jobs.base import JobObject
from policyd.jobs.integrations import EVERYTHING, Integrations
from policyd.jobs.lifecycle import has_quota, is_finished, is_on_hold
from policyd.jobs.pods import QueuedPod
from policyd.jobs.requests import RequestRules, as_counted, requests_of
from policyd.kube.changes import Added, Change, Deleted, Modified
from policyd.kube.client import PartialObject
from policyd.kube.pace import Pace
from policyd.multikueue.checks import sends_away
from policyd.optimize.opt_ins import NO_OPT_INS, OptIns, wants
from policyd.optimize.optimizer import Optimizer
from policyd.snapshot.new_workloads import NewWorkloadStarts
from policyd.snapshot.values import StartRow
from policyd.status.naming import OtherTeams
from policyd.usage.budgets import BudgetUse
from policyd.workload.admitted_claims import HeldClaims, Hold
from policyd.workload.conversion import sharing_flavors
from policyd.workload.families import (
    NOT_A_VARIANT,
    WorkloadFamily,
    flavor_of,
    has_gate,
    has_variants,
    parent_key,
    parent_of,
)
from policyd.workload.held_quota import asks_for_gpus
from policyd.workload.obstacles import FamilyRole
from policyd.workload.time_limits import backoff_left

log = structlog.get_logger()


@dataclass(slots=True)
class Hooks:
    """Callbacks of the cache, called when something changes."""

    reconcile: Callable[[ReconcileKey], None] = lambda _key: None
    """Queue a key to be reconciled."""
    schedule: Callable[[], None] = lambda: None
    """Wake the scheduling loop, and the comparison of reasons: the state changed."""
    compare: Callable[[], None] = lambda: None
    """Wake the comparison of reasons alone."""
    report: Callable[[str], None] = lambda _name: None
    """The figures of this ClusterQueue changed; or, as `namespace/name`, of this LocalQueue."""
    workload_created: Callable[[str, ObjectMeta], None] = lambda _kind, _job: None
    """A workload was made for this job."""
    preempted: Callable[[Preempt], None] = lambda _action: None
    """A workload is being stopped for another."""
    ungated: Callable[[str, QueuedPod, Workload], None] = lambda _gate, _pod, _workload: None
    """A pod of a workload lost a gate."""


class Cache:
    """Keeps the allocator's state equal to the mirrors."""

    def __init__(
        self,
        mirrors: Mirrors,
        *,
        pace: Pace,
        settings: QueueingSettings = DEFAULTS,
        resources: ResourcesConfiguration | None = None,
        integrations: Integrations = EVERYTHING,
    ) -> None:
        self.mirrors = mirrors
        self.integrations = integrations
        self.state = CoreState(settings, Optimizer)
        self.other_teams: OtherTeams = "names"
        self.configuration: Mapping[str, Json] | None = None
        """The fields of Kueue's Configuration by which queues decide; None if they are unknown."""
        self.budgets: Mapping[str, BudgetUse] = {}
        """How far budgets are used up, by ClusterQueue, and LocalQueue as `namespace/name`."""
        self.starts: Mapping[str, StartRow] = {}
        """When pending workloads are forecast to start, by key."""
        self.new_starts = NewWorkloadStarts()
        resources = resources or ResourcesConfiguration()
        self.devices: ClaimedDevices | None = None
        """What counts devices of claims; None where no device class is mapped."""
        if counts_devices(resources, settings.gates):
            self.devices = ClaimedDevices(mirrors.devices, resources, settings.gates)
        self._rules = RulesByNamespace(mirrors, resources, self.devices)
        self.hooks = Hooks()
        self._pace = pace
        self.index = OwnerIndex()
        self._held_back: set[str] = set()
        self._makes_claims = False
        self._under_way: dict[str, str] = {}
        """By key, the version that an admission is based on whose write is under way."""
        self.second_pass = SecondPass()
        mirrors.pods.listen(self._pod_changed)
        for kind, children in mirrors.children.items():
            children.listen(partial(self._child_changed, kind))

    # Queries.

    def workloads_of(self, uid: str) -> list[Workload]:
        """Return the workloads that an object owns, by name."""
        found = (self.mirrors.workloads.get(key) for key in self.index.owned(uid))
        return [workload for workload in found if workload is not None]

    def check_away(self, workload: Workload) -> AdmissionCheckState | None:
        """Return the state of the check that sends a workload to other clusters, if one does."""
        for state in workload.status.admission_checks:
            check = self.mirrors.checks.get(state.name)
            if check is not None and sends_away(check):
                return state
        return None

    def controls_some(self, job: ReconcileKey) -> bool:
        """Tell whether a job of this name controls a workload that has not ended."""
        found = (self.mirrors.workloads.get(key) for key in self.index.controlled(job))
        return any(workload is not None and not is_finished(workload) for workload in found)

    def pods_of(self, key: ReconcileKey) -> list[QueuedPod]:
        """Return the pods of a group, or the one pod, that a key names."""
        found = (self.mirrors.pods.get(name) for name in self.index.group(key))
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

    def requests_of(self, pod: PodTemplate, namespace: str) -> dict[str, int]:
        """Return the requests of a pod of a namespace that count against quota.

        Raises:
            InvalidRequestsError: If something is not a quantity.
        """
        rules = self._rules.of(namespace)
        return requests_of(as_counted(pod, rules), rules)

    def request_rules(self, namespace: str) -> RequestRules:
        """Return the rules about requests of the pods of a namespace."""
        return self._rules.of(namespace)

    def hold_for_claims(self, pod: QueuedPod, pod_set: str, workload: Workload) -> Hold | None:
        """Return why a gated pod stays held for its claims; None if it may go."""
        if self.devices is None or not pod.spec.resource_claims:
            return None
        settings = self.state.settings
        # Only Kubernetes writes the status of a pod.
        self._makes_claims = self._makes_claims or bool(pod.status.resource_claim_statuses)
        held = HeldClaims(
            workload=workload,
            rules=self._rules.of(pod.metadata.namespace),
            devices=self.devices.counter,
            free_if_undeclared=settings.ignores_undeclared and settings.gates.quota_check_strategy,
            always_made=self._makes_claims,
        )
        return held.hold(pod, pod_set, self.mirrors.devices.claims.get, now=self.now)

    def look_again(self, workload: Workload) -> None:
        """Compute the requests of a workload again, unless it has quota or is finished."""
        if not (has_quota(workload) or is_finished(workload)):
            self.count_again(workload)

    def count_again(self, workload: Workload) -> None:
        """Compute the requests of a workload again."""
        self.put(workload)
        self.hooks.reconcile(workload_key(workload))

    def look_at_held(self, workload: Workload) -> None:
        """Look at the pods of a workload with quota that may be held for what they claim."""
        metadata = workload.metadata
        for key in owner_keys(workload):
            self.hooks.reconcile(key)
        self.hooks.reconcile(ReconcileKey("Places", metadata.namespace, metadata.name))

    def objection(self, workload: Workload) -> Objection | None:
        """Return why a workload cannot be considered; None if it can, or holds quota."""
        local_queue = self.local_queue_of(workload)
        if has_quota(workload) or local_queue is None:
            return None
        known = self.state.waiting(workload.metadata.key)
        return (known or self._value(workload, local_queue.spec.cluster_queue)).objection

    def as_pending(self, workload: Workload) -> Value | None:
        """Return a workload as it was before it had quota; None if its queue is not known."""
        local_queue = self.local_queue_of(workload)
        if local_queue is None:
            return None
        before = msgspec.structs.replace(workload, status=WorkloadStatus())
        return self._value(before, local_queue.spec.cluster_queue)

    @property
    def now(self) -> float:
        """Seconds since the epoch."""
        return self._pace.clock.now()

    def shared_refusal(self, cluster_queue: str, key: str) -> str | None:
        """Return why workloads with the same requests as this one do not fit; None if not known."""
        queue = self.state.queues.get(cluster_queue)
        return None if queue is None else queue.pending.shared_refusal(key)

    def all_keys(self) -> Iterable[ReconcileKey]:
        """Yield the keys of all objects, as after a start."""
        for workload in self.mirrors.workloads:
            yield workload_key(workload)
            yield from self._family_keys(workload)
            if not is_finished(workload):
                yield from self._owner_keys(workload)  # a job may have left its queue meanwhile
        for kind, jobs in self.mirrors.jobs.items():
            for job in jobs:
                yield job_key(job.metadata, kind)
        for kind, children in self.mirrors.children.items():
            for metadata in (each.metadata for each in children):
                if metadata.owner_references:
                    yield job_key(metadata, kind)
        yield from {pod_key(pod) for pod in self.mirrors.pods}

    def assumes(self, action: Admit) -> bool:
        """Tell whether the quota of an admission is held for it, and it is not known as written."""
        holding = self.state.holding(action.workload.key)
        return holding is not None and holding.assumed and holding.admission is action.admission

    def begin(self, workload: Workload) -> None:
        """Hold what an admission assumes, while it is written, whatever else may change.

        Only a later version of the workload shows that the write has happened, or cannot happen.
        """
        self._under_way[workload.metadata.key] = workload.metadata.resource_version

    def settle(self, action: Admit) -> None:
        """Let an admission count no longer, unless it was written: what became of it is known."""
        self._under_way.pop(action.workload.key, None)
        if self.assumes(action):
            self.retract(action.workload.key)

    def retract(self, key: str) -> None:
        """Take back an assumed admission that is not being written."""
        self.state.retract(key)
        workload = self.mirrors.workloads.get(key)
        if workload is None:
            self.state.remove_workload(key)
        else:
            self.put(workload)
        self.hooks.schedule()

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

    # Changes.

    def put(self, workload: Workload) -> None:
        """Put a workload into the state, or take it out, as it now is.

        The workload that a slice replaces has quota until it is finished, and holds it while the
        slice holds none.
        """
        self._put(workload)
        self._put_replaced(workload)
        self._put_relatives(workload)

    def _put_relatives(self, workload: Workload) -> None:
        """Put the variants of a workload again, or the one that it is a variant of."""
        if self.state.settings.gates.concurrent_admission:
            owner = parent_of(workload)
            parent = None if owner is None else self._controlling(workload, owner)
            for each in (
                [parent] if parent is not None else self.workloads_of(workload.metadata.uid)
            ):
                self._put(each)

    def _controlling(self, workload: Workload, owner: OwnerReference) -> Workload | None:
        found = self.mirrors.workloads.get(parent_key(workload))
        return found if found is not None and found.metadata.uid == owner.uid else None

    def family_of(self, workload: Workload) -> WorkloadFamily | None:
        """Return the family of a workload that has variants, or is one; None if of neither.

        Its ClusterQueue is None if there are to be none any more.
        """
        owner = parent_of(workload)
        parent = workload if owner is None else self._controlling(workload, owner)
        if parent is None:
            return None
        namespace, queue = parent.metadata.namespace, self.cluster_queue_of(parent)
        owned = [
            each
            for each in self.workloads_of(parent.metadata.uid)
            if each.metadata.namespace == namespace  # another team may name any uid
        ]
        on = self.state.settings.gates.concurrent_admission and has_variants(parent, queue)
        return WorkloadFamily(parent, owned, queue if on else None) if on or owned else None

    def _family_keys(self, workload: Workload) -> list[ReconcileKey]:
        family = self.family_of(workload)
        return [] if family is None else [family_key(family.parent)]

    def role_of(self, workload: Workload) -> FamilyRole:
        """Tell whether a workload has variants, is one, or only looks like one."""
        on = self.state.settings.gates.concurrent_admission
        family = self.family_of(workload) if on else None
        if family is None or family.queue is None:
            orphan = on and parent_of(workload) is not None and has_gate(workload)
            return "stranger" if orphan else ""
        uid = workload.metadata.uid
        if family.parent.metadata.uid == uid:
            return "parent"
        known = any(each.metadata.uid == uid for each in family.variants)
        return "variant" if known else "stranger"

    def holding_of(self, workload: Workload) -> Holding | None:
        """Return the quota that a workload holds, itself or by its variant; None for none."""
        own = self.state.holding(workload.metadata.key)
        if own is not None or self.role_of(workload) != "parent" or not has_quota(workload):
            return own
        family = self.family_of(workload)
        variants = () if family is None else family.variants
        found = (self.state.holding(each.metadata.key) for each in variants)
        return next(filter(None, found), None)

    def _holds_for(self, parent: Workload) -> bool:
        """Tell whether a variant holds the quota of its parent."""
        family = self.family_of(parent)
        variants = () if family is None else family.variants
        return any(has_quota(each) and self._counts(each) for each in variants)

    def _put_replaced(self, workload: Workload) -> None:
        replaced = self.mirrors.workloads.get(replaced_key(workload))
        if replaced is not None:
            self._put(replaced)

    def _put(self, workload: Workload) -> None:
        metadata = workload.metadata
        if self._under_way.get(metadata.key) == metadata.resource_version:
            return
        local_queue = self.local_queue_of(workload)
        name = "" if local_queue is None else local_queue.spec.cluster_queue
        reserved = has_quota(workload)
        self.state.now = self._pace.clock.now()
        if needs_second_pass(workload):
            self.second_pass.put(workload.metadata.key, now=self.state.now)
        else:
            self.second_pass.remove(workload.metadata.key)
        counts = self._counts(workload) and not self._is_replaced(workload)
        if self.role_of(workload) == "parent":  # its variants queue, and hold its quota
            counts = counts and reserved and not self._holds_for(workload)
        self._notify_queues(workload)
        if not counts or not (reserved or self._queues(workload, local_queue)):
            self.state.remove_workload(workload.metadata.key)
        else:
            value = self._value(workload, name)
            if value == self.state.waiting(value.key):
                # A reason was written: a cycle for it could write another, and so on for ever.
                self.hooks.compare()
                return
            self.state.put_workload(value)
        self.hooks.schedule()

    def opt_ins(self, cluster_queue: str) -> OptIns:
        """Return a ClusterQueue's settings beyond Kueue's rules."""
        queue = self.state.queues.get(cluster_queue)
        return NO_OPT_INS if queue is None else wants(queue.spec)

    def _value(self, workload: Workload, cluster_queue: str) -> Value:
        reserved = has_quota(workload)
        objection = None
        if not reserved:
            objection = self._objection(workload, cluster_queue)
            objection = objection or self._over_budget(workload, cluster_queue)
        circumstances = WorkloadContext(
            now=self._pace.clock.now(),
            settings=self.state.settings,
            rules=self._rules.of(workload.metadata.namespace),
            movable=self.opt_ins(cluster_queue).moves > 0,
        )
        refused = 0 if self.devices is None else self.devices.rations.refused
        value = workload_value(
            workload, circumstances, cluster_queue=cluster_queue, objection=objection
        )
        if self.devices is not None and self.devices.rations.refused > refused:
            self.devices.count_later(workload)
        if value.key in self._held_back and not reserved:
            return msgspec.structs.replace(value, backing_off=True)
        return value if not value.variant_of else self._as_variant(workload, value)

    def _as_variant(self, workload: Workload, value: Value) -> Value:
        """Let the variants of one workload queue in the order of their flavors, while it may."""
        family = self.family_of(workload)
        if family is None or family.queue is None:
            return value
        left = backoff_left(family.parent, now=self.now) or 0.0
        flavors, flavor = family.flavors, flavor_of(workload)
        rank = flavors.index(flavor) if flavor in flavors else len(flavors)
        return msgspec.structs.replace(
            value,
            backing_off=value.backing_off or (value.admission is None and left > 0),
            queued_at=queued_at(family.parent, self.state.settings) + rank * JUST_AFTER,
        )

    def _counts(self, workload: Workload) -> bool:
        return workload.spec.active and not is_finished(workload)

    def _is_replaced(self, workload: Workload) -> bool:
        """Tell whether a bigger slice has the quota of a workload, which is to end in a moment."""
        if not self.state.settings.gates.elastic_jobs_via_workload_slices:
            return False
        successors = self.index.successors(workload.metadata.key)
        return any(self.state.holding(key) is not None for key in successors)

    def _queues(self, workload: Workload, local_queue: LocalQueue | None) -> bool:
        """Tell whether a workload without quota may be considered at all."""
        if local_queue is None or local_queue.spec.stop_policy != "None":
            return False
        if workload.metadata.deletion_timestamp or local_queue.metadata.deletion_timestamp:
            return False
        heeded = self.state.settings.gates.admission_gated_by
        gated = heeded and bool(workload.metadata.annotations.get(ADMISSION_GATED_BY))
        waits = condition_true(workload.status.conditions, WAITING_FOR_REPLACEMENT)
        return not (is_on_hold(workload) or gated or waits)

    def _objection(self, workload: Workload, cluster_queue: str) -> Objection | None:
        queue = self.mirrors.cluster_queues.get(cluster_queue)
        if queue is None:
            return None
        if self.role_of(workload) == "stranger":
            return Objection(reason="Misconfigured", message=NOT_A_VARIANT, misplaced=True)
        namespace = self.mirrors.namespaces.get(workload.metadata.namespace)
        labels = {} if namespace is None else namespace.metadata.labels
        selector = queue.spec.namespace_selector
        if selector is not None and selector.matches(labels):
            return None
        return Objection(reason="Misconfigured", message=NAMESPACE_MISMATCH, misplaced=True)

    def _over_budget(self, workload: Workload, cluster_queue: str) -> Objection | None:
        """Return that a budget is used up which holds a workload."""
        for name in (cluster_queue, local_queue_key(workload)) if self.budgets else ():
            found = self.budgets.get(name)
            if found is not None and found.held and asks_for_gpus(workload):
                # Workloads of other LocalQueues need not wait behind it.
                misplaced = name != cluster_queue
                return Objection(reason="Suspended", message=found.message, misplaced=misplaced)
        return None

    def _notify_queues(self, workload: Workload) -> None:
        self.hooks.report(local_queue_key(workload))
        local_queue = self.local_queue_of(workload)
        if local_queue is not None:
            self.hooks.report(local_queue.spec.cluster_queue)
        if workload.status.admission is not None:
            self.hooks.report(workload.status.admission.cluster_queue)

    def take(self, change: Change[Workload]) -> list[ReconcileKey]:
        """Take in a change of a workload; return the keys to reconcile because of it."""
        workload = change.object
        match change:
            case Modified():
                self._leave(change.old)
                self._enter(workload)
            case Added():
                self._enter(workload)
            case Deleted():
                self._leave(workload)
                self._remove(workload)
        # A deleted one is reconciled as well: its state is removed.
        own = workload_key(workload), *self._family_keys(workload)
        owners = self._owner_keys(workload)
        if isinstance(change, Modified) and change.old.metadata.owner_references != (
            workload.metadata.owner_references
        ):
            owners |= self._owner_keys(change.old)  # a job that lost it is to stop
        return [*own, *self._children(change), *owners]

    def _enter(self, workload: Workload) -> None:
        self.index.add(workload)
        self.put(workload)

    def _leave(self, workload: Workload) -> None:
        self.index.remove(workload)
        self._notify_queues(workload)

    def _remove(self, workload: Workload) -> None:
        self.second_pass.remove(workload.metadata.key)
        self.state.remove_workload(workload.metadata.key)
        self._put_replaced(workload)
        self._put_relatives(workload)
        self.hooks.schedule()

    def job_keys(self, change: Change[JobObject], kind: str) -> list[ReconcileKey]:
        """Return the keys to reconcile because of a job: its own, and its workloads' if it goes."""
        job = change.object
        gone = isinstance(change, Deleted) or job.metadata.deletion_timestamp is not None
        orphans = self.workloads_of(job.metadata.uid) if gone else ()
        return [job_key(job.metadata, kind), *map(workload_key, orphans)]

    def _owner_keys(self, workload: Workload) -> set[ReconcileKey]:
        """Return the keys of a workload's objects; the key of a pod in a group is the group's."""
        return {self._group_of(key) for key in owner_keys(workload)}

    def _group_of(self, key: ReconcileKey) -> ReconcileKey:
        pod = self.mirrors.pods.get(key.path) if key.subject == "Pod" else None
        return key if pod is None else pod_key(pod)

    def touch_local_queue(self, key: str) -> None:
        """Look again at everything that is submitted to a LocalQueue."""
        self.hooks.report(key)
        for name in self.index.submitted(key):
            workload = self.mirrors.workloads.get(name)
            if workload is not None:
                self.put(workload)
                self.hooks.reconcile(workload_key(workload))
                for family in self._family_keys(workload):
                    self.hooks.reconcile(family)

    def _pod_changed(self, change: Change[QueuedPod]) -> None:
        match change:
            case Modified():
                self._drop_pod(change.old)
                self._take_pod(change.object)
            case Added():
                self._take_pod(change.object)
            case Deleted():
                self._drop_pod(change.object)
                for workload in self.workloads_of(change.object.metadata.uid):
                    self.hooks.reconcile(workload_key(workload))

    def _take_pod(self, pod: QueuedPod) -> None:
        self.index.add_pod(pod)
        self.hooks.reconcile(pod_key(pod))

    def _drop_pod(self, pod: QueuedPod) -> None:
        self.index.remove_pod(pod)
        self.hooks.reconcile(pod_key(pod))

    def _child_changed(self, kind: str, change: Change[PartialObject]) -> None:
        match change:
            case Modified(old, new):
                self.index.remove_child(old.metadata, kind)
                self._take_child(kind, new)
            case Added(new):
                self._take_child(kind, new)
            case Deleted(old):
                self.index.remove_child(old.metadata, kind)

    def _take_child(self, kind: str, child: PartialObject) -> None:
        owned = bool(child.metadata.owner_references)
        if owned:
            self.index.add_child(child.metadata, kind)
        if owned or self.workloads_of(child.metadata.uid):  # it has left its queue
            self.hooks.reconcile(job_key(child.metadata, kind))

    def _children(self, change: Change[Workload]) -> Iterator[ReconcileKey]:
        """Yield the objects that a job made, and those that they made, if it may not run now."""
        workload = change.object
        conditions = workload.status.conditions
        admitted = condition_true(conditions, ADMITTED) and not condition_true(conditions, EVICTED)
        if admitted or isinstance(change, Deleted):
            return
        uids = {owner.uid for owner in workload.metadata.owner_references}
        for _ in range(LONGEST_CHAIN):
            keys = [key for uid in uids for key in self.index.children(uid)]
            yield from keys
            found = (self.mirrors.children[key.kind].get(key.path) for key in keys)
            uids = {each.metadata.uid for each in found if each is not None}


class RulesByNamespace:
    """The rules for each namespace, worked out when they are first asked for."""

    def __init__(
        self,
        mirrors: Mirrors,
        resources: ResourcesConfiguration,
        devices: ClaimedDevices | None = None,
    ) -> None:
        self._mirrors = mirrors
        self._resources = resources
        self._devices = devices
        self._known: dict[str, RequestRules] = {}
        mirrors.limit_ranges.listen(self._forget)
        mirrors.runtime_classes.listen(self._forget)
        if resources.gpu_fractions:
            mirrors.flavors.listen(self._forget)
        if devices is not None:
            mirrors.devices.classes.listen(self._forget)
            mirrors.devices.slices.listen(self._forget)

    def _forget(self, _change: object) -> None:
        self._known.clear()

    def of(self, namespace: str) -> RequestRules:
        """Return the rules for the workloads of a namespace."""
        rules = self._known.get(namespace)
        if rules is None:
            rules = self._known[namespace] = self._work_out(namespace)
        return rules

    def _work_out(self, namespace: str) -> RequestRules:
        found = (
            each for each in self._mirrors.limit_ranges if each.metadata.namespace == namespace
        )
        ranges = sorted(found, key=lambda each: each.metadata.name)
        try:
            limits = summarize(ranges)
        except QuantityError as error:  # the API server lets none in; a file may have one
            log.warning("limit_range_unusable", namespace=namespace, error=str(error))
            limits = {}
        overheads = {
            each.metadata.name: each.overhead.pod_fixed
            for each in self._mirrors.runtime_classes
            if each.overhead is not None
        }
        return RequestRules(
            limits=limits,
            overheads=overheads,
            resources=self._resources,
            devices=None if self._devices is None else self._devices.counter,
            namespace=namespace,
            shared_gpus=(
                sharing_flavors(self._mirrors.flavors) if self._resources.gpu_fractions else None
            ),
        )
