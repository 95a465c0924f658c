"""When pending workloads start, as the controller forecasts it: learnt, stored and shown."""

import base64
import gzip

import pytest

from policyd.controller.queues.forecasts import (
    FIRST_SAVE_SECONDS,
    KEY,
    REFRESH_SECONDS,
    SAVE_SECONDS,
    share,
    start_row,
)
from policyd.controller.queues.learning import Learning
from policyd.controller.run import LATER_SECONDS
from policyd.controller.settings import ForecastsSettings
from policyd.forecast.correction import Interval
from policyd.forecast.starts import StartForecast
from policyd.kube import resources as r
from policyd.snapshot.reading import find
from tests.controller.queues.test_snapshots import seen
from tests.controller.queues.test_visibility import app_of, plainly
from tests.controller.world import World, pod_spec

pytestmark = pytest.mark.anyio

MEMORY = "policyd/memory"


@pytest.fixture
async def world():
    world = World()
    world.forecasts = ForecastsSettings(memory=MEMORY)
    world.furnish(gpus=8)
    yield world
    await world.kill()


def start(world, name):
    workload = world.workload_of(name)["metadata"]["name"]
    return world.controller.cache.starts.get(f"ns/{workload}")


LIMIT = {"kueue.x-k8s.io/max-exec-time-seconds": "600"}


async def test_a_job_behind_one_with_a_limit_starts_at_its_end(world):
    await world.start()
    world.job("runs", **LIMIT)
    await world.pass_time(1)
    since = world.clock.now()
    world.job("waits", **LIMIT)
    world.job("waits-longer", **LIMIT)
    await world.pass_time(2 * REFRESH_SECONDS)

    first, second = start(world, "waits"), start(world, "waits-longer")

    assert first.how == second.how == "exact"
    assert first.low == first.median == first.high == pytest.approx(since + 600, abs=2)
    assert second.median == pytest.approx(since + 1200, abs=2)


async def test_the_limit_of_the_job_itself_counts(world):
    await world.start()
    world.create(r.JOBS, job_body("runs", activeDeadlineSeconds=900))
    await world.pass_time(1)
    since = world.clock.now()
    world.create(r.JOBS, job_body("waits", activeDeadlineSeconds=900))
    await world.pass_time(2 * REFRESH_SECONDS)

    assert start(world, "waits").median == pytest.approx(since + 900, abs=2)


@pytest.mark.parametrize(
    ("pods", "expected"),
    [
        pytest.param({"a": ("", 900)}, 900, id="one-pod"),
        pytest.param({"a": ("g", 300), "b": ("g", 900)}, 900, id="the-longest-of-a-group"),
        pytest.param({"a": ("g", 300), "b": ("g", None)}, None, id="one-of-a-group-has-none"),
    ],
)
async def test_the_deadlines_of_pods_count(world, pods, expected):
    await world.start()
    for name, (group, deadline) in pods.items():
        pod = world.pod(name, gpus=8 // len(pods), group=group, total=len(pods))
        if deadline:
            spec = {**pod["spec"], "activeDeadlineSeconds": deadline}
            world.store.replace(r.PODS, pod, {**pod, "spec": spec})
    await world.pass_time(1)
    since = world.clock.now()
    world.create(r.JOBS, job_body("waits", activeDeadlineSeconds=900))
    await world.pass_time(2 * REFRESH_SECONDS)

    row = start(world, "waits")

    if expected is None:
        assert row.how == "NoHistory"
    else:
        assert row.median == pytest.approx(since + expected, abs=3)


def job_body(name, **spec):
    metadata = {"name": name, "labels": {"kueue.x-k8s.io/queue-name": "lq-cq"}}
    template = {"spec": pod_spec(8)}
    spec = {"suspend": True, "parallelism": 1, "template": template, **spec}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec}


async def test_without_limits_and_history_a_start_is_unknown_and_counted(world):
    await world.start()
    for name in ("runs", "waits", "waits-too"):
        world.job(name)
        await world.pass_time(1)
    await world.pass_time(2 * REFRESH_SECONDS)

    assert start(world, "waits").how == "NoHistory"
    registry = world.controller.health.metrics.registry
    assert registry.get_sample_value("policyd_forecasts", {"result": "NoHistory"}) == 2


