"""What a snapshot says of queues is what the state has, whoever reads it and whenever."""

from dataclasses import replace

import pytest
from hypothesis import given, settings

from policyd.alloc.queue import FlavorSpec, PreemptionPolicy
from policyd.alloc.topology.values import HOSTNAME, TopologyNode, TopologyPlacement
from policyd.alloc.workload import PodSetFlavors, ReservedQuota
from policyd.devices.on_nodes import device_offer
from policyd.optimize.opt_ins import OptIns
from policyd.snapshot.reading import read
from policyd.snapshot.taking import LOOKS, STEP, FullSnapshot, SnapshotTaker
from policyd.snapshot.values import NONE, PodShape, QuotaHolder
from policyd.status.pending_reasons import turns
from policyd.status.queues import places, queue_figures
from tests.alloc.builders import cohort, group, pod_set, queue, quota, state, workload
from tests.alloc.choices import scenarios
from tests.alloc.preemption.test_preemption import running
from tests.alloc.test_properties import made, until_settled
from tests.alloc.worlds import world
from tests.devices.test_counting import device_class
from tests.devices.test_on_nodes import CLASS, claim, two
from tests.snapshot.taking import (
    NOW,
    Jobs,
    body_for,
    finished,
    keys,
    queue_of,
    snapshot,
    taken,
)
from tests.status.test_pending_reasons import settled

RATE = settings(deadline=None)


@RATE
@given(scenarios(world, 180))
def test_order_and_who_is_ahead_are_those_of_the_queue(things):
    of = made(things)
    until_settled(of)

    for found in snapshot(of).cluster_queues:
        pending, rows = of.queues[found.name].pending, found.pending
        ahead = turns(pending, strict=found.strict)
        ahead_of = {row.key: None if row.ahead == NONE else rows[row.ahead].key for row in rows}
        assert [row.key for row in rows] == [p.workload.key for p in places(of, found.name)]
        assert ahead_of == {t.workload.key: a and a.workload.key for t, a in ahead}


@RATE
@given(scenarios(world, 180))
def test_quotas_and_usage_are_those_of_the_tree(things):
    of = made(things)
    until_settled(of)

    for found in snapshot(of).cluster_queues:
        uses = {(u.flavor, u.resource): u for u in queue_figures(of, found.name).uses}
        for each in found.quotas:
            use = uses[each.flavor, each.resource]
            assert (each.nominal, each.used) == (use.nominal, use.reserved)
            assert each.borrowed == use.reserved_borrowed
        held = [found.usages[row.usage] for row in found.holding]
        assert sum(each.amount for usage in held for each in usage) == sum(
            use.reserved for use in uses.values()
        )


def test_what_a_queue_lent_is_what_it_cannot_use_of_its_own():
    of = settled(
        cohort("c"), queue("a", "c", gpu=8), queue("b", "c", gpu=8),
        running("own", "a", gpu=2), running("more", "b", gpu=13),
    )  # fmt: skip
    found = snapshot(of)
    (a,), (b,) = (queue_of(found, name).quotas for name in "ab")

    assert (a.nominal, a.used, a.borrowed, a.lent, a.available) == (8, 2, 0, 5, 1)
    assert (b.nominal, b.used, b.borrowed, b.lent, b.available) == (8, 13, 5, 0, 1)
    (whole,) = found.cohorts[0].quotas
    assert (whole.used, whole.borrowed, whole.lent, whole.available) == (15, 0, 0, 1)


def test_a_cohort_uses_what_all_below_it_use_whatever_they_lend():
    keeps = queue("q", "c", groups=[group(default={"gpu": quota(8, None, 2)})])
    found = snapshot(settled(cohort("c"), keeps, running("w", "q", gpu=7)))

    assert [each.used for each in found.cohorts[0].quotas] == [7]


def test_limits_of_a_quota_are_reported():
    limited = queue("q", "c", groups=[group(default={"gpu": quota(8, 4, 2)})])
    (found,) = queue_of(snapshot(settled(cohort("c"), limited))).quotas

    assert (found.borrowing_limit, found.lending_limit) == (4, 2)


