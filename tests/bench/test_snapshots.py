"""What a snapshot of many pending workloads costs the controller, and its reader."""

import gc
import gzip
import subprocess
import sys
import time

import pytest

from policyd.snapshot.facts import prepared
from policyd.snapshot.reading import read
from policyd.snapshot.taking import FullSnapshot, QueueOfNamespace, SnapshotTaker
from policyd.snapshot.values import StartRow
from policyd.snapshot.writing import write
from policyd.status.naming import Naming
from tests.alloc.builders import cohort, queue, workload
from tests.alloc.preemption.test_preemption import running
from tests.bench.report import report
from tests.snapshot.taking import Jobs
from tests.status.test_pending_reasons import settled

pytestmark = pytest.mark.bench

QUEUES, TEAMS = 10, 7
READER = """
import gzip, sys, time

def megabytes():
    return int(open("/proc/self/statm").read().split()[1]) * 4096 / 1e6

from policyd.snapshot.reading import find, read
before = megabytes()
with open(sys.argv[1], "rb") as file:
    body = gzip.decompress(file.read())
began = time.process_time()
found = read(body, "bench")
took = time.process_time() - began
print(megabytes() - before, took * 1e3)
"""


def crowded(pending):
    """Ten full queues of a cohort, and workloads of five sizes and three priorities for them."""
    runs = [running(f"team-{n % TEAMS}/r-{n}", f"q{n % QUEUES}", gpu=8) for n in range(200)]
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
    queues = (queue(f"q{n}", "c", gpu=64) for n in range(QUEUES))
    return settled(cohort("c"), *queues, *runs, *waits)


def forecast(of):
    """Forecasts for all of them; of 100,000, about one in twenty has another than those before."""
    jobs, rows = Jobs(), {}
    keys = (ticket.workload.key for each in of.queues.values() for ticket in each.pending)
    for number, key in enumerate(keys):
        at = 1_764_300_000 + 100 * (number // 20)
        row = StartRow(at, at - 3_600, at + 7_200, "coarse")
        jobs.starts[key] = rows.setdefault(row, row)
    return jobs


def timed(work):
    """Do work; return its result, the milliseconds of CPU of all steps, and of the longest."""
    steps = []
    while True:
        began = time.process_time()
        try:
            next(work)
        except StopIteration as end:
            return end.value, sum(steps) * 1e3, max(steps) * 1e3
        finally:
            steps.append(time.process_time() - began)


@pytest.mark.parametrize("pending", [10_000, 100_000])
def test_a_snapshot(pending, tmp_path):
    of = crowded(pending)
    taker = SnapshotTaker(of, forecast(of))
    gc.collect()
    gc.freeze()  # as the controller does
    owned = [QueueOfNamespace(f"team-{n}", f"q{n}") for n in range(TEAMS)]

    full, taking, longest = timed(taker.take(FullSnapshot(0.0, of.revision), owned))
    body, writing, longest_write = timed(write(full, Naming(namespace="team-1")))
    packed = gzip.compress(body, 1)
    file = tmp_path / "snapshot.json.gz"
    file.write_bytes(packed)
    gc.unfreeze()

    _, adding, longest_sum = timed(prepared(read(body, "bench")))

    name = f"snapshot of {pending:,} pending"
    report(f"{name}, taken", taking, "ms", pending / 100)
    report(f"{name}, written", writing, "ms", pending / 500)
    report(f"{name}, longest step", max(longest, longest_write), "ms", 50)
    report(f"{name}, facts for policies", adding, "ms", pending / 1_000)
    report(f"{name}, longest step of facts", longest_sum, "ms", 10)
    report(f"{name}, compressed", len(packed) / 1e6, "MB", 3)
    done = subprocess.run(
        [sys.executable, "-c", READER, file], capture_output=True, text=True, check=True
    )
    memory, reading = map(float, done.stdout.split())
    report(f"{name}, reader's memory", memory, "MB", 50)
    report(f"{name}, read", reading, "ms", 200)
