"""Workloads that nobody has submitted: they start when they would, and change nothing."""

from collections import Counter

import pytest
from hypothesis import given, settings
from msgspec.structs import replace

from policyd.alloc.queue import PreemptionPolicy
from policyd.forecast.coarse import CoarseQueues, CoarseRun, ForecastWorkload
from policyd.forecast.correction import Interval
from policyd.forecast.probes import MOST, plain_queues, probes_of
from tests.alloc.builders import cohort, group, queue, quota, state, workload
from tests.forecast.builders import forecaster, job, present
from tests.forecast.test_coarse import jobs

NEW = 50.0
"""When the workload is submitted that is tried first."""


def run(specs, drawn, *more, probes=()):
    """Return when each starts, and each probe; given as in the tests of coarse runs."""
    of = CoarseQueues(specs)
    coming = [
        ForecastWorkload(each.queued_at, of.kind_of(each), runs, each.key)
        for each, runs in (*drawn, *more)
        if of.kind_of(each) is not None
    ]
    # All that runs by then, so that the run begins with the moment of the submission.
    before = CoarseRun(of, [], [], now=0.0)
    started = {
        each.key: (at, each)
        for at, each in before.starts(iter(sorted(c for c in coming if c.at < NEW)), until=NEW)
    }
    ends = [(each.kind, at + each.run_seconds) for at, each in started.values()]
    running = [(kind, end) for kind, end in ends if end > NEW]
    pending = [each for each in coming if each.at <= NEW and each.key not in started]
    tried = [of.probe_of(each, now=NEW) for each in probes]
    after = CoarseRun(of, running, pending, now=NEW, probes=filter(None, tried))
    later = iter(sorted(each for each in coming if each.at > NEW))
    found = {each.key: at for at, each in after.starts(later, until=1e9)}
    return found, after.probed


def workloads(drawn):
    return [
        (
            workload(
                f"w{number}",
                name,
                at=2 * at + (number + 0.5) / 64,  # no other comes when the probes do
                gpu=gpu,
                priority=priority,
            ),
            float(runs) + number / 4096,
        )
        for number, (at, gpu, runs, priority, name) in enumerate(drawn)
    ]


def check(specs, drawn, gpus, *, alike):
    """Compare the starts of probes, tried at once, with that of the same workload, submitted."""
    given_ = workloads(drawn)
    tried = [
        workload(f"{name} {gpu} {priority}", name, at=NEW, gpu=gpu, priority=priority)
        for name in "pqr"
        for gpu in gpus
        for priority in (0, 5)
    ]
    without, nothing = run(specs, given_)
    found, probed = run(specs, given_, probes=tried)

    assert nothing == {}
    assert found == without, "probes change nothing"
    for each in tried if alike else ():
        starts, _ = run(specs, given_, (each, 7.0))
        assert probed.get(each.key) == starts.get(each.key), each.key


@settings(deadline=None, max_examples=20)
@given(jobs)
@pytest.mark.parametrize("strict", [True, False])
def test_a_probe_starts_as_if_it_were_submitted(strict, drawn):
    specs = [queue(name, gpu=8, strict=strict) for name in "pqr"]
    check(specs, drawn, (1, 5, 8), alike=not strict)  # in a strict one, it would hold up others


@settings(deadline=None, max_examples=20)
@given(jobs)
@pytest.mark.parametrize("strict", [True, False])
def test_in_a_cohort_probes_change_nothing(strict, drawn):
    amounts = zip("pqr", (2, 3, 6), strict=True)
    specs = [queue(name, "c", gpu=n, strict=strict) for name, n in amounts]
    check(specs, drawn, (1, 4, 11), alike=False)


