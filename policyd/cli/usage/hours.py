"""`policyd usage hours`: GPU-hours of a month, what they cost, and budgets."""

import csv
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from decimal import Decimal
from fractions import Fraction
from typing import Any, Final, Literal, NamedTuple, Unpack
from zoneinfo import ZoneInfo

import click
import msgspec
import yaml
from msgspec.structs import replace

from policyd.alloc.value import Value
from policyd.api.kueue import ClusterQueue, LocalQueue
from policyd.api.meta import rfc3339
from policyd.api.yaml_texts import plain_yaml
from policyd.cli.clusters import connection_for
from policyd.cli.formats.budgets import budget_lines, hours_number
from policyd.cli.formats.files import text_of
from policyd.cli.formats.json_values import as_json
from policyd.cli.formats.tables import table_lines
from policyd.cli.options import CONTEXT, KUBECONFIG, ContextOptions
from policyd.cli.planning.charts import ChartFile
from policyd.cli.questions.pages import show_values
from policyd.cli.usage.options import CHART
from policyd.clock import SystemClock
from policyd.errors import PolicydError
from policyd.kube.client import Reader
from policyd.kube.errors import ForbiddenError, NotFoundError
from policyd.kube.http_client import HttpClient
from policyd.kube.pages import pages
from policyd.kube.resources import CLUSTER_QUEUES, LOCAL_QUEUES
from policyd.kube.stored_bytes import read_bytes
from policyd.process import run
from policyd.snapshot.budgets import state_of
from policyd.standard_input import FILE
from policyd.usage.budgets import (
    BudgetError,
    BudgetUse,
    HoursBudget,
    budget_of,
    budget_uses,
    zone_of,
)
from policyd.usage.hours import (
    COHORT,
    CSV_HEAD,
    GROUPS,
    Group,
    HoursLine,
    MonthHours,
    QuotaHours,
    csv_rows,
    grouped,
    month_hours,
)
from policyd.usage.months import Month, month_of
from policyd.usage.packing import HoursDamagedError, unpack
from policyd.usage.prices import Prices, PricesError, prices_of
from policyd.usage.record import MOST_MONTHS, HoursRecord

PLACES: Final = (
    "policyd-system/policyd-controller-hours",
    "policyd/policyd-controller-hours",
    "kube-system/policyd-hours",
)
"""Where the chart, in the namespaces that guides name, and `policyd up` have the record."""
KEY: Final = "hours"

Output = Literal["table", "json", "yaml", "csv"]


class RecordNotFoundError(PolicydError):
    """A cluster has no record of hours, or it cannot be read."""


class HoursAnswer(Value, frozen=True, rename="camel"):
    """The hours of a month.

    Attributes:
        hours: Of the month, by the keys of the record.
        groups: Their sums, as asked for.
        budgets: How far those of now are used up.
        notes: What is not known.
    """

    hours: MonthHours
    groups: tuple[HoursLine, ...]
    budgets: tuple[BudgetUse, ...]
    notes: tuple[str, ...]


class _Read(NamedTuple):
    record: HoursRecord
    budgets: dict[str, HoursBudget]
    notes: tuple[str, ...]


class _Given(ContextOptions):
    month: str
    time_zone: str
    by: tuple[Group, ...]
    prices: str | None
    record: str
    output: Output
    chart: str


