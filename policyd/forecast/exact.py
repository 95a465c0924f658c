"""A queue by the allocation core itself: as exact as the core, and slower."""

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence

from policyd.alloc.plan import Admit
from policyd.alloc.state import CoreState
from policyd.simulate.scenario import Arrival, Simulation


def exact_starts(
    make_state: Callable[[], CoreState],
    arrivals: Iterable[Arrival],
    *,
    wanted: Sequence[str],
    until: float,
) -> Generator[None, None, Mapping[str, float]]:
    """Return when each wanted workload first gets its quota, in seconds.

    Args:
        make_state: Makes a state with the queues and flavors, without workloads.
        arrivals: Running, pending and later workloads, with how long each will run.
        wanted: Keys of workloads.
        until: When to stop, in seconds; workloads that do not start by then are left out.

    Yields:
        Nothing, after each cycle.
    """
    left, found = set(wanted), dict[str, float]()
    for step in Simulation(make_state(), arrivals).steps(until=until):
        yield
        for action in step.plan.actions:
            if isinstance(action, Admit) and action.workload.key in left:
                left.discard(action.workload.key)
                found[action.workload.key] = step.at
        if not left:
            break
    return found
