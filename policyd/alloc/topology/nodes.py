"""The cluster's nodes, what pods use of them, and what workloads hold, kept up to date."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from policyd.alloc.flavor import FlavorSpec
from policyd.alloc.topology.values import Holding, NodeSpec, TopologyAssignment


class Nodes:
    """Nodes, pods that are not ours, and the topologies that flavors put them in."""

    def put(self, node: NodeSpec) -> None:
        """Add a node, or change it. Costs what it changes."""
        raise NotImplementedError

    def remove(self, name: str) -> None:
        """Remove a node."""
        raise NotImplementedError

    def put_pod(self, key: str, node: str, requests: Mapping[str, int]) -> None:
        """Count a running pod that no topology placed: it takes `requests` and a pod of a node."""
        raise NotImplementedError

    def remove_pod(self, key: str) -> str:
        """Stop counting a pod, and return the node it was on; "" if it was not counted."""
        raise NotImplementedError

    def put_flavor(self, flavor: FlavorSpec, levels: Sequence[str]) -> None:
        """Add a flavor with a topology of `levels`, the coarsest first, or change it."""
        raise NotImplementedError

    def remove_flavor(self, name: str) -> None:
        """Remove a flavor, and with it the topology of its nodes."""
        raise NotImplementedError

    def hold(self, workload: str, holdings: Sequence[Holding]) -> None:
        """Charge what a workload holds, instead of what it held before."""
        raise NotImplementedError

    def drop(self, workload: str) -> None:
        """Charge a workload for nothing any more."""
        raise NotImplementedError

    @contextmanager
    def trial(self) -> Iterator[None]:
        """Take back, at the end of the block, whatever is held and dropped in it."""
        raise NotImplementedError
        yield

    def stale_domain(self, flavor: str, assignment: TopologyAssignment) -> str:
        """Return the name of the first domain that is not there any more, "" if all are."""
        raise NotImplementedError
