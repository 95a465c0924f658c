"""How loaded queues are: use, pending work and the longest wait, in the order that is asked for."""

import pytest

from policyd.snapshot.loads import ResourceLoad, queue_loads
from tests.alloc.builders import cohort, group, queue, workload
from tests.alloc.preemption.test_preemption import running
from tests.snapshot.taking import snapshot
from tests.status.test_pending_reasons import settled

LOADED = (
    cohort("all", gpu=4),
    queue("busy", "all", groups=[group(a={"gpu": 3}, b={"gpu": 1})]),
    running("ns/r1", "busy", gpu=3),
    queue("wanted", "all", gpu=8),
    running("ns/r2", "wanted", gpu=2),
    workload("ns/job-a", "wanted", gpu=30, at=7),
    workload("ns/job-b", "wanted", gpu=30, at=8),
    queue("old", "all", gpu=8),
    workload("ns/job-c", "old", gpu=30, at=3),
    queue("alone", gpu=8),
)


@pytest.fixture(scope="module")
def found():
    return snapshot(settled(*LOADED))


def test_a_queue_has_its_use_and_its_pending_work_by_resource_of_all_flavors(found):
    busy, wanted = (queue_loads(found, by="name", queue=name)[0] for name in ("busy", "wanted"))

    assert (busy.running, busy.pending, busy.oldest) == (1, 0, None)
    assert busy.resources == {"gpu": ResourceLoad(nominal=4, used=3, pending=0)}
    assert busy.share == 0.75
    assert (wanted.running, wanted.pending) == (1, 2)
    assert wanted.oldest == "1970-01-01T00:00:07Z"
    assert wanted.resources == {"gpu": ResourceLoad(nominal=8, used=2, pending=60)}


@pytest.mark.parametrize(
    ("by", "names"),
    [
        pytest.param("pending", ["wanted", "old", "busy", "alone"], id="pending"),
        pytest.param("waiting", ["old", "wanted", "alone", "busy"], id="waiting"),
        pytest.param("usage", ["busy", "wanted", "old", "alone"], id="usage"),
        pytest.param("name", ["alone", "busy", "old", "wanted"], id="name"),
    ],
)
def test_what_is_asked_for_comes_first(found, by, names):
    assert [load.name for load in queue_loads(found, by=by)] == names


def test_a_cohort_stands_for_its_queues(found):
    names = [load.name for load in queue_loads(found, by="name", queue="all")]

    assert names == ["busy", "old", "wanted"]


def test_a_queue_without_nominal_quota_has_no_share():
    (load,) = queue_loads(snapshot(settled(queue("q", gpu=0))), by="usage")

    assert load.share == 0
