"""The quota tree: tables for its rules, and the oracle for everything else."""

from dataclasses import dataclass

import pytest
from hypothesis import given, settings

from policyd.alloc.amount import UNLIMITED
from policyd.alloc.queue import quotas_of
from policyd.alloc.quota import QuotaTree
from tests.alloc import oracle
from tests.alloc.builders import cohort, queue, quota
from tests.alloc.choices import scenarios
from tests.alloc.worlds import quotas

GPU = ("default", "gpu")


def tree_of(*specs):
    tree = QuotaTree()
    for spec in specs:
        if hasattr(spec, "parent"):
            tree.hierarchy.put_cohort(spec.name, spec.parent, quotas_of(spec.groups))
        else:
            tree.hierarchy.put_queue(spec.name, spec.cohort, quotas_of(spec.groups))
    tree.refresh()
    return tree


def cell(tree, name):
    return tree.cell(tree.hierarchy.queues[name], GPU)


def charged(tree, **amounts):
    tree.charge({cell(tree, name): amount for name, amount in amounts.items()})
    return tree


def available(tree, name):
    return tree.available(cell(tree, name))


@pytest.mark.parametrize(
    ("specs", "used", "expected"),
    [
        pytest.param([queue("a", gpu=8)], {}, {"a": 8}, id="alone"),
        pytest.param([queue("a", gpu=8)], {"a": 9}, {"a": -1}, id="over-used"),
        pytest.param(
            [queue("a", "all", gpu=8), queue("b", "all", gpu=4)], {"a": 2}, {"a": 10, "b": 10},
            id="a-cohort-shares-all",
        ),
        pytest.param(
            [queue("a", "all", gpu=quota(8, borrow=1)), queue("b", "all", gpu=4)],
            {"a": 2},
            {"a": 7, "b": 10},
            id="borrowing-limit",
        ),
        pytest.param(
            [queue("a", "all", gpu=quota(8, lend=3)), queue("b", "all", gpu=4)],
            {},
            {"a": 12, "b": 7},
            id="lending-limit",
        ),
        pytest.param(
            [queue("a", "all", gpu=quota(8, lend=3)), queue("b", "all", gpu=4)],
            {"a": 4},
            {"a": 8, "b": 7},
            id="guaranteed-part-is-used-first",
        ),
        pytest.param(
            [queue("a", "all", gpu=quota(8, lend=3)), queue("b", "all", gpu=4)],
            {"a": 6},
            {"a": 6, "b": 6},
            id="more-than-the-guaranteed-part-is-the-cohorts",
        ),
        pytest.param(
            [cohort("top", gpu=5), cohort("all", "top", gpu=quota(0, borrow=2)),
             queue("a", "all", gpu=4)],
            {},
            {"a": 6},
            id="limit-of-a-cohort",
        ),
        pytest.param(
            [queue("a", "all", gpu=quota(8, lend=0)), queue("b", "all", gpu=quota(0))],
            {"b": 2},
            {"a": 6, "b": -2},
            id="what-others-over-use-is-missing",
        ),
        pytest.param(
            [queue("a", "all", gpu=UNLIMITED), queue("b", "all", gpu=4)],
            {"b": 100},
            {"a": UNLIMITED, "b": UNLIMITED},
            id="unlimited-is-never-used-up",
        ),
    ],
)  # fmt: skip
def test_the_available_quota(specs, used, expected):
    tree = charged(tree_of(*specs), **used)

    assert {name: available(tree, name) for name in expected} == expected


@pytest.mark.parametrize(
    ("amount", "expected"),
    [
        pytest.param(4, (0, True), id="own-quota"),
        pytest.param(6, (1, True), id="from-the-cohort"),
        pytest.param(9, (2, False), id="from-the-whole-tree"),
        pytest.param(99, (2, False), id="more-than-there-is"),
    ],
)
def test_how_far_up_an_amount_borrows(amount, expected):
    tree = tree_of(
        cohort("top", gpu=4), cohort("all", "top"), queue("a", "all", gpu=4),
        queue("b", "all", gpu=2),
    )  # fmt: skip

    assert tree.borrowing_level(cell(tree, "a"), amount) == expected


def test_a_queue_without_cohort_does_not_borrow():
    tree = tree_of(queue("a", gpu=4))

    assert tree.borrowing_level(cell(tree, "a"), 5) == (0, False)


def test_usage_of_a_flavor_without_quota_is_counted():
    tree = tree_of(queue("a", "all", gpu=4), queue("b", "all"))

    charged(tree, b=3)

    assert available(tree, "a") == 1


def test_a_queue_that_leaves_takes_its_quota_and_usage_with_it():
    tree = charged(tree_of(queue("a", "all", gpu=4), queue("b", "all", gpu=4)), a=3, b=2)

    tree.hierarchy.remove_queue("b")
    tree.refresh()

    assert available(tree, "a") == 1


def test_a_queue_that_moves_takes_its_usage_along():
    tree = charged(tree_of(queue("a", "all", gpu=4), queue("b", "other", gpu=4)), a=6)

    tree.hierarchy.put_queue("a", "other", {GPU: quota(4)})
    tree.refresh()

    assert available(tree, "b") == 2


def test_a_cohort_without_object_lives_while_it_has_members():
    tree = tree_of(cohort("all", gpu=4), queue("a", "all", gpu=1))

    tree.hierarchy.remove_cohort("all")
    tree.refresh()

    assert available(tree, "a") == 1
    assert set(tree.hierarchy.cohorts) == {"all"}


def test_a_cohort_without_references_is_removed():
    tree = tree_of(queue("a", "all", gpu=1))

    tree.hierarchy.put_queue("a", "", {GPU: quota(1)})
    tree.refresh()

    assert tree.hierarchy.cohorts == {}


