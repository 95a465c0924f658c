"""The work of counting claims is shared between namespaces, by turns."""

import pytest

from policyd.devices.rations import Rations


def test_a_namespace_that_had_its_share_waits_and_others_go_on():
    rations = Rations(turn=100)
    rations.spend("greedy", 250)

    assert not rations.allows("greedy")
    assert rations.allows("modest")
    assert [rations.next_turn() for _ in range(2)] == [[], ["greedy"]]


def test_a_namespace_within_its_share_goes_on():
    rations = Rations(turn=100)
    rations.spend("a", 99)

    assert rations.allows("a")


def test_namespaces_in_debt_share_each_turn_alike_however_much_each_has_had():
    rations = Rations(turn=100)
    rations.spend("greedy", 1_000)
    rations.spend("modest", 60)
    assert not rations.allows("modest")

    assert rations.next_turn() == ["modest"]


@pytest.mark.parametrize("namespaces", [1, 3, 50])
def test_all_namespaces_together_have_a_turn_for_each_turn(namespaces):
    """Each has as much to be counted as it may, in claims that are as large as a turn."""
    turn, turns = 100, 500
    rations, counted = Rations(turn=turn), dict.fromkeys(map(str, range(namespaces)), 0)
    for _ in range(turns):
        for name in counted:
            while rations.allows(name):
                rations.spend(name, turn)
                counted[name] += turn
        rations.next_turn()

    assert sum(counted.values()) <= turn * (turns + 2 * namespaces)
    assert max(counted.values()) - min(counted.values()) <= turn


def test_turns_go_on_until_all_is_repaid():
    begun = []
    rations = Rations(lambda: begun.append(1), turn=100)
    assert not rations.busy
    rations.spend("a", 150)
    rations.spend("a", 100)
    assert begun == [1]

    turns = 0
    while rations.busy:
        rations.next_turn()
        turns += 1
    assert turns == 3
