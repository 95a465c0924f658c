"""Cycles in which somebody must give way, or can do with less."""

import pytest
from msgspec.structs import replace

from policyd.alloc.flavors.assignment import Progress
from policyd.alloc.nominate import most_pods, still_valid
from policyd.alloc.plan import Admit, Plan, Preempt, Requeue
from policyd.alloc.queue import FlavorSpec, Fungibility, PreemptionPolicy
from policyd.alloc.reasons import Refusal
from policyd.alloc.settings import FairSharingRules, Gates, QueueingSettings
from policyd.alloc.state import CoreState
from policyd.alloc.workload import QueuedPodSet
from policyd.node_rules import NodeTaint
from policyd.status.messages import considered_text, message_of
from tests.alloc.builders import (
    admission,
    group,
    keys,
    pod_set,
    put,
    queue,
    state,
    usage,
    workload,
)
from tests.alloc.test_cycle import run

ANY = PreemptionPolicy(reclaim_within_cohort="Any")
OWN = PreemptionPolicy(within_cluster_queue="LowerPriority")


def made(*things, flavors=("default",), fair_sharing=None, **gates):
    of = CoreState(QueueingSettings(gates=Gates(**gates), fair_sharing=fair_sharing))
    for flavor in flavors:
        of.put_flavor(flavor if isinstance(flavor, FlavorSpec) else FlavorSpec(name=flavor))
    for thing in things:
        put(of, thing)
    return of


def held(key, queue_name, gpu, **fields):
    return workload(key, queue_name, admission=admission(queue_name, gpu=gpu), **fields)


def summarize_plan(plan):
    words = {Admit: "admit", Preempt: "preempt", Requeue: "requeue"}
    return [
        (words[type(a)], a.workload.key, *([a.reason] if not isinstance(a, Admit) else []))
        for a in plan.actions
    ]


def test_a_workload_that_regains_quota_waits_for_its_victims():
    of = state(
        queue("owner", "all", gpu=4, preemption=ANY), queue("guest", "all", gpu=0),
        held("g", "guest", 4), workload("o", "owner", gpu=4),
    )  # fmt: skip

    plan = run(of)

    assert summarize_plan(plan) == [
        ("preempt", "g", "InCohortReclamation"),
        ("requeue", "o", "PendingPreemption"),
    ]
    preemption, waits = plan.actions
    assert (preemption.path, preemption.preemptor_path) == ("/all/guest", "/all/owner")
    assert preemption.preemptor.key == "o"
    assert waits.refusal.reason == "WaitingForPreemptedWorkloads"
    assert message_of(waits.refusal).endswith(
        "4 more needed. Pending the preemption of 1 workload(s)"
    )
    assert not waits.inadmissible


def test_no_workload_is_preempted_twice_for_the_same():
    of = state(queue("q", gpu=4, preemption=OWN), held("low", "q", 4), workload("high", "q", gpu=4, priority=1))  # fmt: skip  # noqa: E501
    run(of)

    assert summarize_plan(run(of)) == [("requeue", "high", "PendingPreemption")]

    of.forget_preemption("low")

    assert summarize_plan(run(of))[0] == ("preempt", "low", "InClusterQueue")


def test_once_the_victim_is_gone_the_preemptor_starts():
    of = state(queue("q", gpu=4, preemption=OWN), held("low", "q", 4), workload("high", "q", gpu=4, priority=1))  # fmt: skip  # noqa: E501
    run(of)

    of.remove_workload("low")

    assert summarize_plan(run(of)) == [("admit", "high")]


def two_owners(**gates):
    """Two queues that want back what one guest has borrowed from both: 4 of 4 + 4."""
    return made(
        queue("a", "all", gpu=4, preemption=ANY), queue("b", "all", gpu=4, preemption=ANY),
        queue("guest", "all", gpu=0), held("g", "guest", 8),
        workload("a1", "a", gpu=4), workload("b1", "b", gpu=4),
        **gates,
    )  # fmt: skip


