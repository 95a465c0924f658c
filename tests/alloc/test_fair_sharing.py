"""Shares, whose turn they make it, and what they lead to in the long run."""

import math

import msgspec
import pytest
from hypothesis import given
from msgspec.structs import replace

from policyd.alloc.cluster_queue import NominatedWorkload
from policyd.alloc.cycle import plan_cycle, tournament, tournament_key
from policyd.alloc.fair_sharing import BorrowedShare, share_of
from policyd.alloc.flavors.assignment import Assignment
from policyd.alloc.flavors.options import RequestKey
from policyd.alloc.pending import Ticket
from policyd.alloc.plan import Admit, Preempt
from policyd.alloc.settings import FairSharingRules, Gates, QueueingSettings
from policyd.status.shares import rounded_share, share_text, weighted_share
from tests.alloc.builders import cohort, group, keys, put, queue, state, workload
from tests.alloc.choices import scenarios
from tests.alloc.preemption.test_preemption import RATE, RECLAIM, running
from tests.alloc.worlds import quotas


def share(of, name):
    of.settle()
    hierarchy = of.tree.hierarchy
    return share_of(of.tree, hierarchy.queues.get(name) or hierarchy.cohorts[name])


@pytest.mark.parametrize(
    ("weight", "gpu", "text", "rounded"),
    [
        pytest.param(1, 4, "0", 0, id="its-own-quota-is-no-share"),
        pytest.param(1, 7, "250", 250, id="borrowed-of-what-can-be-lent"),
        pytest.param(2, 7, "125", 125, id="by-weight"),
        pytest.param(0.3, 7, "833.3333333333334", 834, id="rounded-up"),
        pytest.param(0, 7, "+Inf", 2**63 - 1, id="borrowing-with-weight-zero"),
        pytest.param(0, 4, "0", 0, id="not-borrowing-with-weight-zero"),
    ],
)
def test_a_share_is_the_borrowed_amount_by_weight(weight, gpu, text, rounded):
    of = state(
        queue("a", "x", gpu=4, weight=weight), queue("b", "x", gpu=8), running("w", "a", gpu=gpu)
    )

    found = share(of, "a")

    assert (share_text(found), rounded_share(found)) == (text, rounded)


def test_the_dominant_resource_decides_and_what_nobody_lends_does_not():
    groups = [group(default={"cpu": 0, "gpu": 0, "memory": 0})]
    lends = [group(default={"cpu": 100, "gpu": 10})]
    of = state(
        queue("a", "x", groups=groups),
        queue("b", "x", groups=lends),
        running("w", "a", cpu=50, gpu=6, memory=9),
    )

    found = share(of, "a")

    assert (found.dominant, found.ratio) == ("gpu", 600)
    assert {resource for _, resource in found.borrowed} == {"cpu", "gpu", "memory"}


def test_a_cohort_borrows_what_its_queues_do_beyond_its_quota():
    of = state(
        cohort("left", "root", gpu=4),
        cohort("right", "root", gpu=12),
        queue("a", "left", gpu=0),
        running("w", "a", gpu=6),
    )

    assert share(of, "a").ratio == 6 * 1000 / 16
    assert share(of, "left").ratio == 2 * 1000 / 16
    assert share(of, "root").ratio == 0


def test_resources_without_quota_are_not_borrowed():
    of = state(
        cohort("left", "root", gpu=0),
        cohort("right", "root", gpu=12),
        queue("a", "left", gpu=0),
        running("w", "a", gpu=3, memory=9),
    )

    for name in ("a", "left"):
        assert set(share(of, name).borrowed) == {("default", "gpu")}


def test_weightless_borrowers_come_last_and_are_compared_by_what_they_borrow():
    shares = [
        BorrowedShare({}, 0),
        BorrowedShare({}, 900),
        BorrowedShare({}, 1, weight=0),
        BorrowedShare({}, 2, weight=0),
    ]

    assert sorted(shares, key=lambda each: each.rank) == shares
    assert math.isinf(weighted_share(shares[-1]))


# The tournament, and what it should do written out at length.


