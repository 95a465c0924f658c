"""What holds whatever is put, removed, planned and committed, in whatever order."""

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from policyd.alloc.cycle import plan_cycle
from policyd.alloc.plan import Admit
from policyd.alloc.queue import CohortSpec, Fungibility, QueueSpec
from tests.alloc import oracle
from tests.alloc.builders import cohort, group, pod_set, put, queue, quota, state, usage, workload

AMOUNTS = st.integers(0, 9)
QUOTAS = st.builds(quota, AMOUNTS, st.none() | AMOUNTS, st.none() | AMOUNTS)
RESOURCES = st.fixed_dictionaries({"gpu": QUOTAS, "cpu": QUOTAS})
NAMES = ("a", "b", "c", "d")
FLAVORS = ("default", "spot")
RATE = settings(deadline=None)


@st.composite
def queues(draw, name):
    groups = [group(default=draw(RESOURCES), spot=draw(RESOURCES))] if draw(st.booleans()) else (
        [group(default={"gpu": draw(st.integers(0, 9))})])  # fmt: skip
    return queue(
        name,
        draw(st.sampled_from(["", "x", "y"])),
        groups=groups,
        strict=draw(st.booleans()),
        fungibility=Fungibility(
            when_can_borrow=draw(st.sampled_from(["MayStopSearch", "TryNextFlavor"]))
        ),
    )


@st.composite
def workloads(draw, number):
    sets = [
        pod_set(f"s{n}", draw(st.integers(1, 3)), **draw(REQUESTS))
        for n in range(draw(st.integers(1, 2)))
    ]
    name = draw(st.sampled_from(NAMES))
    return workload(
        f"w{number}", name, *sets, at=draw(st.integers(0, 3)), priority=draw(st.integers(0, 2))
    )


REQUESTS = st.fixed_dictionaries({"gpu": st.integers(0, 4)}, optional={"cpu": st.integers(0, 4)})
COHORTS = st.tuples(
    st.builds(cohort, st.just("x"), st.sampled_from(["", "y"]), st.none() | QUOTAS),
    st.builds(cohort, st.just("y"), st.just(""), st.none() | QUOTAS),
)


@st.composite
def worlds(draw):
    """Queues in up to two cohorts, and workloads for them: all that there is."""
    specs = [draw(queues(name)) for name in draw(st.lists(st.sampled_from(NAMES), unique=True))]
    waiting = [draw(workloads(n)) for n in range(draw(st.integers(0, 9)))]
    return [*draw(COHORTS), *specs, *waiting]


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
    uncounted = msgspec.structs.replace(progress, generation=0, cycle=0)
    return msgspec.structs.replace(action, progress=uncounted)


def used_by_queues(of):
    return {key[1:]: amount for key, amount in usage(of).items() if key[0]}


@RATE
@given(worlds())
def test_no_quota_is_exceeded(things):
    of = made(things)

    until_settled(of)

    tree = of.tree
    for cell, node in enumerate(tree.node):
        assert tree.usage[cell] <= max(0, tree.potential[cell]) or not node.queue
        if node.parent is None:
            assert tree.usage[cell] <= tree.subtree[cell]


@RATE
@given(worlds(), st.lists(st.integers(0, 8), max_size=9))
def test_usage_is_the_sum_of_what_is_admitted(things, finished):
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


@RATE
@given(worlds(), st.randoms(use_true_random=False))
def test_a_plan_does_not_depend_on_the_order_in_which_things_came(things, random):
    shuffled = random.sample(things, len(things))
    first, second = made(things), made(shuffled)

    for _ in range(4):
        assert seen(run(first)) == seen(run(second))
    assert usage(first) == usage(second)


@RATE
@given(worlds())
def test_planning_leaves_the_state_as_it_was(things):
    of = made(things)
    run(of)
    of.settle()
    before = (usage(of), waiting(of))

    plan_cycle(of)

    assert (usage(of), waiting(of)) == before


def waiting(of):
    return {t.workload.key: t.parked for q in of.queues.values() for t in q.pending}


@RATE
@given(worlds())
def test_no_workload_is_lost(things):
    of = made(things)
    everybody = sorted(t.key for t in things if hasattr(t, "pod_sets"))

    for _ in range(4):
        run(of)
        holding = [key for q in of.queues.values() for key in q.holdings]
        assert sorted([*waiting(of), *holding]) == everybody


@RATE
@given(worlds())
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
@given(worlds())
def test_cycles_agree_with_the_oracle(things):
    of = made(things)
    cohorts = [t for t in things if hasattr(t, "parent")]
    specs = [t for t in things if hasattr(t, "strict")]

    for _ in range(5):
        heads = [(ticket.workload, left_out(ticket)) for _, ticket in of.heads()]
        expected = oracle.plan(specs, cohorts, heads, used_by_queues(of))
        assert [told(action) for action in run(of).actions] == expected


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


def told(action):
    if not isinstance(action, Admit):
        return action.workload.key, action.reason
    flavors = {p.name: set(p.flavors.values()) for p in action.admission.pod_sets}
    return action.workload.key, {name: next(iter(f), "") for name, f in flavors.items()}


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.sampled_from(NAMES).flatmap(queues)),
        st.tuples(st.just("put"), st.integers(0, 7).flatmap(workloads)),
        st.tuples(st.just("put"), COHORTS.map(lambda pair: pair[0])),
        st.tuples(st.just("put"), COHORTS.map(lambda pair: pair[1])),
        st.tuples(st.just("drop queue"), st.sampled_from(NAMES)),
        st.tuples(st.just("drop cohort"), st.sampled_from("xy")),
        st.tuples(st.just("finish"), st.integers(0, 7)),
        st.tuples(st.just("confirm"), st.integers(0, 7)),
        st.tuples(st.just("retract"), st.integers(0, 7)),
        st.tuples(st.just("evict"), st.integers(0, 7)),
        st.tuples(st.just("cycle"), st.none()),
    ),
    max_size=40,
)


@RATE
@given(STEPS)
def test_what_is_kept_up_to_date_is_as_what_is_built_anew(steps):
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
            facts.pop((CohortSpec, what), None)
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