def test_a_second_preemptor_of_a_victim_fits_because_of_it():
    plan = run(two_owners())

    assert summarize_plan(plan) == [
        ("preempt", "g", "InCohortReclamation"),
        ("requeue", "a1", "PendingPreemption"),
        ("requeue", "b1", "PendingPreemption"),
    ]
    assert message_of(plan.actions[2].refusal) == (
        "Workload has overlapping preemption targets with another workload,"
        " but will fit after these preemptions complete"
    )
    assert plan.recomputed == (("b", "deferred_fit"),)


@pytest.mark.gate("RecomputeAssignmentUponPreemptionTargetsOverlap")
def test_without_the_gate_it_waits_for_another_cycle():
    plan = run(two_owners(recompute_assignment_upon_preemption_targets_overlap=False))

    assert summarize_plan(plan)[2] == ("requeue", "b1", "FailedAfterNomination")
    assert plan.skipped == ("b",)
    assert plan.recomputed == ()


def test_a_workload_that_chooses_again_keeps_its_flavor():
    of = made(
        queue("a", "all", groups=(group(one={"gpu": 4}),), preemption=ANY),
        queue("b", "all", groups=(group(one={"gpu": 4}, two={"gpu": 4}),), preemption=ANY,
              fungibility=Fungibility(when_can_preempt="MayStopSearch")),
        queue("guest", "all", groups=(group(one={"gpu": 0}),)),
        workload("g", "guest", admission=admission("guest", "one", gpu=8)),
        workload("a1", "a", gpu=4), workload("b1", "b", at=1, gpu=3),
        workload("b2", "b", at=2, gpu=3),
        flavors=("one", "two"),
    )  # fmt: skip

    plan = run(of)

    assert plan.recomputed == (("b", "deferred_fit"),)
    assert summarize_plan(plan)[-1] == ("requeue", "b1", "PendingPreemption")


def test_a_closed_gate_keeps_a_workload_from_preempting():
    of = made(
        queue("q", gpu=4, preemption=OWN), held("low", "q", 4),
        workload("high", "q", gpu=4, priority=1, gated=True),
        multi_kueue_orchestrated_preemption=True,
    )  # fmt: skip

    assert summarize_plan(run(of)) == [("requeue", "high", "PreemptionGated")]


def test_gates_of_workloads_do_not_matter_where_nobody_orchestrates():
    of = state(queue("q", gpu=4, preemption=OWN), held("low", "q", 4),
               workload("high", "q", gpu=4, priority=1, gated=True))  # fmt: skip

    assert summarize_plan(run(of))[0] == ("preempt", "low", "InClusterQueue")


def test_a_workload_that_accepts_fewer_pods_gets_as_many_as_fit():
    of = state(queue("q", gpu=5), workload("w", "q", QueuedPodSet(name="main", count=8, requests={"gpu": 1}, minimum=2)))  # fmt: skip  # noqa: E501

    (action,) = run(of).actions

    assert action.admission == admission("q", count=5, gpu=5)
    assert usage(of)[True, "q", "default", "gpu"] == 5


@pytest.mark.parametrize(
    ("gates", "minimum"),
    [
        pytest.param({"partial_admission": False}, 2, id="gate-off"),
        pytest.param({}, 6, id="fewer-would-not-do"),
        pytest.param({}, None, id="all-or-nothing"),
    ],
)
@pytest.mark.gate("PartialAdmission")
def test_a_workload_that_needs_all_pods_waits(gates, minimum):
    pods = QueuedPodSet(name="main", count=8, requests={"gpu": 1}, minimum=minimum)
    of = made(queue("q", gpu=5), workload("w", "q", pods), **gates)

    assert keys(run(of).actions, Requeue) == ["w"]


@pytest.mark.parametrize(
    ("wanted", "least", "limit", "expected"),
    [
        pytest.param([8], [2], 5, [5], id="one-pod-set"),
        pytest.param([4, 4], [0, 4], 6, [2, 4], id="only-one-can-shrink"),
        pytest.param([4, 4], [0, 0], 4, [2, 2], id="evenly"),
        pytest.param([4], [2], 1, None, id="not-even-the-least"),
        pytest.param([4], [4], 9, None, id="nothing-to-search"),
    ],
)
def test_counts_go_down_evenly_until_they_fit(wanted, least, limit, expected):
    def attempt(counts):
        return counts if sum(counts) <= limit else None

    assert most_pods(wanted, least, attempt) == expected


