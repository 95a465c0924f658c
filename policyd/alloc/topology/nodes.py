"""The cluster's nodes, and their usage by pods and workloads, kept up to date."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple

from policyd.alloc.queue import FlavorSpec
from policyd.alloc.topology.counts import CountCache
from policyd.alloc.topology.tree import NodeRoom, TopologyTree
from policyd.alloc.topology.values import (
    HOSTNAME,
    PODS,
    DomainValues,
    Placement,
    TopologyNode,
    TopologyPlacement,
)


@dataclass(slots=True)
class DomainUsage:
    """Usage of domains by their names.

    Attributes:
        used: Usage of each domain; amounts of 0 may stay.
        trees: The topologies of which these are domains.
    """

    used: dict[DomainValues, dict[str, int]] = field(default_factory=dict)
    trees: list[TopologyTree] = field(default_factory=list)

    def charge(self, placement: Placement, sign: int) -> None:
        """Use more, or with a `sign` of -1 less, by the usage of placed pods."""
        requests = {**placement.requests, PODS: 1}
        for domain, count in placement.assignment.domains:
            used = self.used.setdefault(domain, {})
            for resource, amount in requests.items():
                used[resource] = used.get(resource, 0) + sign * amount * count


class OtherPod(NamedTuple):
    """A pod that no topology placed: its node, and its usage there."""

    node: str
    requests: Mapping[str, int]


class ClaimedOfNode(NamedTuple):
    """What a node has that pods get by claims: of each resource all, and the part for workloads."""

    devices: Mapping[str, int]
    room: Mapping[str, int]


_NONE_CLAIMED = ClaimedOfNode({}, {})


class Nodes:
    """Nodes, pods that are not ours, and the topologies that flavors put them in.

    Attributes:
        trees: Topologies by flavor.
        counts: The counts of each of them.
        rooms: Nodes by name, with their room for workloads.
        taken: Usage of pods that no topology placed, by node and resource.
        claimed: What pods get by claims, by node.
        claimable: What of it limits them: no more is placed on a node than it has.
        held: Holdings, by workload.
    """

    def __init__(self, *, overlapping: bool = True) -> None:
        """Start without nodes; flavors of the same nodes know of each other if `overlapping`."""
        self.trees: dict[str, TopologyTree] = {}
        self.counts: dict[str, CountCache] = {}
        self.taken: dict[str, dict[str, int]] = {}
        self.claimed: Mapping[str, ClaimedOfNode] = {}
        self.claimable: Set[str] = frozenset()
        self.held: dict[str, tuple[Placement, ...]] = {}
        self.rooms: dict[str, NodeRoom] = {}
        self._overlapping = overlapping
        self._pods: dict[str, OtherPod] = {}
        self._usage: defaultdict[tuple[str, bool], DomainUsage] = defaultdict(DomainUsage)
        self._log: dict[str, tuple[Placement, ...]] | None = None

    def put(self, node: TopologyNode) -> None:
        """Add or change a node. The cost is proportional to the change."""
        before = self.rooms.get(node.name)
        if before is not None and before.node == node:
            return
        devices, ours = self.claimed.get(node.name, _NONE_CLAIMED)
        amounts = {**node.allocatable, **ours}
        assert self._log is None, "nodes do not change during a trial"
        for resource, amount in self.taken.get(node.name, {}).items():
            amounts[resource] = amounts.get(resource, 0) - amount
        room = self.rooms[node.name] = NodeRoom(node, amounts, devices)
        for tree in self.trees.values():
            tree.put(room)

    def remove(self, name: str) -> None:
        """Remove a node, if it exists."""
        assert self._log is None, "nodes do not change during a trial"
        if self.rooms.pop(name, None) is not None:
            for tree in self.trees.values():
                tree.remove(name)

    def node(self, name: str) -> TopologyNode | None:
        """Return a node, None if there is none of that name."""
        room = self.rooms.get(name)
        return None if room is None else room.node

    def put_claimed(self, claimed: Mapping[str, ClaimedOfNode], claimable: Set[str]) -> bool:
        """Set what pods get by claims; tell whether that may leave workloads more room.

        Args:
            claimed: By node.
            claimable: The resources of which no more is placed on a node than it has.
        """
        before, self.claimed = self.claimed, claimed
        more = not self.claimable <= claimable
        self.claimable = claimable
        for name in [name for name in {**before, **claimed} if name in self.rooms]:
            (had, old), (devices, new) = (
                each.get(name, _NONE_CLAIMED) for each in (before, claimed)
            )
            if had == devices and old == new:
                continue
            change = {each: new.get(each, 0) - old.get(each, 0) for each in {**old, **new}}
            change = {each: amount for each, amount in change.items() if amount}
            room = self.rooms[name]
            room.claimed = devices
            for resource, amount in change.items():
                room.amounts[resource] = room.amounts.get(resource, 0) + amount
            for tree in self.trees.values() if change else ():
                tree.add(name, change, 1)
            more = more or max(change.values(), default=0) > 0
        for tree in self.trees.values():
            tree.claimable = claimable
        return more

    def put_pod(self, key: str, node: str, requests: Mapping[str, int]) -> str:
        """Count a running pod that no topology placed; return the node with more room, or ""."""
        pod, before = OtherPod(node, {**requests, PODS: 1}), self._pods.get(key)
        if before == pod:
            return ""
        if before is not None and before.node == node:
            old, new = before.requests, pod.requests
            more = {name: new.get(name, 0) - old.get(name, 0) for name in {**old, **new}}
            self._pods[key] = pod
            self._take(OtherPod(node, more), 1)
            return node if min(more.values()) < 0 else ""
        moved_from = self.remove_pod(key)
        self._pods[key] = pod
        self._take(pod, 1)
        return moved_from

    def remove_pod(self, key: str) -> str:
        """Stop counting a pod, and return the node it was on; "" if it was not counted."""
        pod = self._pods.pop(key, None)
        if pod is None:
            return ""
        self._take(pod, -1)
        return pod.node

    def put_flavor(self, flavor: FlavorSpec, levels: Sequence[str]) -> None:
        """Add a flavor with a topology of `levels`, the coarsest first, or change it."""
        self.remove_flavor(flavor.name)
        if not levels:
            return
        usage = self._domain_usage(flavor.name, levels[-1] == HOSTNAME)
        tree = self.trees[flavor.name] = TopologyTree(flavor, tuple(levels), usage.used)
        tree.claimable = self.claimable
        usage.trees.append(tree)
        self.counts[flavor.name] = CountCache(tree)
        for room in self.rooms.values():
            tree.put(room)

    def remove_flavor(self, name: str) -> None:
        """Remove a flavor, if it exists, and with it the topology of its nodes."""
        tree = self.trees.pop(name, None)
        if tree is not None:
            del self.counts[name]
            self._domain_usage(name, tree.to_nodes).trees.remove(tree)

    def hold(self, workload: str, holdings: Sequence[Placement]) -> None:
        """Charge a workload's holdings in place of its former ones."""
        before = self.held.get(workload, ())
        if self._log is not None:
            self._log.setdefault(workload, before)
        for sign, placements in ((-1, before), (1, holdings)):
            for placement in placements:
                usage = self._usage_of(placement)
                if self._log is None:
                    usage.charge(placement, sign)
                for tree in usage.trees:
                    tree.charge(placement, sign, tree.free)
        if holdings:
            self.held[workload] = tuple(holdings)
        else:
            self.held.pop(workload, None)

    def drop(self, workload: str) -> None:
        """Charge a workload for nothing any more."""
        self.hold(workload, ())

    def usage(self, flavor: str) -> dict[str, dict[str, int]]:
        """Return the usage of each lowest domain that is in use, by its values."""
        tree = self.trees[flavor]
        return {
            ",".join(domain): {name: amount for name, amount in used.items() if amount}
            for domain, used in self._domain_usage(flavor, tree.to_nodes).used.items()
            if any(used.values())
        }

    @contextmanager
    def trial(self) -> Iterator[None]:
        """Undo, at the end of the block, all changes of holdings in it."""
        log: dict[str, tuple[Placement, ...]] = {}
        outer, self._log = self._log, log
        try:
            yield
        finally:
            self._log = {}
            for workload, before in log.items():
                self.hold(workload, before)
            self._log = outer

    @contextmanager
    def assuming(self) -> Iterator[list[Placement]]:
        """Yield a list that `assume` adds to; at the end of the block, all of it is given back."""
        assumed: list[Placement] = []
        try:
            yield assumed
        finally:
            for placement in assumed:
                self._assume(placement, -1)

    def assume(self, placement: Placement, assumed: list[Placement]) -> None:
        """Take what is about to be held; it is not there even if workloads held nothing."""
        assumed.append(placement)
        self._assume(placement, 1)

    def _assume(self, placement: Placement, sign: int) -> None:
        for tree in self._usage_of(placement).trees:
            tree.charge(placement, sign, tree.free, tree.capacity)

    def stale_domain(self, flavor: str, assignment: TopologyPlacement) -> str:
        """Return the name of the first domain that is not there any more, "" if all are."""
        tree = self.trees.get(flavor)
        for domain, _ in assignment.domains:
            if tree is None or domain not in tree.leaves:
                return domain[0]
        return ""

    def _take(self, pod: OtherPod, sign: int) -> None:
        taken = self.taken.setdefault(pod.node, {})
        room = self.rooms.get(pod.node)
        for resource, amount in pod.requests.items():
            taken[resource] = taken.get(resource, 0) + sign * amount
            if room is not None:
                room.amounts[resource] = room.amounts.get(resource, 0) - sign * amount
        if not taken[PODS]:
            del self.taken[pod.node]
        for tree in self.trees.values():
            tree.add(pod.node, pod.requests, -sign)

    def _usage_of(self, placement: Placement) -> DomainUsage:
        to_nodes = placement.assignment.levels[-1:] == (HOSTNAME,)
        return self._domain_usage(placement.flavor, to_nodes)

    def _domain_usage(self, flavor: str, to_nodes: bool) -> DomainUsage:  # noqa: FBT001 - half of a key
        key = ("" if to_nodes and self._overlapping else flavor, to_nodes)
        return self._usage[key]
