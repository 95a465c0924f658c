"""What is sent goes where it is meant to go, and to no other place; answers are bounded."""

import asyncio
import gzip
from contextlib import asynccontextmanager, suppress

import pytest
from aiohttp import web
from aiohttp.abc import AbstractResolver
from yarl import URL

from policyd.http_sessions import MOST_HEADERS
from webhooks.external_data.fetching import MOST_BYTES, Fetcher, FetchError, Message

BASIC = "Basic bWU6czNjcmV0"
LOOPBACK = frozenset({"127.0.0.1"})


def test_logged_requests_show_no_password():
    message = Message(method="GET", url=URL("https://a"), headers={"Authorization": BASIC})
    assert BASIC not in repr(message)


class Names(AbstractResolver):
    """A name server whose answers to one question differ."""

    def __init__(self, *answers):
        self.answers = list(answers)
        self.asked = 0

    async def resolve(self, host, port=0, family=0):
        self.asked += 1
        address = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        return [
            {
                "hostname": host,
                "host": address,
                "port": port,
                "family": family,
                "proto": 0,
                "flags": 0,
            }
        ]

    async def close(self):
        pass


class Server:
    """A server that notes what it is asked, and answers as it is told."""

    def __init__(self):
        self.seen = []
        self.port = 0
        self.to = ""

    async def answer(self, request):
        self.seen.append((request.path, request.headers.get("Authorization")))
        match request.path:
            case "/led":
                raise web.HTTPFound(self.to)
            case "/round":
                raise web.HTTPFound("/round")
            case "/bomb":
                body = gzip.compress(b"0" * 50_000_000)
                return web.Response(body=body, headers={"Content-Encoding": "gzip"})
            case "/long":
                return web.Response(body=b"1" * (MOST_BYTES + 1))
            case "/headers":
                return web.Response(headers={f"x-{n}": "a" for n in range(MOST_HEADERS + 1)})
            case "/header":
                return web.Response(headers={"x": "a" * 100_000})
        return web.Response(text="reached")


@asynccontextmanager
async def serving(resolver=None):
    server = Server()
    app = web.Application()
    app.router.add_get("/{path:.*}", server.answer)
    runner, fetcher = web.AppRunner(app), Fetcher({}, resolver)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    server.port = runner.addresses[0][1]
    running = asyncio.create_task(fetcher.run())
    try:
        yield server, fetcher
    finally:
        await asyncio.sleep(0)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await runner.cleanup()


def get(server, path="/", host="127.0.0.1", *, named=LOOPBACK, redirects=0):
    url = URL(f"http://{host}:{server.port}{path}")
    return Message(
        method="GET",
        url=url,
        headers={"Authorization": BASIC},
        redirects=redirects,
        named=named,
    )


@pytest.mark.anyio
async def test_a_password_does_not_follow_to_another_server():
    async with serving() as (server, fetcher):
        server.to = f"http://localhost:{server.port}/b"
        named = LOOPBACK | {"localhost"}
        fetched = await fetcher.fetch(get(server, "/led", named=named, redirects=1))

    assert server.seen == [("/led", BASIC), ("/b", None)]
    assert fetched.led


@pytest.mark.anyio
@pytest.mark.parametrize(
    "target",
    [
        "http://localhost:{port}/b",
        "http://127.0.0.2:{port}/b",
        "http://[::1]:{port}/b",
        "http://[::ffff:127.0.0.1]:{port}/b",
        "http://2130706433:{port}/b",
        "http://0x7f.1:{port}/b",
        "http://0:{port}/b",
        "http://169.254.169.254/latest/meta-data",
        "http://metadata.google.internal/",
        "http://10.0.0.1:{port}/b",
        "ftp://127.0.0.1/b",
        "http://user@127.0.0.1:{port}/b",
        "file:///etc/passwd",
    ],
)
async def test_a_redirect_does_not_lead_to_the_machine_or_its_network(target):
    async with serving() as (server, fetcher):
        server.to = target.format(port=server.port)
        with pytest.raises(FetchError):
            await fetcher.fetch(get(server, "/led", redirects=3))
        assert server.seen == [("/led", BASIC)]


@pytest.mark.anyio
async def test_endless_redirects_are_given_up():
    async with serving() as (server, fetcher):
        with pytest.raises(FetchError, match="more than 3 redirects"):
            await fetcher.fetch(get(server, "/round", redirects=3))
        assert len(server.seen) == 4


@pytest.mark.anyio
@pytest.mark.parametrize(
    "address",
    [
        *("127.0.0.1", "127.1.2.3", "0.0.0.0", "0.1.2.3", "169.254.169.254", "100.100.100.200"),
        *("168.63.129.16", "224.0.0.1", "::1", "::", "fe80::1", "fd00:ec2::254"),
        *("::ffff:127.0.0.1", "::ffff:169.254.169.254", "64:ff9b::a9fe:a9fe", "2002:7f00:1::"),
        "::127.0.0.1",
    ],
)
@pytest.mark.parametrize("named", [True, False])
async def test_a_name_does_not_stand_for_the_machine_or_its_cloud(address, named):
    async with serving(Names(address)) as (server, fetcher):
        hosts = frozenset({"inventory.example"}) if named else frozenset()
        with pytest.raises(FetchError, match=r"`inventory\.example` resolves to"):
            await fetcher.fetch(get(server, host="inventory.example", named=hosts))
        assert server.seen == []


@pytest.mark.anyio
async def test_only_a_host_that_is_named_is_inside_the_network():
    async with serving(Names("10.0.0.1")) as (server, fetcher):
        with pytest.raises(FetchError, match="which is not an internet address"):
            await fetcher.fetch(get(server, host="storage.example"))


@pytest.mark.anyio
async def test_what_one_message_names_is_not_named_for_the_next():
    async with serving(Names("10.0.0.1")) as (server, fetcher):
        with suppress(FetchError, TimeoutError):  # nothing answers there
            async with asyncio.timeout(0.2):
                named = frozenset({"storage.example"})
                await fetcher.fetch(get(server, host="storage.example", named=named))

        with pytest.raises(FetchError, match="which is not an internet address"):
            await fetcher.fetch(get(server, host="storage.example"))


@pytest.mark.anyio
async def test_a_name_is_connected_to_by_the_address_that_was_checked():
    names = Names("127.0.0.1", "169.254.169.254")
    async with serving(names) as (server, fetcher):
        named = frozenset({"localhost"})
        fetched = await fetcher.fetch(get(server, host="localhost", named=named))

    assert fetched.body == b"reached"
    assert names.asked == 1


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("path", "why"),
    [
        pytest.param("/bomb", "encoded as `gzip`", id="compressed"),
        pytest.param("/long", f"more than {MOST_BYTES} bytes", id="long"),
        pytest.param("/headers", "(?i)header", id="many-headers"),
        pytest.param("/header", "(?i)header", id="long-header"),
    ],
)
async def test_an_answer_is_bounded(path, why):
    async with serving() as (server, fetcher):
        with pytest.raises(FetchError, match=why):
            await fetcher.fetch(get(server, path))
