"""Statuses, figures and positions of queues, and the holders of missing quota."""

import msgspec
import pytest
from msgspec.structs import replace

from policyd.alloc.cycle import plan_cycle
from policyd.alloc.plan import Requeue
from policyd.alloc.reasons import Refusal
from policyd.status.messages import message_of
from policyd.status.queues import Use, count_queues, places, queue_figures, queue_status
from policyd.status.shortages import shortages
from tests.alloc.builders import admission, cohort, group, queue, quota, state, workload


def held(key, name, *, admitted=True, local_queue="", **amounts):
    return workload(
        key, name, admission=admission(name, **amounts), admitted=admitted, local_queue=local_queue
    )


READY = queue("q", gpu=4)


@pytest.mark.parametrize(
    ("changes", "reason", "message"),
    [
        pytest.param({}, "Ready", "Can admit new workloads", id="ready"),
        pytest.param(
            {"stopped": True}, "Stopped", "Can't admit new workloads: is stopped.", id="stopped"
        ),
        pytest.param(
            {"stopped": True, "terminating": True},
            "Terminating",
            "Can't admit new workloads: is terminating.",
            id="terminating",
        ),
        pytest.param(
            {"groups": (group(ghost={"gpu": 1}, spirit={"gpu": 1}),)},
            "FlavorNotFound",
            "Can't admit new workloads: references missing ResourceFlavor(s): ghost,spirit.",
            id="missing-flavors",
        ),
        pytest.param(
            {"missing_checks": ("c",)},
            "AdmissionCheckNotFound",
            "Can't admit new workloads: references missing AdmissionCheck(s): c.",
            id="missing-check",
        ),
        pytest.param(
            {"inactive_checks": ("c",)},
            "AdmissionCheckInactive",
            "Can't admit new workloads: references inactive AdmissionCheck(s): c.",
            id="inactive-check",
        ),
        pytest.param(
            {"cohort": "x"},
            "CohortCycle",
            "Can't admit new workloads: cohort x leads back to itself.",
            id="cohort-cycle",
        ),
        pytest.param(
            {"stopped": True, "inactive_checks": ("c",)},
            "Stopped",
            "Can't admit new workloads: is stopped, references inactive AdmissionCheck(s): c.",
            id="first-reason-all-messages",
        ),
    ],
)
def test_why_a_queue_is_active_or_not(changes, reason, message):
    of = state(msgspec.structs.replace(READY, **changes), cohort("x", "x"))

    status = queue_status(of, "q")

    assert (status.active, status.reason, status.message) == (reason == "Ready", reason, message)


def test_a_queue_that_does_not_exist_is_not_active():
    of = state(workload("w", "q", gpu=1))

    assert queue_status(of, "q").reason == "NotFound"
    assert not queue_status(of, "other").active


def test_the_figures_of_a_queue():
    groups = [group(on_demand={"gpu": 4, "cpu": 9}), group(spot={"memory": 5})]
    of = state(
        queue("q", "all", groups=groups), queue("rich", "all", groups=groups),
        held("runs", "q", gpu=5, flavor="on-demand"),
        held("checks", "q", admitted=False, cpu=2, flavor="on-demand"),
        workload("waits", "q", gpu=1), workload("too", "q", gpu=1), flavors=("on-demand", "spot"),
    )  # fmt: skip

    figures = queue_figures(of, "q")

    assert (figures.pending, figures.reserving, figures.admitted) == (2, 2, 1)
    assert figures.uses == (
        Use(flavor="on-demand", resource="cpu", reserved=2, nominal=9, shared=True),
        Use(flavor="on-demand", resource="gpu", reserved=5, admitted=5, nominal=4, shared=True),
        Use(flavor="spot", resource="memory", nominal=5, shared=True),
    )
    assert [(u.reserved_borrowed, u.admitted_borrowed) for u in figures.uses] == [
        (0, 0),
        (1, 1),
        (0, 0),
    ]


def test_a_queue_alone_borrows_nothing_even_beyond_its_quota():
    of = state(READY, held("w", "q", gpu=5))

    (use,) = queue_figures(of, "q").uses

    assert (use.reserved, use.reserved_borrowed, use.admitted_borrowed) == (5, 0, 0)


def test_the_figures_of_a_local_queue_count_its_workloads_only():
    of = state(
        READY, held("a1", "q", local_queue="a/main", gpu=1),
        held("b1", "q", local_queue="b/main", gpu=2), workload("a2", "q", local_queue="a/main"),
    )  # fmt: skip

    figures = queue_figures(of, "q", local_queue="a/main")

    assert (figures.pending, figures.reserving, figures.uses[0].reserved) == (1, 1, 1)


def test_an_unknown_queue_has_no_figures():
    figures = queue_figures(state(), "q")

    assert (figures.pending, figures.reserving, figures.admitted, figures.uses) == (0, 0, 0, ())


def crowded():
    return state(
        queue("a", "all", gpu=quota(4)), queue("b", "all", gpu=6), queue("far", gpu=9),
        held("a/small", "a", gpu=1), held("b/big", "b", gpu=5), held("b/more", "b", gpu=2),
        held("b/same", "b", gpu=2), held("far/away", "far", gpu=9),
        workload("a/waits", "a", gpu=3),
    )  # fmt: skip


def test_holders_of_missing_quota_are_sorted_by_size():
    of = crowded()
    (refused,) = plan_cycle(of).actions

    (shortage,) = shortages(of, refused.refusal, refused.workload)

    assert (shortage.missing.missing, shortage.missing.available) == (3, 0)
    assert [(h.workload, h.cluster_queue, h.amount) for h in shortage.holders] == [
        ("b/big", "b", 5),
        ("b/more", "b", 2),
        ("b/same", "b", 2),
    ]
    assert shortage.others == 1


