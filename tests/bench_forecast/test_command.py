"""The command on a small trace: what it prints, and that processes change no figure."""

import json
import subprocess
import sys
from datetime import UTC, datetime

import pytest

from tests.bench_forecast.test_no_peeking import trace


@pytest.fixture
def small(tmp_path):
    """A trace of 600 jobs as a file."""
    path = tmp_path / "trace.csv"
    rows = [
        f"{datetime.fromtimestamp(1e9 + job.at, UTC):%Y-%m-%d %H:%M:%S},{job.seconds:.0f},"
        f"{job.gpus},{job.owner}"
        for job in trace()
    ]
    path.write_text("\n".join(["timestamp,duration,num_gpus,cluster", *rows]))
    return path


def bench(path, *options):
    command = [sys.executable, "-m", "tests.bench_forecast", "--trace", path, "--samples", "2"]
    done = subprocess.run([*command, *options], capture_output=True, text=True, check=True)
    return done.stdout


def test_it_prints_goals_limits_and_distances(small):
    printed = bench(small, "--load", "1.1", "--workers", "1")

    (near,) = (line for line in printed.splitlines() if line.startswith("│ near"))
    goal, reached, missing, oracle, distance, best = (
        float(cell.strip(" %")) for cell in near.strip("│ ").split("│")[1:]
    )
    assert goal == 50
    assert missing == pytest.approx(max(0, goal - reached), abs=1)
    assert distance == pytest.approx(abs(oracle - reached), abs=1)
    assert 0 <= best <= 100


def test_two_processes_find_the_same(small, tmp_path):
    found = []
    for workers in ("1", "2"):
        file = tmp_path / f"{workers}.json"
        bench(small, "--load", "1.1", "--workers", workers, "--json", file)
        found.append(json.loads(file.read_text()))

    assert found[0] == found[1]
    assert found[0]["1.1"]["forecast"]["all"]["forecasts"] > 0
