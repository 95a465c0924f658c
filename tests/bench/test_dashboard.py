"""The page with 10,000 pending jobs, 5,000 nodes and 200 viewers: its time and its memory.

What viewers cost the controller is the snapshots that the page asks it for, which do not become
more with viewers: `make bench K=snapshots` says what one costs.
"""

import asyncio
import json
import re
import statistics
import subprocess
import sys
import time
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import aiohttp
import pytest
import yaml

from tests.bench.report import report

pytestmark = [pytest.mark.bench, pytest.mark.anyio]

PENDING, NODES, VIEWERS = 10_000, 5_000, 200
PATHS = ("/", "/pending", "/cluster", "/pending?team=team-007")
LIVE = ("/live/", "/live/pending", "/live/cluster", "/live/pending?team=team-007")
PAINT_MS, UPDATE_MS, MEGABYTES = 1_000, 200, 100
MOST_ASKED = 0.5
"""Snapshots a second: one for the whole cluster every two seconds, by however many viewers."""
SETTLING_SECONDS, MEASURED_SECONDS = 8, 20


@contextmanager
def process(*command):
    with subprocess.Popen([sys.executable, *command], stdout=subprocess.PIPE, text=True) as run:
        try:
            yield run
        finally:
            run.kill()


@pytest.fixture
def page(tmp_path):
    """The page over a large cluster: its process, a link to it, and the address of the cluster."""
    with process("-m", "tests.bench.page_api", str(PENDING), str(NODES)) as api:
        address = f"http://127.0.0.1:{json.loads(api.stdout.readline())['port']}"
        cluster = {"name": "c", "cluster": {"server": address}}
        context = {"name": "c", "context": {"cluster": "c", "user": "u"}}
        users = [{"name": "u", "user": {"token": "t"}}]
        config = {"clusters": [cluster], "contexts": [context], "users": users}
        kubeconfig = tmp_path / "kubeconfig"
        kubeconfig.write_text(yaml.safe_dump({**config, "current-context": "c"}))
        with process("-m", "policyd", "dashboard", "--kubeconfig", str(kubeconfig)) as run:
            link = re.search(r"http://\S+", run.stdout.readline())[0]
            yield run, link, address


def megabytes(pid, field):
    status = Path(f"/proc/{pid}/status").read_text()
    return int(re.search(rf"{field}:\s+(\d+) kB", status)[1]) / 1024


def cpu_seconds(pid):
    return (
        sum(map(int, Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13])) / 100
    )


async def timed(session, url):
    began = time.perf_counter()
    async with session.get(url) as answer:
        body = await answer.read()
        assert answer.status == 200, body[:300]
    return time.perf_counter() - began, len(body)


async def viewer(session, url, seen):
    """Note the time of each fragment."""
    timeout = aiohttp.ClientTimeout(total=None, sock_read=60)
    async with session.get(url, timeout=timeout) as answer:
        assert answer.status == 200
        async for line in answer.content:
            if line.startswith(b"event: fragment"):
                seen.append(time.time())


async def paint(session, pid, base):
    """Look at each view twice, and report how long that took."""
    for path in PATHS:
        busy = cpu_seconds(pid)
        first, size = await timed(session, base + path)
        busy = cpu_seconds(pid) - busy
        again, _ = await timed(session, base + path)
        report(f"first paint of {path}, {size >> 10} KiB", first * 1e3, "ms", PAINT_MS)
        report("... of the processor, whatever else the machine does", busy * 1e3, "ms", PAINT_MS)
        report(f"... again, {megabytes(pid, 'VmRSS'):.0f} MB", again * 1e3, "ms", PAINT_MS)


async def test_a_large_cluster_with_many_viewers(page):
    run, link, api = page
    base = link.partition("/enter/")[0]
    connector = aiohttp.TCPConnector(limit=0)
    cookies = aiohttp.CookieJar(unsafe=True)
    async with aiohttp.ClientSession(cookie_jar=cookies, connector=connector) as session:
        report("memory of the page before its first request", megabytes(run.pid, "VmRSS"), "MB")
        await timed(session, link)
        await paint(session, run.pid, base)
        async with watching(session, base) as seen:
            await asyncio.sleep(SETTLING_SECONDS)
            busy, since = cpu_seconds(run.pid), time.time()
            await asyncio.sleep(MEASURED_SECONDS)
            used = (cpu_seconds(run.pid) - busy) / MEASURED_SECONDS
            memory, until = megabytes(run.pid, "VmRSS"), time.time()
            meanwhile, _ = await timed(session, f"{base}/")
        async with session.get(f"{api}/served") as answer:
            served = await answer.json()
    delays = update_delays(served, seen)
    asked = sum(since <= at < until for at in served) / (until - since)
    report(f"a page while {VIEWERS} look", meanwhile * 1e3, "ms", PAINT_MS)
    report(f"snapshots asked of the controller for {VIEWERS} viewers", asked, "/s", MOST_ASKED)
    report(f"processor time of a core for {VIEWERS} viewers", 100 * used, "%")
    report(f"updates, {len(delays)}: until the last viewer has it, in the middle",
           statistics.median(delays) * 1e3, "ms", UPDATE_MS)  # fmt: skip
    assert len(delays) > 1, "too few updates to measure: the machine is busy with other work"
    report("... nine of ten", statistics.quantiles(delays, n=10)[-1] * 1e3, "ms", UPDATE_MS)
    report(f"memory of the page with {VIEWERS} viewers", memory, "MB", MEGABYTES)
    report("... at its peak, while nodes are read", megabytes(run.pid, "VmHWM"), "MB")
    assert all(seen)


@asynccontextmanager
async def watching(session, base):
    """Have viewers look while the block runs; give the times of the fragments of each."""
    seen = [[] for _ in range(VIEWERS)]
    tasks = [
        asyncio.create_task(viewer(session, base + LIVE[n % len(LIVE)], times))
        for n, times in enumerate(seen)
    ]
    try:
        yield seen
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def update_delays(served, seen):
    """Return how long after each snapshot the last viewer of it had what changed."""
    first = max(min(each) for each in seen if each)
    delays = []
    for at, next_ in zip(served, [*served[1:], float("inf")], strict=True):
        if at < first:
            continue
        got = [max(inside) for each in seen if (inside := [t for t in each if at < t < next_])]
        if len(got) > VIEWERS // 8:
            delays.append(max(got) - at)
    return delays
