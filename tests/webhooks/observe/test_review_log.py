"""Lines of the log are bounded, whoever brings them about; those that are left out are counted."""

import pytest

from policyd.testing import FakeClock
from webhooks.observe.review_log import ALL, EACH, SECONDS, ReviewLog

pytestmark = pytest.mark.anyio


@pytest.fixture
def clock():
    return FakeClock()


class Log(list):
    def line(self, event, **more):
        self.append((event, more))


def test_a_line_is_written_as_it_is(clock):
    log = Log()

    ReviewLog(clock).write(log.line, "denied", "p", name="a")

    assert log == [("denied", {"name": "a"})]


async def test_of_many_about_one_thing_a_few_are_written_and_the_others_counted(clock):
    log, lines = Log(), ReviewLog(clock)

    for number in range(1000):
        lines.write(log.line, "denied", "p", number=number)
    assert [more["number"] for _, more in log] == list(range(EACH))
    lines.write(log.line, "denied", "q")
    await clock.advance(SECONDS)
    lines.write(log.line, "denied", "p")

    assert log[EACH:] == [("denied", {"lines_left_out": 1000 - EACH}), ("denied", {})]


async def test_there_is_a_bound_for_all_of_them(clock):
    log, lines = Log(), ReviewLog(clock)

    for number in range(1000):
        lines.write(log.line, "denied", f"p-{number}")
    assert len(log) == ALL
    assert lines._written.total() == ALL
    await clock.advance(SECONDS)
    lines.write(log.line, "denied", "p-0")

    assert log[-1] == ("denied", {"lines_left_out": 1000 - ALL})
