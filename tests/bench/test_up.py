"""The first minute: how long `policyd up` takes to be ready, and what it then occupies."""

import time
from pathlib import Path

import pytest

from tests.bench.report import report
from tests.scenarios import clusters

pytestmark = pytest.mark.bench


def test_up_is_ready_soon_and_small(tmp_path):
    started = time.perf_counter()

    with clusters.embedded(tmp_path) as cluster:
        seconds = time.perf_counter() - started
        resident = resident_megabytes(cluster.controller.running.pid)

    report("policyd up: ready", seconds, "s", goal=3)
    report("policyd up: memory", resident, "MB", goal=150)


def resident_megabytes(pid):
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    kilobytes = next(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    return kilobytes / 1024