@click.command("hours")
@click.option("--month", default="", metavar="YYYY-MM", help="Which month.  [this one]")
@click.option(
    "--time-zone", default="UTC", show_default=True, help="Where the month begins and ends."
)
@click.option(
    "--by",
    multiple=True,
    type=click.Choice(GROUPS),
    default=("team", "flavor"),
    show_default=True,
    help="What sums are made of; may be repeated.",
)
@click.option("--prices", type=FILE, metavar="FILE", help="Prices of GPU-hours by flavor, as YAML.")
@click.option(
    "--record",
    default="",
    metavar="NAMESPACE/NAME",
    help="The ConfigMap with the record.  [the chart's, or that of `policyd up`]",
)
@click.option(
    "-o",
    "--output",
    type=click.Choice(["table", "json", "yaml", "csv"]),
    default="table",
    show_default=True,
    help="For people, for programs, or for accounts: a row for each team, queue, user and flavor.",
)
@CHART
@KUBECONFIG
@CONTEXT
def command(**given: Unpack[_Given]) -> None:
    r"""Show the GPU-hours of a month by team, queue, user and flavor, their cost, and budgets.

    \b
    HOURS     GPUs times hours for which workloads held quota; parts (MIG) count as fractions
    OWN       of a ClusterQueue: held of its nominal quota; BORROWED: beyond that
    LENT      of its nominal quota, held by others; IDLE: held by no workload

    The controller records them from the times of reservation and release, exact to a second, and
    keeps this month and the two before it. A team is a namespace; the label
    policyd.io/owner names the user.

    Exits with 0, or 2 if the record or the prices cannot be read.

    \b
    Examples:
      policyd usage hours
      policyd usage hours --month 2026-11 --time-zone Europe/Berlin --by user
      policyd usage hours --prices prices.yaml -o csv > 2026-11.csv
    """
    chart = ChartFile(given["chart"]) if given["chart"] else None
    zone, now = zone_of(given["time_zone"]), SystemClock().now()
    month = _month(given["month"], zone, now)
    prices = _prices(given["prices"])
    found: list[_Read] = []

    async def main(_stop: object) -> None:
        async with HttpClient(connection_for(given)) as client:
            found.append(await _read(client, given["record"]))

    run(main)
    answer = hours_answer(found[0], month, zone, now=now, prices=prices, by=given["by"])
    _show(answer, given)
    if chart is not None:
        _draw(chart, answer)


def hours_answer(  # noqa: PLR0913 - all that it depends on
    read: _Read,
    month: Month,
    zone: ZoneInfo,
    *,
    now: float,
    prices: Prices | None = None,
    by: Sequence[Group] = (),
) -> HoursAnswer:
    """Return the hours of a month.

    Args:
        read: What was read.
        month: The month.
        zone: Where it begins and ends.
        now: Seconds since the epoch.
        prices: Of GPU-hours.
        by: What sums are made of.
    """
    hours = month_hours(read.record, month, zone, prices=prices)
    return HoursAnswer(
        hours=hours,
        groups=tuple(grouped(hours.lines, by)),
        budgets=tuple(budget_uses(read.budgets, read.record, now=now)),
        notes=(*read.notes, *_notes(hours, prices)),
    )


def _notes(hours: MonthHours, prices: Prices | None) -> Iterator[str]:
    if hours.recorded_from > hours.begin:
        yield f"hours before {rfc3339(hours.recorded_from)}, when the record begins"
    if hours.recorded_to < hours.end:
        yield f"hours after {rfc3339(hours.recorded_to)}, when the record was stored last"
    missing = sorted({each.flavor for each in hours.lines if each.unpriced})
    if prices is not None and missing:
        total = sum((each.unpriced for each in hours.lines), Fraction(0))
        cost = f"the cost of {hours_number(total)} GPU-hours"
        yield f"{cost}: no price for flavor {', '.join(missing)}"


async def _read(reader: Reader, place: str) -> _Read:
    record = await _record(reader, (place,) if place else PLACES)
    budgets: dict[str, HoursBudget] = {}
    notes = []
    try:
        async for page in pages(reader, CLUSTER_QUEUES, into=ClusterQueue):
            _take(budgets, ((each.metadata.name, each) for each in page.items))
        async for own in pages(reader, LOCAL_QUEUES, into=LocalQueue):
            _take(budgets, ((each.metadata.key, each) for each in own.items))
    except (ForbiddenError, NotFoundError) as error:
        notes.append(f"budgets: {error}")
    return _Read(record, budgets, tuple(notes))


def _take(
    budgets: dict[str, HoursBudget], queues: Iterable[tuple[str, ClusterQueue | LocalQueue]]
) -> None:
    for name, queue in queues:
        try:
            budget = budget_of(queue.metadata.annotations)
        except BudgetError:
            continue
        if budget is not None:
            budgets[name] = budget


async def _record(reader: Reader, places: Sequence[str]) -> HoursRecord:
    for place in places:
        try:
            body = await read_bytes(reader, place, KEY)
            if body is not None:
                return unpack(body).record
        except (ValueError, HoursDamagedError) as error:
            raise RecordNotFoundError(f"ConfigMap {place} cannot be read: {error}") from error
        except ForbiddenError as error:
            namespace, _, name = place.partition("/")
            hint = f"an administrator has to grant `get` on ConfigMap {name} in {namespace}"
            raise ForbiddenError(str(error), hint=hint) from error
    raise RecordNotFoundError(
        f"no ConfigMap {' or '.join(places)} has a record of hours",
        hint="name it with --record; a controller stores its first when a workload gets quota",
    )


