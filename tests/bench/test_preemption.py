"""How long it takes to choose victims, and to order a cycle by shares."""

import statistics
import time
from collections import deque

import msgspec
import pytest

from policyd.alloc.cluster_queue import NominatedWorkload
from policyd.alloc.cycle import tournament
from policyd.alloc.flavors.assignment import Assignment
from policyd.alloc.flavors.options import RequestKey
from policyd.alloc.pending import Ticket
from policyd.alloc.preemption.fair import FairSearch
from policyd.alloc.preemption.search import Search, in_order
from policyd.alloc.preemption.targets import Claim, find_targets
from policyd.alloc.queue import (
    CohortQuotas,
    FlavorAmounts,
    FlavorGroup,
    FlavorSpec,
    PreemptionPolicy,
    QueueSpec,
    Quota,
)
from policyd.alloc.settings import FairSharingRules, Gates, QueueingSettings
from policyd.alloc.state import CoreState
from policyd.alloc.workload import PodSetFlavors, QueuedWorkload, ReservedQuota
from tests.bench.report import report

pytestmark = pytest.mark.bench

CANDIDATES = 700
RUNS = 21
RESOURCES = ("cpu", "memory", "nvidia.com/gpu")
POLICY = PreemptionPolicy(within_cluster_queue="LowerPriority", reclaim_within_cohort="Any")


Names = tuple[str, ...]


def groups(amount: int, resources: Names = RESOURCES) -> tuple[FlavorGroup, ...]:
    quotas = {resource: Quota(nominal=amount) for resource in resources}
    flavors = (FlavorAmounts(name="default", quotas=quotas),)
    return (FlavorGroup(resources=resources, flavors=flavors),)


def running(name: str, queue: str, number: int, resources: Names = RESOURCES) -> QueuedWorkload:
    """A workload that holds one of each resource; half of them are important."""
    held = PodSetFlavors(
        name="main",
        count=1,
        flavors=dict.fromkeys(resources, "default"),
        usage=dict.fromkeys(resources, 1),
    )
    return QueuedWorkload(
        key=f"team/{name}",
        uid=f"{number:09}",
        cluster_queue=queue,
        queued_at=float(number),
        priority=number % 2,
        pod_sets=(),
        admission=ReservedQuota(cluster_queue=queue, pod_sets=(held,)),
        reserved_at=float(number),
    )


def cluster(queues: int, *, each: int, fair: bool) -> CoreState:
    """A cohort of `queues` queues that borrow all they use, from one that uses nothing."""
    state = CoreState(QueueingSettings(fair_sharing=FairSharingRules() if fair else None))
    state.put_flavor(FlavorSpec(name="default"))
    state.put_cohort(CohortQuotas(name="all"))
    total = queues * each
    state.put_queue(QueueSpec(name="lender", cohort="all", groups=groups(total), preemption=POLICY))
    for n in range(queues):
        name = f"queue-{n}"
        state.put_queue(QueueSpec(name=name, cohort="all", groups=groups(0), preemption=POLICY))
        for m in range(each):
            state.put_workload(running(f"{name}-{m}", name, n * each + m))
    state.settle()
    return state


def claim(state: CoreState, queue: str, amount: int) -> Claim:
    cells = state.queues[queue].node.cells
    charges = dict.fromkeys(cells.values(), amount)
    workload = QueuedWorkload(
        key="team/new", uid="new", cluster_queue=queue, queued_at=0.0, priority=5, pod_sets=()
    )
    return Claim(workload, charges, frozenset(charges))


def waiting(queue: str, number: int) -> QueuedWorkload:
    return QueuedWorkload(
        key=f"team/{number}",
        uid=f"{number:09}",
        cluster_queue=queue,
        queued_at=float(number),
        priority=number % 3,
        pod_sets=(),
    )


