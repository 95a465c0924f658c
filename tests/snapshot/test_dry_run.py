"""What is said of a workload before it exists is what the core then decides about it."""

from collections import Counter

import msgspec
import pytest
from hypothesis import given, settings

from policyd.alloc.plan import Preempt
from policyd.alloc.queue import FlavorSpec, PreemptionPolicy
from policyd.alloc.settings import QueueingSettings
from policyd.node_rules import NodeTaint
from policyd.snapshot.dry_run import MOST_HOLDING, AdmissionDryRun, NeverFits, WouldStart, WouldWait
from policyd.snapshot.reading import read
from policyd.snapshot.rules import ClusterQueueRule, QueueRules
from policyd.snapshot.taking import FullSnapshot, SnapshotTaker
from policyd.snapshot.writing import write
from policyd.status.naming import Naming
from tests.alloc.builders import cohort, group, pod_set, put, queue, quota, workload
from tests.alloc.choices import scenarios
from tests.alloc.preemption.test_preemption import running
from tests.alloc.test_properties import made, run
from tests.alloc.worlds import NAMES, workloads, world
from tests.snapshot.taking import NOW, Jobs, finished
from tests.status.test_pending_reasons import settled

LATER = 1_000
POLICIES = (
    PreemptionPolicy(),
    PreemptionPolicy(within_cluster_queue="LowerPriority"),
    PreemptionPolicy(within_cluster_queue="LowerPriority", reclaim_within_cohort="Any"),
    PreemptionPolicy(reclaim_within_cohort="LowerPriority"),
)


def dry_run(of, *cohorts, beyond=(), checks=(), rules=None, flavors=None):
    """The dry_run of a state, by way of a snapshot as it is sent."""
    specs = [each.spec for each in of.queues.values() if each.spec is not None]
    rules = rules or QueueRules(
        settings=of.settings,
        flavors=flavors or tuple(of.flavors.values()),
        cohorts=cohorts,
        queues=tuple(
            ClusterQueueRule(spec=each, beyond=each.name in beyond, checks=checks) for each in specs
        ),
    )
    taker = SnapshotTaker(of, Jobs(), most=10)
    full = finished(taker.take(FullSnapshot(NOW, of.revision, rules=rules), ()))
    snapshot = read(finished(write(full, Naming())), "test")
    return AdmissionDryRun(snapshot, snapshot.rules)


def new_workload(queue_name="q", *pod_sets, **fields):
    return workload("new", queue_name, *pod_sets, at=LATER, **fields)


def at_rest(of):
    """Run cycles until none would decide more: the search for flavors goes on in the next ones."""
    for _ in range(100):
        if not run(of).goes_on:
            return


def submitted(choose):
    """A world, the policies of its queues, and one more workload."""
    things = world(choose)
    new = workloads(choose, 99)
    policies = {name: choose.one(POLICIES) for name in NAMES}
    return things, policies, msgspec.structs.replace(new, key="new", uid="new", queued_at=LATER)


@settings(deadline=None, max_examples=400)
@given(scenarios(submitted, 194))
def test_the_core_decides_as_predicted(scenario):
    things, _, new = scenario
    of = made(things)
    at_rest(of)
    if of.queues.get(new.cluster_queue) is None or not of.queues[new.cluster_queue].active:
        return
    result = dry_run(of, *(each for each in things if hasattr(each, "parent"))).result(new)

    put(of, new)
    at_rest(of)

    holding = of.holding("new")
    if isinstance(result, WouldStart):
        charged = Counter({(t.flavor, t.resource): t.amount for t in result.quota})
        assert charged == Counter(holding.admission.usage())
    elif result is not None:
        assert holding is None


@settings(deadline=None, max_examples=400)
@given(scenarios(submitted, 194))
def test_the_core_preempts_as_predicted(scenario):
    things, policies, new = scenario
    of = made(
        msgspec.structs.replace(each, preemption=policies[each.name])
        if hasattr(each, "fungibility")
        else each
        for each in things
    )
    for _ in range(20):
        run(of)  # its preemptions are carried out, as far as here, by nobody
    if of.queues.get(new.cluster_queue) is None or not of.queues[new.cluster_queue].active:
        return
    result = dry_run(of, *(each for each in things if hasattr(each, "parent"))).result(new)

    put(of, new)
    preempted = [
        action.workload.key
        for _ in range(10)
        for action in run(of).actions
        if isinstance(action, Preempt) and action.preemptor.key == "new"
    ]

    holding = of.holding("new")
    match result:
        case WouldStart(victims=0):
            assert holding is not None
        case WouldStart(victims=victims):
            assert len(preempted) == victims
        case WouldWait() | NeverFits():
            assert (holding, preempted) == (None, [])