def _month(text: str, zone: ZoneInfo, now: float) -> Month:
    this = month_of(now, zone)
    if not text:
        return this
    year, _, month = text.partition("-")
    if not (year.isdecimal() and len(year) == 4 and month.isdecimal() and 1 <= int(month) <= 12):
        raise PolicydError(f"`{text}` is not a month", hint="write it as 2026-11")
    found = Month(int(year), int(month))
    if not this.number - MOST_MONTHS < found.number <= this.number:
        raise PolicydError(
            f"{found} is not recorded: {MOST_MONTHS} months are, up to {this}",
            hint="export each month with -o csv when it is over",
        )
    return found


def _prices(file: str | None) -> Prices | None:
    if file is None:
        return None
    name, text = text_of(file)
    try:
        return prices_of(plain_yaml(text))
    except PricesError as error:
        raise PricesError(f"{name}: {error}", hint=error.hint) from error
    except yaml.YAMLError as error:
        raise PricesError(f"{name} is not YAML") from error


# Output.


def _show(answer: HoursAnswer, given: _Given) -> None:
    if given["output"] == "csv":
        rows = csv.writer(sys.stdout, lineterminator="\n")
        rows.writerow(CSV_HEAD)
        rows.writerows(csv_rows(answer.hours))
        for each in answer.notes:
            click.secho(f"not known: {each}", fg="yellow", err=True)
    elif given["output"] == "table":
        click.echo("\n".join(hours_lines(answer, given["by"])))
    else:
        show_values(_as_json(answer), given["output"])


def _as_json(answer: HoursAnswer) -> Any:  # noqa: ANN401 - JSON
    return as_json(_floats(answer))


def _floats(value: Any) -> Any:  # noqa: ANN401 - of any kind
    """Return values with costs as numbers that JSON has."""
    match value:
        case Decimal():
            return float(value)
        case tuple():
            return tuple(map(_floats, value))
        case msgspec.Struct():
            names = value.__struct_fields__
            return replace(value, **{name: _floats(getattr(value, name)) for name in names})
        case _:
            return value


def hours_lines(answer: HoursAnswer, by: Sequence[Group]) -> Iterator[str]:
    """Yield the hours of a month as people read them."""
    hours = answer.hours
    priced = bool(hours.currency)
    if answer.groups:
        head = (*(name.upper() for name in by), "HOURS", *((hours.currency,) if priced else ()))
        rows = [
            (
                *(getattr(each, name) or "-" for name in by),
                hours_number(each.hours),
                *((_money(each.cost),) if priced else ()),
            )
            for each in answer.groups
        ]
        yield from table_lines(head, rows, numbers=("HOURS", hours.currency))
    else:
        yield "no GPU-hours"
    if hours.quotas:
        yield ""
        parts: Sequence[tuple[str, Callable[[QuotaHours], Fraction]]] = (
            ("OWN", lambda each: each.own),
            ("BORROWED", lambda each: each.borrowed),
            ("LENT", lambda each: each.lent),
            ("IDLE", lambda each: each.idle),
            ("NOT KNOWN", lambda each: each.unknown),
        )
        names = [name for name, _ in parts]
        rows = [
            (_queue_name(each.queue), each.flavor, *(hours_number(of(each)) for _, of in parts))
            for each in hours.quotas
        ]
        yield from table_lines(("QUEUE", "FLAVOR", *names), rows, numbers=names)
    if answer.budgets:
        yield ""
        yield from budget_lines(map(state_of, answer.budgets))
    yield ""
    yield (
        f"{hours.month} in {hours.time_zone}, from {rfc3339(hours.recorded_from)} to"
        f" {rfc3339(hours.recorded_to)}."
    )
    for each in answer.notes:
        yield f"not known: {each}"


def _money(cost: Decimal | None) -> str:
    return "-" if cost is None else f"{cost:.2f}"


def _queue_name(name: str) -> str:
    return f"Cohort {name.removeprefix(COHORT)}" if name.startswith(COHORT) else name


def _draw(chart: ChartFile, answer: HoursAnswer) -> None:
    shown = answer.groups[:40]
    figure = chart.blank(11, 2 + 0.3 * len(shown))
    axes: Any = figure.subplots()
    names = [
        " ".join(filter(None, (each.team, each.queue, each.user, each.flavor))) or "all"
        for each in shown
    ]
    axes.barh(names, [float(each.hours) for each in shown])
    axes.set(title=f"GPU-hours of {answer.hours.month}", xlabel="hours")
    axes.invert_yaxis()
    chart.write(figure)
