"""One cycle: who is considered, in which order, and what becomes of each."""

import pytest

from policyd.alloc.cycle import plan_cycle
from policyd.alloc.plan import Admit, Requeue
from policyd.alloc.queue import PreemptionPolicy
from policyd.alloc.workload import Objection
from policyd.status.messages import message_of
from tests.alloc.builders import (
    admission,
    group,
    keys,
    pod_set,
    queue,
    quota,
    state,
    usage,
    workload,
)


def run(of):
    plan = plan_cycle(of)
    of.commit(plan)
    return plan


def only(plan):
    (action,) = plan.actions
    return action


def test_a_workload_that_fits_is_admitted_with_flavors_and_usage():
    of = state(queue("q", gpu=8), workload("w", "q", count=2, gpu=4))

    action = only(plan_cycle(of))

    assert isinstance(action, Admit)
    assert action.admission == admission("q", count=2, gpu=8)
    assert action.level == 0


def test_planning_changes_nothing_until_the_plan_is_committed():
    of = state(queue("q", gpu=8), workload("a", "q", gpu=5), workload("b", "q", at=1, gpu=5))

    first, second = plan_cycle(of), plan_cycle(of)

    assert first == second
    assert usage(of) == {}


def test_a_plan_holds_for_the_state_it_was_made_for_only():
    of = state(queue("q", gpu=8), workload("a", "q", gpu=5))
    plan = plan_cycle(of)
    of.put_workload(workload("b", "q", gpu=5))

    with pytest.raises(ValueError, match="another revision"):
        of.commit(plan)


def test_every_queue_gets_one_try_a_cycle():
    of = state(
        queue("a", gpu=8), queue("b", gpu=8), workload("a1", "a", gpu=1),
        workload("a2", "a", at=1, gpu=1), workload("b1", "b", gpu=1),
    )  # fmt: skip

    assert keys(run(of).actions) == ["a1", "b1"]
    assert keys(run(of).actions) == ["a2"]
    assert run(of).actions == ()


def test_smaller_borrowers_go_first_then_priority_then_age():
    of = state(
        *(queue(name, "all", gpu=4) for name in "abcd"),
        workload("old", "a", at=1, gpu=4),
        workload("older", "b", at=0, gpu=4),
        workload("important", "c", at=9, priority=7, gpu=4),
        workload("borrows", "d", at=0, priority=9, gpu=5),
    )

    plan = run(of)

    assert [action.workload.key for action in plan.actions] == [
        "important",
        "older",
        "old",
        "borrows",
    ]
    assert keys(plan.actions) == ["important", "older", "old"]


def test_a_borrower_of_one_resource_goes_last_even_if_short_of_another():
    of = state(
        queue("a", "all", groups=[group(default={"gpu": 0, "cpu": 4})]),
        queue("b", "all", groups=[group(default={"gpu": 1, "cpu": 0})]),
        workload("r", "b", cpu=4, admission=admission("b", cpu=4), reserved_at=0.0, admitted=True),
        workload("borrows-gpu", "a", gpu=1, cpu=1),
        workload("asks-nothing", "b", at=1, gpu=0),
    )

    assert [a.workload.key for a in run(of).actions] == ["asks-nothing", "borrows-gpu"]


def test_a_workload_that_lost_its_room_is_tried_again_at_once():
    of = state(
        queue("a", "all", gpu=2), queue("b", "all", gpu=2), queue("rich", "all", gpu=4),
        workload("first", "a", at=0, gpu=6), workload("second", "b", at=1, gpu=6),
    )  # fmt: skip

    plan = run(of)

    assert keys(plan.actions) == ["first"]
    (second,) = (action for action in plan.actions if isinstance(action, Requeue))
    assert (second.reason, second.inadmissible) == ("FailedAfterNomination", False)
    assert second.refusal.reason == "WaitingForQuota"
    assert message_of(second.refusal) == "Workload no longer fits after processing another workload"
    assert [m.missing for m in second.refusal.missing] == [4]


