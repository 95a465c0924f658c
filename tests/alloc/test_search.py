"""Which flavor a workload gets, and why none."""

import pytest

from policyd.alloc.flavors.options import search_order
from policyd.alloc.queue import FlavorSpec, Fungibility, PreemptionPolicy
from policyd.alloc.reasons import Mode
from policyd.node_rules import NodeTaint, TaintToleration
from policyd.status.messages import obstacle_text
from tests.alloc.builders import admission, group, pod_set, queue, quota, state, workload

SPOT = FlavorSpec(
    name="spot",
    labels={"kind": "spot"},
    taints=(NodeTaint(key="spot", value="yes", effect="NoSchedule"),),
)
TOLERANT = (TaintToleration(key="spot", operator="Exists"),)


def assign(of, asked):
    of.settle()
    options = of.queues[asked.cluster_queue].options
    return options.search.assign(options.requests(asked))


def flavors(assignment):
    return [dict(p.flavors) for p in assignment.admission("q").pod_sets]


def texts(assignment):
    return [obstacle_text(o) for refusal in assignment.refusals() for o in refusal.obstacles]


def two(on_demand=4, spot=8, **fields):
    return queue("q", groups=[group(on_demand={"gpu": on_demand}, spot={"gpu": spot})], **fields)


def cluster(*things):
    return state(SPOT, *things, flavors=("on-demand", "default", "cpus"))


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        pytest.param([pod_set(gpu=4)], [{"gpu": "on-demand"}], id="first-that-fits"),
        pytest.param(
            [pod_set(gpu=5, tolerations=TOLERANT)], [{"gpu": "spot"}], id="next-with-more-quota"
        ),
        pytest.param(
            [pod_set(gpu=1, selector={"kind": "spot"}, tolerations=TOLERANT)],
            [{"gpu": "on-demand"}],
            id="a-label-the-first-does-not-name",
        ),
        pytest.param(
            [pod_set("a", gpu=3), pod_set("b", gpu=3, tolerations=TOLERANT)],
            [{"gpu": "on-demand"}, {"gpu": "spot"}],
            id="pod-sets-before-it-count",
        ),
        pytest.param([pod_set(count=4, gpu=1)], [{"gpu": "on-demand"}], id="pods-times-request"),
        pytest.param([pod_set()], [{}], id="nothing-requested"),
        pytest.param([pod_set(gpu=0, cpu=0)], [{"gpu": "on-demand"}], id="nothing-of-something"),
    ],
)
def test_the_flavor_that_is_chosen(asked, expected):
    assignment = assign(cluster(two()), workload("w", "q", *asked))

    assert assignment.mode is Mode.FIT
    assert flavors(assignment) == expected


@pytest.mark.parametrize(
    ("asked", "reason", "expected"),
    [
        pytest.param(
            [pod_set(gpu=5)],
            "ExceedsMaxQuota",
            [
                "insufficient quota for gpu in flavor on-demand, previously considered podsets"
                " requests (0) + current podset request (5) > maximum capacity (4)",
                "untolerated taint {spot yes NoSchedule <nil>} in flavor spot",
            ],
            id="more-than-any-flavor-has",
        ),
        pytest.param(
            [pod_set(gpu=1, tolerations=TOLERANT), pod_set("b", gpu=9, tolerations=TOLERANT)],
            "ExceedsMaxQuota",
            [
                "insufficient quota for gpu in flavor on-demand, previously considered podsets"
                " requests (1) + current podset request (9) > maximum capacity (4)",
                "insufficient quota for gpu in flavor spot, previously considered podsets"
                " requests (0) + current podset request (9) > maximum capacity (8)",
            ],
            id="more-with-the-pod-sets-before-it",
        ),
        pytest.param(
            [pod_set(gpu=1, cpu=1)],
            "NoMatchingFlavor",
            ["resource cpu unavailable in ClusterQueue"],
            id="a-resource-without-quota",
        ),
    ],
)
def test_why_nothing_fits(asked, reason, expected):
    assignment = assign(cluster(two()), workload("w", "q", *asked))

    assert assignment.mode is Mode.NO_FIT
    assert assignment.reason() == reason
    assert texts(assignment) == expected


def test_a_flavor_of_other_nodes_does_not_match():
    only_spot = queue("q", groups=[group(spot={"gpu": 8})])
    asked = workload("w", "q", pod_set(gpu=1, selector={"kind": "big"}, tolerations=TOLERANT))

    assignment = assign(cluster(only_spot), asked)

    assert texts(assignment) == ["flavor spot doesn't match node affinity"]
    assert assignment.reason() == "NoMatchingFlavor"


def test_a_flavor_that_does_not_exist_is_named():
    assignment = assign(state(queue("q", gpu=8), flavors=()), workload("w", "q", gpu=1))

    assert texts(assignment) == ["flavor default not found"]


def test_a_flavor_without_quota_for_a_resource_is_named():
    uneven = queue("q", groups=[group(default={"gpu": 1, "cpu": 1}, spot={"gpu": 8})])
    asked = workload("w", "q", pod_set(gpu=2, cpu=2, tolerations=TOLERANT))

    assert "flavor spot does not provide resource cpu" in texts(assign(cluster(uneven), asked))


