"""Options of the commands that ask a Prometheus, and what they have in common."""

from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, TypedDict, TypeVar

import click

from policyd.cli.formats.times import MOMENT
from policyd.cli.options import together
from policyd.cli.questions.pages import Output
from policyd.cli.usage.gathering import DeviceUseRead, UseQuery, check_matchers, gather
from policyd.cli.usage.prometheus import PrometheusOptions, open_prometheus
from policyd.clock import SystemClock
from policyd.errors import ConfigurationError
from policyd.process import run
from policyd.standard_input import STORED_FILE

T = TypeVar("T")

LEAST_SECONDS = 60
MOST_DAYS = 92
CHART = click.option(
    "--chart", default="", metavar="FILE", help="Draw it into a file, .svg or .png, as well."
)
OUTPUT = click.option(
    "-o",
    "--output",
    type=click.Choice(["table", "wide", "json", "yaml"]),
    default="table",
    show_default=True,
    help="For people, with more columns, or for programs.",
)


class DeviceUseOptions(TypedDict):
    """The options of a command that asks a Prometheus."""

    prometheus: str
    token_file: str | None
    ca_file: str | None
    timeout: float
    match: tuple[str, ...]
    since: float
    until: float | None
    step: int | None
    busy_above: float
    output: Output
    chart: str


PROMETHEUS = together(
    click.option(
        "--prometheus",
        required=True,
        metavar="URL",
        help="The Prometheus that has the series of NVIDIA's DCGM exporter.",
    ),
    click.option(
        "--token-file",
        type=STORED_FILE,
        metavar="FILE",
        help="A file with a bearer token for it.",
    ),
    click.option(
        "--ca-file",
        type=STORED_FILE,
        metavar="FILE",
        help="The authorities that its certificate is checked by, as PEM.  [the machine's]",
    ),
    click.option(
        "--timeout",
        type=click.FloatRange(min=1, max=600),
        default=60.0,
        show_default=True,
        help="Seconds that one answer may take.",
    ),
    click.option(
        "--match",
        multiple=True,
        metavar="MATCHER",
        help="Only series with such a label, such as 'cluster=\"a\"'; may be repeated.",
    ),
    click.option(
        "--since",
        type=MOMENT,
        default="24h",
        show_default=True,
        help="Since when: a time, or how long ago, such as 90m or 7d.",
    ),
    click.option(
        "--until",
        type=MOMENT,
        help="Up to when, such as a time that Prometheus still has.  [now]",
    ),
    click.option(
        "--step",
        type=click.IntRange(min=15, max=86_400),
        help="Seconds that samples are put together for.  [60, or more for a long time]",
    ),
    click.option(
        "--busy-above",
        type=click.FloatRange(min=0, max=99),
        default=1.0,
        show_default=True,
        metavar="PERCENT",
        help="A GPU is idle while no sample of its use is above this.",
    ),
    OUTPUT,
    CHART,
)


def ask_prometheus(
    given: DeviceUseOptions,
    *,
    memory: bool = False,
    stranded: bool = False,
    also: Callable[[DeviceUseRead], Coroutine[Any, Any, T]],
) -> tuple[DeviceUseRead, T]:
    """Return the use of GPUs that the options ask for, and what is made of it.

    Args:
        given: The options.
        memory: Whether the use of memory is asked for, too.
        stranded: Whether the stranded devices that a controller counted are, too.
        also: Reads what else is needed, given the use.

    A Prometheus that cannot be asked ends the command with 2.
    """
    now = SystemClock().now()
    asked = UseQuery(
        seconds=_length(given, now if given["until"] is None else given["until"]),
        until=given["until"],
        step=given["step"],
        threshold=given["busy_above"] / 100,
        matchers=check_matchers(given["match"]),
        memory=memory,
        stranded=stranded,
    )
    options = PrometheusOptions(
        address=given["prometheus"],
        token_file=_path(given["token_file"]),
        ca_file=_path(given["ca_file"]),
        seconds=given["timeout"],
    )
    found: list[tuple[DeviceUseRead, T]] = []

    async def main(_stop: object) -> None:
        async with open_prometheus(options) as prometheus:
            gathered = await gather(prometheus, asked, now=now)
        found.append((gathered, await also(gathered)))

    run(main)
    return found[0]


def _length(given: DeviceUseOptions, end: float) -> float:
    seconds = end - given["since"]
    step = given["step"] or LEAST_SECONDS
    if not step <= seconds <= MOST_DAYS * 86_400:
        raise ConfigurationError(
            f"the time since --since is less than {step} s, or more than {MOST_DAYS} days",
            hint="write how long ago, such as 90m or 7d",
        )
    if seconds / step > 100_000:
        raise ConfigurationError(
            f"--since and --step make {seconds / step:.0f} steps", hint="leave --step out"
        )
    return seconds


def _path(text: str | None) -> Path | None:
    return None if text is None else Path(text)
