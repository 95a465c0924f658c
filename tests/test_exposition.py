"""The text of metrics is written in pieces, between which others have their turn."""

import asyncio
from itertools import count

import pytest
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics

from policyd import exposition
from policyd.exposition import PIECE, Exposition, SteppedRegistry
from policyd.testing.clock import FakeClock

pytestmark = pytest.mark.anyio

WHOLE = {"classic": generate_latest, "openmetrics": generate_openmetrics}


@pytest.fixture(params=list(WHOLE))
def written(request):
    return request.param


def registry_of(series, *, registry=None):
    registry = registry or CollectorRegistry()
    times = Histogram("took_seconds", "How long.", ["queue"], registry=registry)
    done = Counter("done_total", "How many; \\ and\nlines.", ["queue"], registry=registry)
    Gauge("nothing", "Has no series.", ["queue"], registry=registry)
    for number in range(series):
        times.labels(f'q"{number}').observe(number % 7)
        done.labels(f"q{number}").inc(number)
    return registry


async def turns_during(work):
    """Return the result of some work, and how often others had their turn meanwhile."""
    turns, done = 0, False

    async def others():
        nonlocal turns
        while not done:
            turns += 1
            await asyncio.sleep(0)

    waiting = asyncio.create_task(others())
    found = await work
    done = True
    await waiting
    return found, turns


@pytest.mark.parametrize("series", [0, 3, 700])
async def test_the_pieces_are_the_whole_text(series, written):
    registry = registry_of(series)

    assert await Exposition(registry, written).text() == WHOLE[written](registry)


async def test_no_piece_has_more_samples_than_its_bound_and_others_have_their_turn_between(
    monkeypatch, written
):
    sizes, whole = [], WHOLE[written]

    def generate(collected):
        sizes.append(sum(len(metric.samples) for metric in collected.collect()))
        return whole(collected)

    monkeypatch.setitem(exposition._GENERATE, written, generate)
    registry = registry_of(1_500)
    samples = sum(len(metric.samples) for metric in registry.collect())

    _, turns = await turns_during(Exposition(registry, written).text())

    assert samples > 5 * PIECE
    assert max(sizes) <= PIECE
    assert sum(sizes) == samples
    assert turns >= samples / PIECE


async def test_few_samples_are_one_piece(written):
    registry = registry_of(50)

    _, turns = await turns_during(Exposition(registry, written).text())

    assert turns <= 2


class Stepped:
    """Collects ten metrics, each after a step."""

    def __init__(self):
        self.collected = count()

    def steps(self):
        next(self.collected)
        for number in range(10):
            yield None
            yield GaugeMetricFamily(f"step_{number}", "One.", value=number)


async def test_collectors_that_take_long_do_it_in_steps(written):
    registry = registry_of(1, registry=SteppedRegistry())
    registry.add(Stepped())

    text, turns = await turns_during(Exposition(registry, written).text())

    assert turns >= 10
    assert text == WHOLE[written](registry)
    assert [text.count(f"step_{number} {number}.0".encode()) for number in range(10)] == [1] * 10


async def test_scrapers_that_ask_at_once_get_the_same_text():
    registry, stepped = SteppedRegistry(), Stepped()
    registry.add(stepped)
    shown = Exposition(registry, clock=FakeClock())

    texts = await asyncio.gather(*(shown.text() for _ in range(5)))

    assert len({*texts}) == 1
    assert next(stepped.collected) == 5  # nothing passed on this clock: it took no time


async def test_a_text_that_took_long_is_served_ten_times_as_long():
    clock, registry = FakeClock(), SteppedRegistry()

    class Slow(Stepped):
        def steps(self):
            for step in super().steps():
                clock._pass(0.1)
                yield step

    slow = Slow()
    registry.add(slow)
    shown = Exposition(registry, clock=clock)

    await shown.text()
    await clock.advance(19.0)
    await shown.text()
    await clock.advance(2.0)
    await shown.text()

    assert next(slow.collected) == 2


async def test_a_scrape_that_fails_does_not_stop_the_next():
    registry, broken = SteppedRegistry(), True

    class Breaking(Stepped):
        def steps(self):
            yield None
            if broken:
                raise RuntimeError
            yield from super().steps()

    registry.add(Breaking())
    shown = Exposition(registry)
    with pytest.raises(RuntimeError):
        await shown.text()
    broken = False

    assert b"step_9" in await shown.text()
