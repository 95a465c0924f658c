"""What a request to Kueue's visibility API costs the controller, with many pending workloads.

The order of the queue is prepared before the first request, and kept: between two requests,
workloads come and go.
"""

import gc
import statistics
import time
from itertools import pairwise
from types import SimpleNamespace

import msgspec
import pytest

from policyd.api.kueue import LocalQueue, Workload
from policyd.controller.queues.pending_workloads import (
    PendingPage,
    summary,
    waiting_in_cluster_queue,
    waiting_in_local_queue,
)
from policyd.status.naming import Naming
from policyd.status.pending_order import prepare
from tests.alloc.builders import queue, workload
from tests.bench.report import report
from tests.status.test_pending_reasons import settled

pytestmark = pytest.mark.bench

PENDING, ROUNDS, CHANGES = 100_000, 21, 20
TEAMS = 7
PAGES = {"the first 1,000": (0, 1_000), "the last 1,000": (0.99, 1_000), "one": (0.5, 1)}
"""Where each begins, as a part of the queue, and its limit."""


class Known:
    """A mirror of Workloads: each has an owner, and was created at some time."""

    def __init__(self):
        owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "1"}
        metadata = {"creationTimestamp": "2026-01-01T00:00:00Z", "ownerReferences": [owner]}
        self._workload = msgspec.convert({"metadata": metadata}, Workload)

    def get(self, _key):
        return self._workload


def waiting(number):
    return workload(
        f"team-{number % TEAMS}/job-train-resnet-{number:06}-5f3a2",
        "q",
        gpu=8 * (1 + number % 5),
        at=1_764_150_000 + number * 37 % 86_400,
        priority=number % 3,
        local_queue=f"team-{number % TEAMS}/train",
    )


def crowded():
    """A queue as the controller has it, with as much of the mirrors as a request reads."""
    state = settled(queue("q", gpu=64), *map(waiting, range(PENDING)))
    local = {
        f"team-{n}/train": msgspec.convert({"spec": {"clusterQueue": "q"}}, LocalQueue)
        for n in range(TEAMS)
    }
    mirrors = SimpleNamespace(cluster_queues={"q": True}, local_queues=local, workloads=Known())
    return SimpleNamespace(state=state, mirrors=mirrors, other_teams="names")


@pytest.mark.parametrize("page", PAGES)
@pytest.mark.parametrize("of", ["ClusterQueue", "LocalQueue"])
def test_a_request(page, of, monkeypatch):
    cache, (part, limit) = crowded(), PAGES[page]
    size = PENDING if of == "ClusterQueue" else PENDING // TEAMS
    given = PendingPage(offset=int(part * size), limit=limit)
    naming = Naming()
    monkeypatch.setattr(
        "policyd.controller.queues.pending_workloads.naming_in", lambda _cache, _reader: naming
    )
    gc.collect()
    gc.freeze()

    def ask():
        began = time.process_time()
        found = (
            waiting_in_cluster_queue(cache, "q", given)
            if of == "ClusterQueue"
            else waiting_in_local_queue(cache, "team-1", "train", given)
        )
        msgspec.json.encode(summary("v1beta2", found))
        assert found
        return (time.process_time() - began) * 1e3

    began = time.process_time()
    steps = [time.process_time() for _ in prepare(cache.state.queues["q"].pending)]
    prepared = (time.process_time() - began) * 1e3
    first, later = ask(), []
    for number in range(PENDING, PENDING + ROUNDS * CHANGES, CHANGES):
        for each in range(number, number + CHANGES):
            cache.state.put_workload(waiting(each))
            cache.state.remove_workload(waiting(each - PENDING).key)
        later.append(ask())
    gc.unfreeze()

    name = f"visibility, {page} of a {of}"
    report(f"{name}, prepared", prepared, "ms")
    longest = max(end - start for start, end in pairwise((began, *steps))) * 1e3
    report(f"{name}, longest step of it", longest, "ms", 10)
    report(f"{name}, at first", first, "ms", 20)
    report(f"{name}, median", statistics.median(later), "ms", 20)
    report(f"{name}, longest", max(later), "ms")