def test_resources_of_a_group_come_from_one_flavor_and_groups_choose_apart():
    groups = [group(on_demand={"gpu": 1}, spot={"gpu": 8}), group(cpus={"cpu": 9, "memory": 9})]
    asked = workload("w", "q", pod_set(gpu=2, cpu=1, memory=1, tolerations=TOLERANT))

    assignment = assign(cluster(queue("q", groups=groups)), asked)

    assert flavors(assignment) == [{"gpu": "spot", "cpu": "cpus", "memory": "cpus"}]


def test_pods_are_counted_where_there_is_quota_for_them():
    groups = [group(default={"gpu": 8}), group(cpus={"pods": 3})]

    assignment = assign(cluster(queue("q", groups=groups)), workload("w", "q", count=4, gpu=1))

    assert texts(assignment) == [
        "insufficient quota for pods in flavor cpus, previously considered podsets requests (0)"
        " + current podset request (4) > maximum capacity (3)"
    ]


def test_usage_of_others_is_missing_quota_that_may_be_waited_for():
    held = workload("other", "q", admission=admission("q", "on-demand", gpu=3))

    assignment = assign(cluster(two(spot=0), held), workload("w", "q", gpu=4))

    assert assignment.mode is Mode.BLOCKED
    assert assignment.reason() == "WaitingForQuota"
    assert texts(assignment) == [
        "insufficient unused quota for gpu in flavor on-demand, 3 more needed",
        "untolerated taint {spot yes NoSchedule <nil>} in flavor spot",
    ]


def borrower(**fungibility):
    return two(2, 2, cohort="all", fungibility=Fungibility(**fungibility))


def lender(on_demand=4, spot=4):
    return queue("rich", "all", groups=[group(on_demand={"gpu": on_demand}, spot={"gpu": spot})])


@pytest.mark.parametrize(
    ("when_can_borrow", "asked", "expected"),
    [
        pytest.param("MayStopSearch", 3, ("on-demand", 1), id="borrows-in-the-first"),
        pytest.param("TryNextFlavor", 2, ("on-demand", 0), id="first-without-borrowing"),
        pytest.param("TryNextFlavor", 3, ("on-demand", 1), id="first-of-equals"),
    ],
)
def test_borrowing_in_a_flavor_or_trying_the_next(when_can_borrow, asked, expected):
    of = cluster(borrower(when_can_borrow=when_can_borrow), lender())
    wanted = workload("w", "q", pod_set(gpu=asked, tolerations=TOLERANT))

    assignment = assign(of, wanted)

    assert (flavors(assignment)[0]["gpu"], assignment.level) == expected


def test_a_flavor_without_borrowing_is_better_than_one_with():
    held = workload("other", "q", admission=admission("q", "on-demand", gpu=1))
    of = cluster(borrower(when_can_borrow="TryNextFlavor"), lender(), held)
    wanted = workload("w", "q", pod_set(gpu=2, tolerations=TOLERANT))

    assignment = assign(of, wanted)

    assert (flavors(assignment)[0]["gpu"], assignment.level) == ("spot", 0)


def test_more_than_its_own_quota_is_waited_for_only_by_those_that_may_preempt_for_it():
    busy = workload("other", "rich", admission=admission("rich", gpu=8))
    for policy, mode in ("Never", Mode.NO_FIT), ("LowerPriority", Mode.BLOCKED):
        preemption = PreemptionPolicy(borrow_within_cohort=policy)
        poor = queue("q", "all", gpu=2, preemption=preemption)

        assignment = assign(
            cluster(poor, queue("rich", "all", gpu=8), busy), workload("w", "q", gpu=4)
        )

        assert assignment.mode is mode
        assert assignment.reason() == "WaitingForQuota"


def test_quota_beyond_its_limits_is_out_of_reach():
    capped = queue("q", "all", gpu=quota(2, borrow=1))

    assignment = assign(cluster(capped, queue("rich", "all", gpu=8)), workload("w", "q", gpu=4))

    assert (assignment.mode, assignment.reason()) == (Mode.NO_FIT, "ExceedsMaxQuota")


def test_flavors_that_could_be_waited_for_are_better_than_those_that_cannot():
    held = workload("other", "q", admission=admission("q", "spot", gpu=8))
    asked = workload("w", "q", pod_set(gpu=6, tolerations=TOLERANT))

    assignment = assign(cluster(two(), held), asked)

    assert assignment.mode is Mode.BLOCKED
    assert [option.name for option in assignment.groups[0].options] == ["spot"]


def test_workloads_with_the_same_requests_share_the_computed_values():
    of = cluster(two())
    of.settle()
    options = of.queues["q"].options

    first, second = (options.requests(workload(key, "q", gpu=1)) for key in ("a", "b"))

    assert first is second
    assert options.requests(workload("c", "q", gpu=2)) is not first
    assert options.requests(workload("c", "q", count=2, gpu=1)) is not first


def test_resources_are_visited_in_the_order_of_their_hash():
    # Known values of 64-bit FNV-1a.
    assert search_order("") == 0xCBF29CE484222325
    assert search_order("a") == 0xAF63DC4C8601EC8C
