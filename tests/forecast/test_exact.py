"""A state without its workloads decides as the one that it was made from would."""

from policyd.alloc.topology.values import HOSTNAME, PODS, TopologyNode
from policyd.forecast.exact import cohorts_of, emptied
from tests.alloc.builders import cohort, queue, state, workload
from tests.snapshot.taking import finished


def furnished():
    of = state(cohort("top", gpu=4), cohort("low", "top"), queue("a", "low", gpu=8))
    of.put_workload(workload("w", "a", gpu=1))
    of.ledger.nodes.put(TopologyNode(name="n", labels={HOSTNAME: "n"}, allocatable={"gpu": 8}))
    of.ledger.nodes.put_pod("ns/other", "n", {"gpu": 3})
    return of


def test_quotas_and_nodes_are_the_same_and_workloads_are_left_out():
    before = furnished()

    after = finished(emptied(before, None))

    assert list(cohorts_of(after)) == list(cohorts_of(before))
    assert {each.name: each.spec for each in after.queues.values()} == {
        "a": before.queues["a"].spec
    }
    assert not list(after.queues["a"].pending)
    assert len(list(before.queues["a"].pending)) == 1
    (old,), (new,) = (each.ledger.nodes.rooms.values() for each in (before, after))
    assert new.node == old.node
    assert new.amounts == old.amounts
    assert new.amounts["gpu"] == 5
    assert PODS in after.ledger.nodes.taken["n"]
