"""How long a quota decision takes, and whether that depends on how many wait."""

import gc
import statistics
import time
import tracemalloc

import pytest

from policyd.alloc.cluster_queue import NominatedWorkload
from policyd.alloc.cycle import plan_cycle, tournament
from policyd.alloc.plan import Admit
from policyd.alloc.queue import (
    FlavorAmounts,
    FlavorGroup,
    FlavorSpec,
    PreemptionPolicy,
    QueueSpec,
    Quota,
)
from policyd.alloc.settings import FairSharingRules, Gates, QueueingSettings
from policyd.alloc.state import CoreState
from policyd.alloc.workload import PodSetFlavors, QueuedPodSet, QueuedWorkload, ReservedQuota
from tests.bench.report import report

pytestmark = pytest.mark.bench

COHORTS = 50
FLAVORS = ("on-demand", "spot", "reserved", "flex")
REQUESTS = {"cpu": 4_000, "memory": 16 << 30, "ephemeral-storage": 10 << 30, "nvidia.com/gpu": 1}
CYCLES = 15


def cluster(
    queues: int, *, share: int, gpus: int, flavors: int = len(FLAVORS), **others
) -> CoreState:
    """A state of `queues` ClusterQueues, 20 a cohort at 1,000.

    Each has quota for `share` workloads in each flavor, but only GPUs for `gpus` of them.
    """
    names = FLAVORS[:flavors]
    quotas = {name: Quota(nominal=amount * share) for name, amount in REQUESTS.items()}
    quotas["nvidia.com/gpu"] = Quota(nominal=gpus)
    offered = tuple(FlavorAmounts(name=name, quotas=quotas) for name in names)
    group = FlavorGroup(resources=tuple(REQUESTS), flavors=offered)
    # Else one refusal would do for all that ask for the same.
    state = CoreState(QueueingSettings(gates=Gates(scheduling_equivalence_hashing=False), **others))
    for name in names:
        state.put_flavor(FlavorSpec(name=name))
    for n in range(queues):
        cohort = f"cohort-{n % COHORTS}"
        state.put_queue(QueueSpec(name=f"queue-{n}", cohort=cohort, groups=(group,)))
    return state


def fill(state: CoreState, pending: int) -> None:
    names = list(state.queues)
    for n in range(pending):
        state.put_workload(
            QueuedWorkload(
                key=f"team/job-{n}",
                uid=f"{n:09}",
                cluster_queue=names[n % len(names)],
                queued_at=float(n),
                priority=n % 3,
                pod_sets=(QueuedPodSet(name="main", count=1, requests=dict(REQUESTS)),),
            )
        )


def cycle_times(state: CoreState, cycles: int) -> tuple[list[float], int]:
    """CPU microseconds a decision of each cycle, commit included; and how many got quota."""
    times, admitted = [], 0
    for _ in range(cycles):
        start = time.process_time()
        plan = plan_cycle(state)
        state.commit(plan)
        spent = time.process_time() - start
        if plan.actions:
            times.append(spent / len(plan.actions) * 1e6)
        admitted += sum(isinstance(action, Admit) for action in plan.actions)
    return times, admitted


@pytest.fixture
def undisturbed():
    """The collector as the controller sets it: frozen after the start, and rarely called."""
    before = gc.get_threshold()
    gc.set_threshold(50_000, 20, 100)
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()
    gc.set_threshold(*before)


@pytest.mark.parametrize(
    ("queues", "pending"),
    [(10, 1_000), (100, 10_000), (1_000, 20_000), (1_000, 100_000)],
    ids=lambda number: f"{number:,}",
)
def test_a_quota_decision_takes_microseconds_however_many_wait(queues, pending, undisturbed):
    state = cluster(queues, share=1_000, gpus=1_000)
    start = time.process_time()
    fill(state, pending)
    spent = time.process_time() - start

    times, admitted = cycle_times(state, CYCLES)

    assert admitted == CYCLES * queues
    goal = 1_500 if pending == 100_000 else None
    report(f"rebuild, {pending:,} pending", spent * 1e3, "ms", goal)
    name = f"admission, {queues:,} ClusterQueues, {pending:,} pending"
    report(name, statistics.median(times), "µs", goal=20)


