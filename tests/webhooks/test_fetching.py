"""Passwords in what is sent are neither shown nor led elsewhere."""

import asyncio

import pytest
from aiohttp import web
from yarl import URL

from webhooks.fetching import Fetcher, Message

BASIC = "Basic bWU6czNjcmV0"


def test_what_is_sent_shows_no_password():
    message = Message(method="GET", url=URL("https://a"), headers={"Authorization": BASIC})
    assert BASIC not in repr(message)


@pytest.mark.anyio
async def test_a_password_does_not_follow_to_another_server():
    seen = []

    async def answer(request):
        seen.append(request.headers.get("Authorization"))
        if request.path == "/a":
            raise web.HTTPFound(f"http://localhost:{request.url.port}/b")
        return web.Response()

    app = web.Application()
    app.router.add_get("/{path}", answer)
    runner, fetcher = web.AppRunner(app), Fetcher({})
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    running = asyncio.create_task(fetcher.run())
    url = URL(f"http://127.0.0.1:{runner.addresses[0][1]}/a")
    headers = {"Authorization": BASIC}
    fetched = await fetcher.fetch(Message(method="GET", url=url, headers=headers, redirects=1))
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    await runner.cleanup()

    assert seen == [BASIC, None]
    assert fetched.led