def slow_turns(tree, entries, gates, effect):
    left = {entry.options.node: entry for entry in entries}
    roots = sorted({node.root for node in left}, key=lambda node: (node.queue, node.name))
    for root in roots:
        while here := [node for node in left if node.root is root]:
            values = {}
            for node in here:
                with tree.trial():
                    tree.charge(left[node].assignment.charges)
                    child = node
                    while child.parent is not None:
                        values[child.parent, node] = share_of(tree, child)
                        child = child.parent

            def stands_at(node, at, values=values):
                return stands(tree, left[node], values[at, node], gates)

            best = winner(root, left, stands_at)
            yield best
            effect(best)
            del left[best]


def winner(node, left, stands_at):
    if node.queue:
        return node if node in left else None
    best = None
    for child in sorted(node.children.values(), key=lambda child: (child.queue, child.name)):
        found = winner(child, left, stands_at)
        if found and (best is None or stands_at(found, node) < stands_at(best, node)):
            best = found
    return best


def stands(tree, entry, share_there, gates):
    charges = entry.assignment.charges
    wanted = [tree.names[cell] for cell, amount in charges.items() if amount]
    return tournament_key(entry.ticket, share_there, wanted, gates)


def contest(choose):
    """A tree in which some run, what waits first in each queue, and who is charged in its turn."""
    names = [f"q{n}" for n in range(choose.number(1, 6))]
    cohorts = [
        cohort("x", choose.one(("", "w")), choose.number(0, 6)),
        cohort("y", choose.one(("", "x", "w")), choose.number(0, 6)),
    ]
    queues = [
        queue(
            name,
            choose.one(("", "w", "x", "y", "z")),
            groups=[group(default={"gpu": quotas(choose, 6), "cpu": quotas(choose, 6)})],
            weight=choose.one((0, 0.5, 1, 2)),
        )
        for name in names
    ]
    used = [
        running(f"w{n}", choose.one(names), gpu=choose.number(0, 4))
        for n in range(choose.number(0, 5))
    ]
    heads = [
        workload(
            name, name, gpu=choose.number(0, 4), cpu=choose.number(0, 4),
            at=choose.number(0, 2), priority=choose.number(0, 1),
        )
        for name in names
    ]  # fmt: skip
    counted = {name: choose.yes() for name in names}
    return [*cohorts, *queues, *used], heads, counted, choose.yes()


@RATE
@given(scenarios(contest, 110))
@pytest.mark.gate("FairSharingPrioritizeNonBorrowing")
def test_turns_are_as_in_the_slow_tournament(scenario):
    things, heads, counted, prioritized = scenario
    of = state(*things)
    of.settle()
    tree, gates = of.tree, Gates(fair_sharing_prioritize_non_borrowing=prioritized)
    entries = []
    for head in heads:
        options = of.queues[head.cluster_queue].options
        charges = {
            tree.cell(options.node, ("default", resource)): amount
            for resource, amount in head.pod_sets[0].requests.items()
        }
        entries.append(
            NominatedWorkload(
                Ticket(head, RequestKey()), options, None, Assignment(charges=charges)
            )
        )
    charged = {each.options.node: each.assignment.charges for each in entries}

    def effect(node):
        if counted[node.name]:
            tree.charge(charged[node])

    with tree.trial():
        expected = [node.name for node in slow_turns(tree, entries, gates, effect)]
    found = []
    with tree.trial():
        for entry in tournament(entries, tree, gates):
            found.append(entry.queue)
            effect(entry.options.node)
    assert found == expected


# More than one of a queue in a cycle.


def drained(*, capacity=3, waiting=3, fair_sharing_refill=True, **rules):
    """The workloads that one cycle admits where `poor` is below its share, and `rich` above."""
    rules = QueueingSettings(
        gates=Gates(fair_sharing_refill=fair_sharing_refill),
        fair_sharing=FairSharingRules(),
        **rules,
    )
    nominal = 8 + waiting
    of = state(
        cohort("all"), queue("poor", "all", gpu=nominal), queue("rich", "all", gpu=2),
        replace(running("held", "rich", gpu=nominal + 2 - capacity), ready=True),
        workload("r1", "rich", gpu=1, at=0), workload("r2", "rich", gpu=1, at=0),
        *(workload(f"p{n}", "poor", gpu=1, at=n) for n in range(1, waiting + 1)),
        rules=rules,
    )  # fmt: skip
    plan = plan_cycle(of)
    return of, plan


