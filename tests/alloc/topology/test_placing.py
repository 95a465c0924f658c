"""What holds of places whatever comes, goes, is planned and committed."""

from collections import Counter

from hypothesis import given, settings
from msgspec.structs import replace

from policyd.alloc.cycle import plan_cycle
from policyd.alloc.plan import Admit, Preempt
from policyd.alloc.queue import FlavorSpec, PreemptionPolicy
from policyd.alloc.settings import FairSharingRules, QueueingSettings
from policyd.alloc.topology.values import HOSTNAME, PlacementRequest, TopologyNode
from policyd.alloc.workload import QueuedPodSet
from tests.alloc.builders import queue, state, workload
from tests.alloc.choices import scenarios

LEVELS = ("rack", HOSTNAME)
RACKS = {"n1": "r1", "n2": "r1", "n3": "r2", "n4": "r2"}
GPUS = 4
MODES = (("Required", "rack"), ("Required", HOSTNAME), ("Preferred", "rack"), ("Unconstrained", ""))
PREEMPTION = PreemptionPolicy(within_cluster_queue="LowerPriority", reclaim_within_cohort="Any")


def node(name):
    labels = {"rack": RACKS[name], HOSTNAME: name}
    return TopologyNode(name=name, labels=labels, allocatable={"gpu": GPUS, "pods": 10})


def gangs(choose, most):
    """Up to so many gangs, one after the other."""
    return [gang(choose, number) for number in range(choose.number(1, most))]


def gang(choose, number):
    mode, level = choose.one(MODES)
    count, requests = choose.number(1, 6), {"gpu": choose.number(1, 3)}
    place = PlacementRequest(pod_set="main", count=count, requests=requests, mode=mode, level=level)
    pods = QueuedPodSet(name="main", count=count, requests=requests, placed=True, place=place)
    return workload(f"w{number}", choose.one("ab"), pods, at=number, priority=choose.number(0, 2))


def histories(choose):
    """Gangs, what happens one after the other, and whether queues share fairly."""
    kinds = ("cycle", "cycle", "end", "lose", "gain")
    steps = [(choose.one(kinds), choose.number(0, 7)) for _ in range(choose.number(0, 12))]
    return gangs(choose, 7), steps, choose.yes()


def opened(waiting, *, fair):
    rules = QueueingSettings(fair_sharing=FairSharingRules() if fair else None)
    queues = [queue(name, "x", gpu=12, preemption=PREEMPTION) for name in ("a", "b")]
    made = state(flavors=(), rules=rules)
    made.put_flavor(FlavorSpec(name="default", topology="racks", levels=LEVELS))
    for name in RACKS:
        made.ledger.nodes.put(node(name))
    for each in queues:
        made.put_queue(each)
    for each in waiting:
        made.put_workload(each)
    return made


def places(of):
    """What is held of each node, by workload."""
    return {
        key: Counter({values[0]: count for p in held for values, count in p.assignment.domains})
        for key, held in of.ledger.nodes.held.items()
    }


def columns(of):
    """All that a plan must leave as it was."""
    of.tree.refresh()
    nodes = of.ledger.nodes
    tree = nodes.trees["default"]
    free = {
        (resource, name[0]): tree.free.left(resource, leaf)
        for resource in ("gpu", "pods")
        for name, leaf in tree.leaves.items()
    }
    return free, dict(nodes.held), nodes.usage("default"), list(of.tree.usage)


def carry_out(of, plan):
    """Do what a plan says, as the cluster would: who is admitted runs, who must go waits again."""
    of.commit(plan)
    for action in plan.actions:
        value = action.workload
        if isinstance(action, Admit):
            held = replace(value, admission=action.admission, admitted=True, reserved_at=of.now)
            of.put_workload(held)
        elif isinstance(action, Preempt):
            of.put_workload(replace(value, admission=None, admitted=False, reserved_at=None))


