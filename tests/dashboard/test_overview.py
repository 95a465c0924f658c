"""What the overview shows of queues, of the last hour, and of what needs attention."""

import pytest
from msgspec.structs import replace

from policyd.alloc.amount import UNLIMITED
from policyd.dashboard.views.overview import (
    MOST_ROWS,
    Change,
    OverviewRead,
    QuotaBar,
    Recent,
    bar_of,
    changes_of,
    overview,
)
from policyd.snapshot.values import QuotaUse, SnapshotReason
from tests.dashboard.made import GPU, NOW, cohort, made_queue, made_snapshot


def shown(*queues, recent=(), cohorts=(), more=False, problem="", **query):
    read = OverviewRead(made_snapshot(*queues, cohorts=cohorts), Recent(recent, more, problem))
    return overview(read, query, NOW)


def test_queues_are_below_their_cohorts():
    a, b = made_queue("a", cohort="low"), made_queue("b", cohort="top")
    found = shown(a, b, cohorts=(cohort("top"), cohort("low", "top")))

    assert [(row.name, row.depth) for row in found.rows] == [
        ("top", 0), ("low", 1), ("a", 2), ("b", 1),
    ]  # fmt: skip


def test_sums_are_of_queues_not_of_cohorts_too():
    found = shown(made_queue("a", pending=3, holding=2), made_queue("b"), cohorts=(cohort("c"),))

    assert (found.resource, found.nominal, found.used) == (GPU, 128, 80)
    assert (found.waiting, found.running, found.pending) == (3, 2, 0 + 1 + 2)


def test_another_resource_can_be_chosen_and_an_unknown_one_is_the_first():
    assert shown(made_queue("a"), resource="cpu").resource == "cpu"
    assert shown(made_queue("a"), resource="<b>").resource == GPU
    assert shown(made_queue("a")).resources == (GPU, "cpu")


def test_without_queues_nothing_is_counted():
    found = shown()

    assert (found.rows, found.resource, found.oldest, found.nominal) == ((), "", "", 0)


def test_the_tree_is_narrowed_by_a_part_of_a_name_and_bounded():
    queues = [made_queue(f"q{n}") for n in range(MOST_ROWS + 7)]

    assert [row.name for row in shown(*queues, queue="Q12").rows][:2] == ["q12", "q120"]
    assert shown(*queues).rows_left_out == 7


def quota(nominal, used, borrowed=0, lent=0, available=0):
    return QuotaUse("f", GPU, nominal, used, borrowed, lent, available)


@pytest.mark.parametrize(
    ("given", "bar"),
    [
        (quota(100, 25), QuotaBar(250, 0, 0, 1_000)),
        (quota(100, 150, borrowed=50), QuotaBar(667, 333, 0, 667)),
        (quota(100, 40, lent=20), QuotaBar(400, 0, 200, 1_000)),
        (quota(100, 90, lent=50), QuotaBar(900, 0, 100, 1_000)),
        (quota(0, 0), QuotaBar(0, 0, 0, 0)),
        (quota(0, 8, borrowed=8), QuotaBar(0, 1_000, 0, 0)),
        (quota(10, 30), QuotaBar(1_000, 0, 0, 1_000)),
        (quota(-5, -5, borrowed=-5), QuotaBar(0, 0, 0, 0)),
    ],
)
def test_bars_fill_their_width_and_never_more(given, bar):
    found = bar_of(given)

    assert found == bar
    assert found.own + found.lent <= 1_000
    assert found.nominal + found.borrowed <= 1_000


