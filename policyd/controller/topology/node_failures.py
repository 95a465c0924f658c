"""Follows the nodes that workloads were placed on: a failed one is noted on the workloads."""

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
from policyd.jobs.pods import QueuedPod
from policyd.kube.changes import Added, Change, Deleted, Modified
from policyd.kube.errors import ApiError
from policyd.kube.resources import PODS, WORKLOADS
from policyd.workload.node_health import (
    NODE_FAILURES,
    NodeHealth,
    acceptance,
    after_failure,
    after_recovery,
    goes_on,
    health,
    hopeless,
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
        if not self._gates.tas_failed_node_replacement:
            return None
        node = self._mirrors.nodes.get(key.name)
        left = seconds_left(node, self._gates, now=self._writes.now)
        for workload in self._concerned(key.name):
            await self._look_at(workload, key.name, node, left)
        return left or None

    def all_keys(self) -> list[ReconcileKey]:
        """Return all nodes that workloads were sent to."""
        return [_key(name) for name in sorted(self._sent_to)]

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
        pods = self._places.of_workload(workload)
        if not sends_pods_to(workload, name):
            await self._end(hopeless(pods, name), name)
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
            conditions = msgspec.to_builtins(with_condition(pod.status.conditions, condition))
            status = {"phase": "Failed", "conditions": conditions}
            patch = merge_patch(pod.metadata, status=status)
            try:
                await self._writes.patch(self._mirrors.placed, pod, patch, subresource="status")
            except ApiError as error:  # the workload is not to wait for it
                log.warning("pod_status_not_written", pod=pod.metadata.key, error=str(error))
                continue
            self._writes.record(PODS, pod.metadata, TERMINATED_EVENT, message)


def _key(node: str) -> ReconcileKey:
    return ReconcileKey("Node", "", node)


def _health_of(node: Node) -> tuple[object, ...]:
    return node.ready, node.not_ready_since, node.spec.taints