def test_a_workload_that_is_next_has_its_reason_with_numbers_and_what_helps():
    of = settled(
        queue("q", gpu=8, preemption=PreemptionPolicy()),
        running("ns/job-runs", "q", gpu=6), workload("ns/job-w", "q", gpu=4, at=5),
    )  # fmt: skip
    found = queue_of(snapshot(of))
    (row,), (reason,) = found.pending, found.reasons
    (shortfall,) = reason.lacking

    assert (row.job, row.since, found.requests[row.requests]) == ("Job/w", 5, {"gpu": 4})
    assert reason.type == "WaitingForQuota"
    assert (shortfall.requested, shortfall.available, shortfall.missing) == (4, 2, 2)
    assert shortfall.holders == (QuotaHolder("ns/job-runs", "q", 6),)
    assert reason.user.startswith("wait until ns/job-runs (6) ends")
    assert reason.administrator.startswith("raise the nominalQuota of ClusterQueue q")


def last_reason(of, taker):
    return queue_of(read(body_for(taken(of, taker=taker)), "test")).reasons[-1]


def test_what_helps_counts_with_those_ahead_and_follows_them():
    of = settled(
        queue("q", gpu=8, preemption=PreemptionPolicy()),
        running("ns/runs", "q", gpu=8),
        workload("ns/a", "q", gpu=4, at=5), workload("ns/w", "q", gpu=3, at=6),
    )  # fmt: skip
    taker = SnapshotTaker(of, Jobs())

    before = last_reason(of, taker)
    of.remove_workload("ns/a")
    after = last_reason(of, taker)

    ends = "wait until ns/runs (8) ends: {} gpu of flavor default will be enough"
    assert before.user == ends.format(7) + ", with 4 for those ahead of it"
    assert after.user == ends.format(3)


def test_the_slice_that_a_workload_replaces_is_not_among_its_holders():
    of = settled(
        queue("q", gpu=8),
        running("ns/old", "q", gpu=4), running("ns/b", "q", gpu=2),
        workload("ns/w", "q", gpu=8, replaces="ns/old"),
    )  # fmt: skip

    (reason,) = queue_of(snapshot(of)).reasons

    assert [each.name for each in reason.lacking[0].holders] == ["ns/b"]


def test_a_workload_that_can_never_start_gets_the_most_that_it_could_have():
    of = settled(queue("q", gpu=8), workload("ns/w", "q", gpu=12))
    (reason,) = queue_of(snapshot(of)).reasons
    (shortfall,) = reason.lacking

    assert reason.type == "ExceedsMaxQuota"
    assert (shortfall.never, shortfall.available, shortfall.missing) == (True, 8, 4)


def test_where_more_than_kueues_rules_decide_the_condition_is_the_reason():
    of = settled(
        queue("q", gpu=4, opt_ins=OptIns(claims=True)), running("a", "q", gpu=4),
        workload("ns/w", "q", gpu=4),
    )  # fmt: skip
    (reason,) = queue_of(snapshot(of)).reasons

    assert (reason.type, reason.message, reason.lacking) == ("Told", "told to ns/w", ())


def test_a_reason_that_is_no_longer_true_is_not_shown():
    of = settled(queue("q", gpu=8), running("a", "q", gpu=6), workload("ns/w", "q", gpu=4))
    changes = iter([lambda: of.put_workload(running("b", "q", gpu=1))])

    def later():
        """Use more once the explanation is there."""
        if taker._looked:
            next(changes, lambda: None)()

    taker = SnapshotTaker(of, Jobs())
    full = taken(of, taker=taker, between=later)
    ((_, reason),) = full.queues[0].reasons
    assert reason.type == "Told"
    ((_, again),) = taken(of, taker=taker).queues[0].reasons
    assert again.refusal.missing[0].missing == 3


def test_few_reasons_are_worked_out_for_one_picture_and_the_rest_for_the_next():
    many = LOOKS + 5
    waits = [workload(f"ns/w{n}", "q", gpu=4 + n, at=n) for n in range(many)]
    of = settled(queue("q", gpu=900), running("a", "q", gpu=900), *waits)
    taker = SnapshotTaker(of, Jobs())

    def count_explained(full):
        return sum(getattr(reason, "type", "") == "Told" for _, reason in full.queues[0].reasons)

    assert [count_explained(taken(of, taker=taker)) for _ in range(2)] == [5, 0]


