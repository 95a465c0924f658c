"""What verdicts on new jobs cost: the controller for its snapshots, the webhooks for each review.

CPU time, so that the neighbours on the machine do not count; at a steady rate also the clock's.
"""

import asyncio
import gc
import gzip
import subprocess
import sys
import time

import pytest

from policyd.admission.handler import AdmissionHandler
from policyd.admission.jobs import JobAdmission
from policyd.alloc.queue import PreemptionPolicy
from policyd.api.selectors import LabelSelector
from policyd.clock import SystemClock
from policyd.controller.queues.snapshots import MOST_LISTED
from policyd.engine.model.deadline import never
from policyd.engine.model.decision import ALLOWED
from policyd.jobs.rules.defaults import default_on_create
from policyd.patch.draft import Draft
from policyd.snapshot.latest import LatestSnapshot
from policyd.snapshot.reading import read
from policyd.snapshot.rules import ClusterQueueRule, LocalQueueRule, QueueRules
from policyd.snapshot.taking import FullSnapshot, SnapshotTaker
from policyd.snapshot.values import NewWorkloadStart, StartRow
from policyd.snapshot.writing import write
from policyd.status.naming import Naming
from tests.alloc.builders import cohort, queue, workload
from tests.alloc.preemption.test_preemption import running
from tests.bench.report import report
from tests.bench.test_snapshots import timed
from tests.scenarios.objects import job
from tests.snapshot.taking import Jobs
from tests.status.test_pending_reasons import settled
from tests.webhooks.reviews import review
from webhooks.verdicts import JobVerdicts
from webhooks.workers import SWITCH_SECONDS

pytestmark = pytest.mark.bench

QUEUES, TEAMS, REVIEWS = 10, 7, 2_000
RATE, SECONDS = 500, 6
PREEMPTS = PreemptionPolicy(within_cluster_queue="LowerPriority", reclaim_within_cohort="Any")
NEW_STARTS = tuple(
    NewWorkloadStart(priority, 0, {"gpu": 2**n}, StartRow(9 + n, 5 + n, 99 + n, "exact"))
    for priority in range(3)
    for n in range(8)
)
READER = """
import gzip, sys, time

def megabytes():
    return int(open("/proc/self/statm").read().split()[1]) * 4096 / 1e6

from policyd.snapshot.dry_run import AdmissionDryRun
from policyd.snapshot.reading import read
before = megabytes()
with open(sys.argv[1], "rb") as file:
    body = gzip.decompress(file.read())
began = time.process_time()
found = read(body, "bench")
read_in = time.process_time() - began
dry_run = AdmissionDryRun(found, found.rules)
print(megabytes() - before, read_in * 1e3, (time.process_time() - began) * 1e3)
"""


def crowded(pending, holding, preemption):
    """Ten full queues of a cohort, and workloads of five sizes and three priorities for them."""
    each = holding // QUEUES
    runs = [running(f"team-{n % TEAMS}/r-{n}", f"q{n % QUEUES}", gpu=1) for n in range(holding)]
    waits = (
        workload(
            f"team-{n % TEAMS}/job-train-resnet-{n:06}-5f3a2",
            f"q{n % QUEUES}",
            gpu=8 * (1 + n % 5),
            at=1_764_150_000 + n * 37 % 86_400,
            priority=n % 3,
            local_queue=f"team-{n % TEAMS}/train",
        )
        for n in range(pending)
    )
    queues = (queue(f"q{n}", "c", gpu=each, preemption=preemption) for n in range(QUEUES))
    return settled(cohort("c"), *queues, *runs, *waits)


def rules_of(state):
    local = [LocalQueueRule(f"team-{n}", "train", f"q{n}") for n in range(TEAMS)]
    return QueueRules(
        settings=state.settings,
        flavors=tuple(state.flavors.values()),
        cohorts=(cohort("c"),),
        queues=tuple(
            ClusterQueueRule(spec=each.spec, namespaces=LabelSelector())
            for each in state.queues.values()
        ),
        local_queues=(*local, LocalQueueRule("team-a", "train", "q1")),
        priorities={"high": 9},
    )


def taken(state, taker=None):
    taker = taker or SnapshotTaker(state, Jobs(), most=MOST_LISTED)
    new_starts = dict.fromkeys(state.queues, NEW_STARTS)
    full = FullSnapshot(
        0.0,
        state.revision,
        version="1",
        rules=rules_of(state),
        new_starts=new_starts,
    )
    full, taking, longest = timed(taker.take(full, ()))
    body, writing, longest_write = timed(write(full, Naming()))
    return body, taking + writing, max(longest, longest_write)


