"""Follows nodes: one that fails is noted on the workloads there, and ends pods that may be."""

from collections import defaultdict

import msgspec
import structlog

from policyd.alloc.settings import Gates
from policyd.api.kueue import Workload
from policyd.api.kueue.names import EVICTED
from policyd.api.kueue.topology_assignment import assigned_nodes
from policyd.api.meta import Condition, condition_true, timestamp, with_condition
from policyd.api.nodes import Node
from policyd.controller.jobs.job_reconciler import flavors_by_name
from policyd.controller.patches import merge_patch
from policyd.controller.watch.index import discard
from policyd.controller.watch.keys import ReconcileKey
from policyd.controller.watch.mirrors import Mirrors
from policyd.controller.watch.pod_places import PodPlaces, node_of, workload_keys
from policyd.controller.writes import Writes
from policyd.jobs.lifecycle import is_finished
from policyd.jobs.pods import QueuedPod, has_ended
from policyd.kube.changes import Added, Change, Deleted, Modified
from policyd.kube.errors import ApiError
from policyd.kube.resources import PODS, WORKLOADS
from policyd.workload.families import PARENT, parent_of
from policyd.workload.node_health import (
    NODE_FAILURES,
    NodeHealth,
    acceptance,
    after_failure,
    after_recovery,
    forced_end,
    forced_in,
    goes_on,
    health,
    hopeless,
    may_be_forced,
    seconds_left,
    sends_pods_to,
)
from policyd.workload.transitions import is_admitted

log = structlog.get_logger()

TERMINATED_BY = "TerminatedByKueue"
UNSCHEDULABLE = "UnschedulableOnAssignedNode"
TERMINATED_EVENT = "PodTerminatedByKueue"