def test_many_workloads_are_in_order_and_what_goes_meanwhile_does_no_harm():
    number = 2 * STEP + 3
    waits = [workload(f"ns/w{n:04}", "q", gpu=4, at=(n * 7) % number) for n in range(number)]
    of = settled(queue("q", gpu=4), running("a", "q", gpu=4), *waits)
    expected = [place.workload.key for place in places(of, "q")]

    gone = iter(expected)
    found = snapshot(of, between=lambda: of.remove_workload(next(gone)))

    assert keys(found) == expected


SHARED = (
    cohort("c"), queue("q", "c", gpu=4), queue("other", gpu=8),
    running("team-a/job-mine", "q", gpu=2, local_queue="team-a/lq"),
    running("team-b/job-theirs", "q", gpu=2, local_queue="team-b/lq"),
    workload("team-b/job-first", "q", gpu=3, at=1, local_queue="team-b/lq"),
    workload("team-a/job-second", "q", gpu=3, at=2, local_queue="team-a/lq"),
    running("team-c/job-apart", "other", gpu=1, local_queue="team-c/lq"),
)  # fmt: skip
OWNERS = (("team-a", "q"), ("team-b", "q"), ("team-c", "other"))


@pytest.mark.parametrize(
    ("others", "first", "holder"),
    [
        pytest.param("names", "team-b/job-first", "team-b/job-theirs", id="names"),
        pytest.param("team", "team-b/", "a job of team-b", id="team"),
        pytest.param("hidden", "", "a job of another team", id="hidden"),
    ],
)
def test_jobs_of_other_teams_are_named_as_far_as_that_is_wanted(others, first, holder):
    found = snapshot(settled(*SHARED), queues=OWNERS, reader="team-a", others=others)
    mine = queue_of(found)

    assert found.other_teams == others
    assert [row.key for row in mine.pending] == [first, "team-a/job-second"]
    (shortfall,) = mine.reasons[0].lacking
    assert {each.name for each in shortfall.holders} == {"team-a/job-mine", holder}
    assert "team-a/job-mine" in {row.key for row in mine.holding}


@pytest.mark.parametrize(
    ("others", "absent"),
    [
        pytest.param("team", [b"first", b"theirs", b"job-first", b"ann-of-team-b"], id="team"),
        pytest.param("hidden", [b"team-b", b"first", b"theirs", b"ann-of-team-b"], id="hidden"),
    ],
)
def test_nothing_that_is_hidden_is_anywhere_in_the_snapshot(others, absent):
    full = taken(settled(*SHARED), queues=OWNERS)
    body = body_for(full, reader="team-a", others=others, scope="team-a")

    assert [name for name in absent if name in body] == []


def test_owners_are_shown_of_jobs_that_are_named():
    mine = queue_of(snapshot(settled(*SHARED), reader="team-a", others="hidden"))
    first, second = mine.pending

    assert (first.origin, mine.origins[second.origin].owner) == (NONE, "ann-of-team-a")


@pytest.mark.parametrize(
    ("others", "selector"),
    [
        pytest.param("names", {"kind": "secret"}, id="named"),
        pytest.param("hidden", {}, id="hidden"),
    ],
)
def test_single_pods_are_reported_without_what_other_teams_select(others, selector):
    pods = pod_set(count=3, gpu=2, selector={"kind": "secret"})
    of = settled(queue("q", gpu=1), workload("team-b/w", "q", pods))
    found = queue_of(snapshot(of, reader="team-a", others=others))

    assert found.shapes == ((PodShape(3, {"gpu": 2}, selector),),)
    assert found.requests == ({"gpu": 6},)


def test_a_workload_that_backs_off_is_identified_by_its_place():
    of = settled(
        queue("q", gpu=1),
        workload("a", "q", gpu=9, at=1),
        workload("b", "q", gpu=9, at=2, backing_off=True),
    )
    assert queue_of(snapshot(of)).backing_off == (1,)


