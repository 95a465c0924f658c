"""How long it takes to forecast the starts of all pending workloads, with the core and without."""

import gc
from time import process_time

import pytest

from policyd.forecast.exact import exact_starts
from policyd.forecast.starts import DEFAULTS
from policyd.simulate.draws import DrawnNumbers
from policyd.simulate.scenario import Arrival
from tests.alloc.builders import queue, state
from tests.bench.report import report
from tests.bench.test_snapshots import timed
from tests.forecast.builders import forecaster, job, present

pytestmark = pytest.mark.bench

RUNNING, PENDING, GPUS = 150, 1_000, 400


def specs(queues):
    return [queue(f"q{n}", "c" if queues > 1 else "", gpu=GPUS // queues) for n in range(queues)]


def jobs(queues):
    """Jobs of one to eight GPUs, without declared run times, some of which run."""
    rng = DrawnNumbers("bench")
    found, free = [], float(GPUS)
    for number in range(RUNNING + PENDING):
        gpus = (1, 1, 1, 1, 1, 1, 2, 4, 8, 8)[int(10 * rng.next())]
        name = f"q{int(queues * rng.next())}"
        runs = number < RUNNING and free >= gpus
        free -= gpus if runs else 0
        since = 1.0 + number / 1_000 if runs else None
        at = number / 1_000
        found.append(job(f"w{number}", gpu=gpus, at=at, queue_name=name, since=since))
    return found


@pytest.mark.parametrize("queues", [1, 10])
@pytest.mark.parametrize("core", [True, False])
def test_forecasts_of_all_pending_workloads(queues, core):
    runs = [60.0 * 100 ** DrawnNumbers(f"{n}").next() for n in range(500)]
    of = forecaster(*runs)
    now = present(specs(queues), *jobs(queues), now=600.0, core=core)

    gc.collect()
    gc.freeze()  # as the controller does
    found, took, longest = timed(of.steps(now))
    gc.unfreeze()

    assert all(each.interval is not None for each in found.values())
    how = f"{DEFAULTS.exact_draws} draws by the core" if core else "by quotas alone"
    name = f"forecast, {len(found)} pending, {queues} queues, {DEFAULTS.draws} draws, {how}"
    report(name, took / 1e3, "s", 3.0)
    report(f"{name}, longest step", longest, "ms", 20)


@pytest.mark.parametrize("queues", [1, 10])
def test_one_draw_by_the_core(queues):
    rng = DrawnNumbers("run times")
    arrivals = [
        Arrival(
            workload=each.workload, at=600.0, run_seconds=600 + 5_000 * rng.next(),
            queued_at=each.workload.queued_at,
        )
        for each in jobs(queues)
    ]  # fmt: skip
    wanted = [each.workload.key for each in arrivals if each.workload.admission is None]

    began = process_time()
    found = exact_starts(lambda: state(*specs(queues)), arrivals, wanted=wanted, until=1e9)
    seconds = process_time() - began

    assert len(found) == len(wanted)
    report(f"one draw by the core, {len(wanted)} pending, {queues} queues", seconds, "s", 1.0)
