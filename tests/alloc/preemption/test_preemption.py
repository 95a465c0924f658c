"""Whom a claim preempts: by priority and quota, and by shares."""

from unittest.mock import patch

import msgspec
import pytest
from hypothesis import given, settings

from policyd.alloc.preemption.search import Search
from policyd.alloc.preemption.targets import Claim, PreemptionOracle, find_targets
from policyd.alloc.queue import PreemptionPolicy
from policyd.alloc.reasons import Mode
from policyd.alloc.settings import FairSharingRules, Gates, QueueingSettings, UsageBasedOrder
from tests.alloc.builders import admission, cohort, group, put, queue, state, workload
from tests.alloc.choices import scenarios
from tests.alloc.worlds import quotas

RATE = settings(deadline=None)
WITHIN = PreemptionPolicy(within_cluster_queue="LowerPriority")
BOTH = PreemptionPolicy(within_cluster_queue="LowerPriority", reclaim_within_cohort="Any")
RECLAIM = PreemptionPolicy(reclaim_within_cohort="Any")


def running(key, queue_name, *, at=0, evicted=False, priority=0, local_queue="", **usage):
    return workload(
        key,
        queue_name,
        priority=priority,
        local_queue=local_queue,
        admission=admission(queue_name, **usage),
        reserved_at=float(at),
        evicted=evicted,
    )


def claim(of, name, *, priority=0, at=0, **requests):
    """A claim of a new workload for flavor `default`, of which all is short."""
    of.settle()
    node = of.queues[name].node
    charges = {of.tree.cell(node, ("default", r)): amount for r, amount in requests.items()}
    return Claim(workload("new", name, priority=priority, at=at), charges, tuple(charges))


def preempted(of, wanted):
    return [(target.workload.key, target.reason) for target in find_targets(of, wanted)]


IN_QUEUE, RECLAIMED = "InClusterQueue", "InCohortReclamation"
FAIRLY, BORROWING = "InCohortFairSharing", "InCohortReclaimWhileBorrowing"


@pytest.mark.parametrize(
    ("others", "expected"),
    [
        pytest.param(
            [running("low", "q", priority=1, gpu=4), running("high", "q", priority=3, gpu=4)],
            ["low"],
            id="lower-priority-only",
        ),
        pytest.param(
            [running("old", "q", at=1, gpu=4), running("new", "q", at=2, gpu=4)],
            ["new"],
            id="newest-first",
        ),
        pytest.param(
            [running("old", "q", evicted=True, gpu=4), running("new", "q", at=2, gpu=4)],
            ["old"],
            id="evicted-already-first",
        ),
        pytest.param(
            [
                running("a", "q", at=3, gpu=1),
                running("b", "q", at=2, gpu=4),
                running("c", "q", gpu=3),
            ],
            ["b"],
            id="small-ones-are-spared-if-a-large-one-is-enough",
        ),
        pytest.param([running("a", "q", priority=9, gpu=8)], [], id="nobody-of-higher-priority"),
        pytest.param(
            [running("a", "q", gpu=3), running("b", "q", priority=2, gpu=5)],
            [],
            id="nobody-if-it-is-not-enough",
        ),
        pytest.param(
            [running("a", "q", cpu=4), running("b", "q", gpu=8)],
            ["b"],
            id="nobody-who-holds-nothing-of-it",
        ),
    ],
)
def test_within_a_queue(others, expected):
    groups = [group(default={"gpu": 8, "cpu": 8})]
    of = state(queue("q", groups=groups, preemption=WITHIN), *others)

    found = preempted(of, claim(of, "q", priority=2, gpu=4))

    assert found == [(key, IN_QUEUE) for key in expected]


def test_equal_priority_is_preempted_by_who_waits_longer():
    policy = PreemptionPolicy(within_cluster_queue="LowerOrNewerEqualPriority")
    older, newer = workload("o", "q", at=1), workload("n", "q", at=9)
    held = admission("q", gpu=4)
    of = state(
        queue("q", gpu=8, preemption=policy),
        *(msgspec.structs.replace(w, admission=held) for w in (older, newer)),
    )

    assert preempted(of, claim(of, "q", at=5, gpu=4)) == [("n", IN_QUEUE)]


