"""Work in steps: others have their turn between them, and rests are as long as asked."""

import pytest

from policyd.kube.pace import Pace
from policyd.kube.steps import Steps

pytestmark = pytest.mark.anyio


class BusyClock:
    """Time that passes only by work."""

    def __init__(self):
        self.elapsed = 0.0

    def monotonic(self):
        return self.elapsed


def work(clock, *, steps, seconds):
    for _ in range(steps):
        clock.elapsed += seconds
        yield
    return "done"


@pytest.mark.parametrize(
    ("settings", "seconds", "rests"),
    [
        pytest.param({}, 0.0, [0.0] * 4, id="a turn for others after each step"),
        pytest.param({"seconds": 1.0, "most": 2}, 0.0, [0.0] * 2, id="after so many short steps"),
        pytest.param(
            {"seconds": 1.0, "most": 9, "rests": 3.0}, 0.5, [3.0] * 2, id="after so much time"
        ),
    ],
)
async def test_rests_follow_work(settings, seconds, rests):
    clock, slept = BusyClock(), []

    async def sleep(wait):
        slept.append(wait)

    steps = Steps(Pace(clock=clock, sleep=sleep), **settings)

    assert await steps.run(work(clock, steps=4, seconds=seconds)) == "done"
    assert slept == rests
    assert steps.spent == 4 * seconds
