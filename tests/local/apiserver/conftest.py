"""A server for each test, and a session with it."""

import pytest

from policyd.local.apiserver import ApiServer
from tests.local.apiserver.client import session_with


@pytest.fixture
async def server():
    server = ApiServer()
    await server.start()
    yield server
    await server.stop()


@pytest.fixture
async def api(server):
    async with session_with(server) as api:
        yield api
