"""How long a cycle takes that must preempt so that a place fits, as in Kueue's own benchmark."""

import statistics
import time
from itertools import count

import pytest

from policyd.alloc.cycle import plan_cycle
from policyd.alloc.plan import Preempt
from policyd.alloc.queue import (
    FlavorAmounts,
    FlavorGroup,
    FlavorSpec,
    PreemptionPolicy,
    QueueSpec,
    Quota,
)
from policyd.alloc.state import CoreState
from policyd.alloc.topology.values import (
    HOSTNAME,
    PlacementRequest,
    TopologyNode,
    TopologyPlacement,
)
from policyd.alloc.workload import PodSetFlavors, QueuedPodSet, QueuedWorkload, ReservedQuota
from tests.bench.report import report

pytestmark = pytest.mark.bench

RUNS = 11
NODES, BLOCK, GROUPS = 1_000, 31, 8
GIBI = 2**30
NODE = {"cpu": 10_000, "memory": 100 * GIBI, "pods": 110}
EXTRA = {f"example.com/r{number}": 100 for number in range(27)}
AMPLE = 10**15
TOP = 10**6


def node(number):
    labels = {
        "block": f"b{number // BLOCK}",
        HOSTNAME: f"n{number}",
        "group": f"g{number % GROUPS}",
        "tas": "true",
    }
    return TopologyNode(name=f"n{number}", labels=labels, allocatable={**NODE, **EXTRA})


def holders():
    """Yield workloads that fill nodes one after the other, each of a higher priority."""
    free = [dict(NODE) for _ in range(NODES)]
    for number in count(1):
        requests = {"cpu": (number % 10 + 1) * 1_000, "memory": (number % 100 + 1) * GIBI}
        places = first_fit(free, (10 * number) % 31 + 1, requests)
        if not places:
            return
        yield number, requests, places


def first_fit(free, pods, requests):
    """Take the first nodes with room for pods; none if there is no room for all."""
    places = {}
    for at, left in enumerate(free):
        room = min([pods, left["pods"], *(left[r] // n for r, n in requests.items())])
        if room > 0:
            places[at] = room
            pods -= room
        if not pods:
            break
    for at, taken in places.items() if not pods else ():
        free[at]["pods"] -= taken
        for resource, amount in requests.items():
            free[at][resource] -= amount * taken
    return {} if pods else places


def admitted(number, requests, places):
    pods = sum(places.values())
    at = TopologyPlacement(
        levels=(HOSTNAME,), domains=tuple(((f"n{each}",), n) for each, n in places.items())
    )
    got = PodSetFlavors(
        name="main",
        count=pods,
        flavors=dict.fromkeys(requests, "tas"),
        usage={r: n * pods for r, n in requests.items()},
        placement=at,
        pod_requests=requests,
    )
    return QueuedWorkload(
        key=f"ns/w{number}",
        uid=f"w{number}",
        cluster_queue="cq",
        queued_at=float(number),
        pod_sets=(),
        priority=number,
        admission=ReservedQuota(cluster_queue="cq", pod_sets=(got,)),
        admitted=True,
        reserved_at=float(number),
    )


def pending():
    requests = {"cpu": 5_000, "memory": 50 * GIBI}
    selector = {"group": "g0"}
    asked = PlacementRequest(pod_set="main", count=200, requests=requests, node_selector=selector)
    pod_set = QueuedPodSet(
        name="main",
        count=200,
        requests=requests,
        node_selector=selector,
        placed=True,
        place=asked,
    )
    return QueuedWorkload(
        key="ns/big",
        uid="big",
        cluster_queue="cq",
        queued_at=0.0,
        pod_sets=(pod_set,),
        priority=TOP,
    )


@pytest.fixture(scope="module")
def full():
    state = CoreState()
    levels = ("block", HOSTNAME)
    flavor = FlavorSpec(name="tas", labels={"tas": "true"}, topology="hosts", levels=levels)
    state.put_flavor(flavor)
    quotas = {r: Quota(nominal=AMPLE) for r in ("cpu", "memory")}
    group = FlavorGroup(
        resources=("cpu", "memory"), flavors=(FlavorAmounts(name="tas", quotas=quotas),)
    )
    policy = PreemptionPolicy(within_cluster_queue="LowerPriority")
    state.put_queue(QueueSpec(name="cq", groups=(group,), preemption=policy))
    for number in range(NODES):
        state.ledger.nodes.put(node(number))
    for each in holders():
        state.put_workload(admitted(*each))
    state.put_workload(pending())
    return state


def test_a_cycle_that_must_preempt_on_a_thousand_nodes(full):
    held = len(full.queues["cq"].holdings)
    plan = plan_cycle(full)
    victims = sum(isinstance(action, Preempt) for action in plan.actions)
    assert victims, plan.actions
    times = []
    for _ in range(RUNS):
        start = time.thread_time_ns()
        plan_cycle(full)
        times.append(time.thread_time_ns() - start)

    report(
        f"cycle, 1,000 nodes, {held} holders, {victims} victims (Kueue 146)",
        statistics.median(times) / 1e6,
        "ms",
        15,
    )
