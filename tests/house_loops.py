"""How far a Workload and a Job travel through the controller: the files and calls that they pass.

Everything that the controller does because of one is counted: statuses, reasons and metrics, too.
"""

from collections import Counter

from policyd.kube import resources as r
from tests.controller.world import World, names, running
from tests.house import travelled

FAKES = "/policyd/testing/"
"""The API server in memory is a part of the tests, and not of the way."""


async def workload_way():
    """Count what a Workload passes from its watch event to the patch that admits it."""
    world = World()
    async with running(world):
        world.furnish()
        world.job("warm", gpus=1)
        await world.pass_time(2)
        workload = world.workload_of("warm")
        second = {key: workload[key] for key in ("apiVersion", "kind", "spec") if key in workload}
        second["metadata"] = {"name": "second", "labels": {}, "finalizers": []}
        with travelled() as calls:
            world.create(r.WORKLOADS, second)
            await world.pass_time(0.2)
        assert world.is_true("second", "QuotaReserved")
    return _of_product(calls)


async def job_way():
    """Count what a Job passes from its watch event to the Workload that stands for it."""
    world = World()
    async with running(world):
        world.furnish(gpus=1)
        world.job("warm", gpus=1)
        await world.pass_time(2)
        with travelled() as calls:
            world.job("second", gpus=1)
            await world.pass_time(0.1)
        assert len(names(world, r.WORKLOADS)) == 2
    return _of_product(calls)


def _of_product(calls):
    return Counter({name: count for name, count in calls.items() if FAKES not in name})
