"""A queue by the allocation core itself: as exact as the core, and slower."""

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from typing import NamedTuple

from policyd.alloc.plan import Admit
from policyd.alloc.state import CoreState
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