async def ran(world, count=6, seconds=600):
    """Let jobs run, one after the other, for ten minutes each."""
    for number in range(count):
        world.job(f"train-{number}")
        await world.pass_time(seconds)
        world.end_job(f"train-{number}")
        await world.pass_time(1)


async def test_run_times_are_learnt_from_jobs_that_ended(world):
    await world.start()
    await ran(world)
    world.job("train-7")
    await world.pass_time(1)
    since = world.clock.now()
    world.job("train-8")
    await world.pass_time(2 * REFRESH_SECONDS)

    row = start(world, "train-8")

    assert row.how == "exact"
    assert row.low <= row.median <= row.high
    assert row.median == pytest.approx(since + 600, rel=0, abs=150)


async def test_what_was_learnt_outlives_the_controller(world):
    memory = {"metadata": {"name": "memory", "namespace": "policyd"}}
    world.put(r.CONFIG_MAPS, memory)
    await world.start()
    await ran(world)
    await world.pass_time(SAVE_SECONDS + 2 * REFRESH_SECONDS)
    await world.kill()
    for number in range(6):
        world.delete(r.JOBS, f"train-{number}")

    await world.start()
    world.job("train-7")
    await world.pass_time(1)
    world.job("train-8")
    await world.pass_time(2 * REFRESH_SECONDS)

    assert start(world, "train-8").how == "exact"


async def test_what_is_learnt_late_is_stored_soon(world):
    world.put(r.CONFIG_MAPS, {"metadata": {"name": "memory", "namespace": "policyd"}})
    await world.start()
    await world.pass_time(FIRST_SAVE_SECONDS + 2 * REFRESH_SECONDS)  # there is nothing to store
    await ran(world, count=1)

    await world.pass_time(FIRST_SAVE_SECONDS + 2 * REFRESH_SECONDS)

    assert KEY in world.store.get(r.CONFIG_MAPS, "policyd", "memory")["binaryData"]


@pytest.mark.parametrize("names", [True, False])
async def test_owners_and_names_are_stored_only_where_that_is_wanted(world, names):
    world.forecasts = ForecastsSettings(memory=MEMORY, names=names)
    world.put(r.CONFIG_MAPS, {"metadata": {"name": "memory", "namespace": "policyd"}})
    await world.start()
    await ran(world, count=2)
    await world.pass_time(FIRST_SAVE_SECONDS + 2 * REFRESH_SECONDS)

    stored = world.store.get(r.CONFIG_MAPS, "policyd", "memory")["binaryData"][KEY]
    text = gzip.decompress(base64.b64decode(stored)).decode()

    assert ('"train"' in text) is names
    assert ('"ns"' in text) is names
    assert "gpu=8" in text


@pytest.mark.parametrize("body", ["", "bm8=", "H4sI"])
async def test_a_damaged_memory_is_left_out(world, body):
    stored = {"metadata": {"name": "memory", "namespace": "policyd"}, "binaryData": {KEY: body}}
    world.put(r.CONFIG_MAPS, stored)
    await world.start()
    world.job("runs", **LIMIT)
    await world.pass_time(1)
    world.job("waits", **LIMIT)
    await world.pass_time(2 * REFRESH_SECONDS)

    assert start(world, "waits").how == "exact"


async def test_snapshots_have_forecasts(world):
    await world.start()
    for name in ("runs", "waits"):
        world.job(name, **LIMIT)
        await world.pass_time(1)
    await world.pass_time(2 * REFRESH_SECONDS)

    async with plainly(app_of(world, pace=world.clock.pace())) as port:
        found = await seen(port)

    assert find(found, "ns", "Job", "waits").start == start(world, "waits")


async def test_where_they_are_off_there_are_none(world):
    world.forecasts = ForecastsSettings(enabled=False)
    await world.start()
    for name in ("runs", "waits"):
        world.job(name, **LIMIT)
        await world.pass_time(1)
    await world.pass_time(2 * REFRESH_SECONDS)

    assert world.controller.cache.starts == {}