@pytest.mark.gate("FairSharingRefill")
@pytest.mark.parametrize(
    ("given", "admitted"),
    [
        pytest.param({}, ["p1", "p2", "p3"], id="the-poor-queue-gets-all"),
        pytest.param(
            {"fair_sharing_refill": False}, ["p1", "r1"], id="one-of-each-without-the-gate"
        ),
        pytest.param({"capacity": 1}, ["p1"], id="no-more-than-fits"),
        pytest.param({"capacity": 5}, ["p1", "p2", "p3", "r1", "r2"], id="then-the-rich-one"),
        pytest.param(
            {"capacity": 20, "waiting": 12},
            [*(f"p{n}" for n in range(1, 10)), "r1"],
            id="eight-more-at-most",
        ),
        pytest.param({"blocks_until_ready": True}, ["p1"], id="not-where-one-waits-for-the-other"),
    ],
)
def test_the_next_workload_of_a_queue_takes_part_in_the_same_cycle(given, admitted):
    _, plan = drained(**given)

    assert keys(plan.actions) == admitted


@pytest.mark.gate("FairSharingRefill")
def test_workloads_that_were_passed_over_are_in_line_again():
    of, plan = drained(fair_sharing_refill=True)

    assert plan_cycle(of) == plan
    of.commit(plan)
    assert keys(plan_cycle(of).actions) == []
    for number in (1, 2, 3):
        of.remove_workload(f"p{number}")
    assert keys(plan_cycle(of).actions) == ["r1", "r2"]


@RATE
@given(scenarios(contest, 200))
@pytest.mark.gate("FairSharingRefill")
def test_all_that_a_cycle_with_refills_admits_fits_in_turn(scenario):
    things, heads, _, _ = scenario
    waiting = [
        replace(head, key=f"{head.key}-{n}", queued_at=n) for head in heads for n in range(4)
    ]
    plans = {}
    for refill in (True, False):
        gates = Gates(fair_sharing_refill=refill)
        rules = QueueingSettings(gates=gates, fair_sharing=FairSharingRules())
        of = state(*things, *waiting, rules=rules)
        plans[refill] = plan_cycle(of)
        assert plan_cycle(of).actions == plans[refill].actions
        with of.tree.trial():
            for admit in admissions(plans[refill]):
                assert of.tree.fits(admit.charges)
                of.tree.charge(admit.charges)

    with_refills, without = (admissions(plans[refill]) for refill in (True, False))
    assert [each.workload.key for each in with_refills[:1]] == keys(without[:1])
    assert len(with_refills) <= len(heads) + 8
    for head in heads:
        mine = [key for key in keys(with_refills) if key.startswith(f"{head.key}-")]
        assert mine == [f"{head.key}-{n}" for n in range(len(mine))]


def admissions(plan):
    return [each for each in plan.actions if isinstance(each, Admit)]


# In the long run.


def parts(choose):
    """The weights of some queues, and who has some of twelve parts."""
    weights = [choose.one((0.5, 1, 2, 3)) for _ in range(choose.number(2, 4))]
    return weights, [choose.number(0, 3) for _ in range(choose.number(0, 12))]


@RATE
@given(scenarios(parts, 18))
def test_cycles_converge_to_the_weighted_shares(scenario):
    """Everybody wants more than there is, and some of it runs already: in whose hands ever."""
    weights, owners = scenario
    names, total = "abcd"[: len(weights)], 12
    of = state(
        cohort("x", gpu=total),
        *(
            queue(name, "x", gpu=0, weight=weight, preemption=RECLAIM)
            for name, weight in zip(names, weights, strict=True)
        ),
        *(running(f"r{n}", names[owner % len(names)], gpu=1) for n, owner in enumerate(owners)),
        *(workload(f"{name}{n}", name, gpu=1) for name in names for n in range(total)),
    )
    of.settings = QueueingSettings(fair_sharing=FairSharingRules())
    for _ in range(100):
        plan = plan_cycle(of)
        if not plan.actions:
            break
        of.commit(plan)
        for action in plan.actions:
            match action:
                case Admit():
                    put(of, msgspec.structs.replace(action.workload, admission=action.admission))
                case Preempt():
                    of.remove_workload(action.workload.key)
    else:
        raise AssertionError("cycles go on for ever")

    held = {name: len(of.queues[name].holdings) for name in names}
    assert sum(held.values()) == total
    share_of_each = dict(zip(names, weights, strict=True))
    for a in names:
        for b in names:
            assert held[a] / share_of_each[a] <= (held[b] + 1) / share_of_each[b]
