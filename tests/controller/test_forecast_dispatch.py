"""The forecast dispatcher, with a controller that makes forecasts on each worker."""

import pytest

from policyd.controller.queues.forecasts import REFRESH_SECONDS
from policyd.controller.settings import ForecastsSettings
from policyd.kube import resources as r
from policyd.multikueue.dispatch import ROUND_SECONDS
from policyd.multikueue.forecasts import PATIENCE_SECONDS
from policyd.multikueue.settings import FORECAST
from tests.controller.clusters import Manager, clusters, job, where

pytestmark = pytest.mark.anyio


def forecasting(*rooms, **settings):
    manager = Manager(*rooms, dispatcher=FORECAST, **settings)
    for worker in manager.workers.values():
        worker.forecasts = ForecastsSettings()
    return manager


def busy(world, seconds):
    """Have a job run that takes all devices, and declares how long."""
    world.job("busy", gpus=8)
    stored = world.get(r.JOBS, "busy")
    spec = {**stored["spec"], "activeDeadlineSeconds": seconds}
    world.put(r.JOBS, {**stored, "spec": spec})


def nominated(manager, name):
    return manager.workload_of(name)["status"].get("nominatedClusterNames", [])


def copies(manager):
    return {name: len(found) for name, found in manager.remote(r.WORKLOADS).items()}


async def test_a_job_goes_where_there_is_room_and_nowhere_else():
    manager = forecasting(0, 8)
    async with clusters(manager):
        job(manager, "train")
        await manager.pass_time(1)
        assert copies(manager)["east"] == 0
        await manager.pass_time(5)
        assert where(manager, "train") == "west"
        assert copies(manager) == {"east": 0, "west": 1}


async def test_jobs_that_come_together_do_not_all_go_to_the_same_room():
    manager = forecasting(8, 8)
    for name in ("one", "two"):
        job(manager, name)
    async with clusters(manager):
        await manager.pass_time(3)
        assert {where(manager, name) for name in ("one", "two")} == {"east", "west"}
        assert copies(manager) == {"east": 1, "west": 1}


async def test_a_job_waits_where_it_is_forecast_to_start_first():
    manager = forecasting(8, 8)
    for name, seconds in (("east", 3600), ("west", 900)):
        busy(manager.workers[name], seconds)
    async with clusters(manager):
        await manager.pass_time(2 * REFRESH_SECONDS)
        job(manager, "train")
        await manager.pass_time(PATIENCE_SECONDS + 5)
        assert nominated(manager, "train") == ["west"]
        assert copies(manager) == {"east": 1, "west": 2}
        manager.workers["west"].end_job("busy")
        await manager.pass_time(10)
        assert where(manager, "train") == "west"


async def test_a_job_that_would_start_much_sooner_elsewhere_moves():
    manager = forecasting(8, 8)
    for name, seconds in (("east", 7200), ("west", 3600)):
        busy(manager.workers[name], seconds)
    async with clusters(manager):
        await manager.pass_time(2 * REFRESH_SECONDS)
        job(manager, "train")
        await manager.pass_time(PATIENCE_SECONDS + 5)
        assert nominated(manager, "train") == ["west"]
        manager.workers["east"].end_job("busy")
        await manager.pass_time(ROUND_SECONDS + 10)
        assert where(manager, "train") == "east"
        assert copies(manager) == {"east": 2, "west": 1}


async def test_workers_without_forecasts_are_tried_some_at_a_time():
    manager = forecasting(0, 0, step=1)
    manager.untold.update(manager.workers)
    job(manager, "train")
    async with clusters(manager):
        await manager.pass_time(PATIENCE_SECONDS - 10)
        assert nominated(manager, "train") == []
        await manager.pass_time(15)
        assert nominated(manager, "train") == ["east"]
        await manager.pass_time(ROUND_SECONDS + PATIENCE_SECONDS + 5)
        assert nominated(manager, "train") == ["east", "west"]


async def test_a_worker_that_is_cut_off_is_given_up_for_another():
    manager = forecasting(8, 8)
    for name, seconds in (("east", 3600), ("west", 7200)):
        busy(manager.workers[name], seconds)
    async with clusters(manager):
        await manager.pass_time(2 * REFRESH_SECONDS)
        job(manager, "train")
        await manager.pass_time(PATIENCE_SECONDS + 5)
        assert nominated(manager, "train") == ["east"]
        manager.cut.add("east")
        await manager.pass_time(60)
        assert nominated(manager, "train") == ["west"]
