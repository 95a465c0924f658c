"""The order of LocalQueues in a ClusterQueue that asks for one of Volcano's orders.

By *dominant share* (DRF), the LocalQueue is next that uses least of the resource it uses most of.
By *proportion*, the one with the least part of its due: quota is divided by weight among those
that hold or request something; the unneeded part of one goes to the others.
"""

from collections.abc import Mapping
from math import inf

from policyd.alloc.amount import total_of
from policyd.alloc.cluster_queue import QueueState
from policyd.alloc.queue import quotas_of
from policyd.optimize.opt_ins import wants


def local_shares(queue: QueueState, weights: Mapping[str, float]) -> dict[str, float]:
    """Return each LocalQueue's share by its weight, or else 1; the lowest is next."""
    assert queue.spec is not None, "only what has a specification has an order"
    held: dict[str, dict[str, int]] = {}
    for each in queue.holdings.values():
        name = each.workload.local_queue
        held[name] = total_of(held.get(name, {}), each.admission.totals())
    asked, by_deserts = dict(held), wants(queue.spec).order == "Proportion"
    for ticket in queue.pending if by_deserts else ():
        name, pod_sets = ticket.workload.local_queue, ticket.workload.pod_sets
        asked[name] = total_of(asked.get(name, {}), *(pod_set.totals() for pod_set in pod_sets))
    shares = dict.fromkeys(asked, 0.0)
    quotas = quotas_of(queue.spec.groups).items()
    for resource, total in total_of(*({r: quota.nominal} for (_, r), quota in quotas)).items():
        wanting = {name: each[resource] for name, each in asked.items() if each.get(resource)}
        due = {name: total * weights.get(name, 1.0) for name in wanting}
        for name, part in (deserved(total, wanting, weights) if by_deserts else due).items():
            has = held.get(name, {}).get(resource, 0)
            shares[name] = max(shares[name], has / part if part else inf if has else 0.0)
    return shares


def deserved(
    total: int, asked: Mapping[str, int], weights: Mapping[str, float]
) -> dict[str, float]:
    """Divide an amount by weight; none gets more than it asked for."""
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