@pytest.mark.parametrize("pending", [10_000, 100_000])
def test_a_snapshot_for_the_webhooks(pending, tmp_path):
    state = crowded(pending, 200, PREEMPTS)
    taker = SnapshotTaker(state, Jobs(), most=MOST_LISTED)
    gc.collect()
    gc.freeze()
    taken(state, taker)  # the order is kept from then on
    body, work, longest = taken(state, taker)
    gc.unfreeze()
    packed = gzip.compress(body, 1)
    file = tmp_path / "snapshot.json.gz"
    file.write_bytes(packed)
    done = subprocess.run(
        [sys.executable, "-c", READER, file], capture_output=True, text=True, check=True
    )
    memory, reading, building = map(float, done.stdout.split())

    name = f"webhooks' snapshot of {pending:,} pending"
    report(f"{name}, taken and written", work, "ms", 20 + pending / 5_000)
    report(f"{name}, longest step", longest, "ms", 50)
    report(f"{name}, compressed", len(packed) / 1e6, "MB", 1)
    report(f"{name}, reader's memory", memory, "MB", 50)
    report(f"{name}, read", reading, "ms", 20)
    report(f"{name}, read and built", building, "ms", 200)


def reviewed(gpus, queue_name="train", **labels):
    """The review of a new job, as the API server asks for its validation."""
    body = job("new", gpus=0)
    body["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": queue_name, **labels}
    (container,) = body["spec"]["template"]["spec"]["containers"]
    container["resources"] = {"limits": {"gpu": str(gpus)}}
    draft = Draft(body)
    default_on_create(draft, group="batch", kind="Job")
    return review(draft.object, resource="jobs")


def handler(verdicts):
    return AdmissionHandler(
        phase="validate",
        policies=lambda _request, _out_of_time: ALLOWED,
        jobs=JobAdmission(foresee=verdicts),
    )


def verdicts_on(state):
    body, _, _ = taken(state)
    latest = LatestSnapshot(SystemClock().monotonic)
    verdicts = JobVerdicts(latest, lambda _name: {"metadata": {}}, clock=SystemClock())
    snapshot = read(body, "bench")
    verdicts.take(snapshot)
    latest.put(snapshot)
    return verdicts, latest, body


WORLDS = {
    "1,000 running": (10_000, 1_000, PreemptionPolicy()),
    "1,000 running, of which any may be preempted": (0, 1_000, PREEMPTS),
    "10,000 running, 100,000 pending": (100_000, 10_000, PreemptionPolicy()),
}


@pytest.mark.parametrize("world", WORLDS)
def test_a_review(world):
    state = crowded(*WORLDS[world])
    verdicts, latest, _ = verdicts_on(state)
    of_all = {
        "missing queue": reviewed(4, "lost"),
        "waits": reviewed(4),
        "never fits": reviewed(1_000_000),
        "is important": reviewed(64, **{"kueue.x-k8s.io/priority-class": "high"}),
    }
    for what, body in of_all.items():
        costs = {}
        for on in (verdicts, None):
            answers, spent = handler(on), []
            for _ in range(REVIEWS):
                latest.confirm()  # it stays the latest, however busy the machine is
                began = time.process_time()
                answer = _now(answers, body)
                spent.append((time.process_time() - began) * 1e3)
            costs[on] = sorted(spent)
            if on is not None:
                assert b"warnings" in answer, answer
        on, off = costs[verdicts], costs[None]
        middle, late = REVIEWS // 2, REVIEWS * 99 // 100
        report(f"verdict, {world}, {what}, p50", on[middle] - off[middle], "ms")
        report(f"verdict, {world}, {what}, review p99", on[late], "ms", 5)


def _now(answers, body):
    """Answer a review that waits for nothing, without a loop."""
    work = answers.answer(body, never)
    try:
        work.send(None)
    except StopIteration as ended:
        return ended.value
    raise AssertionError("it waits")


async def _snapshots(verdicts, latest, body):
    while True:
        await asyncio.sleep(1)
        latest.put(await asyncio.to_thread(_prepared, verdicts, body))


async def _reviews(answers, of_job, beside):
    """Answer reviews when they are due; return their times, sorted, without the first second."""
    others = [asyncio.ensure_future(each) for each in beside]
    times, began = [], time.perf_counter()
    for number in range(RATE * SECONDS):
        due = began + number / RATE
        await asyncio.sleep(max(0.0, due - time.perf_counter()))
        await answers.answer(of_job, never)
        times.append(time.perf_counter() - due)
    for each in others:
        each.cancel()
    return sorted(times[RATE:])


@pytest.mark.parametrize("on", [False, True], ids=["off", "on"])
def test_reviews_at_a_steady_rate_while_snapshots_come(on):
    verdicts, latest, body = verdicts_on(crowded(10_000, 1_000, PREEMPTS))
    beside = [_snapshots(verdicts, latest, body)] if on else []
    gc.collect()
    gc.freeze()
    switch = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_SECONDS)
    try:
        times = asyncio.run(_reviews(handler(verdicts if on else None), reviewed(4), beside))
    finally:
        sys.setswitchinterval(switch)
        gc.unfreeze()
    name = f"verdicts {'on' if on else 'off'}, {RATE} reviews/s"
    report(f"{name}, p50", times[len(times) // 2] * 1e3, "ms")
    report(f"{name}, p99", times[len(times) * 99 // 100] * 1e3, "ms", 5 if on else None)


def _prepared(verdicts, body):
    snapshot = read(body, "bench")
    verdicts.take(snapshot)
    return snapshot
