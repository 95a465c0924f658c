"""The use of GPUs, asked of a Prometheus page by page."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from policyd.cli.usage.prometheus import Prometheus, TooLargeError
from policyd.errors import ConfigurationError, PolicydError
from policyd.usage.devices import (
    ENGINE,
    MEMORY_FREE,
    MEMORY_USED,
    UTIL,
    DeviceUse,
    MemoryPart,
    Part,
)
from policyd.usage.idle import StrandedOverTime, stranded_over_time
from policyd.usage.samples import QueryResult, Windows

MOST_WINDOWS: Final = 288
"""A day in steps of five minutes."""
LEAST_STEP: Final = 60
"""Seconds; exporters are asked every 15 or 30 s."""
SKEW_SECONDS: Final = 60.0
STRANDED: Final = "policyd_stranded_devices"
_OF_EXPORTERS: Final = re.compile(
    r"gpu|UUID|device|modelName|pci_bus_id|Hostname|instance|job|DCGM_.*|GPU_I_.*|err_.*"
    r"|(exported_)?(namespace|pod|container)"
)
"""Labels that tell the series of an exporter apart, or its pods; the controller's have others."""
_MATCHER: Final = re.compile(r'[a-zA-Z_][a-zA-Z0-9_]*(=~|!~|!=|=)"(?:[^"\\\n]|\\.)*"')


class NoSeriesError(PolicydError):
    """A Prometheus has no series of the exporter."""


class DeviceUseRead(NamedTuple):
    """The use of GPUs, and what is not known of it.

    Attributes:
        use: Of all devices.
        notes: What was left out, and why: a sentence each.
        stranded: Stranded devices, as a controller counted them.
    """

    use: DeviceUse
    notes: tuple[str, ...]
    stranded: StrandedOverTime = StrandedOverTime(())


class UseQuery(NamedTuple):
    """What is asked for.

    Attributes:
        seconds: For how long back.
        until: From when, in seconds since the epoch; None for now.
        step: The length of a window in seconds; None to choose one.
        threshold: A device is idle if it is not busy for more than this share of time.
        matchers: Matchers of labels of all series.
        memory: Whether to ask for memory.
        stranded: Whether to ask for the stranded devices that a controller counted.
    """

    seconds: float
    until: float | None
    step: int | None
    threshold: float
    matchers: tuple[str, ...]
    memory: bool
    stranded: bool = False


def check_matchers(matchers: Iterable[str]) -> tuple[str, ...]:
    """Return matchers of labels as they are put into queries.

    Raises:
        ConfigurationError: If one is none.
    """
    found = tuple(matchers)
    for each in found:
        if not _MATCHER.fullmatch(each):
            raise ConfigurationError(
                f"`{each}` is not a matcher of a label",
                hint='write it as cluster="a" or job=~"x.*"',
            )
    return found


