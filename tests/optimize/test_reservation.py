"""Reservation and backfill: what is held for the first, and who may go before it."""

import msgspec
import pytest
from hypothesis import given, settings

from policyd.alloc.cycle import plan_cycle
from policyd.alloc.plan import Admit, Requeue
from policyd.alloc.reasons import Held
from policyd.optimize.opt_ins import OptIns
from policyd.optimize.reservation import EarliestStarts, Reservations
from policyd.simulate.scenario import Arrival, Simulation
from tests.alloc.builders import admission, cohort, group, keys, queue, workload
from tests.alloc.choices import scenarios
from tests.optimize.builders import state

AT_ONCE = OptIns(reserve_seconds=0.0)
HOUR = 3600.0


def holding(key, queue_name="q", *, gpu, ends=None):
    """Somebody who has run since the beginning, and ends then."""
    return workload(
        key, queue_name, gpu=gpu, admission=admission(queue_name, gpu=gpu), reserved_at=0.0,
        admitted=True, run_seconds=ends,
    )  # fmt: skip


def settled(of, now=0.0):
    """The keys of those that got quota, once nothing more happens."""
    of.now, got = now, []
    for _ in range(20):
        plan = plan_cycle(of)
        of.commit(plan)
        got += keys(plan.actions)
        if not plan.goes_on:
            return got
    raise AssertionError("cycles go on for ever")


def refusals(of):
    """What is said of those who wait, once nothing more happens."""
    refused = {}
    while (plan := plan_cycle(of)).actions:
        of.commit(plan)
        refused |= {a.workload.key: a.refusal for a in plan.actions if isinstance(a, Requeue)}
    return refused


@pytest.mark.parametrize(
    ("other", "starts"),
    [
        pytest.param({"gpu": 4, "run_seconds": HOUR}, True, id="ends-in-time"),
        pytest.param({"gpu": 4, "run_seconds": HOUR + 1}, False, id="ends-too-late"),
        pytest.param({"gpu": 4}, False, id="ends-nobody-knows-when"),
        pytest.param({"gpu": 2}, True, id="room-for-both"),
        pytest.param({"gpu": 3}, False, id="no-room-for-both"),
        pytest.param({"cpu": 1}, True, id="asks-for-something-else"),
        pytest.param({"gpu": 4, "priority": 1}, True, id="more-important"),
    ],
)
@pytest.mark.parametrize("strict", [False, True])
def test_others_start_if_that_does_not_delay_the_first(other, starts, strict):
    """Of 10, 6 are used for another hour; the first needs 8, so that 4 are free now, 2 then."""
    of = state(
        queue("q", groups=[group(default={"gpu": 10, "cpu": 9})], opt_ins=AT_ONCE, strict=strict),
        holding("running", gpu=6, ends=HOUR),
        workload("gang", "q", gpu=8),
        workload("other", "q", at=1, **other),
    )

    assert settled(of) == (["other"] if starts else [])


@pytest.mark.parametrize(
    ("opt_ins", "now", "starts"),
    [
        pytest.param(OptIns(), HOUR, True, id="off"),
        pytest.param(OptIns(reserve_seconds=HOUR), HOUR - 1, True, id="not-long-enough"),
        pytest.param(OptIns(reserve_seconds=HOUR), HOUR, False, id="long-enough"),
    ],
)
def test_the_first_must_have_waited_for_as_long_as_its_queue_says(opt_ins, now, starts):
    of = state(
        queue("q", gpu=10, opt_ins=opt_ins),
        holding("running", gpu=6, ends=2 * HOUR),
        workload("gang", "q", gpu=8),
        workload("other", "q", at=1, gpu=4),
    )

    assert settled(of, now) == (["other"] if starts else [])


def test_its_quota_is_kept_while_its_start_is_unknown():
    of = state(
        queue("q", gpu=10, opt_ins=AT_ONCE),
        holding("running", gpu=6),
        workload("gang", "q", gpu=8),
        workload("other", "q", at=1, gpu=1, run_seconds=1.0),
    )

    assert settled(of) == []