def check_admission(of, action):
    (got,) = action.admission.pod_sets
    (asked,) = action.workload.pod_sets
    at = {values[0]: count for values, count in got.placement.domains}
    assert sum(at.values()) == asked.count
    if asked.place.mode == "Required":
        assert len({RACKS[name] if asked.place.level == "rack" else name for name in at}) == 1
    present = of.ledger.nodes.trees["default"].leaves
    assert all((name,) in present for name in at)


def check_nodes(of):
    used = Counter()
    for queue_ in of.queues.values():
        for key, holding in queue_.holdings.items():
            (got,) = holding.admission.pod_sets
            for (name,), count in got.placement.domains:
                used[name] += count * got.pod_requests["gpu"]
            assert places(of)[key].total() == got.count
    assert all(amount <= GPUS for amount in used.values())
    usage = of.ledger.nodes.usage("default")
    assert {name: amounts["gpu"] for name, amounts in usage.items()} == +used
    assert len(of.ledger.nodes.held) == sum(len(q.holdings) for q in of.queues.values())


def run_cycle(of):
    before = columns(of)
    plan = plan_cycle(of)
    assert columns(of) == before
    for action in plan.actions:
        if isinstance(action, Admit):
            check_admission(of, action)
    carry_out(of, plan)


def step_on(of, step, which):
    """Do one step; `which` chooses one of some."""
    nodes, running = of.ledger.nodes, sorted(places(of))
    lost = sorted(name for name in RACKS if nodes.node(name) is None)
    if step == "cycle":
        run_cycle(of)
    elif step == "end" and running:
        of.remove_workload(running[which % len(running)])
    elif step == "lose":
        nodes.remove(sorted(RACKS)[which % len(RACKS)])
    elif step == "gain" and lost:
        nodes.put(node(lost[which % len(lost)]))
        of.wake_placed()


@settings(deadline=None)
@given(scenarios(histories, 65))
def test_no_node_is_overfull_and_a_plan_changes_nothing(history):
    waiting, steps, fair = history
    of = opened(waiting, fair=fair)
    for step, which in [*steps, ("cycle", 0)]:
        step_on(of, step, which)
        check_nodes(of)

    for key in sorted(places(of)):
        of.remove_workload(key)
    assert not any(of.ledger.nodes.usage("default").values())


@settings(deadline=None)
@given(scenarios(lambda choose: gangs(choose, 4), 21))
def test_a_workload_pending_in_an_empty_cluster_could_never_run(waiting):
    of = opened(waiting, fair=False)
    admitted = 0
    for _ in range(3 * len(waiting)):
        carry_out(of, plan_cycle(of))
        for key in sorted(places(of)):
            of.remove_workload(key)
            admitted += 1
    alone = [opened([each], fair=False) for each in waiting]
    fitting = sum(any(isinstance(a, Admit) for a in plan_cycle(each).actions) for each in alone)
    assert admitted == fitting


def test_room_of_ended_pods_is_not_given_to_others_in_the_same_cycle():
    place = PlacementRequest(pod_set="main", count=1, requests={"gpu": 4})
    pods = QueuedPodSet(name="main", requests={"gpu": 4}, placed=True, place=place)
    of = opened([workload(f"w{number}", "a", pods, at=number) for number in range(3)], fair=False)
    for _ in range(3):
        of.commit(plan_cycle(of))
    holding, failed = of.holding("w0"), next(iter(places(of)["w0"]))
    of.put_workload(replace(holding.workload, admission=holding.admission, failed_node=failed))
    of.put_workload(workload("next", "b", pods))
    of.again = ("w0",)

    plan = plan_cycle(of)
    assert admitted(plan) == ["w0"]  # `next` was to have the node that is free: `w0` gets it

    of.commit(plan)
    assert failed not in places(of)["w0"]
    of.wake_placed()
    assert admitted(plan_cycle(of)) == ["next"]


def admitted(plan):
    return [action.workload.key for action in plan.actions if isinstance(action, Admit)]
