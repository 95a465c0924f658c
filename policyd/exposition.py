"""The text of metrics, written in pieces, so that a scrape does not hold up the process.

At the bounds of all labels a text has some 300,000 lines, which take more than a second. The event
loop has its turn after each piece of it.
"""

import asyncio
import copy
from collections.abc import Callable, Iterable, Iterator
from typing import Final, Literal, Protocol

from prometheus_client import CollectorRegistry, disable_created_metrics
from prometheus_client.exposition import generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.openmetrics import exposition as openmetrics
from prometheus_client.registry import Collector

from policyd.clock import Clock, SystemClock

TIMES_AS_LONG: Final = 10
"""How much longer a text of metrics is served again than it took to make: at most a tenth of the
time goes into it, however often it is scraped."""
PIECE: Final = 5_000
"""Samples that are written at once: 25 ms of work."""

Steps = Iterator[Metric | None]
"""Metrics, and None where others may have their turn."""

disable_created_metrics()  # type: ignore[no-untyped-call]
"""No series that says since when each counter counts: Kueue has none, and Prometheus no use."""


class SteppedCollector(Protocol):
    """Collects metrics in steps, of which each takes little time."""

    def steps(self) -> Steps:
        """Yield the metrics, and None where others may have their turn."""
        ...


class SteppedRegistry(CollectorRegistry):
    """A registry in which some collectors take more than one step."""

    def __init__(self) -> None:
        super().__init__()
        self._stepped: list[SteppedCollector] = []

    def add(self, collector: SteppedCollector) -> None:
        """Add a collector, whose metrics come after those of the others."""
        self._stepped.append(collector)

    def steps(self) -> Steps:
        """Yield all metrics, and None where others may have their turn."""
        yield from super().collect()
        for each in self._stepped:
            yield from each.steps()

    def collect(self) -> Iterator[Metric]:
        """Yield all metrics."""
        return (each for each in self.steps() if each is not None)


Format = Literal["classic", "openmetrics"]
_GENERATE: Final[dict[Format, Callable[[Collector], bytes]]] = {
    "classic": generate_latest,
    "openmetrics": openmetrics.generate_latest,
}
_END: Final[dict[Format, bytes]] = {"classic": b"", "openmetrics": b"# EOF\n"}


class Exposition:
    """The text of a registry's metrics in one format, as of now or a moment ago.

    Args of the constructor:
        registry: The metrics.
        written: The format.
        clock: Measures how long the work takes.
    """

    def __init__(
        self,
        registry: CollectorRegistry,
        written: Format = "classic",
        *,
        clock: Clock | None = None,
    ) -> None:
        self._registry = registry
        self._generate, self._end = _GENERATE[written], _END[written]
        self._clock = clock or SystemClock()
        self._turn = asyncio.Lock()
        self._text = b""
        self._until = 0.0

    async def text(self) -> bytes:
        """Return the text. Scrapers that ask while it is written get the same one."""
        async with self._turn:
            if not self._text or self._clock.monotonic() >= self._until:
                self._text, took = await self._written()
                self._until = self._clock.monotonic() + TIMES_AS_LONG * took
        return self._text

    async def _written(self) -> tuple[bytes, float]:
        """Write the text; return how many seconds of work it was, too."""
        texts: list[bytes] = []
        took, began = 0.0, self._clock.monotonic()
        for text in self._pieces():
            texts.append(text)
            took += self._clock.monotonic() - began
            await asyncio.sleep(0)
            began = self._clock.monotonic()
        took += self._clock.monotonic() - began
        return b"".join((*texts, self._end)), took

    def _pieces(self) -> Iterator[bytes]:
        """Yield the text in pieces that take little time each; some are empty."""
        texts: list[bytes] = []
        number = 0
        for metric in _steps(self._registry):
            if metric is None:
                yield b""
                continue
            for start in range(0, max(1, len(metric.samples)), PIECE):
                part = _part(metric, start)
                if number + len(part.samples) > PIECE:
                    yield b"".join(texts)
                    texts, number = [], 0
                number += len(part.samples)
                texts.append(self._text_of(part, headed=start == 0))
        yield b"".join(texts)

    def _text_of(self, part: Metric, *, headed: bool) -> bytes:
        text = self._generate(_Collected(part)).removesuffix(self._end)
        if headed:
            return text
        head = self._generate(_Collected(_part(part, len(part.samples))))
        return text.removeprefix(head.removesuffix(self._end))


class _Collected(Collector):
    def __init__(self, metric: Metric) -> None:
        self._metric = metric

    def collect(self) -> Iterable[Metric]:
        return (self._metric,)


def _part(metric: Metric, start: int) -> Metric:
    """Return a metric with some of its samples."""
    part = copy.copy(metric)
    part.samples = metric.samples[start : start + PIECE]
    return part


def _steps(registry: CollectorRegistry) -> Iterable[Metric | None]:
    return registry.steps() if isinstance(registry, SteppedRegistry) else registry.collect()