def test_the_next_search_goes_on_where_the_last_one_stopped():
    flavors = (group(one={"gpu": 4}, two={"gpu": 4}, three={"gpu": 4}),)
    of = made(
        queue("q", "all", groups=flavors, preemption=OWN,
              fungibility=Fungibility(when_can_preempt="MayStopSearch")),
        queue("thief", "all", groups=(group(one={"gpu": 0}),)),
        workload("low", "q", admission=admission("q", "one", gpu=4)),
        workload("high", "q", gpu=4, priority=1, gated=True),
        flavors=("one", "two", "three"),
    )  # fmt: skip
    first = run(of)
    assert summarize_plan(first)[0] == ("preempt", "low", "InClusterQueue")

    of.remove_workload("low")

    assert summarize_plan(run(of)) == [("admit", "high")]


def test_a_fit_by_borrowing_does_not_replace_reclaiming():
    """Even where preemption is preferred, so that to borrow counts as the worse of the two."""
    rather = Fungibility(when_can_preempt="MayStopSearch", preference="PreemptionOverBorrowing")
    of = made(
        queue("q", "all", groups=(group(default={"gpu": 4, "cpu": 0}),), fungibility=rather,
              preemption=PreemptionPolicy(reclaim_within_cohort="LowerPriority")),
        queue("rich", "all", groups=(group(default={"gpu": 0, "cpu": 2}),)),
        workload("borrower", "rich", admission=admission("rich", gpu=1)),
        workload("w", "q", gpu=4, cpu=2, priority=1),
    )  # fmt: skip

    assert keys(run(of).actions) == []


@pytest.mark.parametrize(
    ("strict", "admitted"),
    [
        pytest.param(False, ["next"], id="who-comes-behind-is-tried"),
        pytest.param(True, [], id="a-strict-queue-waits"),
    ],
)
def test_a_search_that_goes_round_ends(strict, admitted):
    """The first pod set starts over with the first flavor when the second has come to the last."""
    stops = Fungibility(when_can_preempt="MayStopSearch")
    of = made(
        queue("q", "all", groups=(group(one={"gpu": 6}, two={"gpu": 3}),), fungibility=stops,
              strict=strict),
        queue("lender", "all", groups=(group(one={"gpu": 6}, two={"gpu": 0}),)),
        workload("running", "q", admission=admission("q", "two", gpu=1)),
        workload("big", "q", pod_set("a", gpu=3), pod_set("b", 3, gpu=4)),
        workload("next", "q", at=1, gpu=1),
        flavors=("one", "two"),
    )  # fmt: skip

    plans = [run(of)]
    while plans[-1].goes_on and len(plans) < 20:
        plans.append(run(of))

    assert keys([action for plan in plans for action in plan.actions]) == admitted
    assert not plans[-1].goes_on


WAITING = Requeue(
    workload=workload("w", "q"), reason="NoFit", refusal=Refusal("WaitingForQuota"), requests={},
    inadmissible=False,
)  # fmt: skip


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        pytest.param({}, False, id="the-same-would-happen"),
        pytest.param({"inadmissible": True}, True, id="the-next-of-its-queue-is-tried"),
        pytest.param(
            {"progress": Progress(tried=((0,),), request_key="", generation=0, cycle=0)},
            True,
            id="there-are-flavors-left",
        ),
    ],
)
def test_cycles_go_on_while_they_may_decide_more(change, expected):
    plan = Plan(actions=(replace(WAITING, **change),), revision=0)

    assert plan.goes_on == expected


