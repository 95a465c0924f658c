"""How long it takes to forecast the starts of all pending workloads, with the core and without."""

import gc
from collections import Counter

import pytest
from msgspec.structs import replace

from policyd.forecast.exact import exact_starts
from policyd.forecast.probes import probes_of, request_of
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
@pytest.mark.parametrize(
    ("core", "new_starts"),
    [(True, False), (False, False), (True, True)],
    ids=["core", "", "new"],
)
def test_forecasts_of_all_pending_workloads(queues, core, new_starts):
    runs = [60.0 * 100 ** DrawnNumbers(f"{n}").next() for n in range(500)]
    of = forecaster(*runs)
    known = jobs(queues)
    now = present(specs(queues), *known, now=600.0, core=core)
    if new_starts:
        requests = {}
        for each in known:
            name = each.workload.cluster_queue
            requests.setdefault(name, Counter())[request_of(each.workload)] += 1
        names = frozenset(requests)
        now = replace(now, probes=tuple(probes_of(requests, now=600.0)), plain=names)

    gc.collect()
    gc.freeze()  # as the controller does
    found, took, longest = timed(of.steps(now))
    gc.unfreeze()

    assert sum(each.interval is not None for each in found.values()) >= len(found) // 2
    how = f"{DEFAULTS.exact_draws} draws by the core" if core else "by quotas alone"
    name = f"forecast, {PENDING} pending, {queues} queues, {DEFAULTS.draws} draws, {how}"
    name += f", {len(now.probes)} new" if new_starts else ""
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

    found, took, _ = timed(
        exact_starts(lambda: state(*specs(queues)), arrivals, wanted=wanted, until=1e9)
    )

    assert len(found.at) == len(wanted)
    report(f"one draw by the core, {len(wanted)} pending, {queues} queues", took / 1e3, "s", 1.0)