def test_a_condition_is_shown_to_its_own_team_alone():
    of = settled(
        queue("q", gpu=4, opt_ins=OptIns(claims=True)), running("team-b/r", "q", gpu=4),
        workload("team-b/w", "q", gpu=4),
    )  # fmt: skip
    (shown,) = queue_of(snapshot(of, reader="team-b", others="hidden")).reasons
    (other,) = queue_of(snapshot(of, reader="team-a", others="hidden")).reasons

    assert (shown.message, other.message) == ("told to team-b/w", "")


@pytest.mark.parametrize(
    ("scope", "queues"),
    [
        pytest.param("team-a", {"q"}, id="of-its-tree"),
        pytest.param("team-c", {"other"}, id="of-another"),
        pytest.param("none", set(), id="without-a-queue"),
        pytest.param("", {"q", "other"}, id="of-the-cluster"),
    ],
)
def test_a_reader_sees_the_trees_in_which_its_namespace_has_a_queue(scope, queues):
    found = snapshot(settled(*SHARED), queues=OWNERS, scope=scope)

    assert {each.name for each in found.cluster_queues} == queues
    assert {each.name for each in found.cohorts} == ({"c"} if "q" in queues else set())


@pytest.mark.parametrize(
    ("scope", "fields"),
    [
        pytest.param("", {"integrations", "fairSharing"}, id="of-the-cluster"),
        pytest.param("team-a", {"integrations"}, id="of-a-namespace"),
    ],
)
def test_a_reader_of_a_namespace_gets_which_jobs_queue_and_no_more(scope, fields):
    full = replace(taken(settled(*SHARED)), configuration={"integrations": {}, "fairSharing": {}})

    assert set(read(body_for(full, scope=scope), "test").configuration) == fields


def test_nodes_are_shown_to_readers_of_the_cluster_with_their_free_devices():
    of = state(FlavorSpec(name="default", topology="t", levels=(HOSTNAME,)), queue("q", gpu=8))
    for name, ready in (("n1", True), ("n2", False)):
        of.ledger.nodes.put(
            TopologyNode(
                name=name,
                labels={HOSTNAME: name},
                allocatable={"x/gpu": 8, "cpu": 1},
                ready=ready,
            )
        )
    placed = TopologyPlacement(levels=(HOSTNAME,), domains=((("n1",), 3),))
    held = PodSetFlavors(
        name="main",
        count=3,
        flavors={"gpu": "default"},
        usage={"gpu": 3},
        placement=placed,
        pod_requests={"x/gpu": 1},
    )
    admission = ReservedQuota(cluster_queue="q", pod_sets=(held,))
    of.put_workload(workload("ns/w", "q", gpu=1, count=3, admission=admission))

    nodes = snapshot(of).nodes
    assert [(n.name, n.usable, n.allocatable, n.free) for n in nodes] == [
        ("n1", True, {"x/gpu": 8}, {"x/gpu": 5}),
        ("n2", False, {"x/gpu": 8}, {"x/gpu": 8}),
    ]
    assert snapshot(of, queues=[("ns", "q")], scope="ns").nodes == ()


def test_nodes_have_the_devices_that_pods_get_by_claims():
    of = state(FlavorSpec(name="default", topology="t", levels=(HOSTNAME,)), queue("q", gpu=8))
    for name in ("n1", "n2"):
        labels = {HOSTNAME: name}
        of.ledger.nodes.put(TopologyNode(name=name, labels=labels, allocatable={CLASS: 1}))
    claimed = device_offer(two(), [device_class("gpu")]).use([claim("c", "a")])
    full = FullSnapshot(NOW, of.revision, claimed=claimed)
    finished(SnapshotTaker(of, Jobs()).take(full, ()))

    assert [(n.name, n.allocatable, n.free) for n in read(body_for(full), "test").nodes] == [
        ("n1", {CLASS: 3}, {CLASS: 2}),
        ("n2", {CLASS: 1}, {CLASS: 1}),
    ]