def now_of(specs, drawn, *more, probes=(), **fields):
    """Jobs that run from now on as far as they fit, all of declared run times, and others."""
    waiting = [
        job(
            f"w{n}",
            gpu=gpu,
            runs=runs + n / 4096,
            at=at + n / 64,  # so that no tie decides
            queue_name=name,
            priority=priority,
        )
        for n, (at, gpu, runs, priority, name) in enumerate(drawn)
    ]
    now = present(specs, *waiting, *more, now=NEW + 50)
    return replace(now, probes=tuple(probes), plain=frozenset("pqr"), **fields)


@settings(deadline=None, max_examples=10)
@given(jobs)
@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize("cohort", ["", "c"])
def test_the_forecast_of_a_probe_is_that_of_the_submitted_workload(cohort, strict, drawn):
    amounts = zip("pqr", (2, 3, 6), strict=True)
    specs = [queue(name, cohort, gpu=n, strict=strict) for name, n in amounts]
    probes = [
        job(f"{name} {gpu}", gpu=gpu, runs=1.0, at=NEW + 50, queue_name=name)
        for name, gpu in (("p", 1), ("q", 2), ("r", 6), ("r", 1))
    ]
    forecasts = forecaster().forecast(now_of(specs, drawn, probes=probes))

    for probe in probes:
        key = probe.workload.key
        submitted = forecaster().forecast(now_of(specs, drawn, probe))[key]
        interval = forecasts[key].interval
        assert interval == submitted.interval or (strict and interval is None)
    if not strict:
        assert any(each.interval is not None for each in forecasts.values())


def test_what_could_be_wrong_is_unknown():
    spec = queue("p", gpu=4)
    runs = job("r", gpu=4, runs=100, since=90, queue_name="p")
    waits = job("w0", gpu=4, runs=10, at=95, queue_name="p")
    probe = job("probe", gpu=4, at=100, queue_name="p")

    def forecast_of_probe(spec=spec, **fields):
        now = replace(present([spec], runs, waits, now=100.0), probes=(probe,), **fields)
        return forecaster().forecast(now)["probe"].interval

    assert forecast_of_probe(plain={"p"}) == Interval(low=100, median=100, high=100)
    assert forecast_of_probe(plain=frozenset()) is None, "something else than quota may decide"
    behind = [workload("w1", "p", at=96, gpu=4)]
    assert forecast_of_probe(plain={"p"}, behind=behind) is None, "others are not simulated"
    assert forecast_of_probe(queue("p", gpu=2), plain={"p"}) is None, "it never fits"


def test_a_strict_queue_that_is_held_up_has_no_forecast():
    spec = queue("p", gpu=4, strict=True)
    runs = job("r", gpu=4, runs=100, since=90, queue_name="p")
    huge = job("huge", gpu=5, runs=9, at=95, queue_name="p")
    probe = job("probe", gpu=4, at=100, queue_name="p")

    def forecast_of_probe(*jobs, specs=(spec,)):
        now = replace(present(specs, *jobs, now=100.0), probes=(probe,), plain={"p"})
        return forecaster().forecast(now)["probe"].interval

    assert forecast_of_probe(runs) == Interval(low=90, median=90, high=90)
    assert forecast_of_probe(runs, huge) is None
    assert forecast_of_probe(runs, specs=[replace(spec, cohort="c")]) is None


def test_a_start_that_depends_on_history_has_an_interval():
    spec, runs = queue("p", gpu=4), [100.0] * 50 + [1_000.0] * 50
    now = present(
        [spec],
        job("r", gpu=4, since=90, queue_name="p"),
        job("w", gpu=4, at=95, queue_name="p"),
        now=100.0,
    )
    probe = job("probe", gpu=4, at=100, queue_name="p")
    plain = replace(now, probes=(probe,), plain={"p"})
    behind = replace(plain, behind=[workload(f"w{n}", "p", at=96, gpu=4) for n in range(4)])
    odd = replace(plain, plain=frozenset())

    first, later, moved = (
        forecaster(*runs).forecast(each)["probe"].interval for each in (plain, behind, odd)
    )

    assert first.low < first.median < first.high
    assert later.median == pytest.approx(3 * first.median), "four more than one are ahead"
    assert moved == first, "the one ahead is told the same by the core as by quotas"


