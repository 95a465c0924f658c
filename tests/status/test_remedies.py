"""What would help who waits: every remedy is true, and the cheapest comes first."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from policyd.alloc.cycle import plan_cycle
from policyd.alloc.plan import Admit, Requeue
from policyd.alloc.queue import FlavorSpec, PreemptionPolicy
from policyd.alloc.reasons import MissingQuota, OverCapacity, Unsuitable
from policyd.node_rules import NodeTaint
from policyd.optimize.opt_ins import OptIns, Protection
from policyd.status.remedies import (
    AllowPreemption,
    AskLess,
    RaiseLimit,
    RaiseQuota,
    Shrink,
    Wait,
    WaitForProtection,
    nearest,
    remedy_text,
)
from policyd.status.remedy_search import remedies
from policyd.status.shortages import shortages
from tests.alloc.builders import group, pod_set, queue, quota, workload
from tests.alloc.preemption.test_preemption import running
from tests.optimize.builders import state


def remedy_texts(of, key="w"):
    """The remedies for a workload after one cycle, as sentences."""
    return [remedy_text(remedy) for remedy in found(of, key)]


def found(of, key="w"):
    action = refused(of, key)
    return remedies(of, action.workload, action.refusal)


def refused(of, key="w"):
    plan = plan_cycle(of)
    of.commit(plan)
    return next(a for a in plan.actions if a.workload.key == key and isinstance(a, Requeue))


MINE = PreemptionPolicy(within_cluster_queue="LowerPriority")
TAINTED = FlavorSpec(name="tainted", taints=(NodeTaint(key="k", value="v"),))


def test_a_slice_that_is_to_be_replaced_is_not_waited_for_and_counts_as_had():
    of = state(
        queue("q", gpu=8, preemption=MINE),
        running("old", "q", gpu=2),
        running("b", "q", gpu=2, priority=9),
        workload("w", "q", gpu=2, count=9, priority=5, replaces="old"),
    )

    assert remedy_texts(of)[0] == "run 6 pods fewer of pod set main: 3 fit"


def test_a_slice_that_is_to_be_replaced_holds_nothing_that_its_job_waits_for():
    of = state(
        queue("q", gpu=8),
        running("old", "q", gpu=4),
        running("b", "q", gpu=2),
        workload("w", "q", gpu=8, replaces="old"),
    )
    action = refused(of)

    (shortage,) = shortages(of, action.refusal, action.workload)

    assert [holder.workload for holder in shortage.holders] == ["b"]
    first = remedies(of, action.workload, action.refusal)[0]
    assert remedy_text(first) == "wait until b (2) ends: 2 gpu of flavor default will be enough"


@pytest.mark.parametrize(
    ("things", "expected"),
    [
        pytest.param(
            (queue("q", gpu=4), running("a", "q", gpu=3), workload("w", "q", gpu=2)),
            [
                "wait until a (3) ends: 1 gpu of flavor default will be enough",
                "ask for at most 1 gpu: that fits",
                "raise the nominalQuota of ClusterQueue q for gpu of flavor default by 1",
            ],
            id="wait-for-who-holds-it",
        ),
        pytest.param(
            (queue("q", gpu=4), workload("w", "q", gpu=6)),
            [
                "ask for at most 4 gpu: that fits",
                "raise the nominalQuota of ClusterQueue q for gpu of flavor default by 2",
            ],
            id="no-waiting-for-more-than-there-is",
        ),
        pytest.param(
            (queue("q", gpu=4), running("a", "q", gpu=4), workload("w", "q", gpu=6)),
            [
                "ask for at most 4 gpu: that could fit once others end",
                "raise the nominalQuota of ClusterQueue q for gpu of flavor default by 6",
            ],
            id="as-much-as-its-queue-can-ever-have",
        ),
        pytest.param(
            (queue("q", gpu=4), running("a", "q", gpu=4), workload("w", "q", count=6, gpu=1)),
            [
                "run 2 pods fewer of pod set main: 4 could fit once others end",
                "raise the nominalQuota of ClusterQueue q for gpu of flavor default by 6",
            ],
            id="as-many-pods-as-its-queue-can-ever-have",
        ),
        pytest.param(
            (
                queue("q", groups=(group(default={"gpu": 4, "cpu": 1000}),)),
                workload("w", "q", pod_set(gpu=6, cpu=3000)),
            ),
            [
                "raise the nominalQuota of ClusterQueue q for gpu of flavor default by 2 and raise"
                " the nominalQuota of ClusterQueue q for cpu of flavor default by 2",
            ],
            id="two-quotas-that-are-both-too-small",
        ),
        pytest.param(
            (queue("q", gpu=3), workload("w", "q", count=4, gpu=1)),
            [
                "run 1 pod fewer of pod set main: 3 fit",
                "raise the nominalQuota of ClusterQueue q for gpu of flavor default by 1",
            ],
            id="fewer-pods",
        ),
        pytest.param(
            (
                queue("q", gpu=4),
                running("a", "q", gpu=3),
                workload("w", "q", gpu=2, priority=5),
            ),
            [
                "wait until a (3) ends: 1 gpu of flavor default will be enough",
                "ask for at most 1 gpu: that fits",
                "set preemption.withinClusterQueue of ClusterQueue q to LowerPriority: it would"
                " preempt a, up to priority 0",
                "raise the nominalQuota of ClusterQueue q for gpu of flavor default by 1",
            ],
            id="a-policy-that-lets-it-preempt",
        ),
        pytest.param(
            (queue("q", "x", gpu=quota(1, 1)), queue("l", "x", gpu=9), workload("w", "q", gpu=5)),
            [
                "ask for at most 2 gpu: that fits",
                "raise the borrowingLimit of q for gpu of flavor default by 3",
            ],
            id="its-borrowing-limit",
        ),
        pytest.param(
            (queue("q", gpu=4), workload("w", "q", pod_set(fpga=1))),
            ["ask for no fpga in pod set main", "give ClusterQueue q quota for fpga"],
            id="a-resource-nobody-has",
        ),
    ],
)
def test_remedies_are_reported_the_cheapest_first(things, expected):
    assert remedy_texts(state(*things)) == expected


def test_a_flavor_with_room_that_something_keeps_the_pods_from():
    of = state(
        queue("q", groups=(group(tainted={"gpu": 4}, default={"gpu": 1}),)),
        workload("w", "q", gpu=3),
    )
    of.put_flavor(TAINTED)

    assert remedy_texts(of)[0] == (
        "tolerate the taint k=v:NoSchedule of flavor tainted, which has room"
    )


def test_a_flavor_is_no_help_that_has_no_room_for_all_that_is_asked():
    tainted = {"gpu": 4, "cpu": 1000}
    of = state(
        queue("q", groups=(group(tainted=tainted, default={"gpu": 1, "cpu": 9000}),)),
        workload("w", "q", pod_set(gpu=3, cpu=2000)),
    )
    of.put_flavor(TAINTED)

    assert not any("tainted, which" in text for text in remedy_texts(of))


def test_candidates_that_are_protected_are_named_with_the_time():
    of = state(
        queue("q", gpu=4, preemption=MINE, opt_ins=OptIns(protection=Protection(preemption=600))),
        running("a", "q", gpu=4, at=100),
        workload("w", "q", gpu=2, priority=5),
    )
    of.now = 200.0

    (protected,) = [r for r in found(of) if isinstance(r, WaitForProtection)]

    assert (protected.workloads, protected.until) == (("a",), 700.0)
    assert remedy_text(protected) == (
        "wait until 1970-01-01T00:11:40Z: a could be preempted, but are protected"
    )


def test_nothing_is_reported_for_protection_once_it_is_over():
    of = state(
        queue("q", gpu=4, opt_ins=OptIns(protection=Protection(preemption=60))),
        running("a", "q", gpu=4, at=100),
        workload("w", "q", gpu=2, priority=5),
    )
    of.now = 200.0

    assert not any(isinstance(each, WaitForProtection) for each in found(of))


def test_the_nearest_constraint_is_of_the_flavor_that_lacks_least():
    of = state(
        queue("q", groups=(group(one={"gpu": 1}, two={"gpu": 4}, tainted={"gpu": 9}),)),
        running("a", "q", gpu=2, flavor="two"),
        workload("w", "q", gpu=3),
        flavors=("one", "two"),
    )
    of.put_flavor(TAINTED)

    missing = nearest(refused(of).refusal)

    assert isinstance(missing, MissingQuota)
    assert (missing.flavor, missing.missing, missing.available) == ("two", 1, 2)


@pytest.mark.parametrize(
    ("asked", "kind"),
    [
        pytest.param({"gpu": 9}, OverCapacity, id="more-than-there-is"),
        pytest.param({"fpga": 1}, Unsuitable, id="of-what-there-is-none"),
    ],
)
def test_the_nearest_constraint_is_typed(asked, kind):
    of = state(queue("q", gpu=4), workload("w", "q", pod_set(**asked)))

    assert isinstance(nearest(refused(of).refusal), kind)


amounts = st.integers(0, 5)


@given(st.data())
def test_named_remedies_help(data):
    """Whoever follows a remedy of rules or of size sees the workload admitted, or preempting."""
    draw = data.draw
    limit = draw(st.none() | amounts)
    specs = [
        queue("q", "x", gpu=quota(draw(amounts), limit)),
        queue("o", "x", gpu=draw(amounts)),
    ]
    held = [
        running(f"h{n}", draw(st.sampled_from("qo")), gpu=draw(st.integers(1, 3)))
        for n in range(draw(st.integers(0, 4)))
    ]
    priority, count = draw(st.integers(0, 1)), draw(st.integers(1, 4))
    wants = workload("w", "q", count=count, gpu=draw(st.integers(1, 3)), priority=priority)
    of = state(*specs, *held, wants)
    plan = plan_cycle(of)
    if any(isinstance(action, Admit) for action in plan.actions):
        return
    of.commit(plan)

    for remedy in remedies(of, wants, plan.actions[-1].refusal):
        changed = follow(remedy, specs[0], wants)
        if changed is not None:
            later = getattr(remedy, "later", False)
            again = state(*specs[1:], *(() if later else held), *changed)
            assert any(not isinstance(a, Requeue) for a in plan_cycle(again).actions), remedy


def follow(remedy, spec, wants):
    """The queue and the workload as somebody has them who follows a remedy; None if nobody can."""
    replace = msgspec.structs.replace
    given = spec.groups[0].flavors[0].quotas["gpu"]
    match remedy:
        case Shrink():
            return spec, replace(wants, pod_sets=(replace(wants.pod_sets[0], count=remedy.left),))
        case AskLess():
            asked = replace(wants.pod_sets[0], requests={"gpu": remedy.most})
            return spec, replace(wants, pod_sets=(asked,))
        case AllowPreemption():
            word = {
                "withinClusterQueue": "within_cluster_queue",
                "reclaimWithinCohort": "reclaim_within_cohort",
            }[remedy.field]
            return replace(spec, preemption=PreemptionPolicy(**{word: remedy.policy})), wants
        case RaiseLimit():
            raised = quota(given.nominal, given.borrowing_limit + remedy.by)
            return queue("q", "x", gpu=raised), wants
        case RaiseQuota():
            raised = quota(given.nominal + remedy.by, given.borrowing_limit)
            return queue("q", "x", gpu=raised), wants
    return None


def pending_at_rest(of):
    """The refusals of workloads, by key, once cycles admit no more."""
    refusals = {}
    for _ in range(20):
        plan = plan_cycle(of)
        of.commit(plan)
        for action in plan.actions:
            refusals.pop(action.workload.key, None)
            if isinstance(action, Requeue):
                refusals[action.workload.key] = action.refusal
    return refusals


def test_those_ahead_get_their_quota_before():
    first, second = workload("a", "q", gpu=3), workload("b", "q", gpu=1, at=1)
    wants = workload("w", "q", gpu=2, at=2)
    of = state(queue("q", gpu=4), running("r", "q", gpu=4), first, second, wants)
    refusal = pending_at_rest(of)["w"]

    alone = remedies(of, wants, refusal)
    behind_one = remedies(of, wants, refusal, [(second, 1)])
    behind_many = remedies(of, wants, refusal, [(first, 1), (second, 4)])

    assert remedy_text(alone[0]) == "wait until r (4) ends: 2 gpu of flavor default will be enough"
    assert remedy_text(behind_one[0]) == (
        "wait until r (4) ends: 3 gpu of flavor default will be enough, with 1 for those"
        " ahead of it"
    )
    assert [remedy_text(each) for each in behind_many] == [
        "raise the nominalQuota of ClusterQueue q for gpu of flavor default by 9, with 7 for"
        " those ahead of it",
    ]


def test_with_too_many_ahead_no_remedy_depends_on_them():
    wants = workload("w", "q", gpu=2)
    of = state(queue("q", gpu=4), running("r", "q", gpu=3), wants)

    found = remedies(of, wants, pending_at_rest(of)["w"], None)

    assert [remedy_text(each) for each in found] == ["ask for at most 1 gpu: that fits"]


@given(st.data())
def test_remedies_help_those_behind_others(data):
    """The workload is admitted, although those ahead of it are tried before it."""
    draw = data.draw
    spec = queue("q", gpu=draw(st.integers(1, 8)))
    held = [running(f"h{n}", "q", gpu=draw(st.integers(1, 4))) for n in range(draw(amounts))]
    ahead = [
        workload(f"a{n}", "q", gpu=draw(st.integers(1, 4)), at=n) for n in range(draw(amounts))
    ]
    wants = workload("w", "q", gpu=draw(st.integers(1, 4)), at=9)
    of = state(spec, *held, *ahead, wants)
    refusals = pending_at_rest(of)
    if "w" not in refusals:
        return

    holdings = of.queues["q"].holdings
    pending = [each for each in ahead if each.key not in holdings]
    started = [
        running(each.key, "q", gpu=each.pod_sets[0].requests["gpu"])
        for each in ahead
        if each.key in holdings
    ]
    for remedy in remedies(of, wants, refusals["w"], [(each, 1) for each in pending]):
        gone = {each.workload for each in getattr(remedy, "holders", ())}
        match remedy:
            case RaiseQuota():
                raised = quota(spec.groups[0].flavors[0].quotas["gpu"].nominal + remedy.by)
                changed = queue("q", gpu=raised)
            case Wait():
                changed = spec
            case _:
                continue
        left = [each for each in (*held, *started) if each.key not in gone]
        assert "w" not in pending_at_rest(state(changed, *left, *pending, wants)), remedy
