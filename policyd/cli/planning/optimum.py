"""How near a packing is to the optimum: a certificate by CP-SAT, with a limit of time.

All workloads that hold quota or are pending may be packed anew, each whole or not at all: within
the quotas of each tree of Cohorts, and on the nodes if there are any. Flavors, topologies and
priorities do not count, so that no real packing can hold more than the bound.
"""

from dataclasses import dataclass
from typing import Any

from policyd.alloc.quota import QuotaNode
from policyd.alloc.state import CoreState
from policyd.alloc.workload import QueuedWorkload
from policyd.cli.planning.extras import extra


@dataclass(frozen=True, slots=True)
class Certificate:
    """What is proven of a packing.

    Attributes:
        held: GPUs that workloads hold.
        bound: GPUs that no packing exceeds.
        proven: Whether a packing is known that reaches the bound.
    """

    held: int
    bound: int
    proven: bool

    @property
    def gap(self) -> float:
        """How far the packing is from the bound at most, as a part of it."""
        return 0.0 if not self.bound else max(0.0, (self.bound - self.held) / self.bound)

    @property
    def sentence(self) -> str:
        """The certificate in words."""
        best = "the optimum" if self.proven else "what any packing can hold"
        return (
            f"packing: {self.held} GPUs held, {self.bound} at most: within "
            f"{100 * self.gap:.1f} % of {best}"
        )

    def as_json(self) -> dict[str, Any]:
        """Return the certificate for programs."""
        return {"held": self.held, "bound": self.bound, "gap": self.gap, "proven": self.proven}


class Optimum:
    """Certifies packings, by ortools."""

    def __init__(self, seconds: float) -> None:
        """Prepare, so that errors come before the simulation.

        Args:
            seconds: How long to search at most.

        Raises:
            PolicydError: If ortools is not installed.
        """
        self._seconds = seconds
        self._cp_model = extra("ortools.sat.python.cp_model", "optimum", "certificates")

    def certify(self, state: CoreState, resource: str) -> Certificate:
        """Return how near the packing of a state is to the optimum.

        Args:
            state: No workload in it is changed.
            resource: The resource that is packed.
        """
        state.settle()
        holding = {
            key: held.workload
            for queue in state.queues.values()
            for key, held in queue.holdings.items()
        }
        pending = [ticket.workload for queue in state.queues.values() for ticket in queue.pending]
        held = sum(_amount(each, resource) for each in holding.values())
        model = self._cp_model.CpModel()
        packed = {
            each.key: (each, model.new_bool_var(each.key))
            for each in (*holding.values(), *pending)
            if each.objection is None and _amount(each, resource)
        }
        self._limit_quotas(model, state, packed, resource)
        self._limit_nodes(model, state, packed, resource)
        for key, (_, chosen) in packed.items():
            model.add_hint(chosen, key in holding)
        model.maximize(sum(_amount(each, resource) * chosen for each, chosen in packed.values()))
        solver = self._cp_model.CpSolver()
        solver.parameters.max_time_in_seconds = self._seconds
        solver.parameters.num_workers = 1
        status = solver.solve(model)
        quota = sum(_quotas(state, resource).values())
        known = status in (self._cp_model.OPTIMAL, self._cp_model.FEASIBLE, self._cp_model.UNKNOWN)
        bound = int(solver.best_objective_bound + 1e-6) if packed and known else held
        return Certificate(
            held=held,
            bound=max(held, min(bound, quota) if quota else bound),
            proven=status == self._cp_model.OPTIMAL,
        )

    def _limit_quotas(
        self,
        model: Any,  # noqa: ANN401
        state: CoreState,
        packed: dict[str, Any],
        resource: str,
    ) -> None:
        """Add that each tree of Cohorts has its quotas."""
        hierarchy = state.tree.hierarchy
        for root, quota in _quotas(state, resource).items():
            chosen = [
                _amount(each, resource) * var
                for each, var in packed.values()
                if hierarchy.queues[each.cluster_queue].root is root
            ]
            model.add(sum(chosen) <= quota)

    def _limit_nodes(
        self,
        model: Any,  # noqa: ANN401
        state: CoreState,
        packed: dict[str, Any],
        resource: str,
    ) -> None:
        """Add that pods are on nodes, if flavors place them."""
        nodes = state.ledger.nodes
        usable = {name: room.node for name, room in nodes.rooms.items() if room.node.usable}
        if not nodes.trees or not usable:
            return
        on_node: dict[str, list[Any]] = {name: [] for name in usable}
        for key, (workload, chosen) in packed.items():
            for pod_set in workload.pod_sets:
                needed = pod_set.requests.get(resource, 0)
                if not needed:
                    continue
                pods = []
                for name in usable:
                    count = model.new_int_var(0, pod_set.count, f"{key}/{pod_set.name}/{name}")
                    pods.append(count)
                    on_node[name].append(needed * count)
                model.add(sum(pods) == pod_set.count * chosen)
        for name, node in usable.items():
            taken = nodes.taken.get(name, {}).get(resource, 0)
            model.add(sum(on_node[name]) <= node.allocatable.get(resource, 0) - taken)


def _amount(workload: QueuedWorkload, resource: str) -> int:
    return sum(each.count * each.requests.get(resource, 0) for each in workload.pod_sets)


def _quotas(state: CoreState, resource: str) -> dict[QuotaNode, int]:
    """Return the quota of each tree, by its root."""
    hierarchy, found = state.tree.hierarchy, dict[QuotaNode, int]()
    for nodes in (hierarchy.queues, hierarchy.cohorts):
        for node in nodes.values():
            amount = sum(q.nominal for (_, name), q in node.quotas.items() if name == resource)
            found[node.root] = found.get(node.root, 0) + amount
    return found
