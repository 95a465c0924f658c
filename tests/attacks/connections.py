"""Floods of connections: what whoever reaches the webhooks' port can do to everybody's reviews.

The real process on loopback, with TLS. The flood comes from a process of its own, from the same
address as the reviews, as it may where connections to the webhooks are relayed. Meanwhile reviews
are sent as an API server does, over a connection that stays and over new ones.

Each flood lasts longer than the bound that it tries, and the process counts how often that bound
acted: without it, the flood is a harm. A bound of time is shorter here than it is for users.
"""

import asyncio
import http.client
import json
import multiprocessing
import os
import socket
import ssl
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from policyd.certificates import Authority
from tests.attacks.figures import Attack, Figures
from tests.webhooks.reviews import POD, policy, review

SECONDS = 2.0
SHORT_SECONDS = 0.5
"""The bound of time that a flood tries; others are as they are."""
TIMES = {
    "handshake_slow": "handshake",
    "no_request": "first",
    "head_slow": "head",
    "body_slow": "body",
    "answer_slow": "answer",
}
"""The bounds of time by the reason for which connections are closed."""
BEGIN_SECONDS = 20.0
"""How long a flood may take to begin, where the machine has other work."""
MEDIAN_SECONDS, MOST_SECONDS = 0.05, 1.0
MOST_BYTES = 150 * 1024 * 1024
MEBIBYTE = 1024 * 1024

