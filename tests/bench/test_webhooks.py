"""What a review costs the admission server: the real process, TLS, 10 KB pods.

CPU is the server's own, as the scheduler accounts for it, so that the client and the neighbours on
the machine do not count. Wall-clock figures are for information.
"""

import asyncio
import itertools
import json
import os
import ssl
import statistics
import subprocess
import sys
import time
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from policyd.certificates import Authority
from tests.bench.report import report
from tests.bench.reviewed import VERSION, injecting_policies, policies, request

pytestmark = pytest.mark.bench

REVIEWS, ROUNDS, CONNECTIONS = 3000, 3, 16
NEW_CONNECTIONS = 1000
RATE, SECONDS = 500, 6


class Server:
    """The admission server in a process of its own."""

    def __init__(self, running, port, trust):
        self.running = running
        self.port = port
        self.trust = trust

    def cpu_seconds(self):
        """CPU time that all threads of the process have had."""
        tasks = Path(f"/proc/{self.running.pid}/task").glob("*/schedstat")
        return sum(int(task.read_text().split()[0]) for task in tasks) / 1e9

    def memory_mb(self):
        rollup = Path(f"/proc/{self.running.pid}/smaps_rollup").read_text()
        pss = next(line for line in rollup.splitlines() if line.startswith("Pss:"))
        return int(pss.split()[1]) / 1024

    async def connect(self):
        return await asyncio.open_connection("127.0.0.1", self.port, ssl=self.trust)


@contextmanager
def server(folder, given):
    now = time.time()
    authority = Authority.create(now=now)
    pair = authority.issue(["127.0.0.1"], now=now)
    (folder / "tls.crt").write_bytes(pair.certificate_pem)
    (folder / "tls.key").write_bytes(pair.key_pem)
    (folder / "policies.yaml").write_text("\n---\n".join(map(json.dumps, given)))
    options = {"policies": "policies.yaml", "certificate": "tls.crt", "key": "tls.key"}
    files = [text for name, file in options.items() for text in (f"--{name}", str(folder / file))]
    command = [sys.executable, "-m", "webhooks", *files, "--host", "127.0.0.1", "--port", "0"]
    running = subprocess.Popen(
        [*command, "--log-format", "json"], stderr=subprocess.PIPE, env=dict(os.environ)
    )
    try:
        events = (json.loads(line) for line in running.stderr)
        port = next(event["port"] for event in events if event["event"] == "webhooks_started")
        trust = ssl.create_default_context(cadata=authority.certificate_pem.decode())
        yield Server(running, port, trust)
    finally:
        running.kill()
        running.wait()
        running.stderr.close()


_MARK, _NUMBERS = VERSION.encode(), itertools.count()


