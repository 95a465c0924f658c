"""Head and body of an answer go out in one piece, and nothing is lost when a connection ends."""

import asyncio

import pytest

from webhooks.gathering import GatheringTransport

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend():
    return "asyncio"


class FakeTransport(asyncio.Transport):
    def __init__(self):
        self.calls = []

    def write(self, data):
        self.calls.append(bytes(data))

    def close(self):
        self.calls.append("close")

    def abort(self):
        self.calls.append("abort")

    def set_protocol(self, protocol):
        self.calls.append(protocol)


def gathering():
    under = FakeTransport()
    return under, GatheringTransport(under, asyncio.get_running_loop())


async def test_writes_of_one_turn_are_one():
    under, transport = gathering()

    transport.write(b"head ")
    transport.write(b"body")
    assert under.calls == []

    await asyncio.sleep(0)
    assert under.calls == [b"head body"]


async def test_writes_of_two_turns_are_two():
    under, transport = gathering()

    for piece in (b"one", b"two"):
        transport.write(piece)
        await asyncio.sleep(0)

    assert under.calls == [b"one", b"two"]


async def test_what_was_written_is_sent_before_the_end():
    under, transport = gathering()

    transport.write(b"last")
    transport.close()
    await asyncio.sleep(0)

    assert under.calls == [b"last", "close"]


async def test_who_takes_over_finds_nothing_left_to_send():
    under, transport = gathering()

    transport.write(b"first")
    transport.set_protocol("another")

    assert under.calls == [b"first", "another"]


async def test_what_is_broken_off_is_not_sent():
    under, transport = gathering()

    transport.write(b"never")
    transport.abort()
    await asyncio.sleep(0)

    assert under.calls == ["abort"]
