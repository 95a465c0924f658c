"""What the API client costs: its own CPU for a listed pod, a watched event, a patch.

The server is a process of its own and does not count. Plain HTTP: TLS adds 3 to 5 µs for a pod.
"""

import asyncio
import subprocess
import sys
import time
from contextlib import aclosing

import pytest
import uvloop

from policyd.jobs.pods import QueuedPod
from policyd.kube.client import PartialObject
from policyd.kube.connection import ApiConnection
from policyd.kube.http_client import HttpClient
from policyd.kube.informer import Informer
from policyd.kube.resources import PODS
from tests.bench.kube_server import EVENTS
from tests.bench.kube_server import PODS as POD_COUNT
from tests.bench.report import report

pytestmark = pytest.mark.bench


ROUNDS = 3
PATCHES = 2_000


@pytest.fixture(scope="module")
def server():
    command = [sys.executable, "-m", "tests.bench.kube_server"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield ApiConnection(server=f"http://127.0.0.1:{int(process.stdout.readline())}")
        finally:
            process.terminate()


def median(scenario, server, *, count):
    """Run a scenario several times; return its CPU in microseconds for one of `count` things."""

    async def timed():
        async with HttpClient(server) as client:
            began = time.thread_time()
            await scenario(client)
            return (time.thread_time() - began) / count * 1e6

    return sorted(uvloop.run(timed()) for _ in range(ROUNDS))[ROUNDS // 2]


def test_listing_pods_costs_little(server):
    kept = []

    async def scenario(client):
        kept.clear()
        continue_ = ""
        while True:
            page = await client.page(PODS, into=QueuedPod, continue_=continue_)
            kept.extend(page.items)
            if not (continue_ := page.continue_):
                break

    cost = median(scenario, server, count=POD_COUNT)

    assert len(kept) == POD_COUNT
    report("list: CPU a typed pod of 7.8 KB", cost, "µs", goal=40)


def test_watching_pods_costs_little(server):
    kept = {}

    async def scenario(client):
        async with aclosing(client.watch(PODS, into=QueuedPod, resource_version="1")) as events:
            async for event in events:
                kept[event.object.metadata.name] = event.object

    cost = median(scenario, server, count=EVENTS)

    assert len(kept) == 500
    report("watch: CPU a typed event of 7.8 KB", cost, "µs", goal=40)


def test_an_informer_adds_little_to_that(server):
    async def scenario(client):
        done = asyncio.Event()
        changes = 0

        def count(_change):
            nonlocal changes
            changes += 1
            if changes == 1_000:
                done.set()

        informer = Informer(client, PODS, into=QueuedPod, on_change=count)
        task = asyncio.ensure_future(informer.run())
        await done.wait()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    # 500 objects are listed ten times over, as the server makes only so many, and then changed.
    cost = median(scenario, server, count=POD_COUNT + 500)

    report("informer: CPU a pod, listed or changed", cost, "µs", goal=45)


def test_patches_cost_little(server):
    patch = {"metadata": {"labels": {"a": "b"}}}

    async def scenario(client):
        async def worker():
            for _ in range(PATCHES // 16):
                await client.patch(PODS, "a", patch, namespace="ml", into=PartialObject)

        await asyncio.gather(*(worker() for _ in range(16)))

    cost = median(scenario, server, count=PATCHES)

    report("patch: CPU one merge patch, answer of 7.8 KB read", cost, "µs", goal=300)
