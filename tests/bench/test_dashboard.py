"""The page with 10,000 pending jobs, 5,000 nodes and 200 viewers: its time and its memory.

The viewers are as many users, signed in by a proxy: one user alone may not have that many views.
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
SECRET = "a-secret-of-the-proxy-in-front-of-the-page"
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
    """The page over a large cluster: its process, its address, and that of the cluster."""
    with process("-m", "tests.bench.page_api", str(PENDING), str(NODES)) as api:
        address = f"http://127.0.0.1:{json.loads(api.stdout.readline())['port']}"
        cluster = {"name": "c", "cluster": {"server": address}}
        context = {"name": "c", "context": {"cluster": "c", "user": "u"}}
        users = [{"name": "u", "user": {"token": "t"}}]
        config = {"clusters": [cluster], "contexts": [context], "users": users}
        kubeconfig = tmp_path / "kubeconfig"
        kubeconfig.write_text(yaml.safe_dump({**config, "current-context": "c"}))
        (tmp_path / "secret").write_text(SECRET)
        trusted = ("--proxy-secret-file", str(tmp_path / "secret"))
        with process(
            "-m", "policyd", "dashboard", "--kubeconfig", str(kubeconfig), *trusted
        ) as run:
            base = re.search(r"http://\S+", run.stdout.readline())[0].rstrip("/")
            yield run, base, address


def headers(user):
    """What the proxy says of a user."""
    return {"X-Policyd-Proxy-Secret": SECRET, "X-Forwarded-User": f"user-{user}"}


def megabytes(pid, field):
    status = Path(f"/proc/{pid}/status").read_text()
    return int(re.search(rf"{field}:\s+(\d+) kB", status)[1]) / 1024


def cpu_seconds(pid):
    return (
        sum(map(int, Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13])) / 100
    )


async def timed(session, url):
    began = time.perf_counter()
    async with session.get(url, headers=headers(0)) as answer:
        body = await answer.read()
        assert answer.status == 200, body[:300]
    return time.perf_counter() - began, len(body)


async def viewer(session, url, seen, user):
    """Note the time of each fragment."""
    timeout = aiohttp.ClientTimeout(total=None, sock_read=60)
    async with session.get(url, timeout=timeout, headers=headers(user)) as answer:
        assert answer.status == 200, (user, await answer.text())
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
    run, base, api = page
    cookies, connector = aiohttp.DummyCookieJar(), aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(cookie_jar=cookies, connector=connector) as session:
        report("memory of the page before its first request", megabytes(run.pid, "VmRSS"), "MB")
        await timed(session, f"{base}/")
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
    assert all(seen), f"{sum(not each for each in seen)} viewers were sent nothing"
    delays = update_delays(served, seen)
    assert len(delays) > 1, "too few updates to measure: the machine is busy with other work"
    asked = sum(since <= at < until for at in served) / (until - since)
    report(f"a page while {VIEWERS} look", meanwhile * 1e3, "ms", PAINT_MS)
    report(f"snapshots asked of the controller for {VIEWERS} viewers", asked, "/s", MOST_ASKED)
    report(f"processor time of a core for {VIEWERS} viewers", 100 * used, "%")
    report(f"updates, {len(delays)}: until the last viewer has it, in the middle",
           statistics.median(delays) * 1e3, "ms", UPDATE_MS)  # fmt: skip
    report("... nine of ten", statistics.quantiles(delays, n=10)[-1] * 1e3, "ms", UPDATE_MS)
    report(f"memory of the page with {VIEWERS} viewers", memory, "MB", MEGABYTES)
    report("... at its peak, while nodes are read", megabytes(run.pid, "VmHWM"), "MB")


@asynccontextmanager
async def watching(session, base):
    """Have viewers look while the block runs; give the times of the fragments of each.

    Raises:
        AssertionError: If one of them was refused: the others would be fewer than is said.
    """
    seen = [[] for _ in range(VIEWERS)]
    tasks = [
        asyncio.create_task(viewer(session, base + LIVE[n % len(LIVE)], times, n))
        for n, times in enumerate(seen)
    ]
    try:
        yield seen
    finally:
        for task in tasks:
            task.cancel()
        ends = await asyncio.gather(*tasks, return_exceptions=True)
    for end in ends:
        assert isinstance(end, asyncio.CancelledError), end or "the page ended what it sends"


def update_delays(served, seen):
    """Return how long after each snapshot the last viewer of it had what changed."""
    first = max(map(min, seen))
    delays = []
    for at, next_ in zip(served, [*served[1:], float("inf")], strict=True):
        if at < first:
            continue
        got = [max(inside) for each in seen if (inside := [t for t in each if at < t < next_])]
        if len(got) > VIEWERS // 8:
            delays.append(max(got) - at)
    return delays
