"""Whether anybody could be preempted at all: told without a search, since most often nobody could.

Who has the lowest priority in a queue stands for all who hold its quota: if a policy protects that
one, it protects the others.
"""

from policyd.alloc.cluster_queue import ClusterQueue
from policyd.alloc.hierarchy import Node, descendants
from policyd.alloc.options import QueueOptions
from policyd.alloc.preemption_search import may_preempt
from policyd.alloc.state import State
from policyd.alloc.workload import Workload


class Reach:
    """Tells of workloads whether they have anybody to preempt, while the state stays as it is."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._borrowers: dict[Node, list[ClusterQueue]] = {}

    def anybody(self, options: QueueOptions, workload: Workload) -> bool:
        """Tell whether a workload might find victims; if not, it certainly finds none."""
        policy, node = options.spec.preemption, options.node
        least = self._state.queues[node.name].least
        if least is not None and may_preempt(policy.within_cluster_queue, workload, least):
            return True
        reclaim = policy.reclaim_within_cohort
        if reclaim == "Never" or node.parent is None:
            return False
        others = (queue.least for queue in self._borrowing(node.root))
        return any(each is not None and may_preempt(reclaim, workload, each) for each in others)

    def _borrowing(self, root: Node) -> list[ClusterQueue]:
        """Return the queues of a tree that use more than they have of anything."""
        found = self._borrowers.get(root)
        if found is None:
            queues = [self._state.queues[n.name] for n in descendants(root) if n.queue]
            found = self._borrowers[root] = [each for each in queues if self._borrows(each)]
        return found

    def _borrows(self, queue: ClusterQueue) -> bool:
        usage, subtree = self._state.tree.usage, self._state.tree.subtree
        cells = () if queue.node is None else queue.node.cells.values()
        return any(usage[cell] > subtree[cell] for cell in cells)