def test_cells_of_what_is_gone_are_used_again():
    tree = charged(tree_of(queue("a", "all", gpu=1)), a=1)
    before = len(tree.usage)

    for _ in range(3):
        tree.hierarchy.remove_queue("a")
        tree.refresh()
        tree.hierarchy.put_queue("a", "all", {GPU: quota(1)})
        tree.refresh()

    assert len(tree.usage) == before
    assert available(tree, "a") == 1


def cyclic(tree):
    nodes = [*tree.hierarchy.queues.values(), *tree.hierarchy.cohorts.values()]
    return {node.name for node in nodes if node.cyclic}


def test_a_cycle_of_cohorts_is_found_with_all_below_it():
    tree = tree_of(
        cohort("x", "y"), cohort("y", "x"), cohort("z", "y"), queue("a", "z", gpu=1),
        queue("b", gpu=1),
    )  # fmt: skip

    assert cyclic(tree) == {"x", "y", "z", "a"}


def test_a_cycle_that_is_broken_is_forgotten():
    tree = tree_of(cohort("x", "y"), cohort("y", "x", gpu=2), queue("a", "x", gpu=1))

    tree.hierarchy.put_cohort("y", "", {GPU: quota(2)})
    tree.refresh()

    assert cyclic(tree) == set()
    assert available(tree, "a") == 3


def test_a_cohort_that_is_its_own_parent_can_be_removed():
    tree = tree_of(cohort("x", "x"))
    assert cyclic(tree) == {"x"}

    tree.hierarchy.remove_cohort("x")
    tree.refresh()

    assert tree.hierarchy.cohorts == {}


def test_a_trial_within_a_trial_is_taken_back_first():
    tree = tree_of(queue("a", "all", gpu=8))
    with tree.trial():
        charged(tree, a=3)
        with tree.trial():
            charged(tree, a=4)
            assert available(tree, "a") == 1
        assert available(tree, "a") == 5

    assert available(tree, "a") == 8


@dataclass
class World:
    queues: list
    cohorts: list
    charges: list


def world_of(choose):
    """Up to six queues below up to four cohorts in any shape without cycles, and what they use."""
    cohorts = [
        cohort(f"c{n}", choose.one(["", *(f"c{m}" for m in range(n))]), maybe_quotas(choose))
        for n in range(choose.number(0, 4))
    ]
    names = ["", "implicit", *(c.name for c in cohorts)]
    queues = [
        queue(f"q{n}", choose.one(names), gpu=maybe_quotas(choose))
        for n in range(choose.number(1, 6))
    ]
    charges = [(choose.one(queues).name, choose.number(0, 12)) for _ in range(choose.number(0, 8))]
    return World(queues, cohorts, charges)


def maybe_quotas(choose):
    return quotas(choose, 12) if choose.yes() else None


def check(tree, slow):
    for kind, nodes in (("queue", tree.hierarchy.queues), ("cohort", tree.hierarchy.cohorts)):
        for name, node in nodes.items():
            at = (kind, name)
            assert node.height == slow.height(at)
            for names, number in node.cells.items():
                assert tree.usage[number] == slow.usage(at, names)
                assert tree.available(number) == slow.available(at, names)
                assert tree.potential[number] == slow.potential(at, names)
                if kind == "queue":
                    check_amounts(tree, number, slow, at, names)


def check_amounts(tree, number, slow, at, names):
    for amount in (0, 1, 5, 20):
        own = slow.usage(at, names) + amount <= slow.subtree(at, names)
        fits = amount <= max(0, slow.available(at, names))
        assert tree.borrowing_level(number, amount) == slow.level(at, names, amount)
        assert tree.fits({number: amount}) == fits
        assert tree.fits({number: amount}, borrowing=False) == (fits and own)


@settings(deadline=None)
@given(scenarios(world_of, 70))
def test_the_tree_agrees_with_the_oracle_after_every_step(world):
    tree, used = tree_of(*world.cohorts, *world.queues), {}
    for name, _ in world.charges:
        cell(tree, name)
    before = list(tree.usage)
    with tree.trial():
        for name, amount in world.charges:
            charged(tree, **{name: amount})
            used[name, *GPU] = used.get((name, *GPU), 0) + amount
        check(tree, oracle.Tree(world.queues, world.cohorts, used))
        for (name, *_), amount in used.items():
            tree.release({cell(tree, name): amount // 2})
            used[name, *GPU] -= amount // 2
        check(tree, oracle.Tree(world.queues, world.cohorts, used))

    assert tree.usage == before


@settings(deadline=None)
@given(scenarios(lambda choose: (world_of(choose), world_of(choose)), 140))
def test_changing_the_tree_is_as_making_it_anew(worlds):
    before, after = worlds
    tree = tree_of(*before.cohorts, *before.queues)
    used = {}
    for name, amount in before.charges:
        charged(tree, **{name: amount})
        used[name, *GPU] = used.get((name, *GPU), 0) + amount
    change(tree, before, after)
    staying = {q.name for q in after.queues} & {q.name for q in before.queues}

    check(
        tree,
        oracle.Tree(
            after.queues, after.cohorts, {k: n for k, n in used.items() if k[0] in staying}
        ),
    )


def change(tree, before, after):
    for old in {q.name for q in before.queues} - {q.name for q in after.queues}:
        tree.hierarchy.remove_queue(old)
    for old in {c.name for c in before.cohorts} - {c.name for c in after.cohorts}:
        tree.hierarchy.remove_cohort(old)
    for spec in after.queues:
        tree.hierarchy.put_queue(spec.name, spec.cohort, quotas_of(spec.groups))
    for spec in after.cohorts:
        tree.hierarchy.put_cohort(spec.name, spec.parent, quotas_of(spec.groups))
    tree.refresh()
