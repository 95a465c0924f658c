"""Clusters that a trace runs on: the objects of a file, or made of a number of GPUs."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from msgspec.structs import replace

from policyd.alloc.state import CoreState
from policyd.alloc.topology.values import TopologyNode
from policyd.api.kueue.names import API_VERSION as KUEUE
from policyd.api.meta import Json
from policyd.cli.formats.scenarios import (
    scenario_local_queues,
    scenario_nodes,
    scenario_state,
)
from policyd.errors import did_you_mean
from policyd.patch.merge_patch import apply_merge_patch
from policyd.simulate.scenario import Arrival
from policyd.simulate.traces import GPU, TracedJob, TraceError, arrival_of, quotas_of

FLAVOR: Final = "gpus"
COHORT: Final = "trace"
NO_QUEUE: Final = "none"
"""The ClusterQueue, of a cluster that is made, of jobs that name no queue."""

HOSTNAME: Final = "kubernetes.io/hostname"
_NODES: Final = re.compile(r"(\d+)x(\d+)")

Objects = Sequence[dict[str, Json]]


@dataclass(frozen=True, slots=True)
class ClusterSize:
    """A cluster that is made for a trace.

    Attributes:
        gpus: How many it has.
        nodes: How many nodes; 0 if only quotas decide.
    """

    gpus: int
    nodes: int = 0


def size_of_nodes(text: str) -> ClusterSize:
    """Read `90x8`: nodes, and the GPUs of each.

    Raises:
        TraceError: If it cannot be read.
    """
    found = _NODES.fullmatch(text)
    if found is None or not int(found[1]) * int(found[2]):
        raise TraceError(f"`{text}` is not a number of nodes", hint="such as 90x8: 90 of 8 GPUs")
    return ClusterSize(gpus=int(found[1]) * int(found[2]), nodes=int(found[1]))


def made_cluster(size: ClusterSize, jobs: Iterable[TracedJob]) -> list[dict[str, Json]]:
    """Return the objects of a cluster: a ClusterQueue for each queue of a trace, in one Cohort.

    Each queue gets a quota by the GPU time of its jobs, and may borrow what others do not use.
    """
    quotas = quotas_of(jobs, size.gpus)
    cohort = {"cohortName": COHORT} if len(quotas) > 1 else {}
    queues = [
        _object(
            "ClusterQueue",
            name or NO_QUEUE,
            {
                **cohort,
                "namespaceSelector": {},
                "resourceGroups": [{"coveredResources": [GPU], "flavors": [_quota(quota)]}],
            },
        )
        for name, quota in quotas.items()
    ]
    if not size.nodes:
        return [_object("ResourceFlavor", FLAVOR, {}), *queues]
    return [
        _object("ResourceFlavor", FLAVOR, {"nodeLabels": {"gpu": "yes"}, "topologyName": "nodes"}),
        _object("Topology", "nodes", {"levels": [{"nodeLabel": HOSTNAME}]}),
        *queues,
        *(_node(number, size) for number in range(size.nodes)),
    ]


def _quota(gpus: int) -> dict[str, Json]:
    return {"name": FLAVOR, "resources": [{"name": GPU, "nominalQuota": str(gpus)}]}


def _object(kind: str, name: str, spec: dict[str, Json]) -> dict[str, Json]:
    return {"apiVersion": KUEUE, "kind": kind, "metadata": {"name": name}, "spec": spec}


def _node(number: int, size: ClusterSize) -> dict[str, Json]:
    name = f"node-{number:04}"
    allocatable = {GPU: str(size.gpus // size.nodes), "pods": "110"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"gpu": "yes", HOSTNAME: name}},
        "status": {
            "allocatable": allocatable,
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


def changed(objects: Objects, policy: Mapping[str, Any]) -> list[dict[str, Json]]:
    """Return objects with a policy: merge patches to all ClusterQueues, and to the Configuration.

    Args:
        objects: Left as they are.
        policy: `clusterQueues` and `configuration`, each a merge patch.
    """
    queues, configuration = policy.get("clusterQueues"), policy.get("configuration")
    found = [
        apply_merge_patch(each, queues) if queues and each["kind"] == "ClusterQueue" else each
        for each in objects
    ]
    if configuration:
        kind = "Configuration"
        old = next((each for each in found if each["kind"] == kind), None)
        new = apply_merge_patch(
            old or {"apiVersion": "config.kueue.x-k8s.io/v1beta2", "kind": kind}, configuration
        )
        found = [new, *(each for each in found if each is not old)]
    return found


class VirtualCluster:
    """A cluster without workloads.

    Attributes:
        state: Its queues and nodes.
        nodes: Its nodes.
        gpus: How many GPUs its quotas have.
    """

    def __init__(self, objects: Objects, resource: str = GPU) -> None:
        """Read the objects of a cluster.

        Args:
            objects: As in a file.
            resource: The resource that is counted.
        """
        objects = list(objects)
        self.state: CoreState = scenario_state(objects)
        self.nodes: list[TopologyNode] = list(scenario_nodes(objects))
        self._local = scenario_local_queues(objects)
        hierarchy = self.state.tree.hierarchy
        self.gpus = sum(
            quota.nominal
            for nodes in (hierarchy.queues, hierarchy.cohorts)
            for node in nodes.values()
            for (_, name), quota in node.quotas.items()
            if name == resource
        )
        self._covered = {
            name: {resource for _, resource in node.quotas}
            for name, node in hierarchy.queues.items()
        }

    def arrival(self, job: TracedJob) -> Arrival:
        """Return a job as it comes to its queue here.

        Raises:
            TraceError: If no queue is meant.
        """
        queue, local = self._queue(job)
        covered = self._covered.get(queue, set())
        pod_sets = tuple(
            replace(each, requests={k: n for k, n in each.requests.items() if k in covered})
            for each in job.pod_sets
        )
        return arrival_of(replace(job, pod_sets=pod_sets), queue, local)

    def _queue(self, job: TracedJob) -> tuple[str, str]:
        local = f"{job.team}/{job.queue}"
        if local in self._local:
            return self._local[local], local
        for name in (job.queue or NO_QUEUE, job.team):
            if name in self.state.queues:
                return name, ""
        if len(self.state.queues) == 1:
            return next(iter(self.state.queues)), ""
        near = did_you_mean(job.queue or job.team, self.state.queues)
        raise TraceError(
            f"job `{job.key}`: no ClusterQueue or LocalQueue for queue `{job.queue}`",
            hint=near or f"ClusterQueues: {', '.join(sorted(self.state.queues))}",
        )
