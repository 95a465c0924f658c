"""What holds whatever is put, removed, planned and committed, in whatever order."""

import msgspec
from hypothesis import given, settings

from policyd.alloc.cycle import plan_cycle
from policyd.alloc.plan import Admit
from policyd.alloc.queue import CohortQuotas, QueueSpec
from tests.alloc import oracle
from tests.alloc.builders import put, state, usage
from tests.alloc.choices import scenarios
from tests.alloc.worlds import FLAVORS, NAMES, cohorts, queues, workloads, world

RATE = settings(deadline=None)
WORLDS = scenarios(world, 180)


def made(things):
    return state(*things, flavors=FLAVORS)


def run(of):
    plan = plan_cycle(of)
    of.commit(plan)
    return plan


def until_settled(of):
    """Run cycles until one admits nobody."""
    plans = [run(of)]
    while any(isinstance(action, Admit) for action in plans[-1].actions):
        plans.append(run(of))
    return plans


def seen(plan):
    """A plan without what counts the changes of its state, or numbers its cells."""
    return [_seen(action) for action in plan.actions]


def _seen(action):
    if isinstance(action, Admit):
        return msgspec.structs.replace(action, charges={})
    progress = getattr(action, "progress", None)
    if progress is None:
        return action
    uncounted = msgspec.structs.replace(progress, generation=0, cycle=0, version=0)
    return msgspec.structs.replace(action, progress=uncounted)


def used_by_queues(of):
    return {key[1:]: amount for key, amount in usage(of).items() if key[0]}


@RATE
@given(WORLDS)
def test_no_quota_is_exceeded(things):
    of = made(things)

    until_settled(of)

    tree = of.tree
    for cell, node in enumerate(tree.node):
        assert tree.usage[cell] <= max(0, tree.potential[cell]) or not node.queue
        if node.parent is None:
            assert tree.usage[cell] <= tree.subtree[cell]


def endings(choose):
    """A world, and who ends one after the other."""
    things = world(choose)
    return things, [choose.number(0, 8) for _ in range(choose.number(0, 9))]


@RATE
@given(scenarios(endings, 190))
def test_usage_is_the_sum_of_what_is_admitted(scenario):
    things, finished = scenario
    of = made(things)
    admitted = {}

    for number in [None, *finished]:
        if number is not None:
            of.remove_workload(f"w{number}")
            admitted.pop(f"w{number}", None)
        for plan in until_settled(of):
            admitted |= {a.workload.key: a.admission for a in plan.actions if isinstance(a, Admit)}

        total = {}
        for admission in admitted.values():
            for names, amount in admission.usage().items():
                key = (admission.cluster_queue, *names)
                total[key] = total.get(key, 0) + amount
        assert used_by_queues(of) == {key: amount for key, amount in total.items() if amount}


def orders(choose):
    """The same world, put together in two orders."""
    things = world(choose)
    return things, choose.shuffled(things)


@RATE
@given(scenarios(orders, 195))
def test_a_plan_does_not_depend_on_the_order_in_which_things_came(scenario):
    first, second = (made(things) for things in scenario)

    for _ in range(4):
        assert seen(run(first)) == seen(run(second))
    assert usage(first) == usage(second)


@RATE
@given(WORLDS)
def test_planning_leaves_the_state_as_it_was(things):
    of = made(things)
    run(of)
    of.settle()
    before = (usage(of), waiting(of))

    plan_cycle(of)

    assert (usage(of), waiting(of)) == before


def waiting(of):
    return {
        ticket.workload.key: ticket not in queue.pending.active
        for queue in of.queues.values()
        for ticket in queue.pending
    }


@RATE
@given(WORLDS)
def test_no_workload_is_lost(things):
    of = made(things)
    everybody = sorted(t.key for t in things if hasattr(t, "pod_sets"))

    for _ in range(4):
        run(of)
        holding = [key for q in of.queues.values() for key in q.holdings]
        assert sorted([*waiting(of), *holding]) == everybody