def test_own_quota_is_reclaimed_from_borrowers():
    of = state(
        queue("a", "x", gpu=4, preemption=RECLAIM),
        queue("b", "x", gpu=4),
        queue("c", "x", gpu=4),
        running("b1", "b", at=1, priority=9, gpu=4),
        running("b2", "b", at=2, priority=9, gpu=4),
        running("c1", "c", gpu=4),
    )

    assert preempted(of, claim(of, "a", gpu=4)) == [("b2", RECLAIMED)]
    assert preempted(of, claim(of, "a", gpu=8)) == []


@pytest.mark.parametrize(
    ("threshold", "expected"),
    [
        pytest.param(None, [("b2", BORROWING)], id="any-lower-priority"),
        pytest.param(0, [("b1", BORROWING)], id="not-above-the-threshold"),
        pytest.param(-1, [], id="nobody-below-the-threshold"),
    ],
)
def test_while_borrowing_only_the_unimportant_give_way(threshold, expected):
    policy = PreemptionPolicy(
        reclaim_within_cohort="LowerPriority",
        borrow_within_cohort="LowerPriority",
        max_priority_threshold=threshold,
    )
    of = state(
        queue("a", "x", gpu=2, preemption=policy),
        queue("b", "x", gpu=0),
        cohort("x", gpu=6),
        running("b1", "b", at=1, priority=0, gpu=4),
        running("b2", "b", at=2, priority=1, gpu=4),
    )
    if threshold is None:
        put(of, running("b2", "b", at=2, priority=0, gpu=4))

    assert preempted(of, claim(of, "a", priority=5, gpu=4)) == expected


@pytest.mark.parametrize(
    ("used", "expected"),
    [
        pytest.param(0, [("c1", RECLAIMED)], id="all-of-it-is-unused-below"),
        pytest.param(1, [], id="some-of-it-is-used-below"),
    ],
)
def test_quota_of_the_cohort_above_is_taken_back_like_ones_own(used, expected):
    of = state(
        cohort("left", "root", gpu=4),
        queue("a", "left", gpu=0, preemption=RECLAIM),
        queue("b", "left", gpu=0),
        queue("c", "root", gpu=4),
        running("b1", "b", gpu=used),
        running("c1", "c", priority=9, gpu=8 - used),
    )

    assert preempted(of, claim(of, "a", gpu=4)) == expected


def test_one_flavor_says_how_it_could_be_had():
    of = state(
        queue("a", "x", gpu=4, preemption=BOTH),
        queue("b", "x", gpu=4),
        running("a1", "a", gpu=2),
        running("b1", "b", gpu=6),
    )
    of.settle()
    cell = of.queues["a"].node.cells["default", "gpu"]

    def ask(priority, amount):
        return PreemptionOracle(of, workload("new", "a", priority=priority)).possible(cell, amount)

    assert ask(0, 2) == (Mode.RECLAIM, 0)
    assert ask(1, 4) == (Mode.PREEMPT, 0)
    assert ask(0, 4) == (Mode.BLOCKED, 1)


def test_the_share_of_who_gives_stays_above_that_of_who_takes():
    of = state(
        queue("a", "x", gpu=0, preemption=RECLAIM),
        queue("b", "x", gpu=0),
        queue("c", "x", gpu=0),
        cohort("x", gpu=9),
        *(running(f"b{n}", "b", at=n, gpu=1) for n in range(6)),
        *(running(f"c{n}", "c", at=n, gpu=1) for n in range(3)),
    )
    of.settings = QueueingSettings(fair_sharing=FairSharingRules())

    assert preempted(of, claim(of, "a", gpu=3)) == [("b5", FAIRLY), ("b4", FAIRLY), ("b3", FAIRLY)]
    assert preempted(of, claim(of, "a", gpu=6)) == []