class NodeFailures:
    """Looks at one node at a time, and at the workloads that have pods assigned to it."""

    def __init__(
        self, mirrors: Mirrors, places: PodPlaces, writes: Writes, *, gates: Gates
    ) -> None:
        self._mirrors = mirrors
        self._places = places
        self._writes = writes
        self._gates = gates
        self._sent_to: dict[str, set[str]] = defaultdict(set)
        mirrors.workloads.listen(self._workload_changed)

    async def reconcile(self, key: ReconcileKey) -> float | None:
        """Note on workloads whether a node has failed them.

        Returns:
            Seconds until it may have, where that is a matter of time.

        Raises:
            ApiError: If a write did not succeed.
        """
        node, lefts = self._mirrors.nodes.get(key.name), []
        if self._gates.tas_failed_node_replacement:
            lefts.append(seconds_left(node, self._gates, now=self._writes.now))
            for workload in self._concerned(key.name):
                await self._look_at(workload, key.name, node, lefts[0])
        if self._gates.failure_recovery_policy and node is not None and node.unreachable:
            lefts += await self._end_by_force(node.metadata.name)
        return min((left for left in lefts if left > 0), default=None)

    def all_keys(self) -> list[ReconcileKey]:
        """Return all nodes that workloads were sent to, or on which force may end a pod."""
        names = {pod.spec.node_name for pod in self._mirrors.placed if self._may_be_forced(pod)}
        return [_key(name) for name in sorted(names | self._sent_to.keys())]

    def of_workload(self, workload: Workload) -> list[ReconcileKey]:
        """Return the nodes that a workload is sent to and that are not simply fine."""
        names = assigned_nodes(workload.status.admission)
        return [_key(name) for name in sorted(names) if not self._is_fine(name)]

    def of_node(self, change: Change[Node]) -> list[ReconcileKey]:
        """Return the keys to reconcile when a node changes: its own, if its health changed."""
        match change:
            case Modified(old, new) if _health_of(old) == _health_of(new):
                return []
            case Added(node) | Modified(object=node) | Deleted(node):
                return [_key(node.metadata.name)]

    def of_pod(self, change: Change[QueuedPod]) -> list[ReconcileKey]:
        """Return the keys to reconcile for a changed pod: its node, if that may have failed."""
        name = node_of(change.object)
        if self._may_be_forced(change.object):
            return [_key(name)]
        if not name or not workload_keys(change.object):
            return []
        match change:
            case Modified(old, new) if goes_on(old) and not goes_on(new):
                return [_key(name)]
            case Added(new) | Modified(object=new):
                return [_key(name)] if hopeless([new], name) else []
            case Deleted(old):
                return [_key(name)] if goes_on(old) else []

    def _is_fine(self, name: str) -> bool:
        node = self._mirrors.nodes.get(name)
        return node is not None and node.ready and not node.spec.taints

    def _workload_changed(self, change: Change[Workload]) -> None:
        match change:
            case Modified():
                if change.old.status.admission != change.object.status.admission:
                    self._drop(change.old)
                    self._take(change.object)
            case Added():
                self._take(change.object)
            case Deleted():
                self._drop(change.object)

    def _take(self, workload: Workload) -> None:
        for name in assigned_nodes(workload.status.admission):
            self._sent_to[name].add(workload.metadata.key)

    def _drop(self, workload: Workload) -> None:
        for name in assigned_nodes(workload.status.admission):
            discard(self._sent_to, name, workload.metadata.key)

    def _of_pods(self, workload: Workload) -> Workload:
        """Return the workload whose name the pods have: of a variant, its parent."""
        owner = parent_of(workload) if self._gates.concurrent_admission else None
        if owner is None:
            return workload
        return (
            self._mirrors.workloads.get(f"{workload.metadata.namespace}/{owner.name}") or workload
        )

    def _has_variant(self, workload: Workload) -> bool:
        """Tell whether the places of a workload are those of a variant, which gets others."""
        marked = workload.metadata.labels.get(PARENT) == "true"
        return self._gates.concurrent_admission and marked

    def _concerned(self, node: str) -> list[Workload]:
        """Return the workloads that are assigned to a node, or whose pods may go nowhere else."""
        keys = {key for pod in self._places.on_node(node) for key in workload_keys(pod)}
        keys |= self._sent_to.get(node, set())
        found = (self._mirrors.workloads.get(key) for key in sorted(keys))
        return [
            workload
            for workload in found
            if workload is not None
            and is_admitted(workload)
            and not is_finished(workload)
            and not condition_true(workload.status.conditions, EVICTED)
        ]

    async def _look_at(self, workload: Workload, name: str, node: Node | None, left: float) -> None:
        pods = self._places.of_workload(self._of_pods(workload))
        if not sends_pods_to(workload, name):
            await self._end(hopeless(pods, name), name)
            return
        if self._has_variant(workload):
            return
        taints = acceptance(node, workload, flavors_by_name(self._mirrors.flavors))
        there = [pod for pod in pods if pod.spec.node_name == name]
        found = health(node, taints, there, self._gates, left=left)
        if found is NodeHealth.FAILED:
            await self._end(hopeless(pods, name), name)
            await self._note(workload, name)
        elif found is NodeHealth.FINE:
            status = after_recovery(workload, name)
            if status != workload.status:
                await self._writes.status(self._mirrors.workloads, workload, status)

    async def _note(self, workload: Workload, node: str) -> None:
        status = after_failure(workload, node, now=self._writes.now)
        if status == workload.status:
            return
        stored = await self._writes.status(self._mirrors.workloads, workload, status)
        log.info("node_failed", node=node, workload=workload.metadata.key)
        if condition_true(stored.status.conditions, EVICTED):
            evicted = next(c for c in stored.status.conditions if c.type == EVICTED)
            self._writes.record(
                WORKLOADS, stored.metadata, f"EvictedDueTo{NODE_FAILURES}", evicted.message
            )

    async def _end(self, pods: list[QueuedPod], node: str) -> None:
        """Let pods fail that can be scheduled nowhere, so that others are made for them."""
        message = f"The pod may only go to the node {node}, which is not, or no longer, its place"
        for pod in pods:
            condition = Condition(
                TERMINATED_BY, "True", UNSCHEDULABLE, message, timestamp(self._writes.now)
            )
            try:
                await self._fail(pod, condition)
            except ApiError as error:  # the workload is not to wait for it
                log.warning("pod_status_not_written", pod=pod.metadata.key, error=str(error))
                continue
            self._writes.record(PODS, pod.metadata, TERMINATED_EVENT, message)

    async def _fail(self, pod: QueuedPod, condition: Condition) -> None:
        conditions = msgspec.to_builtins(with_condition(pod.status.conditions, condition))
        phase = pod.status.phase if has_ended(pod) else "Failed"
        patch = merge_patch(pod.metadata, status={"phase": phase, "conditions": conditions})
        await self._writes.patch(self._mirrors.placed, pod, patch, subresource="status")

    def _may_be_forced(self, pod: QueuedPod) -> bool:
        return (
            self._gates.failure_recovery_policy and bool(pod.spec.node_name) and may_be_forced(pod)
        )

    async def _end_by_force(self, node: str) -> list[float]:
        """End pods on an unreachable node whose owners allow it, and whose time is over.

        Returns:
            The seconds until more may be ended.

        Raises:
            ApiError: If that of one did not succeed; all others are ended before.
        """
        lefts, errors = [], []
        for pod in self._places.on_node(node):
            if pod.spec.node_name != node or not self._may_be_forced(pod):
                continue
            lefts.append(forced_in(pod, now=self._writes.now))
            if lefts[-1] > 0:
                continue
            try:
                await self._force(pod)
            except ApiError as error:
                errors.append(error)
        if errors:
            raise errors[0]
        return lefts

    async def _force(self, pod: QueuedPod) -> None:
        condition = forced_end(pod, now=self._writes.now)
        if not condition_true(pod.status.conditions, condition.type):
            await self._fail(pod, condition)
            log.info("pod_ended_by_force", pod=pod.metadata.key, node=pod.spec.node_name)
            metadata, reason = pod.metadata, condition.reason
            self._writes.record(PODS, metadata, reason, condition.message, warning=True)
        await self._writes.delete(self._mirrors.placed, pod, grace_seconds=0)


def _key(node: str) -> ReconcileKey:
    return ReconcileKey("Node", "", node)


def _health_of(node: Node) -> tuple[object, ...]:
    return node.ready, node.not_ready_since, node.spec.taints