def windows_until(end: float, seconds: float, step: int | None) -> Windows:
    """Return the windows of a time that ends at a moment.

    Args:
        end: Seconds since the epoch.
        seconds: How long it is.
        step: The length of a window; None to choose one, so that there are not too many.
    """
    chosen = step or max(LEAST_STEP, int(-(-seconds // MOST_WINDOWS)))
    count = max(1, int(-(-seconds // chosen)))
    return Windows(end - count * chosen, chosen, count)


async def gather(prometheus: Prometheus, asked: UseQuery, *, now: float) -> DeviceUseRead:
    """Ask for the use of all GPUs.

    Args:
        prometheus: The Prometheus.
        asked: What is asked for.
        now: The time here, in seconds since the epoch.

    Raises:
        NoSeriesError: If it has no series.
        PolicydError: If it does not answer.
    """
    there = await prometheus.time()
    notes = []
    if abs(there - now) > SKEW_SECONDS:
        notes.append(
            f"the clock of Prometheus is {abs(there - now):.0f} s"
            f" {'ahead of' if there > now else 'behind'} this machine's; its own is used"
        )
    end = there if asked.until is None else min(there, asked.until)
    windows = windows_until(float(int(end)), asked.seconds, asked.step)
    remapped = await _remapped(prometheus, windows, asked)
    use = DeviceUse(windows, threshold=asked.threshold, remapped=remapped)
    notes += await _pages(prometheus, use, asked)
    if not use.facts:
        raise NoSeriesError(
            f"Prometheus has no samples of {UTIL} or {ENGINE} in this time",
            hint="install NVIDIA's DCGM exporter and have Prometheus scrape it; check --match",
        )
    notes += (f"left out: {reason}" for reason in sorted(use.problems))
    notes += (
        f"left out: {device} ({use.facts[device].node}), for which two exporters name different"
        " pods"
        for device in sorted(use.contradicting)
    )
    stranded = StrandedOverTime(())
    if asked.stranded:
        stranded = await _stranded(prometheus, windows, asked)
        notes += stranded.notes
    return DeviceUseRead(use, tuple(dict.fromkeys(notes)), stranded)


async def _stranded(prometheus: Prometheus, windows: Windows, asked: UseQuery) -> StrandedOverTime:
    """Ask for the stranded devices that the controller counted, which Prometheus scrapes, too."""
    own = [each for each in asked.matchers if not _OF_EXPORTERS.fullmatch(_label(each))]
    selector, length = _selector(STRANDED, own), f"{windows.seconds * 1000 - 1}ms"
    sums, counts = [
        await prometheus.series(
            f"{part}_over_time({selector}[{length}])", windows, 0, windows.number - 1
        )
        for part in ("sum", "count")
    ]
    if not sums.series:
        missing = f"stranded devices over time: Prometheus has no samples of {STRANDED}"
        return StrandedOverTime((), (missing,))
    found = stranded_over_time(sums.series, counts.series, windows)
    warnings = (f"Prometheus warns: {each}" for each in sums.warnings)
    return found._replace(notes=(*found.notes, *warnings))


def _label(matcher: str) -> str:
    return re.split("[=!]", matcher, maxsplit=1)[0]


async def _remapped(prometheus: Prometheus, windows: Windows, asked: UseQuery) -> list[str]:
    """Return the jobs whose series have `exported_pod`: their `pod` is the exporter's."""
    length = windows.seconds * windows.number
    found = []
    for name in (UTIL, ENGINE):
        selector = _selector(name, (*asked.matchers, 'exported_pod!=""'))
        query = f"count by (job) (count_over_time({selector}[{length}s]))"
        found += [
            labels.get("job", "") for labels, _ in await prometheus.values(query, windows.end)
        ]
    return found


async def _pages(prometheus: Prometheus, use: DeviceUse, asked: UseQuery) -> list[str]:
    """Ask for all pages; a page whose answer is too large is asked for in parts."""
    windows, notes = use.windows, list[str]()
    first, most = 0, windows.number
    while first < windows.number:
        last = min(first + most, windows.number) - 1
        try:
            answers = await _answers(prometheus, windows, asked, (first, last))
        except TooLargeError:
            if last == first:
                raise
            most = max(1, (last - first + 1) // 2)
            continue
        for name, part, found in answers:
            notes += (f"Prometheus warns: {each}" for each in found.warnings)
            if part is None:
                use.add_memory(_MEMORY[name], found.series)
            else:
                use.add_use(name, part, found.series)
        use.close_page()
        first = last + 1
    return notes


_MEMORY: Final[Mapping[str, MemoryPart]] = {
    "most": "most",
    MEMORY_USED: "used",
    MEMORY_FREE: "free",
}
_PARTS: Final[Sequence[Part]] = ("sum", "count", "max")


async def _answers(
    prometheus: Prometheus, windows: Windows, asked: UseQuery, page: tuple[int, int]
) -> list[tuple[str, Part | None, QueryResult]]:
    answers: list[tuple[str, Part | None, QueryResult]] = []
    # Before version 3 of Prometheus, the sample at the very begin of a range was in it, too.
    length = f"{windows.seconds * 1000 - 1}ms"
    for name in (ENGINE, UTIL):
        selector = _selector(name, asked.matchers)
        for part in _PARTS:
            query = f"{part}_over_time({selector}[{length}])"
            answers.append((name, part, await prometheus.series(query, windows, *page)))
    if asked.memory:
        used = _selector(MEMORY_USED, asked.matchers)
        free = _selector(MEMORY_FREE, asked.matchers)
        most = f"max_over_time({used}[{length}])"
        for name, query in (("most", most), (MEMORY_USED, used), (MEMORY_FREE, free)):
            answers.append((name, None, await prometheus.series(query, windows, *page)))
    return answers


def _selector(name: str, matchers: Sequence[str]) -> str:
    return f"{name}{{{','.join(matchers)}}}" if matchers else name
