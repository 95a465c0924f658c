"""Usage outside of quota: pods that run on resources of queues, and that no queue has admitted.

They were created while the webhooks did not answer, left behind by a job that is gone, or name an
owner that is not theirs. Such a pod cannot be gated afterwards. So it is reported: in an event on
the pod, a metric and the log; or, if so configured, it is deleted before it has a node. Where a
namespace has too many for an event each, it has one about all of them, and the rest follows.

A pod is within quota if the workload that it belongs to has quota, and the pods of that workload
together take no more than it was admitted with. The owner reference of a pod is followed, and
counts only as far as that.
"""

from bisect import bisect_left, insort
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final, NamedTuple

import msgspec
import structlog

from policyd.alloc.ledger import Holding
from policyd.api.kueue import ClusterQueue, ResourceFlavor, Workload
from policyd.api.kueue.names import EVICTED
from policyd.api.makers import group_kind_of
from policyd.api.meta import ObjectMeta, find_condition
from policyd.api.names import SYSTEM_NAMESPACES
from policyd.api.pods import PodResourceClaim, PodTemplate
from policyd.controller.jobs.owners import SeenOwners
from policyd.controller.metrics.counters import ControllerMetrics
from policyd.controller.reconcile import Reconcile
from policyd.controller.settings import ControllerSettings
from policyd.controller.watch.cache import Cache
from policyd.controller.watch.index import chain_key, discard
from policyd.controller.watch.keys import ReconcileKey
from policyd.controller.watch.running_pods import CLAIMS, RunningPod, is_device, open_running_pods
from policyd.controller.watch.workload_values import refuses_uncounted
from policyd.controller.writes import Writes
from policyd.devices.objects import ResourceClaim
from policyd.jobs.ancestors import LONGEST_CHAIN
from policyd.jobs.base import controller_of
from policyd.jobs.lifecycle import has_quota
from policyd.jobs.requests import UNCOUNTED, devices_of_claim
from policyd.kube.changes import Change, Modified
from policyd.kube.resources import NAMESPACES, PODS
from policyd.status.quantities import amounts_text
from policyd.workload.usage_book import (
    AdmittedUsage,
    Beyond,
    OutsideUsage,
    PodUsage,
    UsageBook,
    usage_of,
)

log = structlog.get_logger()

GRACE_SECONDS: Final = 5.0
"""How long a pod may be outside before that is reported: stopping pods stop within it."""
LOOK_SECONDS: Final = 30.0
"""Between checks of a pod that is outside: its job may get quota."""
CHECKPOINT_SECONDS: Final = 900.0
"""How long a pod may run on that was deleted as its workload was evicted."""
MOST_REPORTED: Final = 50
"""Events of a namespace at once, and one more each second: many pods must not fill the API. Those
of the largest pods come first, so that small ones cannot hide them."""
MOST_NAMESPACES: Final = 1000
GATHER_SECONDS: Final = 2.0
"""How long a pod may wait for its event, before its namespace has one about all of them."""
AGAIN_SECONDS: Final = 300.0
"""Until the namespace has it again: sooner only where there is half as much again, as an object has
few events."""
MOST_NAMED: Final = 5

_Rank = tuple[int, int, str]

OUTSIDE: Final = "OutsideQuota"
NO_WORKLOAD: Final = "NoWorkload"
NO_QUOTA: Final = "NoQuota"
BEYOND: Final = "MoreThanAdmitted"
_BY_USERS: Final = ("Deactivated", "LocalQueueStopped", "PodsReadyTimeout")
"""How the reasons of evictions begin that users can cause: they may own the LocalQueues, too."""
_WHY: Final = {
    NO_WORKLOAD: "it belongs to no workload",
    NO_QUOTA: "its workload holds no quota",
    BEYOND: "its workload was admitted with less",
}


