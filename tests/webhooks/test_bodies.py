"""Room for bodies: how much is taken, who is given up, who waits, and that all of it comes back."""

import asyncio

import pytest

from policyd.admission.unevaluated import HEAD_BYTES
from webhooks.bodies import (
    ANSWERS_ROOM,
    LIGHT_ROOM,
    MOST_COMING_IN,
    MOST_WAITING,
    NO_ROOM,
    TOO_SLOW,
    Body,
    BodyBudget,
    UnreadError,
)

pytestmark = pytest.mark.anyio


class IncomingBody:
    """A body that comes in."""

    def __init__(self, room, *pieces):
        self.body = Body(room)
        self.given_up = []
        self.room = room
        for piece in pieces:
            self.body.add(piece)
        self.body.give_up = self.end
        room.expect(self.body)

    def end(self, reason):
        self.given_up.append(reason)
        self.body.close()


def test_pieces_make_up_a_body_and_its_head():
    body = Body(BodyBudget())
    for piece in (b"ab", b"", b"c" * HEAD_BYTES, b"d"):
        body.add(piece)

    assert body.whole() == b"ab" + b"c" * HEAD_BYTES + b"d"
    assert body.head == body.whole()[:HEAD_BYTES]


def test_a_body_in_one_piece_is_not_copied():
    piece, body = b"x" * 1000, Body(BodyBudget())
    body.add(piece)

    assert body.whole() is piece


def test_given_values_are_returned():
    room = BodyBudget()
    one, other = IncomingBody(room, b"abc", b"d"), IncomingBody(room, b"ef")
    assert room.taken == 6

    one.body.cut(1)
    assert room.taken == 3

    one.body.close()
    other.body.close()
    other.body.close()
    assert room.taken == 0


def test_without_room_the_one_that_has_been_at_it_for_the_longest_is_given_up():
    room = BodyBudget(light=100)
    first, second, third = (IncomingBody(room, b"x" * 30) for _ in range(3))
    second.body.add(b"x" * 30)

    assert first.given_up == [NO_ROOM]
    assert (second.given_up, third.given_up) == ([], [])
    assert room.taken == 90


def test_one_that_takes_more_than_there_is_is_given_up_itself():
    room = BodyBudget(light=100)
    one = IncomingBody(room, b"x" * 60)
    one.body.add(b"x" * 60)

    assert one.given_up == [NO_ROOM]
    assert room.taken == 0


def test_a_complete_body_is_never_dropped():
    room = BodyBudget(light=100)
    whole = IncomingBody(room, b"x" * 90)
    room.complete(whole.body)

    other = IncomingBody(room, b"x" * 20)

    assert (whole.given_up, other.given_up) == ([], [NO_ROOM])


def test_no_more_than_so_many_come_in_at_a_time():
    room = BodyBudget()
    all_of_them = [IncomingBody(room, b"x") for _ in range(MOST_COMING_IN + 5)]

    assert [one.given_up for one in all_of_them[:5]] == [[NO_ROOM]] * 5
    assert not any(one.given_up for one in all_of_them[5:])


async def test_a_large_body_has_room_for_all_of_it_or_waits():
    room = BodyBudget(heavy=100)
    first, second, third = (IncomingBody(room, b"x" * 10) for _ in range(3))

    await room.reserve(first.body, 60)
    waiting = [asyncio.create_task(room.reserve(one.body, 60)) for one in (second, third)]
    await asyncio.sleep(0)
    assert (room.taken, [task.done() for task in waiting]) == (80, [False, False])

    first.body.close()
    await waiting[0]
    assert (room.taken, waiting[1].done()) == (70, False)

    second.body.close()
    await waiting[1]
    third.body.close()
    assert room.taken == 0


async def test_large_bodies_have_their_turn_in_the_order_they_came():
    room = BodyBudget(heavy=100)
    first, large, small = (IncomingBody(room, b"x") for _ in range(3))
    await room.reserve(first.body, 50)
    waiting = asyncio.create_task(room.reserve(large.body, 100))
    await asyncio.sleep(0)
    behind = asyncio.create_task(room.reserve(small.body, 10))
    await asyncio.sleep(0)

    assert not behind.done()
    first.body.close()
    await waiting
    large.body.close()
    await behind


async def test_one_that_waits_no_more_lets_those_behind_it_have_their_turn():
    room = BodyBudget(heavy=100)
    first, large, small = (IncomingBody(room, b"x") for _ in range(3))
    await room.reserve(first.body, 50)
    waiting = asyncio.create_task(room.reserve(large.body, 100))
    await asyncio.sleep(0)
    behind = asyncio.create_task(room.reserve(small.body, 50))
    await asyncio.sleep(0)

    waiting.cancel()
    await behind

    assert room.taken == 101


async def test_too_many_do_not_wait():
    room = BodyBudget(heavy=100)
    bodies = [IncomingBody(room, b"x").body for _ in range(MOST_WAITING + 2)]
    await room.reserve(bodies[0], 100)
    waiting = [asyncio.create_task(room.reserve(body, 100)) for body in bodies[1:-1]]
    await asyncio.sleep(0)

    with pytest.raises(UnreadError, match=NO_ROOM):
        await room.reserve(bodies[-1], 100)
    for task in waiting:
        task.cancel()


async def test_one_that_does_not_come_in_while_others_wait_is_given_up():
    room = BodyBudget(heavy=200_000)
    stuck, next_one = IncomingBody(room, b"x"), IncomingBody(room, b"x")
    await room.reserve(stuck.body, 200_000)

    async with asyncio.timeout(10):
        await room.reserve(next_one.body, 200_000)

    assert stuck.given_up == [TOO_SLOW]


async def test_one_that_comes_in_slowly_is_left_alone_while_nobody_waits():
    room = BodyBudget(heavy=100)
    one = IncomingBody(room, b"x")
    await room.reserve(one.body, 100)
    await asyncio.sleep(0.3)

    assert one.given_up == []


class Caller(asyncio.Transport):
    def __init__(self):
        super().__init__()
        self.aborted = False

    def abort(self):
        self.aborted = True


def test_the_connection_with_the_oldest_unread_answers_is_closed():
    room = BodyBudget()
    first, second, third = Caller(), Caller(), Caller()
    for caller in (first, second, first, third):
        room.owe(caller, ANSWERS_ROOM // 4)
    room.taken_by(second)
    assert not first.aborted

    room.owe(third, ANSWERS_ROOM // 2)

    assert (first.aborted, second.aborted, third.aborted) == (True, False, False)
    room.owe(second, ANSWERS_ROOM // 4)
    assert (second.aborted, third.aborted) == (False, False)


def test_there_is_less_room_than_the_memory_that_is_promised():
    assert BodyBudget().taken == 0
    assert LIGHT_ROOM + 64 * 1024 * 1024 < 100 * 1024 * 1024