JSON_TYPE = b"content-type: application/json\r\n"
POST = b"POST /validate?timeout=5s HTTP/1.1\r\nhost: a\r\n" + JSON_TYPE
HASTY, PATIENT = POST.replace(b"=5s", b"=1s"), POST.replace(b"=5s", b"=30s")
UID = b'{"kind":"AdmissionReview","request":{"uid":"u-9","object":"'

Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Sender = Callable[[Stream], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Flood:
    """One way to flood: so many connections at a time, each doing the same again and again.

    Attributes:
        connections: How many at a time.
        send: What each does; it is closed then, and another one opened.
        bound: The reason for which its connections are closed, or the outcome of its reviews; empty
            where latency and memory alone show that it is bounded.
        tls: Whether it begins with a handshake.
        narrow: Whether its sockets have little room for answers.
    """

    connections: int
    send: Sender
    bound: str = ""
    tls: bool = True
    narrow: bool = False


async def stay(stream: Stream) -> None:
    """Send nothing."""
    await stream[0].read()


async def endless_header(stream: Stream) -> None:
    """Send a header that does not end."""
    await repeat(stream, POST + b"x-filler: ", b"x" * 65536)


async def endless_lines(stream: Stream) -> None:
    """Send headers that do not end."""
    await repeat(stream, POST, b"".join(b"x-%d: y\r\n" % number for number in range(5000)))


async def half_a_head(stream: Stream) -> None:
    """Send half a head."""
    await once(stream, POST[:-5])


async def unfinished_body(size: int, stream: Stream, head: bytes = POST) -> None:
    """Send a body but for its last byte."""
    await once(stream, head + b"content-length: %d\r\n\r\n" % size + UID.ljust(size - 1))


async def slow_body(stream: Stream) -> None:
    """Send a body byte by byte."""
    await repeat(stream, POST + b"content-length: 100000\r\n\r\n" + UID, b"x", pause=0.05)


async def declared_body(stream: Stream) -> None:
    """Say that a body is the largest there may be, and send as much as is taken."""
    await repeat(stream, POST + b"content-length: %d\r\n\r\n" % (60 * MEBIBYTE), b"x" * 65536)


async def complete_body(stream: Stream) -> None:
    """Send a large body that is no JSON, as fast as it is taken."""
    size = 20 * MEBIBYTE
    await once(
        stream, POST + b"content-length: %d\r\n\r\n" % size + UID.ljust(size, b"x"), wait=False
    )
    await stream[0].read(100)


async def chunks(size: int, stream: Stream) -> None:
    """Send a body in chunks, without an end."""
    chunk = b"%x\r\n%b\r\n" % (size, b"x" * size)
    head = POST + b"transfer-encoding: chunked\r\n\r\n"
    await repeat(stream, head, chunk * max(65536 // size // 6, 1))


async def pipelined(stream: Stream) -> None:
    """Send many calls at once, and read no answer."""
    await repeat(stream, b"", b"GET / HTTP/1.1\r\nhost: a\r\n\r\n" * 2000)


async def expecting(stream: Stream) -> None:
    """Ask whether a body is wanted, and send none."""
    await once(stream, POST + b"content-length: 1000000\r\nexpect: 100-continue\r\n\r\n")


async def not_reading(stream: Stream) -> None:
    """Send reviews whose answers are long one behind the other, and read none."""
    stream[1].transport.pause_reading()  # type: ignore[attr-defined]
    body, head = review(ECHOED), POST.replace(b"/validate", b"/mutate")
    await repeat(stream, b"", head + b"content-length: %d\r\n\r\n" % len(body) + body, pause=0.001)


async def leave(stream: Stream) -> None:
    """Ask something, and go."""
    await once(stream, b"GET / HTTP/1.1\r\nhost: a\r\n\r\n", wait=False)


async def once(stream: Stream, data: bytes, *, wait: bool = True) -> None:
    """Send `data`, and stay until the other side goes."""
    stream[1].write(data)
    await stream[1].drain()
    if wait:
        await stream[0].read()


async def repeat(stream: Stream, first: bytes, then: bytes, *, pause: float = 0.0) -> None:
    """Send `first`, and `then` again and again, until the other side goes."""
    stream[1].write(first)
    while not stream[1].is_closing() and not stream[0].at_eof():
        stream[1].write(then)
        await stream[1].drain()
        await asyncio.sleep(pause)


ECHOED = {**POD, "metadata": {**POD["metadata"], "annotations": {"long": "x" * 100_000}}}

FLOODS = {
    "TCP without a byte": Flood(400, stay, "handshake_slow", tls=False),
    "TLS without a byte": Flood(200, stay, "no_request"),
    "half a head": Flood(200, half_a_head, "head_slow"),
    "more connections than there may be": Flood(700, stay, "shed", tls=False),
    "endless header": Flood(2, endless_header, "head_too_large"),
    "endless header lines": Flood(20, endless_lines, "head_too_large"),
    "bodies of 3 MB, unfinished": Flood(60, partial(unfinished_body, 3_000_000), "unjudged"),
    "bodies of 900 KB, unfinished": Flood(100, partial(unfinished_body, 900_000), "unjudged"),
    "bodies of 2 KB, unfinished, for a second": Flood(
        100, partial(unfinished_body, 2_000, head=HASTY), "unjudged"
    ),
    "bodies of 2 KB, unfinished, for half a minute": Flood(
        100, partial(unfinished_body, 2_000, head=PATIENT), "body_slow"
    ),
    "slow bodies": Flood(200, slow_body, "unjudged"),
    "bodies of 60 MiB, as fast as taken": Flood(20, declared_body),
    "bodies of 20 MiB that are no JSON": Flood(6, complete_body),
    "chunks without an end": Flood(20, partial(chunks, 8192), "refused"),
    "tiny chunks": Flood(20, partial(chunks, 1), "too_many_chunks"),
    "calls in one piece": Flood(20, pipelined, "too_many_requests"),
    "expecting to be told to go on": Flood(200, expecting, "refused"),
    "long answers that nobody reads": Flood(4, not_reading, "answer_slow", narrow=True),
    "connections, one after another": Flood(20, leave),
}


def flood(
    given: Flood,
    port: int,
    started: "multiprocessing.synchronize.Event",
    seconds: float = SECONDS,
) -> None:
    """Run a flood, in a process of its own, for so long from its first connection."""
    with suppress(asyncio.CancelledError, TimeoutError):
        asyncio.run(_flood(given, port, started, seconds))


async def _flood(
    given: Flood, port: int, started: "multiprocessing.synchronize.Event", seconds: float
) -> None:
    trust = ssl.create_default_context()
    trust.check_hostname, trust.verify_mode = False, ssl.CERT_NONE
    tls = trust if given.tls else None

    async def connection() -> None:
        while True:
            with suppress(OSError, ssl.SSLError):
                stream = await _opened(port, tls, narrow=given.narrow)
                if not started.is_set():
                    started.set()
                    limit.reschedule(asyncio.get_running_loop().time() + seconds)
                try:
                    await given.send(stream)
                finally:
                    stream[1].transport.abort()
            await asyncio.sleep(0.01)

    async with asyncio.timeout(None) as limit, asyncio.TaskGroup() as group:
        for _ in range(given.connections):
            group.create_task(connection())


async def _opened(port: int, tls: ssl.SSLContext | None, *, narrow: bool) -> Stream:
    made = socket.socket()
    if narrow:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    made.settimeout(0)
    await asyncio.get_running_loop().sock_connect(made, ("127.0.0.1", port))
    return await asyncio.open_connection(sock=made, ssl=tls, server_hostname="" if tls else None)


def counted(bound: str, port: int) -> int:
    """Return how often a bound has acted: connections closed, or reviews answered, for it.

    Args:
        bound: The reason, or the outcome.
        port: Of the metrics.
    """
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as page:
        lines = page.read().decode().splitlines()
    wanted = (f'reason="{bound}"', f'outcome="{bound}"')
    names = ("policyd_closed_connections_total", "policyd_reviews_total")
    found = (e for e in lines if e.startswith(names) and any(each in e for each in wanted))
    return int(sum(float(each.rpartition(" ")[2]) for each in found))


@dataclass(slots=True)
class Target:
    """The webhooks that are flooded, in a process of their own."""

    running: "subprocess.Popen[bytes]"
    port: int
    beside: int
    trust: ssl.SSLContext
    idle: int = 0
    peak: int = 0
    times: list[float] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)

    @property
    def memory(self) -> int:
        """Bytes that the process has."""
        status = Path(f"/proc/{self.running.pid}/status").read_text()
        line = next(line for line in status.splitlines() if line.startswith("VmRSS:"))
        return int(line.split()[1]) * 1024

    def connect(self) -> http.client.HTTPSConnection:
        """Connect as the API server does, which waits five seconds."""
        return http.client.HTTPSConnection("127.0.0.1", self.port, context=self.trust, timeout=5)

    def ask(self, connection: http.client.HTTPSConnection) -> None:
        """Send a review, and note how long its answer takes."""
        began = time.perf_counter()
        try:
            connection.request(
                "POST", "/validate?timeout=5s", REVIEW, {"content-type": "application/json"}
            )
            answer = connection.getresponse()
            verdict = json.loads(answer.read()).get("response")
            if (
                answer.status != 200
                or not verdict
                or verdict["uid"] != "u-1"
                or not verdict["allowed"]
            ):
                self.faults.append(f"a review was answered {answer.status}: {verdict}")
        except (OSError, http.client.HTTPException) as error:
            self.faults.append(f"a review was not answered: {type(error).__name__}: {error}")
            connection.close()
        self.times.append(time.perf_counter() - began)

    def ask_until(self, ended: threading.Event, *, anew: bool) -> None:
        """Send reviews until told to end, over one connection or a new one each time."""
        connection = self.connect()
        while not ended.is_set():
            if anew:
                connection.close()
                connection = self.connect()
            self.ask(connection)
            self.peak = max(self.peak, self.memory)
            time.sleep(0.02)
        connection.close()


REVIEW = review({**POD, "metadata": {**POD["metadata"], "annotations": {"note": "x" * 10_000}}})

ECHO = "object.metadata.?annotations.?long.orValue('')"
POLICIES = [
    policy(
        "short-notes",
        validations=[{"expression": "object.metadata.?annotations.?long.orValue('') != 'no'"}],
    ),
    policy("echo", inject={"annotations": {"echo": {"expression": ECHO}}}),
    policy("images", validations=[{"expression": "object.spec.containers.all(c, c.image != '')"}]),
]


@contextmanager
def target(*options: str, **bounds: float) -> Iterator[Target]:
    """Run the webhooks while the block does.

    Args:
        options: Of the webhooks.
        bounds: Of their connections, where they are to be others.
    """
    now = time.time()
    authority = Authority.create(now=now)
    pair = authority.issue(["127.0.0.1"], now=now)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "tls.crt").write_bytes(pair.certificate_pem)
        (folder / "tls.key").write_bytes(pair.key_pem)
        (folder / "policies.yaml").write_text("\n---\n".join(map(json.dumps, POLICIES)))
        given = {"policies": "policies.yaml", "certificate": "tls.crt", "key": "tls.key"}
        files = [
            text for option, file in given.items() for text in (f"--{option}", str(folder / file))
        ]
        program = [sys.executable, "-m", "tests.attacks._hasty", json.dumps(bounds)]
        command = [*program, *files, "--host", "127.0.0.1", "--port", "0"]
        running = subprocess.Popen(
            [*command, "--log-format", "json", *options],
            stderr=subprocess.PIPE,
            env=dict(os.environ),
        )
        assert running.stderr is not None
        try:
            events = (json.loads(line) for line in running.stderr)
            opened = next(event for event in events if event["event"] == "webhooks_started")
            threading.Thread(target=lambda: list(events), daemon=True).start()
            trust = ssl.create_default_context(cadata=authority.certificate_pem.decode())
            yield Target(running, opened["port"], opened["metrics_port"], trust)
        finally:
            running.kill()
            running.wait()


def begin(
    given: Flood, port: int, seconds: float = SECONDS
) -> "tuple[multiprocessing.context.SpawnProcess, bool]":
    """Begin a flood; return its process, and whether it has a connection."""
    context = multiprocessing.get_context("spawn")
    started = context.Event()
    attacker = context.Process(target=flood, args=(given, port, started, seconds), daemon=True)
    attacker.start()
    return attacker, started.wait(BEGIN_SECONDS)


def attacked(given: Flood, *options: str, beside: bool = False) -> Figures:
    """Run one flood against webhooks of their own, and ask them all the while.

    Args:
        given: The flood.
        options: Of the webhooks.
        beside: Whether it is their port of health and metrics that is flooded.
    """
    short = {TIMES[given.bound]: SHORT_SECONDS} if given.bound in TIMES else {}
    with target(*options, **short) as asked:
        warm = asked.connect()
        for _ in range(50):
            asked.ask(warm)
        asked.idle = asked.peak = asked.memory
        asked.times.clear()
        attacker, began = begin(given, asked.beside if beside else asked.port)
        if not began:
            asked.faults.append("the flood did not begin")
        ended = threading.Event()
        clients = [
            threading.Thread(target=asked.ask_until, args=(ended,), kwargs={"anew": anew})
            for anew in (False, True)
        ]
        for client in clients:
            client.start()
        attacker.join(SECONDS + BEGIN_SECONDS)
        ended.set()
        for client in clients:
            client.join()
        attacker.kill()
        return _figures(given, asked)


def _figures(given: Flood, asked: Target) -> Figures:
    acted = counted(given.bound, asked.beside) if given.bound else given.connections
    if acted < max(1, given.connections // 4):
        asked.faults.append(f"`{given.bound}` bounded {acted} of {given.connections} connections")
    median, worst = statistics.median(asked.times), max(asked.times)
    above = asked.peak - asked.idle
    faults = asked.faults[:5]
    if asked.running.poll() is not None:
        faults.append("the webhooks ended")
    if median > MEDIAN_SECONDS:
        faults.append(f"the median review took {median * 1000:.0f} ms")
    if worst > MOST_SECONDS:
        faults.append(f"a review took {worst:.1f} s")
    if above > MOST_BYTES:
        faults.append(f"{above // MEBIBYTE} MiB more than idle")
    return Figures(
        tried=given.connections,
        worst_seconds=worst,
        median_seconds=median,
        peak_bytes=above,
        faults=tuple(faults),
    )


async def scrape(stream: Stream) -> None:
    """Ask for the metrics again and again, and read none."""
    await repeat(stream, b"", b"GET /metrics HTTP/1.1\r\nhost: a\r\n\r\n" * 8, pause=0.001)


BESIDE = {
    "half a head": Flood(50, half_a_head, "head_slow", tls=False),
    "more connections than there may be": Flood(200, half_a_head, "shed", tls=False),
    "endless header": Flood(20, endless_header, "head_too_large", tls=False),
    "metrics that nobody reads": Flood(60, scrape, "too_many_requests", tls=False),
}
PLAIN = (
    "endless header",
    "bodies of 900 KB, unfinished",
    "tiny chunks",
)

ATTACKS: dict[str, Attack] = {
    **{name: partial(attacked, given) for name, given in FLOODS.items()},
    **{
        f"{name}, HTTP left to uvicorn": partial(attacked, FLOODS[name], "--plain-http")
        for name in PLAIN
    },
    **{
        f"{name}, beside the reviews": partial(attacked, given, beside=True)
        for name, given in BESIDE.items()
    },
}
