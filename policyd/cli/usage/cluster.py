"""What a cluster has of GPUs now: MIG profiles with room and quota, and stranded devices."""

from collections import defaultdict
from typing import NamedTuple

from policyd.alloc.amount import total_of
from policyd.alloc.value import Value
from policyd.api.kueue import ClusterQueue
from policyd.clock import SystemClock
from policyd.kube.client import Reader
from policyd.kube.errors import ForbiddenError, NotFoundError
from policyd.kube.pages import pages
from policyd.kube.resources import CLUSTER_QUEUES
from policyd.optimize.devices import GPU
from policyd.questions.node_listing import find_nodes
from policyd.questions.nodes import nodes_answer
from policyd.usage.rightsize import ProfileRoom, profile_rooms


class ClusterProfiles(NamedTuple):
    """The MIG profiles of a cluster; None if they are not known, with the reasons."""

    rooms: list[ProfileRoom] | None
    notes: tuple[str, ...] = ()


class StrandedDevice(Value, frozen=True, rename="camel"):
    """Stranded devices of a node, and the jobs that strand them."""

    node: str
    device: str
    stranded: int
    by: tuple[str, ...]


class StrandedNow(Value, frozen=True, rename="camel"):
    """The nodes with stranded devices, and what could not be found out."""

    nodes: tuple[StrandedDevice, ...]
    left_out: tuple[str, ...]


async def profiles_of_cluster(reader: Reader) -> ClusterProfiles:
    """Return the MIG profiles that nodes have, as far as the user may read that.

    Raises:
        ApiError: If the API server does not answer.
    """
    try:
        found = await find_nodes(reader, now=SystemClock().now())
        quotas: defaultdict[str, list[str]] = defaultdict(list)
        async for page in pages(reader, CLUSTER_QUEUES, into=ClusterQueue):
            for queue in page.items:
                for resource, flavor in _quotas(queue):
                    quotas[resource].append(f"{queue.metadata.name}/{flavor}")
    except (ForbiddenError, NotFoundError) as error:
        return ClusterProfiles(None, (f"MIG profiles: {error}",))
    taken: defaultdict[str, list[dict[str, int]]] = defaultdict(list)
    for pods in found.pods:
        taken[pods.node].append({name: n * pods.count for name, n in pods.requests.items()})
    nodes = []
    for node in found.nodes:
        used = total_of(*taken[node.name])
        free = {name: n - used.get(name, 0) for name, n in node.allocatable.items()}
        product = node.labels.get(f"{GPU}.product", "")
        nodes.append((node.name, product, node.allocatable, free))
    return ClusterProfiles(profile_rooms(nodes, quotas))


def _quotas(queue: ClusterQueue) -> list[tuple[str, str]]:
    """Return resource and flavor of each quota of a ClusterQueue that is not 0."""
    return [
        (resource.name, flavor.name)
        for group in queue.spec.resource_groups
        for flavor in group.flavors
        for resource in flavor.resources
        if str(resource.nominal_quota) != "0" or resource.borrowing_limit is None
    ]


async def stranded_now(reader: Reader) -> StrandedNow:
    """Return the stranded devices, as `policyd nodes` finds them.

    Raises:
        ApiError: If the API server refuses, or does not answer.
    """
    answer = await nodes_answer(reader, most=0, now=SystemClock().now())
    return StrandedNow(
        nodes=tuple(
            StrandedDevice(node=line.name, device=each.resource, stranded=each.amount, by=each.by)
            for line in answer.nodes
            for each in line.stranded
        ),
        left_out=answer.left_out,
    )