def test_within_nominal_quota_shares_do_not_matter():
    of = state(
        queue("a", "x", gpu=4, preemption=RECLAIM, weight=0.1),
        queue("b", "x", gpu=4, weight=100),
        running("b1", "b", at=1, gpu=3),
        running("b2", "b", at=2, gpu=5),
    )
    of.settings = QueueingSettings(fair_sharing=FairSharingRules())

    assert preempted(of, claim(of, "a", gpu=4)) == [("b2", RECLAIMED)]


@pytest.mark.gate("FairSharingReevaluatePreemptionCandidates")
@pytest.mark.parametrize(
    ("own", "others", "wanted", "again"),
    [
        pytest.param(2, 2, 3, ["b1"], id="entitled-without-its-own-victims"),
        pytest.param(2, 3, 4, ["b2", "b1"], id="fairer-while-it-still-borrows"),
    ],
)
def test_a_share_that_falls_by_victims_of_its_own_counts_once_more(own, others, wanted, again):
    def victims(*strategies, gate=True):
        of = state(
            queue("a", "x", gpu=3, preemption=BOTH),
            queue("b", "x", gpu=0),
            queue("c", "x", gpu=own + others - 3),
            *(running(f"a{n}", "a", at=n, gpu=1) for n in range(own)),
            *(running(f"b{n}", "b", at=n, priority=5, gpu=1) for n in range(others)),
            rules=QueueingSettings(
                gates=Gates(fair_sharing_reevaluate_preemption_candidates=gate),
                fair_sharing=FairSharingRules(strategies=strategies),
            ),
        )
        return [key for key, _ in preempted(of, claim(of, "a", priority=5, gpu=wanted))]

    final, initial = "LessThanOrEqualToFinalShare", "LessThanInitialShare"
    found = victims(final)
    assert sorted(found) == sorted([f"a{n}" for n in range(own)] + again)
    assert victims(final, initial) == found
    assert victims(final, gate=False) == []


@pytest.mark.gate("FairSharingReevaluatePreemptionCandidates")
def test_candidates_that_another_cohort_keeps_are_tried_again_by_their_order():
    of = state(
        queue("left-a", "left", gpu=0, preemption=BOTH),
        queue("right-b", "right", gpu=0),
        queue("right-c", "right", gpu=0),
        cohort("root", gpu=15),
        cohort("left", "root", weight=20),
        cohort("right", "root", weight=10),
        *(
            running(f"{name}{n}", name, at=n, gpu=1)
            for name, count in (("left-a", 3), ("right-b", 6), ("right-c", 1))
            for n in range(count)
        ),
        rules=QueueingSettings(
            gates=Gates(fair_sharing_reevaluate_preemption_candidates=True),
            fair_sharing=FairSharingRules(strategies=("LessThanOrEqualToFinalShare",)),
        ),
    )

    assert sorted(preempted(of, claim(of, "left-a", priority=1, gpu=10))) == [
        *((f"left-a{n}", IN_QUEUE) for n in range(3)),
        *((f"right-b{n}", FAIRLY) for n in (4, 5)),
    ]


@pytest.mark.parametrize(
    ("lender", "borrower", "expected"),
    [
        pytest.param({}, {}, ["loan"], id="nobody-is-stopped"),
        pytest.param({}, {"stopped": True}, [], id="who-borrows-is-stopped"),
        pytest.param({}, {"missing_checks": ("c",)}, [], id="who-borrows-lacks-a-check"),
        pytest.param({"stopped": True}, {}, ["loan"], id="another-that-has-room-is-stopped"),
    ],
)
@pytest.mark.parametrize("sharing", [None, FairSharingRules()])
def test_a_queue_that_gives_out_no_quota_keeps_what_it_gave(lender, borrower, expected, sharing):
    of = state(
        queue("owner", "x", gpu=4, preemption=RECLAIM),
        queue("borrower", "x", gpu=4, **borrower),
        queue("lender", "x", gpu=2, **lender),
        running("loan", "borrower", gpu=8),
        rules=QueueingSettings(fair_sharing=sharing),
    )

    assert [key for key, _ in preempted(of, claim(of, "owner", gpu=4))] == expected