def test_a_workload_that_can_never_fit_holds_up_none():
    of = state(
        queue("q", gpu=10, opt_ins=AT_ONCE),
        workload("gang", "q", gpu=11),
        workload("other", "q", at=1, gpu=4),
    )

    assert settled(of) == ["other"]


@pytest.mark.parametrize(
    ("nominal", "starts"),
    [pytest.param(4, True, id="of-its-own"), pytest.param(0, False, id="borrowed")],
)
def test_another_queue_takes_what_is_its_own_but_does_not_borrow_what_is_held(nominal, starts):
    of = state(
        cohort("all"),
        queue("q", "all", gpu=10 - nominal, opt_ins=AT_ONCE),
        queue("r", "all", gpu=nominal),
        holding("running", gpu=6, ends=HOUR),
        workload("gang", "q", gpu=8),
        workload("other", "r", at=1, gpu=4),
    )

    assert settled(of) == (["other"] if starts else [])


def test_the_reasons_name_the_reservation():
    of = state(
        queue("q", gpu=10, opt_ins=AT_ONCE),
        holding("running", gpu=6, ends=HOUR),
        workload("gang", "q", gpu=8),
        workload("other", "q", at=1, gpu=4),
    )

    refused = refusals(of)
    gang, other = refused["gang"], refused["other"]

    assert gang.pod_sets[0].obstacles[-1] == Held(workload="gang", start=HOUR, own=True)
    assert [missing.missing for missing in gang.missing] == [4]
    assert other.pod_sets[0].obstacles == (Held(workload="gang", start=HOUR, own=False),)


def test_delayed_workloads_are_tried_again_after_the_reservation():
    of = state(
        queue("q", gpu=10, opt_ins=AT_ONCE),
        holding("running", gpu=6, ends=HOUR),
        workload("gang", "q", gpu=8),
        workload("other", "q", at=1, gpu=4),
    )
    assert settled(of) == []

    of.remove_workload("gang")

    assert settled(of) == ["other"]


# Properties.


def arrival(choose, number, most):
    """A workload that ends when it says, or before; or does not say."""
    bound = choose.maybe(1, 9)
    runs = choose.number(1, 9 if bound is None else bound)
    asked = workload(
        f"w{number}", choose.one("qr"), gpu=choose.number(1, most),
        run_seconds=None if bound is None else float(bound),
    )  # fmt: skip
    return Arrival(workload=asked, at=float(choose.number(0, 9)), run_seconds=float(runs))


def setting(choose):
    """Two queues; the one that reserves has all the quota, so that its reservations bind both."""
    most = choose.number(2, 8)
    wants = OptIns(reserve_seconds=float(choose.number(0, 4)))
    queues = [
        queue("q", "all", gpu=most, opt_ins=wants, strict=choose.yes()),
        queue("r", "all", gpu=0),
    ]
    return queues, [arrival(choose, number, most) for number in range(choose.number(1, 12))]


def promised(of):
    """When those that have a reservation start at the latest."""
    of.settle()
    return {
        r.name: r.start
        for r in Reservations(
            of, EarliestStarts(of).of(of.extension.opted), of.extension.moving.values()
        )._by_root.values()
    }


@settings(deadline=None)
@given(scenarios(setting, 70))
def test_reserved_quota_is_kept_before_any_other_workload(scenario):
    queues, coming = scenario
    simulation = Simulation(state(cohort("all"), *queues), coming)
    promises = {}

    for step in simulation.steps():
        for action in step.plan.actions:
            if isinstance(action, Admit):
                assert step.at <= promises.get(action.workload.key, float("inf"))
        for key, start in promised(simulation.state).items():
            promises[key] = min(start, promises.get(key, start))

    assert all(not q.pending for q in simulation.state.queues.values())


