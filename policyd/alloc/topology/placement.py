"""Where the pods of a workload go: the entry point."""

from collections.abc import Mapping, Sequence

from policyd.alloc.settings import DEFAULTS, Gates
from policyd.alloc.topology.nodes import Nodes
from policyd.alloc.topology.refusal import Refusal
from policyd.alloc.topology.values import TopologyAssignment, TopologyRequest

Outcome = TopologyAssignment | Refusal
"""What becomes of a pod set."""


def place(
    nodes: Nodes,
    requests: Mapping[str, Sequence[TopologyRequest]],
    *,
    gates: Gates = DEFAULTS.gates,
    empty: bool = False,
    failed_node: str = "",
) -> dict[str, Outcome]:
    """Find places for the pod sets of one workload; nothing is charged.

    Flavors are taken by name, pod sets in their order, those of a group together; each sees what
    those before it took. The first that cannot be placed ends the search.

    Args:
        nodes: What there is.
        requests: The workload's pod sets by the flavor that they got.
        gates: Which of Kueue's rules apply.
        empty: Whether to place as if no workload had places, only pods that are not ours.
        failed_node: Host name of a node whose pods need another place. What the pod sets hold
            elsewhere stays; those that hold nothing are left out.

    Returns:
        By pod set, its assignment or why it has none; pod sets after one with a refusal are
        missing. Pod sets of a group that cannot be placed have the same refusal.
    """
    raise NotImplementedError