# What holds for all claims.

NAMES = ("a", "b", "c", "d")
SHARING = (
    None,
    FairSharingRules(),
    FairSharingRules(strategies=("LessThanInitialShare",)),
    FairSharingRules(strategies=("LessThanOrEqualToFinalShare",)),
)


def policies(choose):
    return PreemptionPolicy(
        within_cluster_queue=choose.one(("Never", "LowerPriority", "LowerOrNewerEqualPriority")),
        reclaim_within_cohort=choose.one(("Never", "LowerPriority", "Any")),
        borrow_within_cohort=choose.one(("Never", "LowerPriority")),
        max_priority_threshold=choose.maybe(0, 2),
    )


def world(choose):
    """Queues in a tree of cohorts, and what runs in them; more than there is quota for, maybe."""
    cohorts = [
        cohort("x", choose.one(("", "y")), choose.number(0, 6)),
        cohort("y", "", choose.number(0, 6)),
    ]
    queues = [
        queue(
            name,
            choose.one(("", "x", "x", "y")),
            groups=[group(default={"gpu": quotas(choose, 6), "cpu": quotas(choose, 6)})],
            preemption=policies(choose),
            weight=choose.one((0, 0.5, 1, 3)),
        )
        for name in NAMES
    ]
    others = [
        running(
            f"w{n}",
            choose.one(NAMES),
            at=choose.number(0, 3),
            priority=choose.number(0, 3),
            evicted=choose.once_in(6),
            gpu=choose.number(0, 3),
            cpu=choose.number(0, 3),
        )
        for n in range(choose.number(0, 8))
    ]
    return [*cohorts, *queues, *others]


def claims(choose):
    """A world, what a new workload asks for in it, and how cohorts share."""
    asked = {
        "name": choose.one(NAMES),
        "priority": choose.number(0, 3),
        "gpu": choose.number(1, 6),
        "cpu": choose.number(0, 3),
    }
    return world(choose), asked, choose.one(SHARING)


def in_two_orders(choose):
    things, asked, sharing = claims(choose)
    return things, choose.shuffled(things), asked, sharing


CLAIMS = scenarios(claims, 105)


def made(things, sharing):
    of = state(*things)
    of.settings = QueueingSettings(fair_sharing=sharing)
    return of


def without(of, holdings, wanted, *, borrowing):
    """Whether a claim fits once some holdings are gone."""
    with of.tree.trial():
        for holding in holdings:
            of.tree.release(holding.charges)
        return of.tree.fits({c: a for c, a in wanted.charges.items() if a}, borrowing=borrowing)


@RATE
@given(CLAIMS)
def test_victims_are_enough_and_none_of_them_could_be_spared(scenario):
    things, asked, sharing = scenario
    of = made(things, sharing)
    wanted = claim(of, **asked)
    victims = [of.holding(target.workload.key) for target in find_targets(of, wanted)]

    if victims and not without(of, [], wanted, borrowing=True):
        assert any(
            without(of, victims, wanted, borrowing=borrowing)
            and not any(
                without(of, [v for v in victims if v is not one], wanted, borrowing=borrowing)
                for one in victims
            )
            for borrowing in (True, False)
        )


@RATE
@given(CLAIMS)
def test_no_workload_is_preempted_against_the_policies(scenario):
    things, asked, sharing = scenario
    of = made(things, sharing)
    wanted = claim(of, **asked)
    queue_, policy = asked["name"], of.queues[asked["name"]].spec.preemption
    cells = {name: of.queues[name].node.cells["default", "gpu"] for name in NAMES}
    other = {name: of.queues[name].node.cells["default", "cpu"] for name in NAMES}

    for target in find_targets(of, wanted):
        theirs = target.workload.admission.cluster_queue
        rule = policy.within_cluster_queue if theirs == queue_ else policy.reclaim_within_cohort
        assert rule != "Never"
        if rule == "LowerPriority":
            assert target.workload.priority < asked["priority"]
        if theirs != queue_:
            assert any(
                of.tree.usage[c[theirs]] > of.tree.nominal[c[theirs]] for c in (cells, other)
            )