def search_time(state: CoreState, wanted: Claim) -> tuple[float, int]:
    """CPU milliseconds of a search, the median of some; and how many targets it finds."""
    times, found = [], ()
    for _ in range(RUNS):
        start = time.process_time()
        found = find_targets(state, wanted)
        times.append((time.process_time() - start) * 1e3)
    return statistics.median(times), len(found)


@pytest.mark.parametrize("victims", [1, 64, CANDIDATES])
@pytest.mark.parametrize(
    ("queue", "queues", "fair"),
    [
        pytest.param("queue-0", 1, False, id="within-the-queue"),
        pytest.param("lender", 70, False, id="reclaimed-from-70-queues"),
        pytest.param("lender", 70, True, id="by-shares-from-70-queues"),
    ],
)
def test_victims_are_found_in_milliseconds(queue, queues, fair, victims):
    state = cluster(queues, each=CANDIDATES // queues, fair=fair)

    spent, found = search_time(state, claim(state, queue, victims))

    assert found == victims
    how = "by shares" if fair else "reclaimed" if queue == "lender" else "own queue"
    report(f"preemption, {CANDIDATES} candidates, {how}, {victims} victims", spent, "ms", goal=5)


@pytest.mark.parametrize("queues", [10, 100, 1_000])
def test_a_tournament_takes_milliseconds(queues):
    state = cluster(queues, each=1, fair=True)
    tree = state.tree
    first, all_turns = [], []
    for _ in range(7):
        entries = []
        for n in range(queues):
            options = state.queues[f"queue-{n}"].options
            cells = options.node.cells
            charges = {cells["default", resource]: n % 7 + 1 for resource in RESOURCES}
            ticket = Ticket(waiting(f"queue-{n}", n), RequestKey())
            entries.append(NominatedWorkload(ticket, options, None, Assignment(charges=charges)))
        start = time.process_time()
        with tree.trial():
            turns = tournament(entries, tree, Gates())
            winner = next(turns)
            first.append((time.process_time() - start) * 1e3)
            tree.charge(winner.assignment.charges)
            for winner in turns:
                tree.charge(winner.assignment.charges)
            all_turns.append((time.process_time() - start) * 1e3)

    goal = 20 if queues == 1_000 else None
    name = f"fair-sharing tournament, {queues} queues"
    report(f"{name}, first turn", statistics.median(first), "ms", goal)
    report(f"{name}, all turns", statistics.median(all_turns), "ms", goal)


@pytest.mark.parametrize(("candidates", "kueue"), [(10, 23.4), (100, 190.3)])
def test_candidates_are_refused_by_shares_in_microseconds(candidates, kueue):
    """Kueue's BenchmarkRunFirstFsStrategy, and beside ours what it takes in Go."""
    state = CoreState(QueueingSettings(fair_sharing=FairSharingRules()))
    cpu = ("cpu",)
    quotas = {"a": groups(1, cpu), "b": groups(0, cpu)}
    for name, weight in (("a", 1.0), ("b", 1e6)):
        spec = QueueSpec(name=name, cohort="all", groups=quotas[name], preemption=POLICY)
        state.put_queue(msgspec.structs.replace(spec, weight=weight))
    for n in range(candidates):
        state.put_workload(running(f"b-{n}", "b", n, cpu))
    state.settle()
    search = Search(state, claim(state, "a", 3))
    node = state.queues["b"].node
    found = in_order(search.candidates(node), {}, lambda each: each)
    times = []
    for _ in range(RUNS):
        with state.tree.trial():
            state.tree.charge(search.charges)
            start = time.process_time()
            fits = FairSearch(search).first({node: deque(found)}, "LessThanOrEqualToFinalShare")
            times.append((time.process_time() - start) * 1e6)
        assert not fits

    spent = statistics.median(times)
    name = f"{candidates} candidates refused by shares"
    report(f"{name}, {spent / kueue:.1f} times Kueue's {kueue:g} µs", spent, "µs")
