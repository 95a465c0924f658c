"""A list that is kept sorted is the sorted list, whatever comes and goes."""

from typing import NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from policyd.status import pending_order
from policyd.status.pending_order import RankedList


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