def test_a_probe_like_one_that_never_starts_has_no_forecast():
    spec = queue("p", groups=[group(a={"gpu": 4}, b={"gpu": 4})])
    runs = job("r", gpu=4, since=90, queue_name="p")
    too_big = job("w", gpu=6, at=95, queue_name="p")  # for each flavor, but not for their sum
    probe = job("probe", gpu=6, at=100, queue_name="p")
    now = replace(present([spec], runs, too_big, now=100.0), probes=(probe,))

    forecasts = forecaster(*[100.0] * 50, *[1_000.0] * 50).forecast(now)

    assert [forecasts[key].interval for key in ("w", "probe")] == [None, None]


def test_requests_are_those_of_others_and_numbers_of_devices():
    of = Counter({(0, (("cpu", 4), ("gpu/x", 2))): 3, (7, (("gpu/x", 1),)): 1})

    found = list(probes_of({"p": of, "q": Counter()}, now=5.0))

    asked = [(each.workload.priority, each.workload.pod_sets[0].requests) for each in found]
    assert asked[:2] == [(0, {"cpu": 4, "gpu/x": 2}), (0, {"gpu/x": 1})]
    assert (0, {"gpu/x": 8}) in asked
    assert (0, {"cpu": 16, "gpu/x": 8}) in asked
    assert {priority for priority, _ in asked} == {0, 7}
    assert len({each.workload.key for each in found}) == len(found)
    assert {each.size_class for each in found} == {"1", "2-7", "8+"}
    many = {
        f"q{n}": Counter({(p, (("cpu", c),)): 1 for p in range(9) for c in range(1, 99)})
        for n in range(300)
    }
    assert len(list(probes_of(many, now=5.0))) <= MOST


PREEMPTS = PreemptionPolicy(within_cluster_queue="LowerPriority")
TWO_FLAVORS = [group(a={"gpu": 4}, b={"gpu": 4})]
LENDS = [group(a={"gpu": quota(4, lend=1)})]


@pytest.mark.parametrize(
    ("things", "plain"),
    [
        pytest.param([queue("p", gpu=4), queue("q", gpu=4)], {"p", "q"}, id="alone"),
        pytest.param([queue("p", "c", gpu=4), queue("q", "c", gpu=4)], {"p", "q"}, id="cohort"),
        pytest.param([queue("p", gpu=4), queue("q", gpu=4, preemption=PREEMPTS)], {"p"}, id="one"),
        pytest.param(
            [queue("p", "c", gpu=4), queue("q", "c", gpu=4, preemption=PREEMPTS)],
            set(),
            id="one-of-a-cohort-preempts",
        ),
        pytest.param([queue("p", groups=TWO_FLAVORS)], set(), id="flavors"),
        pytest.param([queue("p", "c", groups=LENDS)], set(), id="lending-limit"),
        pytest.param([queue("p", gpu=4, by_usage=True)], set(), id="usage-orders"),
        pytest.param([queue("p", "c", gpu=4), cohort("c", parent="d")], set(), id="nested"),
    ],
)
def test_plain_queues_know_quota_and_order_alone(things, plain):
    assert plain_queues(state(*things), lambda _: False) == plain
    assert plain_queues(state(*things), lambda _: True) == set(), "settings beyond Kueue's rules"


def test_a_probe_that_never_fits_is_none():
    of = CoarseQueues([queue("q", gpu=4)])

    assert of.probe_of(workload("a", "q", gpu=5), now=0.0) is None


def test_a_stopped_queue_starts_no_probe():
    of = CoarseQueues([queue("q", gpu=4, stopped=True)])
    probe = of.probe_of(workload("a", "q", gpu=1), now=0.0)
    stopped = CoarseRun(of, [], [], now=0.0, probes=[probe])

    assert (list(stopped.starts(iter(()), until=9.0)), stopped.probed) == ([], {})
