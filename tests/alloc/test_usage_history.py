"""What LocalQueues used lately counts by halves, and what was just decided counts at once."""

import pytest
from hypothesis import given, settings

from policyd.alloc.settings import UsageBasedOrder
from policyd.alloc.usage_history import UsageHistory, nanos
from tests.alloc.choices import scenarios

RULES = UsageBasedOrder(half_life_seconds=600, sampling_seconds=300, weights={"memory": 0})
CORE = nanos({"cpu": 1_000})


def history(rules=RULES):
    return UsageHistory(rules)


def test_after_a_half_life_a_queue_that_uses_nothing_has_used_half():
    book = history()
    book.seed("lq", nanos({"cpu": 8_000}), at=0)

    book.sample("lq", {}, 600)

    assert book.usage["lq"] == pytest.approx(4)


def test_history_moves_towards_what_is_used():
    book = history()

    for now in range(0, 60_000, 300):
        book.sample("lq", nanos({"cpu": 2_000}), now)

    assert book.usage["lq"] == pytest.approx(2)


def test_a_decision_counts_until_it_is_settled_and_then_is_history():
    book = history()

    book.push("lq", "a", CORE, now=0)
    pending = book.usage["lq"]
    book.settle("lq", "a", {}, now=0)

    assert pending == book.usage["lq"] == pytest.approx(1 - 0.5**0.5)
    assert not book.entries["lq"].penalties


def test_a_decision_that_comes_to_nothing_is_forgotten():
    book = history()

    book.push("lq", "a", CORE, now=0)
    book.drop("lq", "a")

    assert (book.usage["lq"], book.awaits("lq", "a")) == (0, False)


def test_a_half_life_of_zero_forgets_at_every_sample():
    book = history(UsageBasedOrder())
    book.seed("lq", CORE, at=0)

    book.sample("lq", CORE, now=5)

    assert book.usage["lq"] == 0


@pytest.mark.parametrize(
    ("weight", "usage"),
    [
        pytest.param(1, 2, id="as-it-is"),
        pytest.param(4, 0.5, id="by-its-weight"),
        pytest.param(0, float("inf"), id="no-weight-goes-last"),
    ],
)
def test_a_queue_is_ordered_by_its_usage_and_its_weight(weight, usage):
    book = history()
    book.seed("lq", nanos({"cpu": 2_000, "memory": 5}), at=0)

    book.put_queue("lq", weight)

    assert book.usage["lq"] == usage


def test_a_queue_that_is_gone_has_no_weight_of_its_own():
    book = history()
    book.put_queue("lq", 0)

    book.remove_queue("lq")

    assert book.usage["lq"] == 0


def test_a_seed_does_not_replace_known_usage():
    book = history()
    book.seed("lq", CORE, at=0)

    book.seed("lq", {}, at=5)

    assert book.usage["lq"] == 1


def steps(choose):
    return [
        (choose.one(("push", "drop")), choose.one("abc"), choose.number(0, 5))
        for _ in range(choose.number(0, 20))
    ]


@settings(deadline=None)
@given(scenarios(steps, 61))
def test_penalties_are_those_of_the_workloads_that_still_count(actions):
    book = history(UsageBasedOrder(half_life_seconds=1e-9))
    book.seed("lq", {}, at=0)
    counted = {}
    for action, name, cores in actions:
        if action == "push":
            book.push("lq", name, nanos({"cpu": 1_000 * cores}), now=0)
            counted[name] = cores
        else:
            book.drop("lq", name)
            counted.pop(name, None)

    assert book.usage["lq"] == sum(counted.values())
