"""What is told about queues, and who holds what somebody waits for."""

import msgspec
import pytest

from policyd.alloc.cycle import plan_cycle
from policyd.status.queues import Use, queue_figures, queue_status
from policyd.status.shortages import shortages
from policyd.status.words import message_of
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


def test_a_queue_nobody_knows_has_no_figures():
    figures = queue_figures(state(), "q")

    assert (figures.pending, figures.reserving, figures.admitted, figures.uses) == (0, 0, 0, ())


def crowded():
    return state(
        queue("a", "all", gpu=quota(4)), queue("b", "all", gpu=6), queue("far", gpu=9),
        held("a/small", "a", gpu=1), held("b/big", "b", gpu=5), held("b/more", "b", gpu=2),
        held("b/same", "b", gpu=2), held("far/away", "far", gpu=9),
        workload("a/waits", "a", gpu=3),
    )  # fmt: skip


def test_who_holds_the_missing_quota_the_biggest_first():
    of = crowded()
    (refused,) = plan_cycle(of).actions

    (shortage,) = shortages(of, refused.refusal, "a")

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

    (shortage,) = shortages(of, refused.refusal, "a")

    assert [holder.workload for holder in shortage.holders] == ["a/own"]


def test_kueues_message_stays_as_it_is():
    (refused,) = plan_cycle(crowded()).actions

    assert message_of(refused.refusal) == (
        "couldn't assign flavors to pod set main:"
        " insufficient unused quota for gpu in flavor default, 3 more needed"
    )


def test_quota_that_was_taken_away_is_held_by_nobody():
    of = crowded()
    (refused,) = plan_cycle(of).actions
    for key in ("a/small", "b/big", "b/more", "b/same"):
        of.remove_workload(key)

    (shortage,) = shortages(of, refused.refusal, "a")

    assert (shortage.missing.missing, shortage.holders, shortage.others) == (3, (), 0)
    assert shortages(of, refused.refusal, "gone")[0].holders == ()