def test_the_bar_of_a_cohort_is_of_all_quota_in_it():
    use = quota(0, 30)
    full, low = (
        replace(cohort(name, parent), quotas=(use,))
        for name, parent in (("top", ""), ("low", "top"))
    )
    queues = [
        made_queue("a", cohort="low", quotas=(quota(20, 30, borrowed=10),)),
        made_queue("b", cohort="top", quotas=(quota(100, 0),)),
        made_queue("c", quotas=(quota(1_000, 0),)),
    ]
    rows = {row.name: row for row in shown(*queues, cohorts=(full, low)).rows}

    assert rows["top"].bar == QuotaBar(250, 0, 0, 1_000)
    assert rows["low"].bar == QuotaBar(667, 333, 0, 667)
    assert (rows["top"].nominal, rows["low"].nominal) == (0, 0)


def test_cohorts_in_a_cycle_have_bars():
    use = (quota(5, 5),)
    cohorts = [replace(cohort(name, above), quotas=use) for name, above in ("ab", "ba", "cc")]

    assert {row.name for row in shown(cohorts=cohorts).rows} == {"a", "b", "c"}


def test_no_limit_is_shown_as_such():
    queue = made_queue("a", quotas=(quota(1, 0, available=UNLIMITED),))

    assert shown(queue).rows[0].available is None


# Attention


def test_stopped_queues_come_first_with_the_command_that_resumes_them():
    stopped = made_queue("a", pending=2, active=False, reason="Stopped", message="stopped")
    first = shown(made_queue("b"), stopped).attention[0]

    assert first.kind == "Stopped"
    assert first.text == "ClusterQueue a is stopped: it admits nothing; 2 jobs wait"
    assert first.hint == "`policyd resume clusterqueue/a`"


def test_a_queue_that_lacks_its_flavor_says_so():
    queue = made_queue("a", active=False, reason="FlavorNotFound", message="flavor x is missing")

    assert "flavor x is missing" in shown(queue).attention[0].text


def test_an_overdrawn_quota_is_found():
    queue = made_queue("a", quotas=(quota(4, 8, available=-4),))

    assert [each.kind for each in shown(queue).attention] == ["Overdrawn"]


def test_jobs_that_never_fit_are_counted():
    queue = made_queue("a", pending=1)
    (reason,) = queue.reasons
    never = (replace(reason, lacking=(replace(reason.lacking[0], never=True),)),)

    (found,) = shown(replace(queue, reasons=never)).attention
    assert found.text == "1 job in a requests more than the queue can ever get"


def test_a_job_at_the_head_that_others_overtake_for_an_hour_starves():
    queue = made_queue("a", pending=1, holding=3)
    row = replace(queue.pending[0], since=int(NOW) - 7_300)
    starves = replace(queue, pending=(row,))

    (found,) = shown(starves).attention
    assert found.text == "a/train-0 has waited for 2h in a; 3 jobs got quota there since"
    assert shown(replace(queue, pending=(replace(row, since=int(NOW) - 3_000),))).attention == ()
    before = tuple(replace(each, since=int(NOW) - 9_000) for each in queue.holding)
    assert shown(replace(starves, holding=before)).attention == ()


def test_a_reason_without_a_message_is_no_attention():
    queue = made_queue("a", pending=1, reasons=(SnapshotReason(type="x"),))

    assert shown(queue).attention == ()


# What happened


def change(kind="admitted", at=NOW - 60, job="Job/a"):
    return Change(at=at, kind=kind, namespace="t", job=job, message="so")


def test_the_last_hour_is_counted_and_the_latest_comes_first():
    recent = (
        change(at=NOW - 3_601), change(at=NOW - 3_599), change("preempted"),
        change("finished", NOW - 1),
    )  # fmt: skip
    found = shown(recent=recent)

    counts = {"admitted": 1, "preempted": 1, "evicted": 0, "finished": 1}
    assert dict(found.counts) == counts
    assert [each.kind for each in found.changes] == ["finished", "preempted", "admitted"]


def test_a_workload_and_its_job_that_say_the_same_are_one():
    assert len(changes_of([change(), change(), change(job="Job/b"), change("finished")])) == 3


def test_what_cannot_be_known_is_reported():
    found = shown(problem="you may not list events", more=True)

    assert found.changes_problem == "you may not list events"
    assert found.changes_more