@pytest.mark.parametrize(
    ("request_key", "generation", "cycle", "preserves", "expected"),
    [
        pytest.param("same", 9, 4, True, True, id="in-the-next-cycle-whatever-changed"),
        pytest.param("other", 1, 4, True, False, id="not-for-something-else"),
        pytest.param("same", 9, 5, True, False, id="later-only-if-nothing-changed"),
        pytest.param("same", 1, 5, True, True, id="later-as-nothing-changed"),
        pytest.param("same", 9, 4, False, False, id="without-the-gate-only-if-nothing-changed"),
        pytest.param("other", 1, 4, False, True, id="without-the-gate-whatever-is-asked"),
    ],
)
def test_progress_holds_as_long_as_it_means_something(
    request_key, generation, cycle, preserves, expected
):
    before = Progress(tried=((0,),), request_key="same", generation=1, cycle=3)
    now = Progress(tried=(), request_key=request_key, generation=generation, cycle=cycle)

    assert still_valid(before, now, preserves=preserves) == expected


def test_pod_sets_of_a_group_get_one_flavor_that_has_room_for_all():
    flavors = (group(small={"gpu": 4, "cpu": 4}, big={"gpu": 8, "cpu": 8}),)
    members = [
        QueuedPodSet(name="leader", requests={"cpu": 3}, group="g"),
        QueuedPodSet(name="workers", count=2, requests={"cpu": 1, "gpu": 3}, group="g"),
    ]
    of = made(queue("q", groups=flavors), workload("w", "q", *members), flavors=("small", "big"))

    (action,) = run(of).actions

    assert [set(p.flavors.values()) for p in action.admission.pod_sets] == [{"big"}, {"big"}]
    assert [dict(p.usage) for p in action.admission.pod_sets] == [{"cpu": 3}, {"cpu": 2, "gpu": 6}]


def test_a_bigger_slice_needs_only_its_additional_pods():
    of = state(queue("q", gpu=10), held("old", "q", 6), workload("new", "q", gpu=9, replaces="old"))

    assert summarize_plan(run(of)) == [("admit", "new")]
    assert of.holding("old") is None
    assert usage(of)[True, "q", "default", "gpu"] == 9


def test_a_bigger_slice_stays_on_the_flavor_of_the_smaller_one():
    flavors = (group(one={"gpu": 4}, two={"gpu": 9}),)
    of = made(
        queue("q", groups=flavors),
        workload("old", "q", admission=admission("q", "one", gpu=2)),
        workload("new", "q", gpu=6, replaces="old"),
        flavors=("one", "two"),
    )

    (action,) = run(of).actions

    assert "could not assign two flavor since the original workload is assigned: one" in (
        message_of(action.refusal)
    )


@pytest.mark.parametrize(
    ("topologies", "placed", "expected"),
    [
        pytest.param(("t", ""), True, "a", id="who-asks-is-placed"),
        pytest.param(("t", ""), False, "b", id="who-does-not-is-not"),
        pytest.param(("t", "t"), False, "a", id="unless-there-is-nothing-else"),
        pytest.param(("", ""), True, None, id="nobody-can-place"),
    ],
)
def test_flavors_with_a_topology_are_for_those_who_ask_for_it(topologies, placed, expected):
    flavors = [
        FlavorSpec(name=n, topology=t, levels=("rack",))
        for n, t in zip("ab", topologies, strict=True)
    ]
    of = made(queue("q", groups=(group(a={"gpu": 4}, b={"gpu": 4}),)),
              workload("w", "q", QueuedPodSet(name="main", requests={"gpu": 1}, placed=placed)),
              flavors=flavors)  # fmt: skip

    (action,) = run(of).actions

    if expected is None:
        assert "does not support TopologyAwareScheduling" in message_of(action.refusal)
    else:
        assert action.admission == admission("q", expected, gpu=1)


def test_a_workload_gets_only_flavors_it_allows():
    of = made(queue("q", groups=(group(one={"gpu": 4}, two={"gpu": 4}),)),
              workload("w", "q", gpu=1, allowed_flavors=("two",)),
              flavors=("one", "two"))  # fmt: skip

    (action,) = run(of).actions

    assert action.admission == admission("q", "two", gpu=1)


