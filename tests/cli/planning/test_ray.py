"""Sweeps on a Ray cluster on loopback: two raylets, small object stores, and a worker that is lost.

Needs the extra `ray`; without it, these tests are skipped and say so.
"""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.cli.planning.test_sweeps import SWEEP, simulate_sweep, trace_of

ray = pytest.importorskip(
    "ray", reason="the extra `ray` is not installed: pip install 'policyd[ray]'"
)

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.filterwarnings("ignore"),  # Ray's own, about what it will change
]

STORE_BYTES = 80 * 1024 * 1024
PATIENCE_SECONDS = 120.0


@pytest.fixture
def raylets(monkeypatch):
    """Two raylets with one CPU each; the address of their cluster, and the raylets."""
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    from ray.cluster_utils import Cluster  # noqa: PLC0415 - of the extra

    small = {"num_cpus": 1, "object_store_memory": STORE_BYTES}
    head = {**small, "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    try:
        cluster.add_node(**small)
        yield cluster
    finally:
        cluster.shutdown()


def workers_of(cluster) -> list[int]:
    """Return the processes that simulate now."""
    raylets = {
        str(each.process.pid)
        for node in cluster.list_all_nodes()
        for each in node.all_processes["raylet"]
    }
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            parent = (process / "stat").read_text().rpartition(")")[2].split()[1]
            title = (process / "cmdline").read_text()
        except OSError:
            continue
        if parent in raylets and title.startswith("ray::simulated"):
            found.append(int(process.name))
    return found


def test_a_sweep_on_ray_equals_one_process_bit_for_bit(tmp_path, raylets):
    trace = trace_of(tmp_path, jobs=300)
    (tmp_path / "sweep.yaml").write_text(SWEEP)

    here = simulate_sweep(trace, "--workers", 1)
    there = simulate_sweep(trace, "--ray", raylets.address)

    assert there.stdout == here.stdout
    assert len(json.loads(here.stdout)) == 16


def test_a_sweep_goes_on_after_a_worker_was_killed(tmp_path, raylets):
    trace = trace_of(tmp_path, jobs=1_500)
    (tmp_path / "sweep.yaml").write_text(SWEEP)
    here = simulate_sweep(trace, "--workers", 1)
    command = [sys.executable, "-m", "policyd", "simulate", "--trace", str(trace), "-o", "json"]
    command += ["--sweep", str(tmp_path / "sweep.yaml"), "--ray", raylets.address]

    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as running:
        killed = kill_one(raylets)
        output, _ = running.communicate(timeout=PATIENCE_SECONDS * 3)

    assert killed
    assert running.returncode == 0
    assert output == here.stdout


def kill_one(cluster) -> bool:
    """Kill a worker while it simulates; tell whether there was one."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        for pid in workers_of(cluster):
            os.kill(pid, signal.SIGKILL)
            return True
        time.sleep(0.05)
    return False