def test_a_cycle_over_a_thousand_heads_takes_milliseconds(undisturbed):
    state = cluster(1_000, share=1_000, gpus=1_000)
    fill(state, 20_000)
    times = []
    for _ in range(CYCLES):
        start = time.process_time()
        plan = plan_cycle(state)
        times.append((time.process_time() - start) * 1e3)
        state.commit(plan)

    report("plan of a cycle over 1,000 heads", statistics.median(times), "ms", goal=15)


def test_a_pending_workload_takes_little_memory():
    state = cluster(100, share=1_000, gpus=1_000)
    tracemalloc.start()
    fill(state, 10_000)
    list(state.heads())
    taken, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    report("memory of a pending workload, its value included", taken / 10_000, "B", goal=1_024)


def test_victims_are_found_among_hundreds_within_milliseconds(undisturbed):
    policy = PreemptionPolicy(within_cluster_queue="LowerPriority")
    quotas = {"nvidia.com/gpu": Quota(nominal=700)}
    group = FlavorGroup(
        resources=("nvidia.com/gpu",), flavors=(FlavorAmounts(name="spot", quotas=quotas),)
    )
    state = CoreState()
    state.put_flavor(FlavorSpec(name="spot"))
    state.put_queue(QueueSpec(name="q", groups=(group,), preemption=policy))
    for n in range(700):
        state.put_workload(_holder(n))
    state.put_workload(
        QueuedWorkload(
            key="team/big",
            uid="big",
            cluster_queue="q",
            queued_at=0.0,
            priority=1_000,
            pod_sets=(QueuedPodSet(name="main", count=350, requests={"nvidia.com/gpu": 1}),),
        )
    )
    times = []
    for _ in range(CYCLES):
        start = time.process_time()
        plan = plan_cycle(state)
        times.append((time.process_time() - start) * 1e3)

    assert len(plan.actions) == 351
    report("cycle with 350 victims of 700 candidates", statistics.median(times), "ms", goal=5)


def _holder(number: int) -> QueuedWorkload:
    assignment = PodSetFlavors(
        name="main", count=1, flavors={"nvidia.com/gpu": "spot"}, usage={"nvidia.com/gpu": 1}
    )
    return QueuedWorkload(
        key=f"team/held-{number}",
        uid=f"{number:09}",
        cluster_queue="q",
        queued_at=0.0,
        priority=number,
        pod_sets=(),
        admission=ReservedQuota(cluster_queue="q", pod_sets=(assignment,)),
        reserved_at=float(number),
    )


def test_the_tournament_of_a_thousand_queues_takes_milliseconds(undisturbed):
    state = cluster(1_000, share=1, gpus=1, fair_sharing=FairSharingRules())
    fill(state, 20_000)
    cycle_times(state, 4)
    times, turns = [], []
    for _ in range(CYCLES):
        entries = [
            NominatedWorkload(ticket, options, requests, requests.plain)
            for options, ticket in state.heads()
            for requests in [ticket.requests(options)]
        ]
        start = time.process_time()
        turns = list(tournament(entries, state.tree, state.settings.gates))
        times.append((time.process_time() - start) * 1e3)

    assert len(turns) == 1_000
    report("tournament of 1,000 queues, 20 a cohort", statistics.median(times), "ms", goal=20)


@pytest.mark.parametrize(
    ("share", "flavors", "name", "goal"),
    [
        pytest.param(1_000, 1, "GPUs short in 1 flavor", 20, id="gpus-short"),
        pytest.param(1_000, 4, "GPUs short in 4 flavors", None, id="gpus-short-everywhere"),
        pytest.param(1, 4, "all 4 resources short in 4 flavors", None, id="all-short-everywhere"),
    ],
)
def test_a_refusal_takes_microseconds(share, flavors, name, goal, undisturbed):
    state = cluster(1_000, share=share, gpus=1, flavors=flavors)
    fill(state, 20_000)
    cycle_times(state, len(FLAVORS))

    times, admitted = cycle_times(state, CYCLES)

    assert admitted == 0
    report(f"refusal, {name}", statistics.median(times), "µs", goal)


def test_a_change_of_quota_takes_less_than_a_cycle(undisturbed):
    state = cluster(1_000, share=10, gpus=10)
    state.settle()
    spec = state.queues["queue-7"].spec
    times = []
    for n in range(50):
        start = time.process_time()
        state.put_queue(QueueSpec(name="queue-7", cohort=spec.cohort, groups=spec.groups * (n % 2)))
        state.settle()
        times.append((time.process_time() - start) * 1e6)

    report("change of a queue's quota, 20 queues a cohort", statistics.median(times), "µs")
