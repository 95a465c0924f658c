"""The queues as the core has them: without their workloads, and simulated with others."""

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from policyd.alloc.extension import Extension
from policyd.alloc.plan import Admit
from policyd.alloc.queue import CohortQuotas, FlavorAmounts, FlavorGroup, Quota
from policyd.alloc.quota import QuotaNode
from policyd.alloc.state import CoreState
from policyd.alloc.topology.values import PODS
from policyd.simulate.scenario import Arrival, Simulation


class ExactStarts(NamedTuple):
    """What a simulation found.

    Attributes:
        at: When workloads first get their quota, in seconds, by key.
        complete: Whether those that are not in `at` do not start before the end. If not, workloads
            preempt each other without an end, and nothing is known from then on.
    """

    at: Mapping[str, float]
    complete: bool


def exact_starts(
    make_state: Callable[[], CoreState],
    arrivals: Iterable[Arrival],
    *,
    wanted: Sequence[str],
    until: float,
) -> Generator[None, None, ExactStarts]:
    """Return when each wanted workload first gets its quota.

    Args:
        make_state: Makes a state with the queues and flavors, without workloads.
        arrivals: Running, pending and later workloads, with how long each will run.
        wanted: Keys of workloads.
        until: When to stop, in seconds.

    Yields:
        Nothing, after each cycle.
    """
    left, found = set(wanted), dict[str, float]()
    simulation = Simulation(make_state(), arrivals)
    for step in simulation.steps(until=until):
        yield
        for action in step.plan.actions:
            if isinstance(action, Admit) and action.workload.key in left:
                left.discard(action.workload.key)
                found[action.workload.key] = step.at
        if not left or simulation.unsettled:
            break
    return ExactStarts(found, complete=not (left and simulation.unsettled))


def cohorts_of(state: CoreState) -> Iterator[CohortQuotas]:
    """Yield the Cohorts of a state, those included that are only named."""
    for node in state.tree.hierarchy.cohorts.values():
        parent = "" if node.parent is None else node.parent.name
        yield CohortQuotas(name=node.name, parent=parent, groups=_groups(node), weight=node.weight)


def _groups(node: QuotaNode) -> tuple[FlavorGroup, ...]:
    by_flavor: dict[str, dict[str, Quota]] = {}
    for (flavor, resource), quota in node.quotas.items():
        by_flavor.setdefault(flavor, {})[resource] = quota
    return tuple(
        FlavorGroup(tuple(quotas), (FlavorAmounts(name=flavor, quotas=quotas),))
        for flavor, quotas in by_flavor.items()
    )


def emptied(
    state: CoreState, extend: Callable[[CoreState], Extension] | None
) -> Generator[None, None, CoreState]:
    """Return a state with the same flavors, quotas and nodes, and no workloads.

    Args:
        state: Left as it was.
        extend: Makes the extension of the new one, if there is to be one.

    Yields:
        Nothing, after each step.
    """
    new = CoreState(state.settings, extend)
    for flavor in list(state.flavors.values()):
        new.put_flavor(flavor)
    for cohort in list(cohorts_of(state)):
        new.put_cohort(cohort)
    for spec in [each.spec for each in state.queues.values()]:
        if spec is not None:
            new.put_queue(spec)
    yield
    new.ledger.nodes.put_claimed(state.ledger.nodes.claimed, state.ledger.nodes.claimable)
    rooms, taken = list(state.ledger.nodes.rooms.values()), dict(state.ledger.nodes.taken)
    for room in rooms:
        name = room.node.name
        new.ledger.nodes.put(room.node)
        if used := taken.get(name):
            requests = {resource: amount for resource, amount in used.items() if resource != PODS}
            new.ledger.nodes.put_pod(f"pods of {name}", name, requests)
        yield
    return new