@pytest.mark.parametrize(
    ("lengths", "total", "most"),
    [
        pytest.param([3, 2], 10, 3, id="all"),
        pytest.param([100, 2], 10, 8, id="a-short-queue-leaves-room"),
        pytest.param([100, 100], 10, 5, id="evenly"),
        pytest.param([9] * 20, 10, 1, id="at-least-one"),
    ],
)
def test_each_queue_has_its_share_of_what_is_simulated(lengths, total, most):
    assert share(lengths, total) == most


@pytest.mark.parametrize(
    ("waits", "shown"),
    [
        pytest.param((1234, 1234, 1234), (1234, 1234, 1234), id="certain"),
        pytest.param((0, 1234, 98765), (0, 1200, 99000), id="two-digits"),
        pytest.param((0.4, 7.6, 12.4), (0, 8, 12), id="seconds"),
    ],
)
def test_waits_are_rounded_so_that_workloads_share_rows(waits, shown):
    low, median, high = waits
    row = start_row(StartForecast(interval=Interval(low, median, high)), now=1000.0)

    assert (row.low - 1000, row.median - 1000, row.high - 1000) == shown


def learnt(world):
    """How many runs are known to have ended, and to have been stopped before."""
    records = {
        each.names: each for each in world.controller.forecasts.forecaster.run_times.records()
    }
    every = records.get(())
    return (0, 0) if every is None else (sum(every.ended), sum(every.stopped))


async def test_a_run_that_was_stopped_has_not_ended(world):
    await world.start()
    world.job("runs")
    await world.pass_time(600)
    workload = world.workload_of("runs")
    stopped = {**workload, "spec": {**workload["spec"], "active": False}}
    world.store.replace(r.WORKLOADS, workload, stopped)
    await world.pass_time(5)

    assert learnt(world) == (0, 1)


async def test_a_job_that_is_deleted_has_ended(world):
    await world.start()
    world.job("runs")
    await world.pass_time(600)
    world.delete(r.JOBS, "runs")
    await world.pass_time(5)

    assert learnt(world) == (1, 0)


async def test_jobs_that_ended_before_the_first_start_are_learnt_from(world):
    world.forecasts = ForecastsSettings(enabled=False)
    await world.start()
    await ran(world, count=2)
    await world.kill()
    world.forecasts = ForecastsSettings()
    await world.start()
    await world.pass_time(LATER_SECONDS)

    assert learnt(world) == (2, 0)
    assert not world.controller.forecasts.forecaster.arrivals.past(), "there may have been others"


@pytest.mark.breaks
@pytest.mark.parametrize("step", ["catch_up", "gather", "known"])
async def test_a_workload_that_breaks_forecasts_stops_no_queue(world, monkeypatch, step):
    def fail(*_args, **_options):
        raise ZeroDivisionError

    world.forecasts = ForecastsSettings(enabled=False)
    await world.start()
    world.job("before")
    await world.pass_time(1)
    await world.kill()
    world.forecasts = ForecastsSettings()
    with monkeypatch.context() as broken:
        broken.setattr(Learning, step, fail)
        await world.start()
        world.job("waits", **LIMIT)
        await world.pass_time(2 * REFRESH_SECONDS)
        unknown = start(world, "waits")
    world.delete(r.JOBS, "before")
    await world.pass_time(2 * REFRESH_SECONDS)

    assert unknown is None or step == "catch_up"
    assert not world.suspended("waits")


async def test_jobs_that_are_alike_are_remembered_once(world):
    await world.start()
    await world.pass_time(LATER_SECONDS)
    for number in range(3):
        world.job(f"train-{number}")
        await world.pass_time(1)
    await world.pass_time(REFRESH_SECONDS)
    past = world.controller.forecasts.forecaster.arrivals.past()

    assert len(past) == 3
    assert len({id(each.workload) for each in past} | {id(each.traits) for each in past}) == 2
