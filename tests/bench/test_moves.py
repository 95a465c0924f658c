"""How long it takes to plan the fewest moves that let a gang in, and to see that none do."""

from random import Random

import pytest

from tests.bench.report import report
from tests.bench.test_topology import milliseconds
from tests.optimize.test_moves import anywhere, gang, plan, world

pytestmark = pytest.mark.bench

STEPS = 2_000
"""The budget of a cycle."""


def crowded(racks, *, share):
    """Racks of 16 nodes of 8 GPUs, some with a job of 1, 2 or 4; a gang wants a whole rack."""
    random = Random(1)
    names = {f"r{number:03}": (8,) * 16 for number in range(racks)}
    hosts = [f"{rack}-{number}" for rack in names for number in range(16)]
    jobs = [
        anywhere(f"w{host}", 1, gpu=random.choice([1, 2, 4]), on={host: 1},
                 reserved_at=-random.uniform(1, 9_000))
        for host in hosts
        if random.random() < share
    ]  # fmt: skip
    return world(*jobs, gang("new", 16, gpu=8), quota=10**6, **names), len(jobs)


@pytest.mark.parametrize(
    ("racks", "share", "most"),
    [
        pytest.param(60, 0.5, 8, id="found"),
        pytest.param(60, 0.5, 1, id="none"),
        pytest.param(600, 0.3, 8, id="ten-thousand-nodes"),
    ],
)
def test_moves_that_let_a_gang_in(racks, share, most):
    of, jobs = crowded(racks, share=share)

    found = plan(of, "new", most=most, steps=STEPS)
    cost = milliseconds(lambda: plan(of, "new", most=most, steps=STEPS), runs=7)

    moves = "none" if found is None else len(found.victims)
    name = f"plan of moves, {racks * 16} nodes, {jobs} jobs: {moves} of {most}"
    report(name, cost, "ms", 250)