def test_a_workload_that_fits_starts_with_what_it_takes():
    found = dry_run(settled(queue("q", gpu=8), running("w", "q", gpu=2))).result(
        new_workload(gpu=4)
    )

    assert [tuple(each) for each in found.quota] == [("default", "gpu", 4, 0)]
    assert (found.lender, found.victims, found.placed, found.checks) == ("", 0, False, ())


def test_what_it_borrows_is_reported_and_of_whom():
    c = cohort("c")
    of = settled(c, queue("q", "c", gpu=8), queue("other", "c", gpu=8), running("w", "q", gpu=4))
    found = dry_run(of, c).result(new_workload(gpu=8))

    assert [tuple(each) for each in found.quota] == [("default", "gpu", 8, 4)]
    assert found.lender == "c"


def test_its_shortfall_and_the_number_of_workloads_ahead_are_reported():
    of = settled(
        queue("q", gpu=8),
        running("w", "q", gpu=6),
        workload("first", "q", gpu=8, at=1),
        workload("modest", "q", gpu=8, at=2, priority=-1),
    )
    found = dry_run(of).result(new_workload(gpu=4))

    assert (found.ahead, [shortfall.missing for shortfall in found.shortfalls]) == (1, [2])


def test_nobody_passes_the_head_of_a_strict_queue():
    of = settled(
        queue("q", gpu=8, strict=True), running("w", "q", gpu=6), workload("f", "q", gpu=8, at=1)
    )

    assert dry_run(of).result(new_workload(gpu=1)) == WouldWait(1)
    assert isinstance(dry_run(of).result(new_workload(gpu=1, priority=9)), WouldStart)


def test_what_a_queue_can_never_hold_never_starts():
    found = dry_run(settled(queue("q", gpu=8))).result(new_workload(gpu=9))

    assert isinstance(found, NeverFits)
    assert [(shortfall.requested, shortfall.capacity) for shortfall in found.shortfalls] == [(9, 8)]


def test_a_flavor_that_refuses_it_is_reported():
    tainted = FlavorSpec(
        name="default", taints=(NodeTaint(key="k", value="v", effect="NoSchedule"),)
    )
    of = settled(queue("q", gpu=8))
    of.put_flavor(tainted)
    found = dry_run(of).result(new_workload(gpu=1))

    assert isinstance(found, NeverFits)
    assert "untolerated taint" in found.message


def test_of_flavors_with_a_topology_the_verdict_depends_on_the_room_on_nodes():
    placing = FlavorSpec(name="default", topology="t", levels=("rack",))
    of = settled(queue("q", gpu=8), running("w", "q", gpu=2))
    foresees = dry_run(of, flavors=(placing,))

    assert foresees.result(new_workload(gpu=4)).placed
    assert isinstance(foresees.result(new_workload(gpu=7)), WouldWait)


@pytest.mark.parametrize(
    ("given", "things", "rules"),
    [
        pytest.param({"beyond": ("q",)}, [], None, id="beyond-kueues-rules"),
        pytest.param(
            {}, [], QueueingSettings(blocks_until_ready=True), id="waits-for-pods-of-others"
        ),
        pytest.param({}, [workload("next", "q", gpu=1, at=1)], None, id="others-were-not-tried"),
    ],
)
def test_nothing_is_reported_for_a_start_that_is_not_certain(given, things, rules):
    of = settled(queue("q", gpu=8), running("w", "q", gpu=2))
    if rules is not None:
        of.settings = rules
    for each in things:
        put(of, each)

    assert dry_run(of, **given).result(new_workload(gpu=4)) is None


def test_nothing_is_reported_where_too_many_could_be_preempted():
    few, many = (
        settled(
            queue("q", gpu=MOST_HOLDING + 1, preemption=POLICIES[1]),
            *(running(f"w{n}", "q", gpu=1) for n in range(count)),
        )
        for count in (MOST_HOLDING, MOST_HOLDING + 1)
    )

    assert dry_run(few).result(new_workload(gpu=2, priority=1)).victims == 1
    assert dry_run(many).result(new_workload(gpu=2, priority=1)) is None
    assert isinstance(dry_run(many).result(new_workload(gpu=MOST_HOLDING + 2)), NeverFits)


def test_flavors_of_which_only_some_place_pods_are_not_judged():
    placing, plain = FlavorSpec(name="default", topology="t", levels=("l",)), FlavorSpec(name="b")
    of = settled(queue("q", groups=[group(default={"gpu": quota(8)}, b={"gpu": quota(8)})]))
    of.put_flavor(plain)

    foresees = dry_run(of, flavors=(placing, plain))

    assert foresees.result(new_workload("q", pod_set(gpu=1))) is None
