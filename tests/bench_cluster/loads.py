"""Kueue's performance scenarios as objects: cohorts of queues, and workloads that come in time.

Their figures are those of `test/performance/scheduler`. Workloads stand for themselves: there are
no jobs, and no pods.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from policyd.api.kueue.names import RESOURCE_IN_USE_FINALIZER
from tests.controlplane.nodes import RACK, node

KUEUE = "kueue.x-k8s.io/v1beta2"
FLAVOR = "rf"
CLASS_LABEL = "bench.example.com/class"
BLOCK, HOST = "cloud.provider.com/topology-block", "kubernetes.io/hostname"
NODE_GROUP = {"tas-node-group": "tas"}


@dataclass(frozen=True, slots=True)
class Class:
    """Workloads of one size, as every queue gets them one after the other.

    Attributes:
        count: How many a queue gets.
        every_ms: From one to the next.
        runtime_ms: How long one runs once it is admitted.
        pods: How many pods one has.
        milli_cpu: What each pod asks for.
        slice: With a topology: pods that may not be parted.
    """

    name: str
    count: int
    every_ms: int
    runtime_ms: int
    priority: int
    pods: int
    milli_cpu: int
    slice: int = 0


@dataclass(frozen=True, slots=True)
class Load:
    """A scenario."""

    name: str
    cohorts: int
    queues: int
    classes: tuple[Class, ...]
    racks: int = 0
    hosts: int = 0

    @property
    def workloads(self) -> int:
        return self.cohorts * self.queues * sum(kind.count for kind in self.classes)

    @property
    def seconds(self) -> float:
        """How long the workloads take to come."""
        return max(kind.count * kind.every_ms for kind in self.classes) / 1e3

    def part(self, share: float) -> "Load":
        """Return the same with a share of the workloads."""
        classes = (replace(c, count=max(1, round(c.count * share))) for c in self.classes)
        return replace(self, classes=tuple(classes))


NOMINAL, BORROWING = 20, 100
"""CPUs of each queue, and how many more it may borrow."""

LOADS = {
    load.name: load
    for load in (
        Load(
            "baseline",
            cohorts=5,
            queues=6,
            classes=(
                Class("small", 350, 100, 200, 50, pods=1, milli_cpu=1000),
                Class("medium", 100, 500, 500, 100, pods=1, milli_cpu=5000),
                Class("large", 50, 1200, 1000, 200, pods=1, milli_cpu=20_000),
            ),
        ),
        Load(
            "topology",
            cohorts=5,
            queues=6,
            classes=(
                Class("small", 350, 100, 200, 50, pods=2, milli_cpu=500, slice=1),
                Class("medium", 100, 500, 500, 100, pods=4, milli_cpu=1250, slice=2),
                Class("large", 50, 1200, 1000, 200, pods=8, milli_cpu=2500, slice=4),
            ),
            racks=10,
            hosts=64,
        ),
        Load(
            "large-scale",
            cohorts=10,
            queues=100,
            classes=(
                Class("small", 35, 60, 150, 50, pods=1, milli_cpu=1000),
                Class("medium", 11, 300, 350, 100, pods=1, milli_cpu=5000),
                Class("large", 4, 700, 700, 200, pods=1, milli_cpu=20_000),
            ),
        ),
    )
}

HELD = ("ClusterQueue", "ResourceFlavor", "Topology")
"""What the webhook gives a finalizer; there is no webhook here."""

REQUESTS = ("required", "preferred", "balanced")
"""What workloads of a topology ask for, in turns."""


def queue_names(load: Load) -> Iterator[tuple[str, str]]:
    """Iterate over the names of queues and their cohorts; a queue's namespace is called like it."""
    for cohort in range(load.cohorts):
        for queue in range(load.queues):
            yield f"queue-{cohort}-{queue}", f"cohort-{cohort}"


def shared_objects(load: Load) -> Iterator[Any]:
    """Iterate over the nodes, the topology and the flavor."""
    levels = (BLOCK, RACK, HOST)
    for rack in range(load.racks):
        for host in range(load.hosts):
            labels = {BLOCK: "block", RACK: f"rack-{rack}", **NODE_GROUP}
            offered = {"cpu": "96", "memory": "256Gi", "pods": "110"}
            made = node(f"node-{rack}-{host}", labels=labels, allocatable=offered)
            made["status"]["conditions"] = [{"type": "Ready", "status": "True"}]
            yield made
    if load.racks:
        yield _kueue("Topology", "default", {"levels": [{"nodeLabel": level} for level in levels]})
    placed = {"nodeLabels": NODE_GROUP, "topologyName": "default"} if load.racks else {}
    yield _kueue("ResourceFlavor", FLAVOR, placed)


def queue_objects(load: Load) -> Iterator[Any]:
    """Iterate over the namespaces and queues."""
    quota = {"name": "cpu", "nominalQuota": NOMINAL, "borrowingLimit": BORROWING}
    group = {"coveredResources": ["cpu"], "flavors": [{"name": FLAVOR, "resources": [quota]}]}
    preemption = {"reclaimWithinCohort": "Any", "withinClusterQueue": "LowerPriority"}
    for name, cohort in queue_names(load):
        yield {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        spec = {
            "cohortName": cohort,
            "namespaceSelector": {},
            "queueingStrategy": "BestEffortFIFO",
            "preemption": preemption,
            "resourceGroups": [group],
        }
        yield _kueue("ClusterQueue", name, spec)
        yield _kueue("LocalQueue", name, {"clusterQueue": name}, namespace=name)


def workload(queue: str, kind: Class, number: int) -> Any:
    """Return the workload of a queue and a class with this number."""
    request = {"cpu": f"{kind.milli_cpu}m"}
    container = {"name": "main", "image": "pause", "resources": {"requests": request}}
    pods: dict[str, Any] = {
        "name": "main",
        "count": kind.pods,
        "template": {"spec": {"restartPolicy": "Never", "containers": [container]}},
    }
    name = kind.name
    if kind.slice:
        asked = REQUESTS[number % len(REQUESTS)]
        pods["topologyRequest"] = _topology_request(asked, kind)
        name = f"{kind.name}-{asked}"
    spec = {"queueName": queue, "priority": kind.priority, "podSets": [pods]}
    found = _kueue("Workload", f"{kind.name}-{number}", spec, namespace=queue)
    found["metadata"]["labels"] = {CLASS_LABEL: name}
    return found


def _topology_request(asked: str, kind: Class) -> Any:
    if asked == "balanced":
        return {"podSetSliceRequiredTopology": RACK, "podSetSliceSize": kind.slice}
    return {asked: RACK}


def _kueue(kind: str, name: str, spec: Any, *, namespace: str = "") -> dict[str, Any]:
    metadata: dict[str, Any] = {"name": name, **({"namespace": namespace} if namespace else {})}
    if kind in HELD:
        metadata["finalizers"] = [RESOURCE_IN_USE_FINALIZER]
    return {"apiVersion": KUEUE, "kind": kind, "metadata": metadata, "spec": spec}
