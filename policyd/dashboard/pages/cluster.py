"""Nodes, and the pods on them."""

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Final

from policyd.dashboard.access import ResourceAttributes
from policyd.dashboard.feeds import Feeds
from policyd.dashboard.view import PageRequest, PageView
from policyd.dashboard.views.cluster import ClusterRead, cluster
from policyd.errors import PolicydError
from policyd.kube.client import Reader
from policyd.process import give_memory_back
from policyd.questions.node_listing import FoundNodes, find_nodes, pending_gangs
from policyd.questions.nodes import nodes_of_snapshot
from policyd.simulate.stranding import NodeLine, PendingGang, node_lines
from policyd.snapshot.values import QueueSnapshot

NODES_SECONDS: Final = 10.0
"""For how long nodes and pods are not listed again."""
_USUAL_LEVELS: Final = (
    ("cloud.provider.com/topology-block", "cloud.provider.com/topology-rack"),
    ("cloud.provider.com/topology-rack",),
    ("topology.kubernetes.io/zone",),
)
"""The labels by which hosts are grouped where no Topology names others."""
_NEEDED: Final = {
    "nodes": ResourceAttributes("list", "", "nodes"),
    "pods": ResourceAttributes("list", "", "pods"),
}
_OF_DEVICES: Final = {
    each: ResourceAttributes("list", "resource.k8s.io", each)
    for each in ("deviceclasses", "resourceclaims", "resourceslices")
}
"""Without these, devices that pods get by claims are left out."""


async def _read(request: PageRequest) -> ClusterRead:
    if not request.allowed >= _NEEDED.keys():
        return _of_snapshot(await request.snapshot())
    read = partial(_lines, request.client, request.feeds, request.now)
    key = "nodes", request.allowed
    found, problem = await request.feeds.shared(key, read, fresh_seconds=NODES_SECONDS)
    if problem is not None:
        request.notices.append(f"The nodes are shown as they were a while ago: {problem}.")
    return found


def _of_snapshot(snapshot: QueueSnapshot) -> ClusterRead:
    right = "you may not list the nodes and pods of the cluster"
    if not snapshot.nodes:
        return ClusterRead(None, missing=(f"nodes: {right}",))
    known = nodes_of_snapshot(snapshot)
    return ClusterRead(known.nodes, missing=(f"pods, and stranded devices: {right}",))


async def _lines(reader: Reader, feeds: Feeds, now: float) -> ClusterRead:
    """Return the nodes as all see them who may list all pods.

    Devices are stranded as all pending pods see it, of whatever scope: none of these is named.
    """
    snapshot, missing = None, tuple[str, ...]()
    try:
        snapshot = (await feeds.snapshot("")).snapshot
    except PolicydError as error:
        missing = (f"pods of pending workloads: {error}",)
    configuration = None if snapshot is None else snapshot.configuration
    found = await find_nodes(reader, now=now, configuration=configuration)
    gangs = [] if snapshot is None else [*pending_gangs(snapshot, found.flavors)]
    missing = (*found.left_out, *missing)
    lines = await asyncio.to_thread(_tried, found, gangs)
    return ClusterRead(lines, bool(gangs), missing)


def _tried(found: FoundNodes, gangs: Sequence[PendingGang]) -> list[NodeLine]:
    """Return the nodes with what is stranded on them; a large cluster takes a tenth of a second."""
    lines = [*node_lines(found.nodes, found.pods, gangs, found.levels or _USUAL_LEVELS)]
    give_memory_back()
    return lines


def _whole(to: ResourceAttributes, _scope: str) -> ResourceAttributes:
    """Return a right for the whole cluster, whatever is shown."""
    return to


VIEW: Final = PageView(
    path="/cluster",
    title="Cluster",
    template="cluster.html",
    read=_read,
    build=cluster,
    live=("figures", "racks", "hosts"),
    rights={word: partial(_whole, to) for word, to in {**_NEEDED, **_OF_DEVICES}.items()},
)