class Usage:
    """Finds and reports pods that run outside of quota."""

    def __init__(
        self,
        cache: Cache,
        writes: Writes,
        *,
        metrics: ControllerMetrics,
        settings: ControllerSettings,
    ) -> None:
        self._cache = cache
        self._writes = writes
        self._metrics = metrics
        self._deletes = settings.deletes_outside_quota
        self._book = UsageBook()
        self._outside = OutsideUsage()
        self._since: dict[str, float] = {}
        self._reported: dict[str, str] = {}
        self._waiting: defaultdict[str, list[_Rank]] = defaultdict(list)
        """The pods of each namespace that are not reported yet, the largest first."""
        self._ranks: dict[str, _Rank] = {}
        self._summaries: dict[str, _Summary] = {}
        """The content of the last event about all pods of a namespace."""
        self._owners = SeenOwners(cache.mirrors, writes)
        self._claims_of: dict[str, frozenset[str]] = {}
        self._claimers: defaultdict[str, set[str]] = defaultdict(set)
        self._allowed: OrderedDict[str, tuple[float, float]] = OrderedDict()
        self._covered: frozenset[str] = frozenset()
        self.pods = open_running_pods(
            writes.client,
            writes.pace,
            resources=settings.resources,
            everything=settings.integrations.manages_all,
            devices=cache.devices is not None,
        )
        self.pods.listen(self._pod_changed)
        cache.mirrors.workloads.listen(self._workload_changed)
        cache.mirrors.cluster_queues.listen(self._queue_changed)
        cache.mirrors.flavors.listen(self._flavor_changed)
        if cache.devices is not None:
            cache.mirrors.devices.claims.listen(self._claim_changed)

    def reconcilers(self) -> dict[str, Reconcile]:
        """Return the reconcilers of pods that may run outside of quota."""
        return {"Usage": self._reconcile}

    def all_keys(self) -> list[ReconcileKey]:
        """Return a key for every pod that takes anything, as after a start."""
        return [_key(pod) for pod in self.pods if pod.takes]

    def drop(self) -> None:
        """Drop all findings: another process leads, and reports them."""
        for path in [*self._since]:
            self._settle(path)
        self._book = UsageBook()

    # Changes.

    def _pod_changed(self, change: Change[RunningPod]) -> None:
        if change.object.takes or (isinstance(change, Modified) and change.old.takes):
            self._cache.hooks.reconcile(_key(change.object))

    def _workload_changed(self, change: Change[Workload]) -> None:
        name = chain_key(change.object)
        members = self._book.members(name)
        if members and not self._book.is_within(name, self._share(name)):
            self._look_at(members)

    def _queue_changed(self, _change: Change[ClusterQueue]) -> None:
        covered = frozenset(
            name
            for queue in self._cache.mirrors.cluster_queues
            for group in queue.spec.resource_groups
            for name in group.covered_resources
        )
        if covered != self._covered:
            self._covered = covered
            for key in self.all_keys():
                self._cache.hooks.reconcile(key)

    def _flavor_changed(self, _change: Change[ResourceFlavor]) -> None:
        for pod in self.pods:
            if pod.amounts is None:
                self._cache.hooks.reconcile(_key(pod))

    def _claim_changed(self, change: Change[ResourceClaim]) -> None:
        self._look_at(tuple(self._claimers.get(change.object.metadata.key, ())))

    def _look_at(self, paths: Iterable[str]) -> None:
        for path in paths:
            namespace, _, name = path.partition("/")
            self._cache.hooks.reconcile(ReconcileKey("Usage", namespace, name))

    # One pod.

    async def _reconcile(self, key: ReconcileKey) -> float | None:
        """Find out whether a pod is outside, and tell. Returns when to look again.

        Raises:
            ApiError: If its owners could not be looked up, or it could not be deleted.
        """
        pod = self.pods.get(key.path)
        self._follow_claims(key.path, pod)
        taken = None if pod is None else self._taken(pod)
        if pod is None or taken is None:
            self._leave(key.path)
            return None
        group = await self._group_of(pod)
        if group is None:
            self._leave(key.path)
            return None
        self._book.put(key.path, taken, group)
        reason = self._reason(key.path, group)
        if not reason or (reason == NO_QUOTA and self._is_being_stopped(pod, group)):
            self._settle(key.path)
            return None
        return await self._note(pod, taken.total(), reason)

    def _follow_claims(self, path: str, pod: RunningPod | None) -> None:
        """Note whose claims are to be followed: another one of the name may come."""
        namespace = path.partition("/")[0]
        claims = set() if pod is None else {f"{namespace}/{each}" for each in pod.claims.values()}
        before = self._claims_of.pop(path, frozenset())
        for each in before - claims:
            discard(self._claimers, each, path)
        for each in claims - before:
            self._claimers[each].add(path)
        if claims:
            self._claims_of[path] = frozenset(claims)

    def _taken(self, pod: RunningPod) -> PodUsage | None:
        """Return the usage of a pod of resources that some queue gives, if queues concern it."""
        metadata, integrations = pod.metadata, self._cache.integrations
        namespace = self._cache.mirrors.namespaces.get(metadata.namespace)
        labels = {} if namespace is None else namespace.metadata.labels
        if not pod.counts(self._writes.now) or not integrations.covers(labels):
            return None
        everything = pod.queues and metadata.namespace not in SYSTEM_NAMESPACES
        gates = self._cache.state.settings.gates
        counted = self._covered | ({CLAIMS, UNCOUNTED} if refuses_uncounted(gates) else set())
        rules = self._cache.request_rules(metadata.namespace)

        def concerned(amounts: Mapping[str, int]) -> dict[str, int]:
            return {
                name: amount
                for name, amount in amounts.items()
                if name in counted and (everything or is_device(name))
            }

        there = self._named(set(pod.claims.values()), metadata.namespace)
        claims = {each.metadata.name: devices_of_claim(each, rules) for each in there}
        since = metadata.deletion_timestamp or metadata.creation_timestamp
        taken = PodUsage(
            since=since.timestamp() if since else 0.0,
            amounts=concerned(pod.amounts_by(rules, claims.keys())),
            claims={name: own for name, each in claims.items() if (own := concerned(each))},
        )
        return taken if taken.amounts or taken.claims else None

    def _named(self, names: Iterable[str], namespace: str) -> list[ResourceClaim]:
        """Return the claims of a namespace that are there, where devices are counted."""
        if self._cache.devices is None:
            return []
        mirror = self._cache.mirrors.devices.claims
        found = (mirror.get(f"{namespace}/{name}") for name in sorted(names) if name)
        return [each for each in found if each is not None]

    def _leave(self, path: str) -> None:
        """Remove a pod; others that were outside because of it may be inside now."""
        group = self._book.forget(path)
        self._settle(path)
        beyond = self._beyond(group) if group else None
        if beyond is not None:
            self._look_at(beyond.changed)

    def _settle(self, path: str) -> None:
        """Note that a pod is not outside."""
        self._since.pop(path, None)
        self._reported.pop(path, None)
        self._wait_no_more(path)
        if self._outside.forget(path):
            self._metrics.outside_quota(self._outside.totals)
            namespace = path.partition("/")[0]
            if namespace not in self._outside.pods:
                self._summaries.pop(namespace, None)

    def _reason(self, path: str, group: str) -> str:
        if not group:
            return NO_WORKLOAD
        beyond = self._beyond(group)
        if beyond is None:
            return NO_QUOTA
        self._look_at(beyond.changed - {path})
        return BEYOND if path in beyond.pods else ""

    def _beyond(self, group: str) -> Beyond | None:
        """Return the pods that are more than their workloads' quota; None if these hold none."""
        share = self._share(group)
        if not share.count:
            return None
        if not self._book.is_within(group, share):
            share = self._share(group, anew=True)
        return self._book.beyond(group, share)

    def _is_being_stopped(self, pod: RunningPod, group: str) -> bool:
        """Tell whether a pod has time to save a checkpoint, since its workload was evicted.

        It has none if its user may have caused that, by a time limit, by a LocalQueue that is
        stopped, or by pods that never get ready: otherwise many jobs, one after the other, would
        run on all at once.
        """
        if pod.stays(self._writes.now) >= CHECKPOINT_SECONDS:
            return False
        workloads = map(self._cache.mirrors.workloads.get, self._cache.index.chain(group))
        conditions = (find_condition(w.status.conditions, EVICTED) for w in workloads if w)
        return any(
            each.status == "True" and not each.reason.startswith(_BY_USERS)
            for each in conditions
            if each is not None
        )

    def _share(self, group: str, *, anew: bool = False) -> AdmittedUsage:
        """Return the usage of a group's workloads: that of the largest, if one replaces another.

        Args:
            group: The name of the workloads.
            anew: Whether pods may take as well what their template takes as it is counted now:
                flavors, devices and the Configuration may have changed since the admission.
        """
        count, amounts = 0, dict[str, int]()
        for key in self._cache.index.chain(group):
            workload = self._cache.mirrors.workloads.get(key)
            holding = None if workload is None else self._cache.holding_of(workload)
            if workload is None or holding is None:
                continue
            own: dict[str, int] = {}
            for each in holding.admission.pod_sets:
                for name, amount in each.usage.items():
                    own[name] = own.get(name, 0) + amount
            own[CLAIMS] = sum(
                len(each.template.spec.resource_claims) * each.count
                for each in workload.spec.pod_sets
            )
            if anew:
                own = _larger(own, self._counted_anew(workload, holding))
            count = max(count, sum(each.count for each in holding.admission.pod_sets))
            amounts = _larger(own, amounts)
        return AdmittedUsage(count=count, amounts=amounts)

    def _counted_anew(self, workload: Workload, holding: Holding) -> Counter[str]:
        """Return what the pods of a workload take, as it is counted now.

        Limits of the namespace are left out, and claims from templates that are newer than the
        quota: users can change these.
        """
        namespace, since = workload.metadata.namespace, holding.workload.reserved_at or 0.0
        rules = replace(self._cache.request_rules(namespace), limits={})
        templates = {each.name: each.template for each in workload.spec.pod_sets}
        total = Counter[str]()
        for each in holding.admission.pod_sets:
            template = templates.get(each.name)
            if template is None:
                continue
            claims = tuple(
                claim
                for claim in template.spec.resource_claims
                if self._is_older(claim, namespace, since)
            )
            spec = msgspec.structs.replace(template.spec, resource_claims=claims)
            amounts, _ = usage_of(PodTemplate(template.metadata, spec), rules)
            for name, amount in amounts.items():
                total[name] += amount * each.count
        shared = {each for t in templates.values() for each in t.spec.resource_claims}
        for claim in self._named({each.resource_claim_name for each in shared}, namespace):
            if _was_there(claim.metadata, since):
                total.update(devices_of_claim(claim, rules))
        return total

    def _is_older(self, claim: PodResourceClaim, namespace: str, since: float) -> bool:
        """Tell whether the template of a claim was there before a moment."""
        if self._cache.devices is None:
            return False
        key = f"{namespace}/{claim.resource_claim_template_name}"
        found = self._cache.mirrors.devices.templates.get(key)
        return found is not None and _was_there(found.metadata, since)

    # The owner of a pod.

    async def _group_of(self, pod: RunningPod) -> str | None:
        """Return the name of the workloads that a pod belongs to; None if others hold it.

        Empty if it belongs to none. Those with quota come first.
        """
        metadata, uid = pod.metadata, pod.metadata.uid
        owner = controller_of(metadata)
        for _ in range(LONGEST_CHAIN):
            owned = self._cache.workloads_of(uid)
            if owned:
                return chain_key(max(owned, key=has_quota))
            if owner is None:
                return ""
            if group_kind_of({"apiVersion": owner.api_version, "kind": owner.kind}) in (
                self._cache.integrations.external
            ):
                return None
            above = await self._owners.find(owner, metadata.namespace)
            if above is None:
                return ""
            uid, owner = above.uid, controller_of(above)
        return ""

    # Telling.

    async def _note(self, pod: RunningPod, amounts: dict[str, int], reason: str) -> float:
        path, now, look = pod.metadata.key, self._writes.now, LOOK_SECONDS
        if self._reported.get(path) != reason:
            self._wait(path, amounts)
        left = self._since.setdefault(path, now) + GRACE_SECONDS - now
        if left > 0:
            return left
        if path not in self._outside:
            self._outside.put(path, pod.metadata.namespace, amounts)
            self._metrics.outside_quota(self._outside.totals)
            self._metrics.found_outside(reason)
        if path in self._ranks:
            look = min(look, self._report_in_turn(pod, amounts, reason, waited=-left))
        if self._deletes and not pod.spec.node_name:
            await self._writes.delete(self.pods, pod)
        return look

    def _report_in_turn(
        self, pod: RunningPod, amounts: dict[str, int], reason: str, *, waited: float
    ) -> float:
        """Report a pod, unless others are first. Returns when to look again."""
        path, namespace = pod.metadata.key, pod.metadata.namespace
        before = bisect_left(self._waiting[namespace], self._ranks[path])
        if self._may_report(namespace, before):
            self._wait_no_more(path)
            self._reported[path] = reason
            self._report(pod, amounts, reason)
            return LOOK_SECONDS
        if waited >= GATHER_SECONDS:
            self._report_together(namespace)
            return before + 1.0
        return min(before + 1.0, GATHER_SECONDS - waited)

    def _wait(self, path: str, amounts: Mapping[str, int]) -> None:
        rank = _rank(path, amounts)
        if self._ranks.get(path) != rank:
            self._wait_no_more(path)
            self._ranks[path] = rank
            insort(self._waiting[path.partition("/")[0]], rank)

    def _wait_no_more(self, path: str) -> None:
        rank = self._ranks.pop(path, None)
        if rank is None:
            return
        namespace = path.partition("/")[0]
        waiting = self._waiting[namespace]
        del waiting[bisect_left(waiting, rank)]
        if not waiting:
            del self._waiting[namespace]

    def _may_report(self, namespace: str, before: int) -> bool:
        """Tell whether there is an event left for a pod, with so many larger ones waiting."""
        now = self._writes.now
        left, at = self._allowed.pop(namespace, (float(MOST_REPORTED), now))
        left = min(float(MOST_REPORTED), left + max(0.0, now - at))
        may = left >= before + 1
        self._allowed[namespace] = (left - may, now)
        if len(self._allowed) > MOST_NAMESPACES:
            self._allowed.popitem(last=False)
        return may

    def _report(self, pod: RunningPod, amounts: dict[str, int], reason: str) -> None:
        taken = amounts_text(amounts)
        message = f"takes {taken} that no queue has given it: {_WHY[reason]}"
        self._writes.record(PODS, pod.metadata, OUTSIDE, message, warning=True)
        log.warning("outside_quota", pod=pod.metadata.key, reason=reason, takes=taken)

    def _report_together(self, namespace: str) -> None:
        """Report all pods of a namespace at once: they are too many for events of their own."""
        now, count = self._writes.now, self._outside.pods[namespace]
        total, last = self._outside.total(namespace), self._summaries.get(namespace)
        found = self._cache.mirrors.namespaces.get(namespace)
        if found is None or (last is not None and not last.is_outdated(count, total, now)):
            return
        self._summaries[namespace] = _Summary(now, count, total)
        pods = self._outside.of(namespace)
        largest = sorted(pods, key=lambda path: _rank(path, pods[path]))[:MOST_NAMED]
        named = "; ".join(
            f"{path.partition('/')[2]} ({amounts_text(pods[path])})" for path in largest
        )
        taken = amounts_text(total)
        message = f"{count} pods take {taken} that no queue has given them; the largest: {named}"
        self._writes.record(NAMESPACES, found.metadata, OUTSIDE, message, warning=True)
        log.warning("outside_quota", namespace=namespace, pods=count, takes=taken)


class _Summary(NamedTuple):
    """What was reported of all pods of a namespace that are outside."""

    at: float
    pods: int
    total: Mapping[str, int]

    def is_outdated(self, pods: int, total: Mapping[str, int], now: float) -> bool:
        """Tell whether there is so much more, or more for so long, that it is reported again."""
        times = 1.0 if now - self.at >= AGAIN_SECONDS else 1.5
        return pods > times * self.pods or any(
            amount > times * self.total.get(name, 0) for name, amount in total.items()
        )


def _rank(path: str, amounts: Mapping[str, int]) -> _Rank:
    """Return the place of a pod: those with most devices first."""
    devices = sum(amount for name, amount in amounts.items() if is_device(name))
    return (-devices, -sum(amounts.values()), path)


def _key(pod: RunningPod) -> ReconcileKey:
    return ReconcileKey("Usage", pod.metadata.namespace, pod.metadata.name)


def _was_there(metadata: ObjectMeta, since: float) -> bool:
    created = metadata.creation_timestamp
    return created is not None and created.timestamp() < since


def _larger(one: Mapping[str, int], other: Mapping[str, int]) -> dict[str, int]:
    return {n: max(one.get(n, 0), other.get(n, 0)) for n in one.keys() | other.keys()}
