"""Variants of one workload, each for one flavor: which of them may be admitted beside the others.

The flavors of a queue are in the order of preference. A variant that comes before the admitted one
takes its place, as far as the queue lets workloads migrate.
"""

from policyd.alloc.queue import QueueSpec
from policyd.alloc.reasons import Cause
from policyd.alloc.state import CoreState
from policyd.alloc.workload import QueuedWorkload


def variant_rank(spec: QueueSpec, workload: QueuedWorkload) -> int:
    """Return the place of a variant's flavor in its queue: the lower, the better."""
    places = {name: index for index, name in enumerate(spec.flavors)}
    named = workload.allowed_flavors or ()
    return min((places.get(name, len(places)) for name in named), default=len(places))


def admitted_siblings(state: CoreState, workload: QueuedWorkload) -> list[QueuedWorkload]:
    """Return the other variants of the same workload that are admitted."""
    queue = state.queues.get(workload.cluster_queue)
    if queue is None or not workload.variant_of:
        return []
    return [
        holding.workload
        for holding in queue.holdings.values()
        if holding.workload.variant_of == workload.variant_of
        and holding.workload.admitted
        and holding.workload.key != workload.key
    ]


def is_surpassed(state: CoreState, spec: QueueSpec, workload: QueuedWorkload) -> bool:
    """Tell whether a variant with a better flavor is admitted."""
    rank = variant_rank(spec, workload)
    return any(variant_rank(spec, each) < rank for each in admitted_siblings(state, workload))


def outcome_of_migration(spec: QueueSpec, workload: QueuedWorkload) -> Cause:
    """Return why a variant waits that could take the place of an admitted one.

    Returns:
        `Migrates` if the admitted one is to be stopped; `NotAcceptable` if it goes on.
    """
    if not spec.migrates:
        return "NotAcceptable"
    last = spec.last_acceptable
    places = spec.flavors.index(last) if last in spec.flavors else len(spec.flavors)
    return "Migrates" if variant_rank(spec, workload) <= places else "NotAcceptable"
