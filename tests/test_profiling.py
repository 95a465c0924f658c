"""Profiles say where the time of a process goes and what it holds, one at a time."""

import asyncio
import threading

import pytest
from starlette.testclient import TestClient

from policyd.clock import SystemClock
from policyd.config import configured
from policyd.errors import ConfigurationError
from policyd.profiling import (
    address_of,
    cpu_profile,
    create_profiling_app,
    heap_summary,
    profiles,
)

PROFILE, HEAP, STACKS = (f"/debug/pprof/{name}" for name in ("profile", "heap", "goroutine"))


@pytest.fixture
def client():
    return TestClient(create_profiling_app(SystemClock()))


def spin(until):
    while not until.is_set():
        sum(range(1_000))


@pytest.fixture
def busy():
    """A thread that does nothing else, beside one that only waits."""
    until = threading.Event()
    threads = [
        threading.Thread(target=spin, args=(until,), name="bu;sy one"),
        threading.Thread(target=until.wait, name="idle"),
    ]
    for thread in threads:
        thread.start()
    yield
    until.set()
    for thread in threads:
        thread.join()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("", None, id="off"),
        pytest.param("0", None, id="off-as-in-kueue"),
        pytest.param(":8082", ("127.0.0.1", 8082), id="loopback-unless-asked-for"),
        pytest.param("0.0.0.0:8082", ("0.0.0.0", 8082), id="all-addresses"),
        pytest.param("[::1]:8082", ("::1", 8082), id="ipv6"),
    ],
)
def test_an_address_is_read_as_kueue_writes_it(text, expected):
    assert address_of(text) == expected


@pytest.mark.parametrize(
    "text", ["8082", "localhost", ":-1", ":65536", "::1:8082", ":٣", "host:port", "http://a:1/x"]
)
def test_what_is_no_address_is_quoted(text):
    with pytest.raises(ConfigurationError, match="pprofBindAddress") as error:
        address_of(text)

    assert f"`{text}`" in str(error.value)


def test_time_is_charged_to_the_thread_and_function_that_used_it(client, busy):
    lines = client.get(PROFILE, params={"seconds": "1"}).text.splitlines()

    stacks = {stack: int(used) for stack, _, used in (line.rpartition(" ") for line in lines)}
    most = max(stacks, key=stacks.__getitem__)
    assert most.startswith("bu_sy_one;")
    assert most.split(";")[-1].endswith(":spin")
    assert 1_000 <= stacks[most] <= 3_000_000
    assert not [stack for stack in stacks if stack.startswith("idle;") and stacks[stack] > 100_000]


def test_a_profile_ends_when_it_is_stopped(busy):
    stop = threading.Event()
    stop.set()

    assert cpu_profile(60, SystemClock(), stop) == ""


@pytest.mark.parametrize("seconds", ["0", "61", "-1", "1.5", "ten", "9" * 5_000, "٣", ""])
def test_seconds_are_bounded(client, seconds):
    answer = client.get(PROFILE, params={"seconds": seconds})

    assert answer.status_code == 400
    assert f"`{seconds[:40]}`" in answer.text
    assert "1 to 60" in answer.text


@pytest.mark.anyio
async def test_one_profile_is_taken_at_a_time():
    app, answers = create_profiling_app(SystemClock()), []

    async def get(path, query=b""):
        scope = {"type": "http", "method": "GET", "path": path, "query_string": query}
        scope |= {"headers": [], "root_path": "", "http_version": "1.1", "scheme": "http"}

        async def receive():
            return {"type": "http.request"}

        async def send(message):
            answers.append((path, message.get("status")))

        await app(scope, receive, send)

    first = asyncio.create_task(get(PROFILE, b"seconds=1"))
    await asyncio.sleep(0.2)
    await get(HEAP)
    await first
    await get(STACKS)

    begun = [(path, status) for path, status in answers if status]
    assert begun == [(HEAP, 429), (PROFILE, 200), (STACKS, 200)]


@pytest.mark.anyio
async def test_the_heap_is_summed_up_by_type():
    class Rare:
        pass

    kept = [Rare() for _ in range(30_000)]

    text = await heap_summary()

    (line,) = (line for line in text.splitlines() if line.endswith(".Rare"))
    size, count, _ = line.split()
    assert int(count.replace(",", "")) == len(kept)
    assert int(size.replace(",", "")) >= 16 * len(kept)


@pytest.mark.anyio
async def test_all_threads_and_tasks_are_listed_without_their_values(busy):
    async def waits_for_ever(secret):
        await asyncio.Event().wait()

    task = asyncio.create_task(waits_for_ever("hunter2"), name="the; one")
    await asyncio.sleep(0)
    async with profiles(":0") as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(f"GET {STACKS} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
        text = (await reader.read()).decode()
        writer.close()
    task.cancel()

    assert "task the__one" in text
    assert "waits_for_ever" in text
    assert "thread bu_sy_one\n" in text
    assert "hunter2" not in text


@pytest.mark.anyio
@pytest.mark.parametrize("text", ["", "0"])
async def test_nothing_is_served_unless_asked_for(text):
    async with profiles(text) as port:
        assert port is None


def test_the_webhooks_read_the_address_from_the_configuration(tmp_path):
    file = tmp_path / "configuration.yaml"
    file.write_text(
        "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\npprofBindAddress: :8082\n"
    )

    assert configured(str(file))[-1] == ":8082"
    assert configured("")[-1] == ""
