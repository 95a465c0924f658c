"""A list that is kept sorted is the sorted list, whatever comes and goes."""

from typing import NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from policyd.status import pending_order
from policyd.status.pending_order import PendingOrder, RankedList, order_of, prepare
from tests.alloc.builders import workload
from tests.alloc.test_pending import pending


class Item(NamedTuple):
    order_key: int


@settings(deadline=None)
@given(st.sets(st.integers(0, 99)), st.lists(st.integers(0, 99), max_size=80))
def test_it_is_the_sorted_list(at_first, changes):
    load, pending_order.LOAD = pending_order.LOAD, 3
    try:
        found, expected = RankedList(map(Item, at_first)), set(at_first)
        for number in changes:
            (found.remove if number in expected else found.add)(Item(number))
            expected ^= {number}
            order = [Item(each) for each in sorted(expected)]
            assert found.all() == order
            assert len(found) == len(order)
            assert found.part(1, 5) == order[1:5]
            assert found.part(len(order) - 2, 1_000) == order[max(0, len(order) - 2) :]
            assert [found.place(each) for each in order] == list(range(len(order)))
            assert found.place(Item(number)) == sum(each.order_key < number for each in order)
    finally:
        pending_order.LOAD = load


def test_many_are_split_into_parts():
    found = RankedList()
    for number in range(5 * pending_order.LOAD):
        found.add(Item(number))

    assert max(map(len, found._parts)) <= 2 * pending_order.LOAD
    assert found.part(4_990, 4_992) == [Item(4_990), Item(4_991)]


def job(number, priority=0):
    return workload(f"w{number}", "q", at=number, priority=priority, local_queue=f"ns/{number % 3}")


def reported(order, size):
    """All that an order says of a queue of that size."""
    places = [order.places(name, 0, size) for name in ("", "ns/0", "ns/1", "ns/2")]
    counts = sorted((str(each.example.pod_sets), each.size) for each in order.groups())
    return order.in_order(), places, counts


def is_the_order(queue):
    """Tell whether the order that is kept is the one that is made anew."""
    kept = queue.follower
    assert isinstance(kept, PendingOrder)
    queue.follower = None
    return reported(kept, len(queue)) == reported(order_of(queue), len(queue))


@settings(deadline=None)
@given(st.integers(0, 40), st.lists(st.tuples(st.integers(0, 50), st.integers(0, 2)), max_size=60))
def test_an_order_that_is_prepared_while_workloads_come_and_go_is_the_order(size, changes):
    queue = pending(*map(job, range(size)))
    step, pending_order.STEP = pending_order.STEP, 4
    few, pending_order.FEW = pending_order.FEW, 2
    try:
        steps = prepare(queue)
        for number, priority in changes:
            if queue.get(f"w{number}") and not priority:
                queue.remove(f"w{number}")
            else:
                queue.put(job(number, priority))
            next(steps, None)
        for _ in steps:
            pass
    finally:
        pending_order.STEP, pending_order.FEW = step, few

    assert is_the_order(queue)


def test_a_reader_does_not_wait_for_an_order_that_is_being_prepared():
    queue = pending(*map(job, range(2_000)))
    steps = prepare(queue)
    next(steps)

    order = order_of(queue)

    assert list(steps) == []
    assert queue.follower is order
    assert len(order.in_order()) == 2_000


def test_preparing_is_given_up_where_more_changes_than_it_saves():
    queue = pending(*map(job, range(1_000)))
    steps = prepare(queue)
    next(steps)
    for number in range(3_000):
        queue.put(job(number % 1_000, number))

    assert list(steps) == []
    assert queue.follower is None


def test_another_order_of_the_queue_ends_preparing():
    queue = pending(*map(job, range(1_000)))
    steps = prepare(queue)
    next(steps)

    queue.order_by_run_time(shortest=True)

    assert list(steps) == []
    assert queue.follower is None
