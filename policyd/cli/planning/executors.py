"""Where scenarios are simulated: here, in processes, or on a Ray cluster.

The results are the same in each, and come in the order of the scenarios. They are those of a sweep,
or of forecasts that are made of a trace.
"""

import os
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import redirect_stdout
from dataclasses import dataclass
from multiprocessing import get_context
from socket import create_connection
from typing import Any, Final, Generic, TypeVar

from policyd.cli.formats.progress import progress
from policyd.cli.planning.extras import extra
from policyd.environment import without_usage_statistics
from policyd.errors import PolicydError, system_reason

_REACH_SECONDS: Final = 5.0

RETRIES: Final = 5
"""How often Ray simulates a scenario again whose worker was lost, and how often in a row processes
here may be killed without the end of a scenario."""


S = TypeVar("S")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Scenarios(Generic[S, T]):
    """Scenarios that are simulated apart from each other.

    Attributes:
        shared: What all of them need; it is sent to each process once.
        count: How many they are.
        simulate: Simulates one, given that and its number; a function of a module.
    """

    shared: S
    count: int
    simulate: Callable[[S, int], T]


def run_here(scenarios: Scenarios[S, T], workers: int) -> list[T]:
    """Simulate all scenarios in this process, or in several; those of a killed one again.

    Args:
        scenarios: The scenarios.
        workers: How many processes; with 1, it is this one.

    Raises:
        PolicydError: If processes are killed again and again.
    """
    numbers = range(scenarios.count)
    if workers <= 1 or len(numbers) <= 1:
        each = (scenarios.simulate(scenarios.shared, number) for number in numbers)
        return list(progress(each, "simulating", len(numbers)))
    steps = _in_processes(scenarios, min(workers, len(numbers)))
    found = dict(progress(steps, "simulating", len(numbers)))
    return [found[number] for number in numbers]


def _in_processes(scenarios: Scenarios[S, T], workers: int) -> Iterator[tuple[int, T]]:
    """Yield the numbers of scenarios and their results, as they end.

    If a process is killed, those that had not ended are simulated again, in fewer processes: the
    usual reason is that memory was short.

    Raises:
        PolicydError: If processes are killed again and again, and nothing ends.
    """
    left, killed = dict.fromkeys(range(scenarios.count)), 0
    while left:
        context = get_context("spawn")
        try:
            with ProcessPoolExecutor(workers, context, _begin, (scenarios,)) as pool:
                pending = {pool.submit(_simulated, number): number for number in left}
                for done in as_completed(pending):
                    found = done.result()
                    killed, number = 0, pending[done]
                    del left[number]
                    yield number, found
        except BrokenProcessPool as error:
            killed, workers = killed + 1, max(1, workers // 2)
            if killed > RETRIES:
                hint = "they may have run out of memory: try --workers 1, or a shorter trace"
                message = f"{RETRIES + 1} processes of the sweep were killed in a row"
                raise PolicydError(message, hint=hint) from error


def cores() -> int:
    """Return how many processes can run at once here."""
    if sys.platform == "linux":
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


_SCENARIOS: list[Scenarios[Any, Any]] = []
"""Those of a process: they are sent once, and not with each number."""


def _begin(scenarios: Scenarios[Any, Any]) -> None:
    _SCENARIOS[:] = [scenarios]


def _simulated(number: int) -> Any:  # noqa: ANN401 - of any scenarios
    (scenarios,) = _SCENARIOS
    return scenarios.simulate(scenarios.shared, number)


def run_on_ray(scenarios: Scenarios[S, T], address: str) -> list[T]:
    """Simulate all scenarios on a Ray cluster; one whose worker is lost is simulated again.

    Args:
        scenarios: What they share is put into the object store once.
        address: Of the cluster, such as `10.0.0.1:6379` or `ray://10.0.0.1:10001`.

    Raises:
        PolicydError: If Ray is not installed, or the cluster cannot be used.
    """
    without_usage_statistics()
    ray = extra("ray", "ray", "sweeps on Ray")
    _reach(address)
    with redirect_stdout(sys.stderr):  # where Ray's threads print what happens to workers
        return _with_ray(ray, scenarios, address)


def _reach(address: str) -> None:
    """Check that a process listens there: Ray itself tries for many minutes.

    Raises:
        PolicydError: If not.
    """
    host, _, port = address.removeprefix("ray://").rpartition(":")
    try:
        create_connection((host.strip("[]"), int(port)), _REACH_SECONDS).close()
    except (OSError, ValueError, OverflowError) as error:
        reason = system_reason(error) if isinstance(error, OSError) else "it is not HOST:PORT"
        hint = "such as 10.0.0.1:6379, as `ray start --head` says"
        raise PolicydError(
            f"cannot use the Ray cluster `{address}`: {reason}", hint=hint
        ) from error


def _with_ray(ray: Any, scenarios: Scenarios[S, T], address: str) -> list[T]:  # noqa: ANN401
    try:
        ray.init(address=address, log_to_driver=False, logging_level="error")
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise PolicydError(f"cannot use the Ray cluster `{address}`: {error}") from error
    try:
        return list(_on_ray(ray, scenarios))
    except ray.exceptions.RayError as error:
        reason = str(error).strip().splitlines()[0]
        raise PolicydError(f"a scenario failed on the Ray cluster: {reason}") from error
    finally:
        ray.shutdown()


def _on_ray(ray: Any, scenarios: Scenarios[S, T]) -> Iterator[T]:  # noqa: ANN401 - no types
    shared = ray.put(scenarios.shared)
    task = ray.remote(num_cpus=1, max_retries=RETRIES)(scenarios.simulate)
    numbers = range(scenarios.count)
    pending = [task.remote(shared, number) for number in numbers]
    waiting = list(pending)

    def done() -> Iterator[None]:
        nonlocal waiting
        while waiting:
            ready, waiting = ray.wait(waiting, num_returns=1)
            yield from (None for _ in ready)

    for _ in progress(done(), "simulating", len(numbers)):
        pass
    yield from ray.get(pending)
