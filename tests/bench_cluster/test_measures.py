"""What the bench says that evictions cost."""

import msgspec

from policyd.kube.changes import Added, Modified
from tests.bench_cluster.loads import CLASS_LABEL
from tests.bench_cluster.measures import Losses
from tests.bench_cluster.wire import Workload


def seen(uid, *conditions, preemptor=""):
    """A workload of 5 CPUs of which these conditions are true."""
    message = f"Preempted to accommodate a workload (UID: {preemptor}, JobUID: ) due to a test"
    body = {
        "metadata": {"name": uid, "uid": uid, "labels": {CLASS_LABEL: "medium"}},
        "status": {
            "conditions": [
                {"type": kind, "status": "True", "reason": "InClusterQueue", "message": message}
                for kind in conditions
            ]
        },
    }
    return msgspec.convert(body, Workload)


def story(*moments):
    """What is measured of workloads that were seen so, one after the other."""
    losses, known = Losses({"medium": 5}), {}
    for now, workload in moments:
        uid = workload.metadata.uid
        old = known.get(uid)
        losses.change(Added(workload) if old is None else Modified(old, workload), now)
        known[uid] = workload
    return losses.figures()


def preempted(uid, preemptor):
    return seen(uid, "Admitted", "Evicted", "Preempted", preemptor=preemptor)


def test_the_time_that_a_victim_ran_is_lost():
    found = story(
        (0, seen("a", "Admitted")),
        (1, seen("b")),
        (3, preempted("a", "b")),
        (4, preempted("a", "b")),
        (4, seen("b", "Admitted")),
        (14, seen("b", "Admitted", "Finished")),
    )

    assert found == {
        "evictions": 1,
        "rights": {"InClusterQueue": 1},
        "lost": {"medium": 15},
        "done": 50,
        "share": 0.3,
        "undone": {"count": 0, "lost": 0},
        "repeated": 0,
        "in_vain": 0,
    }


def test_a_workload_pending_before_its_victim_started_undoes_a_decision():
    found = story((0, seen("b")), (1, seen("a", "Admitted")), (3, preempted("a", "b")))

    assert found["undone"] == {"count": 1, "lost": 10}


def test_a_preemptor_that_is_soon_evicted_has_preempted_without_effect():
    begins = [(0, seen("a", "Admitted")), (1, preempted("a", "b")), (2, seen("b", "Admitted"))]

    assert story(*begins, (50, preempted("b", "c")))["in_vain"] == 1
    assert story(*begins, (70, preempted("b", "c")))["in_vain"] == 0


def test_a_second_eviction_is_counted_as_a_repeated_one():
    once = [(0, seen("a", "Admitted")), (1, preempted("a", "b"))]
    found = story(*once, (2, seen("a")), (3, seen("a", "Admitted")), (4, preempted("a", "c")))

    assert found["evictions"] == 2
    assert found["repeated"] == 1
