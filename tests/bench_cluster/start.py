"""How long a controller takes from its start to its first decision, where there is much to read."""

import asyncio
import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from policyd.kube.client import PartialObject
from policyd.kube.connection import connection_from
from policyd.kube.http_client import HttpClient
from policyd.kube.resources import PODS, WORKLOADS, Resource
from policyd.kube.transport import Limits
from tests.bench.kube_server import pod
from tests.bench_cluster.harness import RESOURCES
from tests.bench_cluster.loads import Class, Load, queue_objects, shared_objects, workload
from tests.bench_cluster.processes import controller
from tests.bench_cluster.wire import Workload
from tests.controlplane.server import ControlPlane
from tests.live.processes import cpu_seconds, most_memory_mb

RACKS, HOSTS, PODS_A_NODE = 50, 100, 20
IN_FLIGHT, BATCH = 128, 5_000
WITHIN_SECONDS = 300
SECONDS, MEMORY_MB = 20, 500
"""The goals, for 5,000 nodes and 100,000 pods."""


async def measured(share: float, control_plane: ControlPlane, log: Path) -> dict[str, float]:
    """Fill a cluster, start a controller, and wait for its first decision.

    Args:
        share: Of the nodes and pods.
        control_plane: An API server with policyd's kinds.
        log: Where the controller logs to.

    Returns:
        Seconds from the process's start to the first decision, its CPU seconds and memory in MB.
    """
    kind = Class("small", 1, 0, 0, 0, pods=4, milli_cpu=1000, slice=1)
    load = Load("start", 1, 1, (kind,), racks=max(1, round(RACKS * share)), hosts=HOSTS)
    kubeconfig = str(control_plane.kubeconfig)
    connection = connection_from(os.environ, kubeconfig=kubeconfig)
    async with HttpClient(connection, limits=Limits(in_flight=IN_FLIGHT)) as client:
        for objects in (shared_objects(load), queue_objects(load)):
            made = list(objects)
            await _create(client, [(RESOURCES[obj["kind"]], obj) for obj in made])
        hosts = [f"node-{rack}-{host}" for rack in range(load.racks) for host in range(HOSTS)]
        pods = [_pod(n, hosts[n % len(hosts)]) for n in range(PODS_A_NODE * len(hosts))]
        for first in range(0, len(pods), BATCH):
            await _create(client, [(PODS, obj) for obj in pods[first : first + BATCH]])
            print(f"  {min(first + BATCH, len(pods))} of {len(pods)} pods are there", flush=True)
        asked = workload("queue-0-0", kind, 0)
        await _create(client, [(WORKLOADS, asked)])
        began = time.monotonic()
        with controller("policyd", kubeconfig, log) as pid:
            await _decided(client, asked["metadata"])
            return {
                "pods": len(pods),
                "seconds": time.monotonic() - began,
                "cpu": cpu_seconds(pid),
                "memory_mb": most_memory_mb(pid),
            }


async def _create(client: HttpClient, objects: Iterable[tuple[Resource, Any]]) -> None:
    async with asyncio.TaskGroup() as group:
        for resource, obj in objects:
            namespace = obj["metadata"].get("namespace", "")
            group.create_task(client.create(resource, obj, into=PartialObject, namespace=namespace))


def _pod(number: int, host: str) -> Any:
    made = pod(number)
    kept = {key: made["metadata"][key] for key in ("name", "labels", "annotations")}
    made["metadata"] = kept | {"namespace": "default"}
    made["metadata"]["labels"] = {"app": "train"}
    limits = {"cpu": "1", "memory": "1Gi"}
    containers = [
        {**container, "resources": {"limits": limits, "requests": limits}, "volumeMounts": []}
        for container in made["spec"]["containers"]
    ]
    made["spec"] = {**made["spec"], "nodeName": host, "containers": containers}
    return made


async def _decided(client: HttpClient, metadata: Any) -> None:
    deadline = time.monotonic() + WITHIN_SECONDS
    name, namespace = metadata["name"], metadata["namespace"]
    while True:
        seen = await client.get(WORKLOADS, name, into=Workload, namespace=namespace)
        if seen.holds("Admitted"):
            return
        if time.monotonic() > deadline:
            raise SystemExit(f"no decision within {WITHIN_SECONDS} s: {seen.status.conditions}")
        await asyncio.sleep(0.1)
