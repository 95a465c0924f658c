"""A scrape of all series that the bounds allow: how long it keeps the controller's event loop."""

import asyncio
import gc
import time

import pytest

from policyd.controller.metrics.counters import ControllerMetrics
from policyd.controller.metrics.metric_families import COUNTED
from policyd.exposition import Exposition
from policyd.process import GARBAGE, keep_for_good
from tests.bench.report import report

pytestmark = [pytest.mark.bench, pytest.mark.anyio]

TURN_MS = 100


def at_all_bounds():
    """All metrics that count, each with as many series as it may have."""
    metrics = ControllerMetrics()
    bounds = metrics.named.bounds
    for family in COUNTED:
        name = family.name.removeprefix("kueue_")
        if family.name.startswith("policyd_") or family.kind == "gauge":
            continue
        for number in range(bounds.series):
            queue, part = number % bounds.local_queues, number // bounds.local_queues
            labels = (
                f"{label}-{queue if at < 2 else part}" for at, label in enumerate(family.labels)
            )
            if family.kind == "counter":
                metrics.count(name, *labels)
            else:
                metrics.observe(name, 3.0, *labels)
    return metrics


async def turns_during(work):
    """Return the longest time of the processor that others waited for their turn, and all of it."""
    longest, done = 0.0, False

    async def others():
        nonlocal longest
        last = time.process_time()
        while not done:
            await asyncio.sleep(0)
            longest, last = max(longest, time.process_time() - last), time.process_time()

    waiting, began = asyncio.create_task(others()), time.process_time()
    text = await work
    took, done = time.process_time() - began, True
    await waiting
    return text, longest, took


@pytest.mark.parametrize("written", ["classic", "openmetrics"])
async def test_a_scrape_at_all_bounds(written):
    metrics, before = at_all_bounds(), gc.get_threshold()
    keep_for_good()
    gc.set_threshold(GARBAGE)  # as in all programs
    try:
        text, longest, took = await turns_during(Exposition(metrics.registry, written).text())
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()

    lines = len(text.splitlines())
    report(f"a scrape of {lines:,} lines, {written}", took * 1e3, "ms")
    report("... the longest turn of it", longest * 1e3, "ms", TURN_MS)
