"""How much waits and is held, of all queues in one pass."""

import pytest

from policyd.status.queues import count_queues
from tests.alloc.builders import admission, queue, state, workload


def held(key, **fields):
    gpus = fields.pop("gpu")
    return workload(key, "q", admission=admission("q", gpu=gpus), gpu=gpus, **fields)


@pytest.mark.parametrize(
    ("given", "waiting"),
    [
        pytest.param(queue("q", gpu=8), (1, 1), id="who-backs-off-is-parked"),
        pytest.param(queue("q", gpu=8, stopped=True), (0, 2), id="all-are-in-a-stopped-queue"),
        pytest.param(queue("other", gpu=8), (0, 2), id="all-are-in-a-queue-that-is-not-there"),
    ],
)
def test_who_waits_is_active_or_parked(given, waiting):
    found = count_queues(
        state(
            given,
            workload("a", "q", gpu=1, local_queue="ns/x"),
            workload("b", "q", gpu=2, local_queue="ns/y", backing_off=True),
        )
    )

    counts = found.cluster_queues["q"]
    assert (counts.active, counts.parked) == waiting
    assert counts.asked == {"gpu": 3}
    assert sum(each.active for each in found.local_queues.values()) == waiting[0]


def test_what_is_held_counts_for_both_queues_and_what_runs_by_itself():
    found = count_queues(
        state(
            queue("q", gpu=8),
            held("a", gpu=2, admitted=True, local_queue="ns/x"),
            held("b", gpu=3, local_queue="ns/x"),
        )
    )

    for counts in (found.cluster_queues["q"], found.local_queues["ns/x"]):
        assert (counts.reserving, counts.admitted) == (2, 1)
        assert counts.reserved == {("default", "gpu"): 5}
        assert counts.used == {("default", "gpu"): 2}