def test_only_those_are_named_whose_end_would_help():
    """Queue b lends 2 of its 6, and c nothing: what they hold of the rest is of no use to a."""
    of = state(
        queue("a", "all", gpu=quota(4)),
        queue("b", "all", gpu=quota(6, None, 2)), queue("c", "all", gpu=quota(9, None, 0)),
        held("a/own", "a", gpu=4), held("b/big", "b", gpu=3), held("c/all", "c", gpu=9),
        workload("a/waits", "a", gpu=3),
    )  # fmt: skip
    (refused,) = plan_cycle(of).actions

    (shortage,) = shortages(of, refused.refusal, refused.workload)

    assert [holder.workload for holder in shortage.holders] == ["a/own"]


def test_kueues_message_stays_as_it_is():
    (refused,) = plan_cycle(crowded()).actions

    assert message_of(refused.refusal) == (
        "couldn't assign flavors to pod set main:"
        " insufficient unused quota for gpu in flavor default, 3 more needed"
    )


def test_released_quota_is_held_by_no_workload():
    of = crowded()
    (refused,) = plan_cycle(of).actions
    for key in ("a/small", "b/big", "b/more", "b/same"):
        of.remove_workload(key)

    (shortage,) = shortages(of, refused.refusal, refused.workload)

    assert (shortage.missing.missing, shortage.holders, shortage.others) == (3, (), 0)
    elsewhere = replace(refused.workload, cluster_queue="gone")
    assert shortages(of, refused.refusal, elsewhere)[0].holders == ()


# Positions of pending workloads.


def waits(key, local_queue, **fields):
    return workload(key, "q", local_queue=local_queue, gpu=1, **fields)


def positions(given):
    found = places(given, "q")
    return [(each.workload.key, each.in_cluster_queue, each.in_local_queue) for each in found]


@pytest.mark.parametrize(
    ("waiting", "expected"),
    [
        pytest.param([], [], id="nobody"),
        pytest.param(
            [waits("a", "ns/x", at=2), waits("b", "ns/x", at=1)],
            [("b", 0, 0), ("a", 1, 1)],
            id="the-older-first",
        ),
        pytest.param(
            [
                waits("a", "ns/x"),
                waits("b", "ns/y", priority=1),
                waits("c", "ns/y"),
                waits("d", "ns/x"),
            ],
            [("b", 0, 0), ("a", 1, 0), ("c", 2, 1), ("d", 3, 1)],
            id="each-local-queue-counts-its-own",
        ),
        pytest.param(
            [waits("a", "ns/x", backing_off=True), waits("b", "ns/x", at=1)],
            [("a", 0, 0), ("b", 1, 1)],
            id="who-waits-aside-keeps-its-place",
        ),
    ],
)
def test_places_are_in_the_order_of_turns(waiting, expected):
    assert positions(state(queue("q", gpu=1), *waiting)) == expected


def test_a_preemptor_is_first_if_others_could_take_its_quota():
    waiting = [waits("a", "ns/x", at=1), waits("b", "ns/y", at=2)]
    given = state(queue("q", gpu=1), *waiting)
    pending = given.queues["q"].pending
    action = Requeue(
        workload=waiting[1],
        reason="PendingPreemption",
        refusal=Refusal("WaitingForPreemptedWorkloads"),
        requests={},
        inadmissible=False,
    )
    pending.requeue(action, strict=False, equivalents=True)

    assert positions(given) == [("b", 0, 0), ("a", 1, 0)]


@pytest.mark.parametrize("local_queue", ["", "ns/x", "ns/none"])
@pytest.mark.parametrize(("start", "most"), [(0, None), (0, 2), (1, 2), (3, 9), (9, 1), (1, 0)])
def test_a_part_of_the_places_is_as_it_is_in_all(local_queue, start, most):
    waiting = (waits(f"w{n}", f"ns/{'xyx'[n % 3]}", at=n, priority=n % 2) for n in range(8))
    given = state(queue("q", gpu=1), *waiting)

    own = [p for p in places(given, "q") if local_queue in {"", p.workload.local_queue}]
    part = places(given, "q", local_queue=local_queue, start=start, most=most)

    assert part == own[start:][:most]


def test_an_unknown_queue_has_no_places():
    assert places(state(), "q") == []


# Figures of all queues in one pass.


@pytest.mark.parametrize(
    ("given", "waiting"),
    [
        pytest.param(queue("q", gpu=8), (1, 1), id="who-backs-off-is-parked"),
        pytest.param(queue("q", gpu=8, stopped=True), (0, 2), id="all-are-in-a-stopped-queue"),
        pytest.param(queue("other", gpu=8), (0, 2), id="all-are-in-a-queue-that-is-not-there"),
    ],
)
def test_pending_workloads_are_active_or_inadmissible(given, waiting):
    found = count_queues(
        state(
            given,
            workload("a", "q", gpu=1, local_queue="ns/x"),
            workload("b", "q", gpu=2, local_queue="ns/y", backing_off=True),
        )
    )

    counts = found.cluster_queues["q"]
    assert (counts.active, counts.parked) == waiting
    assert counts.asked == {"gpu": 3}
    assert sum(each.active for each in found.local_queues.values()) == waiting[0]


def test_held_quota_counts_for_both_queues_and_for_pods_alone():
    found = count_queues(
        state(
            queue("q", gpu=8),
            held("a", "q", gpu=2, local_queue="ns/x"),
            held("b", "q", gpu=3, admitted=False, local_queue="ns/x"),
        )
    )

    for counts in (found.cluster_queues["q"], found.local_queues["ns/x"]):
        assert (counts.reserving, counts.admitted) == (2, 1)
        assert counts.reserved == {("default", "gpu"): 5}
        assert counts.used == {("default", "gpu"): 2}