@RATE
@given(CLAIMS)
def test_a_search_leaves_everything_as_it_was(scenario):
    things, asked, sharing = scenario
    of = made(things, sharing)
    wanted = claim(of, **asked)
    before = list(of.tree.usage)

    find_targets(of, wanted)
    PreemptionOracle(of, wanted.workload).possible(*next(iter(wanted.charges.items())))

    assert of.tree.usage == before


@RATE
@given(scenarios(in_two_orders, 120))
def test_victims_do_not_depend_on_the_order_in_which_things_came(scenario):
    *orders, asked, sharing = scenario
    first, second = (made(things, sharing) for things in orders)

    assert preempted(first, claim(first, **asked)) == preempted(second, claim(second, **asked))


@RATE
@given(CLAIMS)
def test_workloads_spared_without_a_trial_would_be_spared_anyway(scenario):
    things, asked, sharing = scenario
    of = made(things, sharing)
    wanted = claim(of, **asked)

    with patch.object(Search, "_exceeds", lambda *_: False):
        slowly = preempted(of, wanted)

    assert preempted(of, wanted) == slowly


def shared(choose):
    """The weights of some queues, who has each of twelve parts, and how cohorts share."""
    weights = [choose.one((0.5, 1, 2, 3)) for _ in range(choose.number(2, 4))]
    return weights, [choose.number(0, 3) for _ in range(12)], choose.one(SHARING[1:])


@RATE
@given(scenarios(shared, 18))
def test_shares_get_as_equal_as_they_can(scenario):
    """However quota is spread at first, in the end nobody has a step more than it should."""
    weights, owners, sharing = scenario
    names = NAMES[: len(weights)]
    of = made(
        [
            cohort("x", gpu=len(owners)),
            *(
                queue(n, "x", gpu=0, weight=w, preemption=RECLAIM)
                for n, w in zip(names, weights, strict=True)
            ),
            *(running(f"w{i}", names[o % len(names)], gpu=1) for i, o in enumerate(owners)),
        ],
        sharing,
    )
    moved = True
    while moved:
        moved = False
        for name in names:
            for target in find_targets(of, claim(of, name, gpu=1)):
                of.remove_workload(target.workload.key)
                put(of, running(target.workload.key, name, gpu=1))
                moved = True

    held = {name: len(of.queues[name].holdings) for name in names}
    share = dict(zip(names, weights, strict=True))
    allowed = 1 if sharing.strategies[-1] == "LessThanInitialShare" else 2
    for a in names:
        for b in names:
            assert held[a] / share[a] <= (held[b] + 1) / share[b] + (allowed - 1) / share[a]


@pytest.mark.parametrize(
    ("by_usage", "expected"),
    [
        pytest.param(True, "greedy", id="where-the-queue-goes-by-it"),
        pytest.param(False, "low", id="elsewhere-priority-decides"),
    ],
)
def test_past_usage_of_local_queues_decides_the_order(by_usage, expected):
    of = state(
        queue("q", gpu=4, preemption=WITHIN, by_usage=by_usage),
        running("low", "q", priority=1, gpu=2, local_queue="ns/thrifty"),
        running("greedy", "q", priority=2, gpu=2, local_queue="ns/greedy"),
        rules=QueueingSettings(admission_fair_sharing=UsageBasedOrder(half_life_seconds=60.0)),
    )
    of.history.put_queue("ns/thrifty", 1.0)
    of.history.put_queue("ns/greedy", 0.0)  # of no weight: it has always used too much

    assert preempted(of, claim(of, "q", priority=9, gpu=2)) == [(expected, IN_QUEUE)]