def test_quota_a_queue_waits_for_is_not_borrowed_away_in_the_same_cycle():
    things = [
        queue("owner", "all", gpu=4), queue("guest", "all", gpu=0),
        workload("held", "guest", admission=admission("guest", gpu=2)),
        workload("owners", "owner", gpu=4), workload("guests", "guest", gpu=1),
    ]  # fmt: skip

    plan = run(state(*things))

    assert keys(plan.actions) == []
    assert [action.reason for action in plan.actions] == [
        "PreemptionNoCandidates",
        "FailedAfterNomination",
    ]


def test_a_queue_that_may_reclaim_from_all_reserves_nothing():
    preemption = PreemptionPolicy(reclaim_within_cohort="Any")
    of = state(
        queue("owner", "all", gpu=4, preemption=preemption), queue("guest", "all", gpu=0),
        workload("held", "guest", admission=admission("guest", gpu=2)),
        workload("own", "owner", admission=admission("owner", gpu=1)),
        workload("owners", "owner", gpu=4), workload("guests", "guest", gpu=1),
    )  # fmt: skip

    assert keys(run(of).actions) == ["guests"]


def test_a_borrower_that_waits_reserves_no_more_than_its_limit_leaves_it():
    preemption = PreemptionPolicy(borrow_within_cohort="LowerPriority")
    of = state(
        queue("waits", "all", gpu=quota(1, borrow=2), preemption=preemption),
        queue("rich", "all", gpu=6), queue("guest", "all", gpu=0),
        workload("held", "waits", admission=admission("waits", gpu=2)),
        workload("busy", "rich", admission=admission("rich", gpu=3)),
        workload("w", "waits", gpu=3, priority=1), workload("g", "guest", gpu=1),
    )  # fmt: skip

    plan = run(of)

    assert [a.workload.key for a in plan.actions] == ["w", "g"]
    assert keys(plan.actions) == ["g"]


@pytest.mark.parametrize(
    ("strict", "after"),
    [
        pytest.param(False, ["small"], id="best-effort-tries-the-next"),
        pytest.param(True, [], id="strict-holds-the-line"),
    ],
)
def test_a_workload_behind_one_that_does_not_fit(strict, after):
    of = state(
        queue("q", gpu=4, strict=strict),
        workload("big", "q", at=0, gpu=5),
        workload("small", "q", at=1, gpu=1),
    )

    first, second = run(of), run(of)

    assert only(first).inadmissible is not strict
    assert keys(second.actions) == after


@pytest.mark.parametrize(
    ("strict", "misplaced", "reason", "inadmissible"),
    [
        pytest.param(False, False, "Generic", True, id="best-effort"),
        pytest.param(True, False, "Generic", False, id="strict"),
        pytest.param(True, True, "NamespaceMismatch", True, id="strict-but-misplaced"),
    ],
)
def test_a_workload_with_an_objection_is_set_aside_with_its_words(
    strict, misplaced, reason, inadmissible
):
    objection = Objection(reason="Misconfigured", message="cpu above limit", misplaced=misplaced)
    of = state(queue("q", gpu=4, strict=strict), workload("w", "q", gpu=1, objection=objection))

    action = only(plan_cycle(of))

    assert (action.reason, action.inadmissible) == (reason, inadmissible)
    assert (action.refusal.reason, message_of(action.refusal)) == (
        "Misconfigured",
        "cpu above limit",
    )


def test_a_refusal_comes_with_what_was_requested():
    of = state(
        queue("q", gpu=4), workload("w", "q", pod_set("a", count=2, gpu=1), pod_set("b", gpu=9))
    )

    action = only(plan_cycle(of))

    assert action.requests == {"a": {"gpu": 2}, "b": {"gpu": 9}}
    assert message_of(action.refusal) == (
        "couldn't assign flavors to pod set b: insufficient quota for gpu in flavor default,"
        " previously considered podsets requests (2) + current podset request (9)"
        " > maximum capacity (4)"
    )
