"""`policyd quota`: show the quotas of queues and cohorts, and how they are used."""

from collections.abc import Iterator
from functools import partial
from typing import Unpack

import click

from policyd.cli.formats.budgets import budget_lines
from policyd.cli.formats.tables import table_lines
from policyd.cli.questions.question import (
    ALL_NAMESPACES,
    SHARED,
    QuestionOptions,
    of_snapshot,
    show,
)
from policyd.questions.known_names import NameFilter, of_resource, of_tree
from policyd.snapshot.answers import QuotaLine, quota_lines
from policyd.snapshot.values import QueueSnapshot
from policyd.status.quantities import format_amount

_NUMBERS = ("NOMINAL", "USED", "BORROWED", "LENT", "AVAILABLE", "PENDING")
_HEAD = ("NAME", "FLAVOR", "RESOURCE", *_NUMBERS)
_LIMITS = ("BORROWING LIMIT", "LENDING LIMIT")
_WIDE = (*_HEAD, *_LIMITS, "STATE")


class _Given(QuestionOptions):
    """The arguments of the command."""

    everywhere: bool
    queue: str
    resource: str


@click.command("quota")
@SHARED
@ALL_NAMESPACES
@click.option("--queue", default="", help="Only those of this ClusterQueue or Cohort.")
@click.option("--resource", default="", help="Only those of this resource.")
def command(**given: Unpack[_Given]) -> None:
    r"""Show quotas as a tree of Cohorts and ClusterQueues, by flavor and resource.

    \b
    NOMINAL    its own quota
    USED       used by workloads with quota; for a Cohort, the sum of its queues and Cohorts
    BORROWED   the part of USED beyond its own quota
    LENT       the part of its own quota that it cannot use now, because others use it
    AVAILABLE  quota that it could still use, borrowing included
    PENDING    requests of its pending workloads for the resource, of any flavor

    \b
    Budgets of GPU-hours, if queues have some, follow in a table of their own.

    Exits with 0, or 2 if a name does not exist or the cluster cannot be asked.

    \b
    Examples:
      policyd quota
      policyd quota --resource nvidia.com/gpu
      policyd quota -A -o json
    """
    question = of_snapshot(
        partial(_answer, given),
        partial(_lines, wide=given["output"] == "wide"),
        everywhere=given["everywhere"],
        filters=partial(_filters, given),
        empty="no quotas",
    )
    show(given, question)


def _filters(given: _Given, snapshot: QueueSnapshot) -> Iterator[NameFilter]:
    yield of_tree(given["queue"], snapshot)
    yield of_resource(given["resource"], snapshot)


def _answer(given: _Given, snapshot: QueueSnapshot) -> list[QuotaLine]:
    return list(quota_lines(snapshot, queue=given["queue"], resource=given["resource"]))


def _lines(lines: list[QuotaLine], *, wide: bool) -> list[str]:
    if not lines:
        return []
    rows, above = [], ""
    for line in lines:
        place = f"{line.kind} {line.name}"
        rows.append(tuple(_cells(line, "" if place == above else _name(line), wide=wide)))
        above = place
    found = table_lines(_WIDE if wide else _HEAD, rows, numbers=(*_NUMBERS, *_LIMITS))
    budgets = {each.queue: each for line in lines for each in line.budgets}
    return [*found, "", *budget_lines(budgets.values())] if budgets else found


def _name(line: QuotaLine) -> str:
    return f"{'  ' * line.depth}{line.name}{'' if line.active else ' (inactive)'}"


def _cells(line: QuotaLine, name: str, *, wide: bool) -> Iterator[str]:
    def text(amount: int | None, unlimited: str = "-") -> str:
        return unlimited if amount is None else format_amount(line.resource, amount)

    yield from (name, line.flavor, line.resource, text(line.nominal), text(line.used))
    yield from (text(line.borrowed), text(line.lent), text(line.available, "no limit"))
    yield text(line.pending)
    if wide:
        yield from (text(line.borrowing_limit), text(line.lending_limit))
        yield "active" if line.active else line.message