def test_obstacles_are_reported_unless_it_simply_fits():
    tainted = FlavorSpec(name="tainted", taints=(NodeTaint(key="k"),))
    of = made(
        queue("q", "all", groups=(group(tainted={"gpu": 4}, one={"gpu": 2}),)),
        queue("lender", "all", groups=(group(one={"gpu": 9}),)),
        workload("w", "q", gpu=4), flavors=(tainted, "one"),
    )  # fmt: skip

    (action,) = run(of).actions

    assert considered_text(action.considered) == (
        "main: one(Fit;borrow=1), tainted(NoFit;untolerated taint {k  NoSchedule <nil>} in flavor"
        " tainted)"
    )


def test_a_queue_may_let_pass_what_it_has_no_quota_for():
    of = CoreState(QueueingSettings(ignores_undeclared=True))
    of.put_flavor(FlavorSpec(name="default"))
    put(of, queue("q", gpu=4))
    put(of, workload("w", "q", pod_set(gpu=1, cpu=4)))

    assert summarize_plan(run(of)) == [("admit", "w")]


def test_no_workload_is_admitted_before_all_admitted_ones_run():
    of = CoreState(QueueingSettings(blocks_until_ready=True))
    of.put_flavor(FlavorSpec(name="default"))
    for thing in (queue("a", gpu=4), queue("b", gpu=4), workload("a1", "a", gpu=1), workload("b1", "b", at=1, gpu=1)):  # fmt: skip  # noqa: E501
        put(of, thing)

    plan = run(of)

    assert summarize_plan(plan) == [("admit", "a1"), ("requeue", "b1", "FailedAfterNomination")]
    assert plan.actions[1].refusal.reason == "WaitingForPodsReady"


def test_with_fair_sharing_the_lowest_share_is_next():
    of = made(
        queue("a", "all", gpu=2), queue("b", "all", gpu=2), queue("bank", "all", gpu=4),
        held("a0", "a", 4), workload("a1", "a", gpu=2), workload("b1", "b", at=1, gpu=3),
        fair_sharing=FairSharingRules(),
    )  # fmt: skip

    assert summarize_plan(run(of)) == [("admit", "b1"), ("requeue", "a1", "FailedAfterNomination")]


@pytest.mark.parametrize("rules", [{}, {"fair_sharing": FairSharingRules()}])
def test_a_workload_that_gives_way_is_not_admitted_nor_passed(rules):
    of = made(
        queue("a", "all", groups=[group(one={"gpu": 4}, two={"gpu": 4})], strict=True),
        queue("b", "all", groups=[group(one={"gpu": 4})]),
        workload("a1", "a", gpu=2), workload("a2", "a", at=1, gpu=2),
        workload("b1", "b", at=2, gpu=2), flavors=("one", "two"), **rules,
    )  # fmt: skip
    of.giving_way.add("a1")

    plan = run(of)
    assert summarize_plan(plan) == [("requeue", "a1", "FailedAfterNomination"), ("admit", "b1")]
    assert "no longer fits" in message_of(plan.actions[0].refusal)
    assert keys(run(of).actions) == []
    assert not run(of).goes_on

    of.giving_way.clear()
    assert keys(run(of).actions) == ["a1"]


@pytest.mark.gate("PrioritizePreemptorWorkloads")
def test_preemptors_come_first_where_the_gate_says_so():
    of = made(
        queue("a", "all", gpu=4, preemption=OWN), queue("b", "all", gpu=4),
        held("low", "a", 4), held("b0", "b", 3), workload("high", "a", gpu=4, priority=1),
        prioritize_preemptor_workloads=True,
    )  # fmt: skip
    run(of)
    of.remove_workload("low")
    of.put_workload(workload("b1", "b", at=-1, priority=9, gpu=1))

    assert keys(run(of).actions) == ["high", "b1"]


def test_admissions_charge_the_amounts_of_their_plan():
    things = [queue(n, "all", gpu=4) for n in "abc"]
    things += [workload(f"{n}1", n, gpu=3 + i) for i, n in enumerate("abc")]
    of, other = state(*things), state(*things)

    run(of)
    for key, holding in [(k, h) for q in of.queues.values() for k, h in q.holdings.items()]:
        other.put_workload(
            workload(key, holding.workload.cluster_queue, admission=holding.admission)
        )

    assert usage(of) == usage(other)