def stream(count, **fields):
    """Small jobs that come so often that some always run."""
    return [
        Arrival(
            workload=workload(f"small{n:03}", "q", gpu=1, run_seconds=60.0, **fields),
            at=1.0 + 10.0 * n,
            run_seconds=60.0,
        )
        for n in range(count)
    ]


@pytest.mark.parametrize(
    ("wants", "started"),
    [
        pytest.param(OptIns(), 5060.0, id="off-it-starves-as-long-as-others-come"),
        pytest.param(OptIns(reserve_seconds=300.0), 351.0, id="on-it-waits-little-longer"),
    ],
)
def test_a_stream_of_small_jobs_starves_no_workload(wants, started):
    gang = Arrival(workload=workload("gang", "q", gpu=6), at=5.0, run_seconds=60.0)
    simulation = Simulation(state(queue("q", gpu=6, opt_ins=wants)), [gang, *stream(501)])

    begun = {
        action.workload.key: step.at
        for step in simulation.steps()
        for action in step.plan.actions
        if isinstance(action, Admit)
    }

    assert begun["gang"] == pytest.approx(started, abs=15.0)
    assert len(begun) == 502


def test_the_first_in_line_is_the_oldest_where_the_shortest_goes_first():
    """Short jobs are tried before it, and start before it if they do not delay it."""
    of = state(
        queue("q", gpu=8, opt_ins=OptIns(reserve_seconds=0.0, order="ShortestFirst")),
        holding("runs", gpu=4, ends=HOUR),
        workload("gang", "q", at=1, gpu=8, run_seconds=HOUR),
        workload("long", "q", at=2, gpu=2, run_seconds=2 * HOUR),
        workload("short", "q", at=3, gpu=2, run_seconds=60.0),
        workload("shorter", "q", at=4, gpu=2, run_seconds=30.0),
    )

    assert settled(of, now=5.0) == ["shorter", "short"]
    assert of.extension.reserved == {"gang": "q"}


def test_a_workload_that_starts_again_is_not_counted_on_to_end_now():
    """It was evicted before, which its admission does not undo until that is written."""
    of = state(
        queue("q", gpu=8, opt_ins=AT_ONCE),
        workload("again", "q", at=1, gpu=5, evicted=True),
        workload("gang", "q", at=2, gpu=4),
        workload("small", "q", at=3, gpu=3, run_seconds=HOUR),
    )

    assert settled(of, now=5.0) == ["again"]


def makespan(wants):
    """When a mix of gangs and small jobs has ended."""
    jobs = [(8, 7200), (12, 3600), (4, 3600), (2, 10800), (4, 600), (16, 1800), (1, 600), (3, 900)]
    coming = [
        Arrival(
            workload=workload(f"j{n}", "q", gpu=gpu, run_seconds=float(runs)),
            at=60.0 * n,
            run_seconds=float(runs),
        )
        for n, (gpu, runs) in enumerate(jobs)
    ]
    simulation = Simulation(state(queue("q", gpu=16, strict=True, opt_ins=wants)), coming)
    return list(simulation.steps())[-1].at


def test_backfill_uses_more_than_strict_order():
    """The same work is done in less time: of the same GPUs, more are in use on the way."""
    assert makespan(AT_ONCE) < makespan(OptIns())


@settings(deadline=None)
@given(scenarios(setting, 70))
def test_what_is_known_of_earlier_cycles_is_what_would_be_worked_out(scenario):
    queues, arrivals = scenario
    of = state(*queues)

    for _ in Simulation(of, arrivals).steps():
        of.settle()
        anew = list(EarliestStarts(of).of(of.extension.opted))
        assert of.extension._starts.of(of.extension.opted) == anew


def test_off_nothing_is_worked_out():
    of = state(queue("q", gpu=4), workload("a", "q", gpu=2))

    plan = plan_cycle(of)

    assert of.extension.opted == {}
    assert plan.reserved == {}
    assert msgspec.structs.replace(plan, actions=()).reserved == {}