@RATE
@given(WORLDS)
def test_a_strict_queue_admits_in_order_only(things):
    of = made(things)
    strict = {t.name for t in things if getattr(t, "strict", False)}

    for _ in range(6):
        first = {
            name: min((t.rank for t in of.queues[name].pending), default=None)
            for name in strict & set(of.queues)
        }
        for action in run(of).actions:
            one = action.workload
            if one.cluster_queue in strict:
                rank = (-one.priority, one.queued_at, one.uid, one.key)
                assert rank == first[one.cluster_queue]


@RATE
@given(WORLDS)
def test_cycles_agree_with_the_oracle(things):
    of = made(things)
    cohorts = [t for t in things if hasattr(t, "parent")]
    specs = [t for t in things if hasattr(t, "strict")]

    for _ in range(5):
        heads = [(ticket.workload, left_out(ticket)) for _, ticket in of.heads()]
        expected = oracle.plan(specs, cohorts, heads, used_by_queues(of))
        assert [summarize_action(action) for action in run(of).actions] == expected


def left_out(ticket):
    """How many flavors were tried for each pod set, where the search goes on."""
    if ticket.progress is None:
        return {}
    names = [pod_set.name for pod_set in ticket.workload.pod_sets]
    return {
        name: sum(tried) + 1
        for name, tried in zip(names, ticket.progress.tried, strict=False)
        if tried
    }


def summarize_action(action):
    if not isinstance(action, Admit):
        return action.workload.key, action.reason
    flavors = {p.name: set(p.flavors.values()) for p in action.admission.pod_sets}
    return action.workload.key, {name: next(iter(f), "") for name, f in flavors.items()}


STEPS = (
    "cycle", "cycle", "finish", "confirm", "retract", "evict", "queue", "queue", "workload",
    "workload", "workload", "cohort", "drop queue", "drop cohort",
)  # fmt: skip


def histories(choose):
    """Up to 40 steps, or as many as there are choices for."""
    return [
        step_of(choose, choose.one(STEPS)) for _ in range(choose.number(0, 40)) if choose.left >= 20
    ]


def step_of(choose, kind):
    match kind:
        case "queue":
            return "put", queues(choose, choose.one(NAMES))
        case "workload":
            return "put", workloads(choose, choose.number(0, 7))
        case "cohort":
            return "put", choose.one(cohorts(choose))
        case "drop queue":
            return kind, choose.one(NAMES)
        case "drop cohort":
            return kind, choose.one("xy")
        case _:
            return kind, choose.number(0, 7)


@RATE
@given(scenarios(histories, 280))
def test_incremental_state_equals_state_built_from_scratch(steps):
    of = made([])
    facts = {}
    for step, what in steps:
        follow(of, facts, step, what)

    anew = made([*facts.values(), *everyone(of)])

    assert usage(of) == usage(anew)
    for each in (of, anew):
        for name, held in each.queues.items():
            each.wake(name)
            for ticket in held.pending:
                ticket.progress = None  # how far it has come is history, and no fact
    assert seen(plan_cycle(of)) == seen(plan_cycle(anew))


def follow(of, facts, step, what):
    match step:
        case "put":
            put(of, what)
            if not hasattr(what, "pod_sets"):
                facts[type(what), what.name] = what
        case "drop queue":
            of.remove_queue(what)
            facts.pop((QueueSpec, what), None)
        case "drop cohort":
            of.remove_cohort(what)
            facts.pop((CohortQuotas, what), None)
        case "cycle":
            run(of)
        case "finish":
            of.remove_workload(f"w{what}")
        case _ if (holding := find(of, what)) is not None:
            hear_of(of, holding, step)


def hear_of(of, holding, step):
    match step:
        case "confirm":
            of.put_workload(with_admission(holding))
        case "retract":
            of.retract(holding.workload.key)
        case "evict" if not holding.assumed:
            of.put_workload(msgspec.structs.replace(holding.workload, admission=None))


def find(of, number):
    return next((h for q in of.queues.values() for k, h in q.holdings.items() if k == f"w{number}"),
                None)  # fmt: skip


def with_admission(holding):
    return msgspec.structs.replace(holding.workload, admission=holding.admission)


def everyone(of):
    for each in of.queues.values():
        yield from (ticket.workload for ticket in each.pending)
        yield from (with_admission(holding) for holding in each.holdings.values())
