"""Whose turn it is among the LocalQueues of a ClusterQueue that asks for Volcano's orders.

By *dominant share* (DRF), it is that of which least is used of the resource it uses most of. By
*proportion*, that which has least of what it deserves: quota is divided by weight among those that
hold or want something, what one does not want among the others.
"""

from collections.abc import Mapping

from policyd.alloc.amount import total_of
from policyd.alloc.cluster_queue import ClusterQueue


def local_shares(queue: ClusterQueue, weights: Mapping[str, float]) -> dict[str, float]:
    """Return what each LocalQueue has, as a share; the lowest is next.

    Args:
        queue: The ClusterQueue; it has a specification.
        weights: Of LocalQueues, by `namespace/name`; 1 where it does not say.
    """
    assert queue.spec is not None, "only what has a specification has an order"
    total = total_of(*({r: q.nominal for r, q in f.quotas.items()} for g in queue.spec.groups
                       for f in g.flavors))  # fmt: skip
    held: dict[str, dict[str, int]] = {}
    for each in queue.holdings.values():
        name = each.workload.local_queue
        held[name] = total_of(held.get(name, {}), each.admission.totals())
    if queue.spec.opt_ins.order == "DominantShare":
        return {
            name: max((_ratio(n, total.get(r, 0)) for r, n in used.items()), default=0.0)
            / (weights.get(name, 1.0) or 1e-9)
            for name, used in held.items()
        }
    asked = dict(held)
    for ticket in queue.pending:
        name = ticket.workload.local_queue
        wanted = (pod_set.totals() for pod_set in ticket.workload.pod_sets)
        asked[name] = total_of(asked.get(name, {}), *wanted)
    shares = dict.fromkeys(asked, 0.0)
    for resource, amount in total.items():
        wanting = {name: each[resource] for name, each in asked.items() if each.get(resource)}
        for name, due in deserved(amount, wanting, weights).items():
            shares[name] = max(shares[name], _ratio(held.get(name, {}).get(resource, 0), due))
    return shares


def deserved(
    total: int, asked: Mapping[str, int], weights: Mapping[str, float]
) -> dict[str, float]:
    """Divide an amount by weight; nobody gets more than it asked for."""
    left, wanting, due = float(total), dict(asked), dict.fromkeys(asked, 0.0)
    while weight := sum(weights.get(name, 1.0) for name in wanting):
        parts = {name: left * weights.get(name, 1.0) / weight for name in wanting}
        met = [name for name in wanting if wanting[name] <= parts[name]]
        if not met:
            return due | parts
        for name in met:
            due[name] = float(wanting.pop(name))
            left -= due[name]
    return due


def _ratio(part: float, whole: float) -> float:
    return part / whole if whole else float(part > 0)
