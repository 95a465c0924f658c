"""Where the scenarios of a sweep are simulated: here, in processes, or on a Ray cluster.

The results are the same in each, and come in the order of the scenarios.
"""

import os
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import redirect_stdout
from multiprocessing import get_context
from socket import create_connection
from typing import Any, Final

from policyd.cli.formats.progress import progress
from policyd.cli.planning.extras import extra
from policyd.cli.planning.sweeps import Sweep, simulated
from policyd.config import without_usage_statistics
from policyd.errors import PolicydError, system_reason
from policyd.simulate.trace_runs import TraceFigures

_REACH_SECONDS: Final = 5.0

RETRIES: Final = 5
"""How often Ray simulates a scenario again whose worker was lost."""


def run_here(sweep: Sweep, workers: int) -> list[TraceFigures]:
    """Simulate all scenarios in this process, or in several.

    Args:
        sweep: The scenarios.
        workers: How many processes; with 1, it is this one.

    Raises:
        PolicydError: If a process was killed.
    """
    numbers = range(len(sweep.scenarios))
    if workers <= 1 or len(numbers) <= 1:
        each = (simulated(sweep, number) for number in numbers)
        return list(progress(each, "simulating", len(numbers)))
    try:
        with ProcessPoolExecutor(
            min(workers, len(numbers)), get_context("spawn"), _begin, (sweep,)
        ) as pool:
            return _in_order({pool.submit(_simulated, number): number for number in numbers})
    except BrokenProcessPool as error:
        hint = "it may have run out of memory: try fewer --workers"
        raise PolicydError("a process of the sweep was killed", hint=hint) from error


def cores() -> int:
    """Return how many processes can run at once here."""
    if sys.platform == "linux":
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _in_order(pending: dict[Any, int]) -> list[TraceFigures]:
    found: dict[int, TraceFigures] = {}
    for done in progress(as_completed(pending), "simulating", len(pending)):
        found[pending[done]] = done.result()
    return [found[number] for number in range(len(pending))]


_SWEEP: list[Sweep] = []
"""The sweep of a process: it is sent once, and not with each scenario."""


def _begin(sweep: Sweep) -> None:
    _SWEEP[:] = [sweep]


def _simulated(number: int) -> TraceFigures:
    return simulated(_SWEEP[0], number)


def run_on_ray(sweep: Sweep, address: str) -> list[TraceFigures]:
    """Simulate all scenarios on a Ray cluster; one whose worker is lost is simulated again.

    Args:
        sweep: The scenarios; they are put into the object store once.
        address: Of the cluster, such as `10.0.0.1:6379` or `ray://10.0.0.1:10001`.

    Raises:
        PolicydError: If Ray is not installed, or the cluster cannot be used.
    """
    without_usage_statistics()
    ray = extra("ray", "ray", "sweeps on Ray")
    _reach(address)
    with redirect_stdout(sys.stderr):  # where Ray's threads print what happens to workers
        return _with_ray(ray, sweep, address)


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


def _with_ray(ray: Any, sweep: Sweep, address: str) -> list[TraceFigures]:  # noqa: ANN401
    try:
        ray.init(address=address, log_to_driver=False, logging_level="error")
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise PolicydError(f"cannot use the Ray cluster `{address}`: {error}") from error
    try:
        return list(_on_ray(ray, sweep))
    except ray.exceptions.RayError as error:
        reason = str(error).strip().splitlines()[0]
        raise PolicydError(f"a scenario failed on the Ray cluster: {reason}") from error
    finally:
        ray.shutdown()


def _on_ray(ray: Any, sweep: Sweep) -> Iterator[TraceFigures]:  # noqa: ANN401 - no types
    shared = ray.put(sweep)
    task = ray.remote(num_cpus=1, max_retries=RETRIES)(simulated)
    numbers = range(len(sweep.scenarios))
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