async def ask(reader, writer, text):
    writer.write(text.replace(_MARK, b"1%06d-rc" % (next(_NUMBERS) % 1_000_000)))
    head = await reader.readuntil(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200"), head
    length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
    answer = await reader.readexactly(length)
    assert b'"allowed":true' in answer, answer
    return answer


async def close(writer):
    writer.transport.abort()
    with suppress(OSError):
        await writer.wait_closed()


async def kept_alive(running, text, reviews=REVIEWS):
    """Send reviews over connections that stay; return CPU seconds a review and reviews a second."""
    connections = [await running.connect() for _ in range(CONNECTIONS)]

    async def client(reader, writer, count):
        for _ in range(count):
            await ask(reader, writer, text)

    async def send(count):
        each = count // CONNECTIONS
        await asyncio.gather(*(client(*connection, each) for connection in connections))

    await send(reviews // 3)
    costs, rates = [], []
    for _ in range(ROUNDS):
        cpu, wall = running.cpu_seconds(), time.perf_counter()
        await send(reviews)
        costs.append((running.cpu_seconds() - cpu) / reviews)
        rates.append(reviews / (time.perf_counter() - wall))
    for _, writer in connections:
        await close(writer)
    return statistics.median(costs), statistics.median(rates)


async def at_a_rate(running, text):
    """Send reviews when they are due, whether others are answered or not; return their times."""
    connections = asyncio.Queue()
    for _ in range(CONNECTIONS):
        connections.put_nowait(await running.connect())
    times = []

    async def send(due):
        await asyncio.sleep(due - time.perf_counter())
        connection = await connections.get()
        await ask(*connection, text)
        connections.put_nowait(connection)
        times.append(time.perf_counter() - due)

    began = time.perf_counter() + 0.1
    await asyncio.gather(*(send(began + number / RATE) for number in range(RATE * SECONDS)))
    while not connections.empty():
        await close(connections.get_nowait()[1])
    return times[RATE:]  # without the first second


async def newly_connected(running, text):
    """Send each review over a connection of its own; return CPU seconds a review."""

    async def client(count):
        for _ in range(count):
            reader, writer = await running.connect()
            await ask(reader, writer, text)
            await close(writer)

    async def send(count):
        await asyncio.gather(*(client(count // CONNECTIONS) for _ in range(CONNECTIONS)))

    await send(NEW_CONNECTIONS // 3)
    costs = []
    for _ in range(ROUNDS):
        cpu = running.cpu_seconds()
        await send(NEW_CONNECTIONS)
        costs.append((running.cpu_seconds() - cpu) / NEW_CONNECTIONS)
    return statistics.median(costs)


@pytest.mark.parametrize("path", ["/mutate", "/validate"])
def test_a_review_that_no_policy_matches(tmp_path, path):
    with server(tmp_path, policies("services")) as running:
        cost, rate = asyncio.run(kept_alive(running, request(path)))

    report(f"webhooks {path}, no policy matches, CPU a review", cost * 1e6, "µs", 200)
    report(f"webhooks {path}, no policy matches, one client", rate, "reviews/s")


@pytest.mark.parametrize("path", ["/mutate", "/validate"])
def test_a_review_that_20_policies_match(tmp_path, path):
    with server(tmp_path, policies("pods")) as running:
        cost, rate = asyncio.run(kept_alive(running, request(path)))
        memory = running.memory_mb()
        alike, _ = asyncio.run(kept_alive(running, request(path, alike=True)))

    report(f"webhooks {path}, 20 policies match, pods alike, CPU a review", alike * 1e6, "µs")
    report(f"webhooks {path}, 20 policies match, CPU a review", cost * 1e6, "µs", 400)
    report(f"webhooks {path}, 20 policies match, one client", rate, "reviews/s")
    report(f"webhooks {path}, memory (PSS)", memory, "MB", 60)


@pytest.mark.parametrize("path", ["/mutate", "/validate"])
def test_a_review_that_100_policies_match(tmp_path, path):
    with server(tmp_path, policies("pods", 100)) as running:
        cost, _ = asyncio.run(kept_alive(running, request(path)))

    report(f"webhooks {path}, 100 policies match, CPU a review", cost * 1e6, "µs", 1000)


def test_a_thousand_policies(tmp_path):
    with server(tmp_path, policies("pods", 1000)) as running:
        asyncio.run(kept_alive(running, request("/validate"), reviews=64))
        memory = running.memory_mb()

    report("webhooks, 1,000 policies, memory (PSS)", memory, "MB", 150)


def test_how_long_reviews_take_at_a_steady_rate(tmp_path):
    first, *others = sorted(os.sched_getaffinity(0))
    with server(tmp_path, policies("pods")) as running:
        os.sched_setaffinity(running.running.pid, {first})
        os.sched_setaffinity(0, set(others) or {first})
        try:
            times = asyncio.run(at_a_rate(running, request("/validate")))
        finally:
            os.sched_setaffinity(0, {first, *others})

    times.sort()
    report(f"webhooks, {RATE} reviews/s on one core, p50", times[len(times) // 2] * 1e3, "ms")
    report(
        f"webhooks, {RATE} reviews/s on one core, p99", times[len(times) * 99 // 100] * 1e3, "ms", 5
    )


def test_a_review_that_20_policies_change(tmp_path):
    with server(tmp_path, injecting_policies("pods")) as running:
        cost, _ = asyncio.run(kept_alive(running, request("/mutate")))

    report("webhooks /mutate, 20 policies inject, CPU a review", cost * 1e6, "µs", 400)


def test_a_connection_for_each_review(tmp_path):
    with server(tmp_path, policies("pods")) as running:
        cost = asyncio.run(newly_connected(running, request("/validate")))

    # One process has one core, and that is all it has: 800 a second are 1,250 µs each.
    report("webhooks, a new connection each, CPU a review", cost * 1e6, "µs", 1250)
    report("webhooks, a new connection each, reviews a core", 1 / cost, "reviews/s")
